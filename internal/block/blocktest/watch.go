package blocktest

import "github.com/arraysim/arraysim/internal/block"

// Watched is a local region of which a test hears what is written, before it is: so it can make the process die
// within an update. Its array takes it for one that is not local, all of whose commits end at once.
type Watched struct {
	block.Region
	parts block.RegionMemory
	log   []byte
	// What was announced last, and whether the region listens to that.
	part    block.Part
	off, n  int
	listens bool
	// On hears of an update: b is where it is made, and what was there before. nil: nobody listens.
	On func(part block.Part, b []byte)
}

// Watch wraps a region that is one piece of memory, b.
func Watch(r block.Region, l block.RegionLayout, b []byte) *Watched {
	w := &Watched{Region: r}
	w.parts, w.log = l.Cut(b)
	if x, ok := r.(block.Listener); ok {
		w.listens = x.Listen()
	}
	return w
}

// Local is false: all is announced.
func (w *Watched) Local() bool { return false }

// Announce passes an announcement on.
func (w *Watched) Announce(part block.Part, off, n int) {
	if w.On != nil {
		w.On(part, w.parts.Part(part)[off:off+n:off+n])
	}
	w.part, w.off, w.n = part, off, n
	w.Retell()
}

// Retell announces once more what was announced last, if the region listens: a test changes it in its place.
func (w *Watched) Retell() {
	if w.listens {
		w.Region.Announce(w.part, w.off, w.n)
	}
}

// Append passes a record on.
func (w *Watched) Append(at int, record []byte) {
	if w.On != nil {
		w.On(block.PartLog, w.log[at:at+len(record):at+len(record)])
	}
	w.part, w.off, w.n = block.PartLog, at, len(record)
	w.Region.Append(at, record)
}
