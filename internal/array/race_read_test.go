package array

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// torn is an mdisk that keeps reads and writes until the test lets them go. A read that it kept while its sectors
// were written ends with a wrong checksum, and so do as many others as the test wants.
type torn struct {
	keepReads, keepWrites bool
	reads, writes         []func()
	tear, seen            int
}

func (s *torn) submit(m block.Medium, ios []*block.IO) {
	for _, io := range ios {
		switch {
		case io.Write && s.keepWrites:
			s.writes = append(s.writes, func() { m.Submit([]*block.IO{io}) })
		case !io.Write && s.keepReads:
			s.reads = append(s.reads, func() { s.read(io) })
		case !io.Write && s.tear > 0:
			s.tear--
			s.read(io)
		default:
			m.Submit([]*block.IO{io})
		}
		if !io.Write {
			s.seen++
		}
	}
}

func (s *torn) read(io *block.IO) {
	e := &block.ChecksumError{Medium: "m"}
	for n := range io.N / 512 {
		e.Sectors, e.Sums = append(e.Sectors, io.Off/512+n), append(e.Sums, 1)
	}
	for _, b := range io.Vec {
		copy(b, bytes.Repeat([]byte{0xEE}, len(b)))
	}
	io.Err = e
	io.Done(io)
}

func release(kept *[]func()) {
	for _, fn := range *kept {
		fn()
	}
	*kept = nil
}

// TestReadThatMeetsADestage: a read is on its way to an mdisk when its sectors are written and destaged, slowly or at once, and so
// finds data without its checksums. It gets what was written, and nothing counts as damaged; real damage still does.
func TestReadThatMeetsADestage(t *testing.T) {
	s := &torn{}
	r := hookedRig(t, Options{}, s.submit)
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, 0)
	v := r.volume("v", "p", 16<<20, true)
	const n = 20
	fill := func(b byte) *block.Request {
		return &block.Request{Op: block.OpWrite, Range: rng(3, n), Data: [][]byte{bytes.Repeat([]byte{b}, n*512)}}
	}
	read := func(done func(block.Status, []byte)) {
		first, second := make([]byte, 700), make([]byte, n*512-700) // sectors cross buffers
		v.Submit([]*block.Request{{Op: block.OpRead, Range: rng(3, n), Data: [][]byte{first, second}, Done: func(q *block.Request) {
			done(q.Status, append(append([]byte(nil), first...), second...))
		}}})
	}
	for b, slow := range []bool{true, false} {
		now := byte(b + 2)
		mustOK(t, r.do(v, fill(1)))
		r.clock.Run()
		ended := false
		s.keepReads = true
		read(func(st block.Status, got []byte) {
			ended = true
			if st != block.OK || !bytes.Equal(got, bytes.Repeat([]byte{now}, n*512)) {
				t.Errorf("slow %v: the read ended %v with %x", slow, st, got[:4])
			}
		})
		s.keepReads, s.keepWrites = false, slow
		mustOK(t, r.do(v, fill(now)))
		r.clock.RunUntil(r.clock.Now() + 5e9)
		if slow != (len(s.writes) > 0) {
			t.Fatalf("slow %v: %d writes are under way", slow, len(s.writes))
		}
		release(&s.reads)
		r.clock.RunUntil(r.clock.Now() + 1e9)
		s.keepWrites = false
		release(&s.writes)
		r.clock.Run()
		if !ended {
			t.Fatal("the read never ended")
		}
		r.check()
	}
	// A scrub that meets one.
	s.tear = 2
	r.a.StartScrub(0, func(x *Scrub) {
		if x.Bad > 0 {
			t.Errorf("the scrub found %d bad sectors", x.Bad)
		}
	})
	r.clock.Run()
	r.check()
	// Damage stays damage, and is not looked at for ever.
	s.tear, s.seen = 1<<30, 0
	read(func(st block.Status, _ []byte) {
		if st != block.MediumRead {
			t.Errorf("damaged data ended %v", st)
		}
	})
	r.clock.Run()
	if rep := r.a.Check(false); rep.BadSectors != n {
		t.Errorf("%d of %d damaged sectors are known", rep.BadSectors, n)
	}
	if s.seen > 4*n {
		t.Errorf("%d reads for %d damaged sectors", s.seen, n)
	}
}
