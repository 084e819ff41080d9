package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/iscsi"
)

// unit is a way to a logical unit. Each value carries out one command at a time.
type unit interface {
	do(cdb, out []byte, in int) (data []byte, err error)
	Close() error
}

// scsiError is a status other than GOOD.
type scsiError struct {
	status byte
	sense  []byte
}

func (e *scsiError) Error() string {
	return fmt.Sprintf("the LUN answered status %02x, sense % x", e.status, e.sense[:min(len(e.sense), 18)])
}

// openLUNs opens a target, iscsi://HOST:PORT/TARGET/LUN or a block device, for n commands
// at a time.
func openLUNs(target string, n int) (luns []unit, err error) {
	if iscsi.IsAddress(target) {
		for i := range n {
			l, err := openISCSI(target, i)
			if err != nil {
				return luns, err
			}
			luns = append(luns, l)
		}
		return luns, nil
	}
	f, err := os.OpenFile(target, os.O_RDWR|unix.O_EXCL, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, fmt.Errorf("--target %s is in use, such as by a file system; unmount it", target)
	case err != nil:
		return nil, fmt.Errorf("--target: %w", err)
	}
	if st, err := f.Stat(); err != nil || st.Mode()&os.ModeDevice == 0 {
		f.Close()
		return nil, fmt.Errorf("--target %s is not a device; give a SCSI disk such as /dev/sdX, or iscsi://HOST:PORT/TARGET/LUN", target)
	}
	// The disk is claimed once, for all of them.
	for range n {
		luns = append(luns, &sgLUN{f})
	}
	return luns, nil
}

// openISCSI opens session number n to a LUN.
func openISCSI(target string, n int) (unit, error) {
	a, err := iscsi.ParseAddress(target)
	if err != nil {
		return nil, fmt.Errorf("--target: %w", err)
	}
	conn, err := net.DialTimeout("tcp", a.Portal, 10*time.Second)
	if err != nil {
		return nil, fmt.Errorf("--target: %w", err)
	}
	// Sessions of one initiator differ in the qualifier of their ISID.
	c, err := iscsi.NewClient(conn, iscsi.ClientConfig{Initiator: "iqn.2026-01.io.arraysim:bench", Target: a.Target, CHAP: a.CHAP, ISID: [6]byte{0x80, 0, 0, 0, byte(n >> 8), byte(n)}})
	if err != nil {
		return nil, fmt.Errorf("--target %s: %w", iscsi.WithoutSecret(target), err)
	}
	return &iscsiLUN{c, a.LUN}, nil
}

type iscsiLUN struct {
	c  *iscsi.Client
	id uint64
}

func (l *iscsiLUN) Close() error { return l.c.Logout() }

func (l *iscsiLUN) do(cdb, out []byte, in int) ([]byte, error) {
	r, err := l.c.Command(l.id, cdb, out, in)
	if err != nil {
		return nil, err
	}
	if r.Status != 0 {
		return nil, &scsiError{r.Status, r.Sense}
	}
	return r.Data, nil
}

// sgLUN sends commands to a block device by SG_IO.
type sgLUN struct{ f *os.File }

func (l *sgLUN) Close() error { return l.f.Close() }

// sgIOHdr is struct sg_io_hdr of <scsi/sg.h>.
type sgIOHdr struct {
	interfaceID    int32
	direction      int32
	cmdLen         uint8
	maxSense       uint8
	iovecCount     uint16
	transferLen    uint32
	transfer       unsafe.Pointer
	cmd            unsafe.Pointer
	sense          unsafe.Pointer
	timeout        uint32 // milliseconds
	flags          uint32
	packID         int32
	_              [4]byte
	userPtr        unsafe.Pointer
	status         uint8
	maskedStatus   uint8
	msgStatus      uint8
	senseWritten   uint8
	hostStatus     uint16
	driverStatus   uint16
	resid          int32
	duration, info uint32
}

const (
	sgIO       = 0x2285
	sgNone     = -1
	sgToDev    = -2
	sgFromDev  = -3
	sgTimeout  = 60_000
	senseBytes = 64
)

func (l *sgLUN) do(cdb, out []byte, in int) ([]byte, error) {
	sense := make([]byte, senseBytes)
	data := out
	h := sgIOHdr{interfaceID: 'S', direction: sgNone, cmdLen: uint8(len(cdb)), maxSense: senseBytes, cmd: unsafe.Pointer(&cdb[0]), sense: unsafe.Pointer(&sense[0]), timeout: sgTimeout}
	switch {
	case len(out) > 0:
		h.direction = sgToDev
	case in > 0:
		h.direction, data = sgFromDev, make([]byte, in)
	}
	if len(data) > 0 {
		h.transferLen, h.transfer = uint32(len(data)), unsafe.Pointer(&data[0])
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, l.f.Fd(), sgIO, uintptr(unsafe.Pointer(&h))); errno != 0 {
		return nil, fmt.Errorf("SG_IO: %w", errno)
	}
	if h.status != 0 {
		return nil, &scsiError{h.status, sense[:h.senseWritten]}
	}
	if h.hostStatus != 0 || h.driverStatus != 0 {
		return nil, fmt.Errorf("SG_IO: host status %04x, driver status %04x", h.hostStatus, h.driverStatus)
	}
	return data[:len(data)-int(h.resid)], nil
}

// liveBench is a run against a real LUN: workers share what is to be done.
type liveBench struct {
	f         *zeroFlags
	size      uint64
	blockSize uint64
	luns      []unit
	start     time.Time

	mu     sync.Mutex // guards what follows
	next   uint64     // bytes handed out
	done   uint64
	wire   uint64
	falls  uint64
	noSame bool
	blocks map[uint64]chan struct{} // being zeroed; closed when that is done
	lat    *hdrhistogram.Histogram
	sum    time.Duration
	ios    uint64
	steps  []struct {
		ios, bytes uint64
		wait       int64
	}
	err error
}

const liveStep = 100 * time.Millisecond

func zeroLive(ctx context.Context, cmd *cobra.Command, f *zeroFlags, size uint64, bar bool) (*zeroResult, error) {
	b := &liveBench{f: f, size: size, blocks: map[uint64]chan struct{}{}, lat: hdrhistogram.New(1000, 3600e9, 3), noSame: f.vaai == "off"}
	defer func() {
		for _, l := range b.luns {
			l.Close()
		}
	}()
	var err error
	if b.luns, err = openLUNs(f.target, f.outstanding); err != nil {
		return nil, err
	}
	for _, l := range b.luns { // a new session has a unit attention to tell
		for range 4 {
			if _, err := l.do(make([]byte, 6), nil, 0); err == nil {
				break
			}
		}
	}
	capacity, err := b.readCapacity()
	if err != nil {
		return nil, err
	}
	if size > capacity {
		return nil, fmt.Errorf("the LUN has %d bytes, not %d; give a smaller --size", capacity, size)
	}
	if !f.yes {
		if err := confirm(cmd, fmt.Sprintf("This overwrites the first %d MiB of %s; what is there is lost.", size>>20, iscsi.WithoutSecret(f.target))); err != nil {
			return nil, err
		}
	}
	b.run(ctx, bar)
	return b.result()
}

func (b *liveBench) readCapacity() (uint64, error) {
	cdb := make([]byte, 16)
	cdb[0], cdb[1], cdb[13] = 0x9E, 0x10, 32
	data, err := b.luns[0].do(cdb, nil, 32)
	if err != nil || len(data) < 12 {
		return 0, fmt.Errorf("READ CAPACITY(16): %w", err)
	}
	b.blockSize = uint64(binary.BigEndian.Uint32(data[8:]))
	return (binary.BigEndian.Uint64(data) + 1) * b.blockSize, nil
}

func (b *liveBench) run(ctx context.Context, show bool) {
	var bars *mpb.Progress
	var bar *mpb.Bar
	if show {
		bars = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))
		bar = bars.AddBar(int64(b.size), mpb.PrependDecorators(decor.CountersKibiByte("% .1f / % .1f")),
			mpb.AppendDecorators(decor.AverageSpeed(decor.SizeB1024(0), " % .1f"), decor.AverageETA(decor.ET_STYLE_MMSS)))
	}
	b.start = time.Now()
	var wg sync.WaitGroup
	for _, l := range b.luns {
		wg.Go(func() {
			for ctx.Err() == nil && b.one(l) {
				if bar != nil {
					b.mu.Lock()
					done := b.done
					b.mu.Unlock()
					bar.SetCurrent(int64(done))
				}
			}
		})
	}
	wg.Wait()
	if bar != nil {
		bar.Abort(false)
		bars.Wait()
	}
}

const (
	vmfsBlock = 1 << 20
	guestIO   = 32 << 10
	moverIO   = 64 << 10
)

// one takes the next operation and carries it out; false means that there is none.
func (b *liveBench) one(l unit) bool {
	n := uint64(vmfsBlock)
	switch {
	case b.f.disk != "eager":
		n = guestIO
	case b.f.vaai == "off":
		n = moverIO
	}
	b.mu.Lock()
	off := b.next
	if off >= b.size || b.err != nil {
		b.mu.Unlock()
		return false
	}
	b.next += n
	b.mu.Unlock()
	began := time.Now()
	var err error
	switch {
	case b.f.disk == "eager":
		err = b.zero(l, off, n)
	default:
		if err = b.ready(l, off/vmfsBlock); err == nil {
			err = b.write(l, off, n)
		}
	}
	b.book(n, time.Since(began), err)
	return err == nil
}

// ready zeroes a block before the first write to it; the others wait.
func (b *liveBench) ready(l unit, block uint64) error {
	b.mu.Lock()
	ch, known := b.blocks[block]
	if !known {
		ch = make(chan struct{})
		b.blocks[block] = ch
	}
	b.mu.Unlock()
	if known {
		<-ch
		return nil
	}
	defer close(ch)
	return b.zero(l, block*vmfsBlock, vmfsBlock)
}

// zero zeroes a range by WRITE SAME(16), or by writes where that is off or refused.
func (b *liveBench) zero(l unit, off, n uint64) error {
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

func (b *liveBench) write(l unit, off, n uint64) error {
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

func (b *liveBench) book(n uint64, took time.Duration, err error) {
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
	_ = b.lat.RecordValue(int64(took)) // beyond an hour counts as not recorded
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

func (b *liveBench) result() (*zeroResult, error) {
	if b.err != nil {
		return nil, b.err
	}
	sec := time.Since(b.start).Seconds()
	r := &zeroResult{Disk: b.f.disk, VAAI: b.f.vaai, Bytes: b.done, Where: iscsi.WithoutSecret(b.f.target), Seconds: sec, GBps: float64(b.done) / sec / 1e9,
		WireMBps: float64(b.wire) / sec / (1 << 20), P99MS: float64(b.lat.ValueAtQuantile(99)) / 1e6, FallBacks: b.falls}
	if b.ios > 0 {
		r.MeanMS = b.sum.Seconds() * 1000 / float64(b.ios)
	}
	for i, x := range b.steps {
		r.add(float64(i+1)*liveStep.Seconds(), liveStep.Seconds(), x.ios, x.bytes, x.wait)
	}
	return r, nil
}
