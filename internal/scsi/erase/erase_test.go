package erase

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// disk is a device of bytes that ends each request as status says.
type disk struct {
	data   []byte
	huge   uint64 // sectors, of a disk that forgets what is written
	thin   bool
	status func() block.Status
	reqs   []block.Request
	tries  int // flushes that were short of resources
}

func (d *disk) Info() block.Info {
	return block.Info{Sectors: max(d.huge, uint64(len(d.data))>>block.SectorShift), BlockSize: 512, Thin: d.thin}
}
func (d *disk) Notify(func(block.Event)) {}
func (d *disk) Cancel(*block.Request)    {}

func (d *disk) Submit(reqs []*block.Request) {
	for _, r := range reqs {
		d.reqs = append(d.reqs, *r)
		if r.Status = d.status(); r.Status == block.OK {
			d.apply(r)
		}
		r.Done(r)
	}
}

func (d *disk) apply(r *block.Request) {
	if d.huge > 0 {
		return
	}
	if r.Op == block.OpUnmap {
		for _, u := range r.Ranges {
			clear(d.data[u.Start<<block.SectorShift:][:u.Bytes()])
		}
		return
	}
	to := d.data[r.Range.Start<<block.SectorShift:][:r.Range.Bytes()]
	clear(to)
	for r.Data != nil && len(to) > 0 {
		to = to[copy(to, r.Data[0]):]
	}
}

// run carries out an operation on a disk of random bytes, and returns how it ended: 0 it did not.
func run(d *disk, exec *block.Virtual, what Parameters, limit int64) (o *Operation, ended int) {
	o = New(d, exec, what, func(ok bool) {
		if ended++; !ok {
			ended = -ended
		}
	})
	o.Next()
	exec.RunUntil(exec.Now() + limit)
	return o, ended
}

// TestPasses: after random operations the whole medium has what the last pass writes, or zeros, in
// the time that the rate asks for; what runs short of resources goes on.
func TestPasses(t *testing.T) {
	base := testkit.Seed(t)
	for seed := base; seed < base+25; seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		d := &disk{data: make([]byte, (1+rng.IntN(5000))*512), thin: rng.IntN(2) == 0}
		testkit.Fill(rng, d.data)
		short := 0
		d.status = func() block.Status {
			if rng.IntN(8) == 0 {
				short++
				return block.Resources
			}
			return block.OK
		}
		what := Parameters{Passes: rng.IntN(4), Invert: rng.IntN(2) == 0}
		pattern := make([]byte, 512)
		if what.Passes > 0 {
			if rng.IntN(3) > 0 {
				testkit.Fill(rng, pattern)
			}
			what.Pattern = bytes.Clone(pattern)
		}
		exec := &block.Virtual{}
		o, ended := run(d, exec, what, 1<<40)
		done, total := o.Progress()
		if ended != 1 || done != total || total != what.Bytes(uint64(len(d.data)))>>block.SectorShift {
			t.Fatalf("seed %d: %+v on %d bytes ended %d, %d of %d sectors", seed, what, len(d.data), ended, done, total)
		}
		if !bytes.Equal(d.data, bytes.Repeat(pattern, len(d.data)/512)) {
			t.Fatalf("seed %d: %+v: the medium is not what the last pass writes", seed, what)
		}
	}
}

// TestErasedIsDurable: an erasure has ended when a loss of power brings nothing back: when the device
// has flushed what it did. One that cannot be flushed has failed.
func TestErasedIsDurable(t *testing.T) {
	for _, passes := range []int{0, 1, 3} {
		for _, flush := range []block.Status{block.OK, block.Hardware} {
			d := &disk{data: make([]byte, 3<<20), thin: passes == 0}
			d.status = func() block.Status {
				switch last := len(d.reqs) - 1; {
				case d.reqs[last].Op != block.OpFlush:
					return block.OK
				case d.tries == 0: // the first flush is short of resources
					d.tries++
					return block.Resources
				}
				return flush
			}
			_, ended := run(d, &block.Virtual{}, Parameters{Passes: passes, Pattern: bytes.Repeat([]byte{7}, 512)}, 1<<40)
			if want := map[bool]int{true: 1, false: -1}[flush == block.OK]; ended != want {
				t.Errorf("%d passes, flushes end %v: it ended %d", passes, flush, ended)
			}
			if n := len(d.reqs); d.reqs[n-1].Op != block.OpFlush || d.tries != 1 {
				t.Errorf("%d passes: its last request is %v", passes, d.reqs[n-1].Op)
			}
		}
	}
}

// TestRate: a pattern is written no faster than the rate, and every pass but the last is inverted
// in turn.
func TestRate(t *testing.T) {
	const size = 3*rate + 512
	d := &disk{huge: size >> block.SectorShift, status: func() block.Status { return block.OK }}
	exec := &block.Virtual{}
	_, ended := run(d, exec, Parameters{Passes: 1, Pattern: bytes.Repeat([]byte{7}, 512)}, 2*second)
	if n := len(d.reqs) * pieceSectors << block.SectorShift; ended != 0 || n < 2*rate || n > 2*rate+1<<20 {
		t.Errorf("%d bytes in two seconds, ended %d", n, ended)
	}
	d = &disk{data: make([]byte, 512), status: d.status}
	run(d, exec, Parameters{Passes: 3, Invert: true, Pattern: bytes.Repeat([]byte{7}, 512)}, second)
	if len(d.reqs) != 4 || d.reqs[0].Data[0][0] != 7 || d.reqs[1].Data[0][0] != 0xF8 || d.reqs[2].Data[0][0] != 7 {
		t.Errorf("three passes: %d requests", len(d.reqs))
	}
}

// TestEnds: a device that fails ends an operation once, and a stopped one says nothing.
func TestEnds(t *testing.T) {
	exec := &block.Virtual{}
	what := Parameters{Passes: 2, Pattern: make([]byte, 512)}
	d := &disk{data: make([]byte, 8<<20), status: func() block.Status { return block.MediumWrite }}
	if _, ended := run(d, exec, what, 1<<40); ended != -1 || len(d.reqs) != 1 {
		t.Errorf("a failed device: ended %d after %d requests", ended, len(d.reqs))
	}
	var o *Operation
	d = &disk{data: make([]byte, 8<<20)}
	d.status = func() block.Status { return block.OK }
	o = New(d, exec, what, func(bool) { t.Error("a stopped operation ended") })
	d.status = func() block.Status { o.Stop(); return block.MediumWrite }
	o.Next()
	o.Next()
	if exec.RunUntil(exec.Now() + 1<<40); len(d.reqs) != 1 {
		t.Errorf("%d requests of a stopped operation", len(d.reqs))
	}
	for _, c := range []struct {
		what Parameters
		ok   bool
	}{{Parameters{}, true}, {what, true}, {Parameters{Passes: 1}, false}} {
		if err := c.what.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.what, err)
		}
	}
}
