package sim

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
)

// FlashSpec is a flash device of a host: its channels share one queue, and one channel serves an I/O for
// Read or Write plus the time of its bytes at Bandwidth.
type FlashSpec struct {
	// Kind is pcie or sata; other keys replace its figures.
	Kind      string   `yaml:"kind" jsonschema:"enum=pcie,enum=sata"`
	Channels  int      `yaml:"channels"`
	Read      Duration `yaml:"read"`
	Write     Duration `yaml:"write"`
	Bandwidth Size     `yaml:"bandwidth"` // of a channel, bytes a second
	// Interleave puts each stripe of this many bytes on a channel by its address, as flash does: an I/O
	// waits for that channel, even if others are free. With 0, an I/O gets the first free channel.
	Interleave Size `yaml:"interleave"`
}

// flashKinds are the two devices that the paper on vSphere Flash Read Cache compares by their
// random reads of 4 KiB a second at the depth of their queues: 750,000 at 256 and 39,500 at 32.
// What one read takes alone is from data sheets of such devices; the number of channels is
// the product of the two, and writes and bandwidth are of the same sheets, rounded.
var flashKinds = map[string]FlashSpec{
	// 32 channels / (37 us + 4 KiB at 750 MB/s) = 754,000 a second. SLC: writes take what reads do.
	"pcie": {Channels: 32, Read: 37_000, Write: 37_000, Bandwidth: 750_000_000},
	// 3 channels / (45 us + 4 KiB at 135 MB/s) = 39,800 a second. MLC of 2010: 220 MB/s of writes, one after the other.
	"sata": {Channels: 3, Read: 45_000, Write: 90_000, Bandwidth: 135_000_000},
}

func (f *FlashSpec) fill() error {
	if f.Kind == "" {
		f.Kind = "pcie"
	}
	k, ok := flashKinds[f.Kind]
	if !ok {
		return fmt.Errorf("flash of kind %q is unknown; it is pcie or sata", f.Kind)
	}
	if f.Channels == 0 {
		f.Channels = k.Channels
	}
	if f.Read == 0 {
		f.Read = k.Read
	}
	if f.Write == 0 {
		f.Write = k.Write
	}
	if f.Bandwidth == 0 {
		f.Bandwidth = k.Bandwidth
	}
	if f.Channels < 1 || f.Channels > 1024 || f.Read < 0 || f.Write < 0 {
		return fmt.Errorf("flash of %d channels, %s a read and %s a write is not possible; give 1 to 1024 channels and times that are not negative", f.Channels, f.Read, f.Write)
	}
	return nil
}

// flash is a flash device in virtual time. It keeps no payload: hosts of scenarios write
// zeros, and a cache that starts empty reads only what it wrote.
type flash struct {
	r    *Run
	s    FlashSpec
	size uint64
	busy []int64 // when each channel is free
	free *flashIO
}

var _ block.Medium = (*flash)(nil)

// flashIO is a transfer on its way.
type flashIO struct {
	f    *flash
	io   *block.IO
	fn   func()
	next *flashIO
}

func newFlash(r *Run, s FlashSpec, size uint64) *flash {
	return &flash{r: r, s: s, size: size, busy: make([]int64, s.Channels)}
}

func (f *flash) Size() uint64 { return f.size }

// Sync completes at once: what the device has acknowledged, it keeps.
func (f *flash) Sync(done func(error)) { f.r.exec.Post(func() { done(nil) }) }

func (f *flash) Submit(ios []*block.IO) {
	for _, io := range ios {
		if !f.r.started { // preparation takes no time
			io.Done(io)
			continue
		}
		x := f.free
		if x == nil {
			x = &flashIO{f: f}
			x.fn = x.run
		} else {
			f.free = x.next
		}
		x.io = io
		f.r.exec.Call(f.serve(io), x.fn)
	}
}

// serve returns when the channel that is free first has done with the transfer.
func (f *flash) serve(io *block.IO) int64 {
	first := 0
	if n := uint64(f.s.Interleave); n != 0 {
		h := Rand{io.Off / n}
		first = int(h.Uint64() % uint64(len(f.busy)))
	} else {
		for i, at := range f.busy {
			if at < f.busy[first] {
				first = i
			}
		}
	}
	cost := int64(f.s.Read)
	if io.Write {
		cost = int64(f.s.Write)
	}
	if f.s.Bandwidth != 0 {
		cost += int64(io.N * 1e9 / uint64(f.s.Bandwidth))
	}
	f.busy[first] = max(f.busy[first], f.r.exec.Now()) + cost
	return f.busy[first]
}

func (x *flashIO) run() {
	io := x.io
	x.io, x.next = nil, x.f.free
	x.f.free = x
	io.Done(io)
}

// linkedFlash is a peer's flash at the other end of a link.
type linkedFlash struct {
	spec    *PeerSpec
	inner   *flash
	out, in int64 // when each direction of the link is free
}

var _ block.Medium = (*linkedFlash)(nil)

func (l *linkedFlash) Size() uint64          { return l.inner.Size() }
func (l *linkedFlash) Sync(done func(error)) { l.inner.Sync(done) }

func (l *linkedFlash) Submit(ios []*block.IO) {
	for _, io := range ios {
		if !l.inner.r.started {
			io.Done(io)
			continue
		}
		t := &linkedIO{l: l, io: io}
		t.inner = block.IO{Write: io.Write, Off: io.Off, Vec: io.Vec, N: io.N, Done: t.served}
		there := uint64(0)
		if io.Write {
			there = io.N
		}
		l.inner.r.exec.Call(l.carry(&l.out, there), t.arrive)
	}
}

// carry returns when so many bytes are at the other end.
func (l *linkedFlash) carry(busy *int64, bytes uint64) int64 {
	now := l.inner.r.exec.Now()
	if b := uint64(l.spec.Bandwidth); b != 0 && bytes > 0 {
		*busy = max(*busy, now) + int64(bytes*1e9/b)
		now = *busy
	}
	return now + int64(l.spec.Latency)
}

// linkedIO is a transfer over the link.
type linkedIO struct {
	l     *linkedFlash
	io    *block.IO
	inner block.IO
}

func (t *linkedIO) arrive() { t.l.inner.Submit([]*block.IO{&t.inner}) }

func (t *linkedIO) served(*block.IO) {
	back := uint64(0)
	if !t.io.Write {
		back = t.io.N
	}
	t.l.inner.r.exec.Call(t.l.carry(&t.l.in, back), func() {
		t.io.Err = t.inner.Err
		t.io.Done(t.io)
	})
}
