package zerobench

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// disk is a LUN in memory that counts what is written to its blocks of 512 bytes.
type disk struct {
	mu        sync.Mutex
	blocks    []int
	same      int   // WRITE SAME commands
	refuse    bool  // of which all are illegal requests
	failAt    int   // the write of this number fails; 0: none does
	failWith  error // with this
	writes    int
	closed    bool
	blockSize uint32       // 0 is 512
	capacity  []byte       // the answer to READ CAPACITY(16), if it is another one
	onSame    func() error // is called at each WRITE SAME, if there is one
}

func (d *disk) Close() error { d.closed = true; return nil }

func (d *disk) do(cdb, out []byte, _ int) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(cdb) < 16 { // TEST UNIT READY
		return nil, nil
	}
	at, n := binary.BigEndian.Uint64(cdb[2:10]), uint64(binary.BigEndian.Uint32(cdb[10:14]))
	switch cdb[0] {
	case 0x9E:
		if d.capacity != nil {
			return d.capacity, nil
		}
		data := make([]byte, 32)
		binary.BigEndian.PutUint64(data, uint64(len(d.blocks)-1))
		binary.BigEndian.PutUint32(data[8:], 512)
		return data, nil
	case 0x93:
		if d.refuse {
			return nil, &scsiError{2, []byte{0x70, 0, 5}}
		}
		if d.onSame != nil {
			if err := d.onSame(); err != nil {
				return nil, err
			}
		}
		d.same++
	case 0x8A:
		if d.writes++; d.writes == d.failAt {
			return nil, d.failWith
		}
		if n*uint64(cmp.Or(d.blockSize, 512)) != uint64(len(out)) {
			return nil, errors.New("a write of another length than its data")
		}
	}
	for i := at; i < at+n; i++ {
		d.blocks[i]++
	}
	return nil, nil
}

func runOn(t *testing.T, d *disk, cfg Config) (*Result, error) {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	b := newLive(cfg, []unit{d, d, d})
	defer b.Close()
	if err := b.prepare(); err != nil {
		t.Fatal(err)
	}
	return b.Run(context.Background(), func(uint64) {})
}

// TestLive: each block is written as often as its disk says, whatever the LUN refuses.
func TestLive(t *testing.T) {
	const mib = 4
	for _, row := range []struct {
		name         string
		cfg          Config
		refuse       bool
		times, same  int
		wire         uint64
		someFallback bool
	}{
		{"eager", Config{Disk: "eager", VAAI: true}, false, 1, mib, mib * 512, false},
		{"eager by writes", Config{Disk: "eager"}, false, 1, 0, mib << 20, false},
		{"eager, refused", Config{Disk: "eager", VAAI: true}, true, 1, 0, mib << 20, true},
		{"thin", Config{Disk: "thin", VAAI: true}, false, 2, mib, mib<<20 + mib*512, false},
	} {
		d := &disk{blocks: make([]int, mib<<11), refuse: row.refuse}
		row.cfg.Size, row.cfg.Outstanding = mib<<20, 3
		r, err := runOn(t, d, row.cfg)
		if err != nil {
			t.Fatal(row.name, err)
		}
		for i, n := range d.blocks {
			if n != row.times {
				t.Fatalf("%s: block %d is written %d times", row.name, i, n)
			}
		}
		if d.same != row.same || (r.FallBacks > 0) != row.someFallback || r.Bytes != mib<<20 || !d.closed {
			t.Errorf("%s: %d WRITE SAMEs, %+v", row.name, d.same, r)
		}
		if wire := r.WireMBps * r.Seconds * 1e6; wire < float64(row.wire)-1 || wire > float64(row.wire)+1 {
			t.Errorf("%s: %.0f bytes on the wire, not %d", row.name, wire, row.wire)
		}
	}
}

func TestLiveFails(t *testing.T) {
	d := &disk{blocks: make([]int, 2<<11), failAt: 5, failWith: errors.New("gone")}
	if _, err := runOn(t, d, Config{Disk: "eager", Size: 2 << 20, Outstanding: 3}); !errors.Is(err, d.failWith) {
		t.Errorf("a write failed: %v", err)
	}
	small := newLive(Config{Disk: "eager", Size: 4 << 20, Outstanding: 1}, []unit{d})
	if err := small.prepare(); err == nil {
		t.Error("a LUN that is too small is taken")
	}
	for _, bad := range []Config{{Disk: "raw", Size: 1 << 20, Outstanding: 1}, {Disk: "eager", Size: 1000, Outstanding: 1}, {Disk: "eager", Size: 1 << 20}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// TestAnswersThatAreTooShort: what a LUN says of its size may be nonsense.
func TestAnswersThatAreTooShort(t *testing.T) {
	for says, answer := range map[string][]byte{
		"READ CAPACITY(16): the LUN answered 8 bytes, which is too short": make([]byte, 8),
		"READ CAPACITY(16): the LUN has blocks of 0 bytes":                make([]byte, 32),
	} {
		b := newLive(Config{Disk: "eager", Size: 1 << 20, Outstanding: 1}, []unit{&disk{capacity: answer}})
		if err := b.prepare(); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("got %v, want %s", err, says)
		}
	}
}

// TestLargeBlocks: a guest that writes less than a block writes nothing at all; an eager disk is zeroed in whole blocks.
func TestLargeBlocks(t *testing.T) {
	for _, row := range []struct {
		disk  string
		block uint32
		ok    bool
	}{{"thin", 64 << 10, false}, {"lazy", 64 << 10, false}, {"eager", 64 << 10, true}, {"thin", 32 << 10, true}, {"thin", 4096, true}} {
		d := &disk{blocks: make([]int, 1<<11), capacity: make([]byte, 32), blockSize: row.block}
		binary.BigEndian.PutUint64(d.capacity, uint64(1<<20/row.block-1))
		binary.BigEndian.PutUint32(d.capacity[8:], row.block)
		b := newLive(Config{Disk: row.disk, Size: 1 << 20, Outstanding: 1}, []unit{d})
		err := b.prepare()
		if err == nil {
			_, err = b.Run(t.Context(), nil)
		}
		if (err == nil) != row.ok || err != nil && !strings.Contains(err.Error(), "blocks of 65536 bytes, but the guest") {
			t.Errorf("%s, blocks of %d: %v", row.disk, row.block, err)
		}
	}
}

// TestCancelled: a run that is interrupted has no result, and one that is over when that comes has.
func TestCancelled(t *testing.T) {
	for _, row := range []struct {
		end  uint64 // bytes behind which ctx ends
		want error
	}{{1 << 20, context.Canceled}, {4 << 20, nil}} {
		ctx, cancel := context.WithCancel(t.Context())
		b := newLive(Config{Disk: "eager", Size: 4 << 20, Outstanding: 1}, []unit{&disk{blocks: make([]int, 4<<11)}})
		if err := b.prepare(); err != nil {
			t.Fatal(err)
		}
		r, err := b.Run(ctx, func(done uint64) {
			if done >= row.end {
				cancel()
			}
		})
		if !errors.Is(err, row.want) || (r == nil) != (row.want != nil) {
			t.Errorf("cancelled after %d bytes: %+v, %v", row.end, r, err)
		}
		cancel()
	}
}

// TestWaitersOfAFailedZeroing write nothing to the block: it holds what was there before.
func TestWaitersOfAFailedZeroing(t *testing.T) {
	gone := errors.New("gone")
	synctest.Test(t, func(t *testing.T) {
		d := &disk{blocks: make([]int, 1<<11)}
		d.onSame = func() error {
			d.mu.Unlock()
			defer d.mu.Lock()
			time.Sleep(time.Second) // the others wait for the block meanwhile
			return gone
		}
		b := newLive(Config{Disk: "thin", VAAI: true, Size: 1 << 20, Outstanding: 3}, []unit{d, d, d})
		if err := b.prepare(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Run(t.Context(), nil); !errors.Is(err, gone) {
			t.Errorf("the run ends with %v", err)
		}
		if d.writes > 0 {
			t.Errorf("%d writes went to a block that is not zeroed", d.writes)
		}
	})
}
