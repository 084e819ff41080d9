package zerobench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/size"
	"github.com/arraysim/arraysim/internal/stats"
)

// Live is a run against a real LUN: workers share what is to be done. It runs once.
type Live struct {
	cfg       Config
	blockSize uint64
	luns      []unit
	start     time.Time

	mu     sync.Mutex // guards what follows
	next   uint64     // bytes handed out
	done   uint64
	wire   uint64
	falls  uint64
	noSame bool
	blocks map[uint64]*zeroing
	lat    *hdrhistogram.Histogram
	sum    time.Duration
	ios    uint64
	steps  []struct {
		ios, bytes uint64
		wait       int64
	}
	err error
}

// zeroing is a block of a lazy or thin disk that is zeroed, or has been.
type zeroing struct {
	over chan struct{} // closed when it is over
	err  error         // why the block is not zeroed; read it when that is so
}

const liveStep = 100 * time.Millisecond

// Open opens the target of a configuration, and looks whether it is big enough. It writes nothing. Close
// ends what it has opened.
func Open(cfg Config) (*Live, error) {
	luns, err := openLUNs(cfg.Target, cfg.Outstanding)
	b := newLive(cfg, luns)
	if err == nil {
		err = b.prepare()
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func newLive(cfg Config, luns []unit) *Live {
	return &Live{cfg: cfg, luns: luns, blocks: map[uint64]*zeroing{}, lat: hdrhistogram.New(1000, math.MaxInt64, 3), noSame: !cfg.VAAI}
}

// Close closes the target.
func (b *Live) Close() {
	for _, l := range b.luns {
		l.Close()
	}
}

func (b *Live) prepare() error {
	for _, l := range b.luns { // a new session has a unit attention to tell
		for range 4 {
			if _, err := l.do(make([]byte, 6), nil, 0); err == nil {
				break
			}
		}
	}
	capacity, err := b.readCapacity()
	if err != nil {
		return err
	}
	if b.cfg.Size > capacity {
		return fmt.Errorf("the LUN has %d bytes, not %d; give a smaller --size", capacity, b.cfg.Size)
	}
	return nil
}

func (b *Live) readCapacity() (uint64, error) {
	cdb := make([]byte, 16)
	cdb[0], cdb[1], cdb[13] = 0x9E, 0x10, 32
	data, err := b.luns[0].do(cdb, nil, 32)
	if err != nil {
		return 0, fmt.Errorf("READ CAPACITY(16): %w", err)
	}
	if len(data) < 12 {
		return 0, fmt.Errorf("READ CAPACITY(16): the LUN answered %d bytes, which is too short", len(data))
	}
	b.blockSize = uint64(binary.BigEndian.Uint32(data[8:]))
	if b.blockSize < 512 || moverIO%b.blockSize != 0 {
		return 0, fmt.Errorf("READ CAPACITY(16): the LUN has blocks of %d bytes; a power of two from 512 to %d is needed", b.blockSize, moverIO)
	}
	if b.cfg.Disk != "eager" && b.blockSize > guestIO {
		return 0, fmt.Errorf("READ CAPACITY(16): the LUN has blocks of %d bytes, but the guest of a %s disk writes %d; measure an eager one", b.blockSize, b.cfg.Disk, guestIO)
	}
	return (binary.BigEndian.Uint64(data) + 1) * b.blockSize, nil
}

// Run overwrites the LUN until that is done, ctx ends or a command fails; the error says which of the two. It calls progress, if there is one,
// behind each command with the bytes that are done; calls are concurrent.
func (b *Live) Run(ctx context.Context, progress func(done uint64)) (*Result, error) {
	b.start = time.Now()
	var wg sync.WaitGroup
	for _, l := range b.luns {
		wg.Go(func() {
			for ctx.Err() == nil && b.one(l) {
				if progress != nil {
					b.mu.Lock()
					done := b.done
					b.mu.Unlock()
					progress(done)
				}
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil && b.err == nil && b.done < b.cfg.Size {
		return nil, fmt.Errorf("ended after %s of %s: %w", size.Text(b.done), size.Text(b.cfg.Size), err)
	}
	return b.result()
}

const (
	blockBytes = 1 << 20 // of VMFS
	guestIO    = 32 << 10
	moverIO    = 64 << 10
)

// one takes the next operation and carries it out; false means that there is none.
func (b *Live) one(l unit) bool {
	n := uint64(blockBytes)
	switch {
	case b.cfg.Disk != "eager":
		n = guestIO
	case !b.cfg.VAAI:
		n = moverIO
	}
	b.mu.Lock()
	off := b.next
	if off >= b.cfg.Size || b.err != nil {
		b.mu.Unlock()
		return false
	}
	b.next += n
	b.mu.Unlock()
	began := time.Now()
	var err error
	switch {
	case b.cfg.Disk == "eager":
		err = b.zero(l, off, n)
	default:
		if err = b.ready(l, off/blockBytes); err == nil {
			err = b.write(l, off, n)
		}
	}
	b.account(n, time.Since(began), err)
	return err == nil
}

// ready zeroes a block before the first write to it; the others wait, and fail with it.
func (b *Live) ready(l unit, block uint64) error {
	b.mu.Lock()
	z, known := b.blocks[block]
	if !known {
		z = &zeroing{over: make(chan struct{})}
		b.blocks[block] = z
	}
	b.mu.Unlock()
	if known {
		<-z.over
		return z.err
	}
	defer close(z.over)
	z.err = b.zero(l, block*blockBytes, blockBytes)
	return z.err
}

// zero zeroes a range by WRITE SAME(16), or by writes where that is off or refused.
func (b *Live) zero(l unit, off, n uint64) error {
	b.mu.Lock()
	same := !b.noSame
	b.mu.Unlock()
	if same {
		cdb := make([]byte, 16)
		cdb[0] = 0x93
		binary.BigEndian.PutUint64(cdb[2:], off/b.blockSize)
		binary.BigEndian.PutUint32(cdb[10:], uint32(n/b.blockSize))
		_, err := l.do(cdb, make([]byte, b.blockSize), 0)
		if err == nil {
			b.mu.Lock()
			b.wire += b.blockSize
			b.mu.Unlock()
			return nil
		}
		if _, ok := err.(*scsiError); !ok {
			return err
		}
		b.mu.Lock()
		b.falls++
		b.noSame = true
		b.mu.Unlock()
	}
	for end := off + n; off < end; off += moverIO {
		if err := b.write(l, off, min(moverIO, end-off)); err != nil {
			return err
		}
	}
	return nil
}

var liveZeros = make([]byte, moverIO)

func (b *Live) write(l unit, off, n uint64) error {
	cdb := make([]byte, 16)
	cdb[0] = 0x8A
	binary.BigEndian.PutUint64(cdb[2:], off/b.blockSize)
	binary.BigEndian.PutUint32(cdb[10:], uint32(n/b.blockSize))
	_, err := l.do(cdb, liveZeros[:n], 0)
	b.mu.Lock()
	b.wire += n
	b.mu.Unlock()
	return err
}

func (b *Live) account(n uint64, took time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if b.err == nil {
			b.err = err
		}
		return
	}
	b.done += n
	b.ios++
	b.sum += took
	_ = b.lat.RecordValue(int64(took)) // no time is too long for it
	at := int(time.Since(b.start) / liveStep)
	for len(b.steps) <= at {
		b.steps = append(b.steps, struct {
			ios, bytes uint64
			wait       int64
		}{})
	}
	x := &b.steps[at]
	x.ios, x.bytes, x.wait = x.ios+1, x.bytes+n, x.wait+int64(took)
}

func (b *Live) result() (*Result, error) {
	if b.err != nil {
		return nil, b.err
	}
	sec := time.Since(b.start).Seconds()
	r := &Result{Disk: b.cfg.Disk, VAAI: b.cfg.vaai(), Bytes: b.done, Where: iscsi.WithoutSecret(b.cfg.Target), Seconds: sec, GBps: float64(b.done) / sec / 1e9,
		WireMBps: float64(b.wire) / sec / 1e6, P99MS: float64(stats.Percentile(b.lat, 99)) / 1e6, FallBacks: b.falls}
	if b.ios > 0 {
		r.MeanMS = b.sum.Seconds() * 1000 / float64(b.ios)
	}
	for i, x := range b.steps {
		r.add(float64(i+1)*liveStep.Seconds(), liveStep.Seconds(), x.ios, x.bytes, x.wait)
	}
	return r, nil
}
