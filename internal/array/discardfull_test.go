package array

import (
	"bytes"
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// limitRoom has a store's media take no more room than they have now: what is written where there is none fails.
func limitRoom(s *discardStore) {
	limit := s.room()
	for _, m := range s.media {
		under := m.Medium
		m.Medium = holding{under.(block.Surveyor), under, func(ios []*block.IO) {
			for _, io := range ios {
				grows := false
				if io.Write {
					under.(block.Surveyor).Survey(io.Off, func(start, end uint64, _ error) {
						grows = start > io.Off || end < io.Off+io.N
					})
				}
				if grows && s.room()+io.N > limit {
					io.Err = block.ErrFull
					io.Done(io)
					continue
				}
				under.Submit([]*block.IO{io})
			}
		}}
	}
}

// TestFullStoreRecovers: in a store without room what is deleted is discarded, and what is dirty finds its place there,
// in the same life and in the next one.
func TestFullStoreRecovers(t *testing.T) {
	for _, crash := range []bool{false, true} {
		r, s := discardRig(t, Options{})
		r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, 0)
		v, w := r.volume("v", "p", 24<<20, true), r.volume("w", "p", 24<<20, true)
		mustOK(t, r.do(v, written(0, 16384, 1)))
		mustOK(t, r.do(w, written(0, 1000, 2)))
		r.clock.Run()
		limitRoom(s)
		mustOK(t, r.do(w, written(16384, 2048, 3)))
		r.clock.RunUntil(r.clock.Now() + 10e9)
		if r.a.Dirty() == 0 {
			t.Fatal("it finds room: nothing is shown")
		}
		if crash {
			s.crash(r)
			limitRoom(s)
			r.clock.RunUntil(r.clock.Now() + 10e9)
			if r.a.Dirty() == 0 {
				t.Fatal("it finds room after the crash: nothing is shown")
			}
		}
		r.a.DeleteVolume(r.a.Volume("v"), func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		r.clock.RunUntil(r.clock.Now() + 120e9)
		if n := r.a.Dirty(); n != 0 {
			t.Errorf("crash %v: %d bytes are dirty though a volume was deleted", crash, n)
		}
		got := make([]byte, 2048*512)
		mustOK(t, r.do(r.a.Volume("w"), &block.Request{Op: block.OpRead, Range: rng(16384, 2048), Data: [][]byte{got}}))
		if !bytes.Equal(got, bytes.Repeat([]byte{3}, len(got))) {
			t.Errorf("crash %v: what was written is gone", crash)
		}
		r.check()
	}
}

// twoVolumes returns volumes v and w of 24 MiB on an mdisk that discards.
func twoVolumes(t *testing.T) (r *rig, s *discardStore, v, w *Volume) {
	t.Helper()
	r, s = discardRig(t, Options{CacheBytes: 4 << 20})
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, 0)
	return r, s, r.volume("v", "p", 24<<20, true), r.volume("w", "p", 24<<20, true)
}

// fullRig is twoVolumes of which v is written and has its place, in a store that has no more room.
func fullRig(t *testing.T) (r *rig, s *discardStore, v, w *Volume) {
	t.Helper()
	r, s, v, w = twoVolumes(t)
	for at := uint64(0); at < 24<<11; at += 1024 {
		mustOK(t, r.do(v, written(at, 1024, 1)))
	}
	r.clock.RunUntil(r.clock.Now() + 60e9)
	limitRoom(s)
	return r, s, v, w
}

// TestFullStoreTakesWhatHasItsPlace: in a store without room writes to new space end with an error before they have filled the
// write cache, and writes to space that has its place there go on, as many as there are.
func TestFullStoreTakesWhatHasItsPlace(t *testing.T) {
	const each, apart = 8, 256 // sectors of a write to new space, and from one to the next: each is destaged by itself
	r, _, v, w := fullRig(t)
	inPlace := func(value byte) {
		t.Helper()
		for at := uint64(0); at < 24<<11; at += 1024 {
			began := r.clock.Now()
			if status := r.do(v, written(at, 1024, value)); status != block.OK {
				t.Fatalf("a write to space that has its place ends with %v, with %d pages for which there is no room", status, v.Pool().Part.Refused())
			}
			if took := r.clock.Now() - began; took > 5e9 {
				t.Fatalf("it takes %d ms", took/1e6)
			}
		}
	}
	for at := uint64(0); at < 40*apart; at += apart {
		mustOK(t, r.do(w, written(at, each, 2)))
	}
	r.clock.RunUntil(r.clock.Now() + 5e9)
	if n := v.Pool().Part.Refused(); n == 0 {
		t.Fatal("all of it finds room: nothing is shown")
	}
	inPlace(3)
	refusedAt := uint64(0)
	for at := uint64(40 * apart); at < 24<<11 && refusedAt == 0; at += apart {
		began := r.clock.Now()
		switch status := r.do(w, written(at, 32*each, 4)); {
		case status == block.NoSpace && r.clock.Now()-began < 1e9:
			refusedAt = at
		case status != block.OK:
			t.Fatalf("a write to new space ends with %v behind %d ms", status, (r.clock.Now()-began)/1e6)
		}
		r.clock.RunUntil(r.clock.Now() + 1e9)
	}
	if refusedAt == 0 {
		t.Fatal("all of it is taken")
	}
	inPlace(5)
	r.clock.RunUntil(r.clock.Now() + 120e9)
	inPlace(6)
	got := make([]byte, each*512)
	mustOK(t, r.do(w, &block.Request{Op: block.OpRead, Range: rng(0, each), Data: [][]byte{got}}))
	if !bytes.Equal(got, bytes.Repeat([]byte{2}, len(got))) {
		t.Error("what was acknowledged and finds no room is gone")
	}
	r.a.DeleteVolume(v, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	r.clock.RunUntil(r.clock.Now() + 120e9)
	if n := r.a.Dirty(); n != 0 {
		t.Errorf("%d bytes are dirty though a volume was deleted", n)
	}
	mustOK(t, r.do(w, written(refusedAt, each, 7)))
	r.check()
}

// TestUnsupportedAtOnce: a medium that says at once that it gives nothing back is not asked for the next run, nor for the
// next extent.
func TestUnsupportedAtOnce(t *testing.T) {
	r, s := discardRig(t, Options{})
	p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 2 * layout.ExtentBytes}}}, 0)
	v := r.volume("v", "p", 2*layout.ExtentBytes, true)
	for at := uint64(0); at < 2*extentSectors; at += extentSectors {
		mustOK(t, r.do(v, written(at, extentSectors, 1)))
	}
	r.clock.Run()
	calls := 0
	s.fail, s.began = errors.ErrUnsupported, func(string, uint64, uint64) { calls++ }
	for at := uint64(0); at < 2*extentSectors; at += extentSectors {
		mustOK(t, r.do(v, unmap(0, rng(at, 256), rng(at+1024, 256))))
	}
	r.clock.Run() // it ends
	if calls != 1 || p.Alloc.Withheld() != 0 {
		t.Errorf("it was asked %d times; %d grains are withheld", calls, p.Alloc.Withheld())
	}
	r.check()
}

// TestStuckDiscard: one discard that never ends, of a medium that does all else, keeps its extent from others and nothing more:
// who needs that space hears of it in time, and what is free elsewhere is discarded.
func TestStuckDiscard(t *testing.T) {
	r, s := discardRig(t, Options{})
	p := r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 4 * layout.ExtentBytes}}}, 0)
	v := r.volume("v", "p", 4*layout.ExtentBytes, true)
	for at := uint64(0); at < 4*extentSectors; at += extentSectors {
		mustOK(t, r.do(v, written(at, extentSectors, 1)))
	}
	r.clock.Run()
	read := func() {
		mustOK(t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(3*extentSectors, 8), Data: [][]byte{make([]byte, 4096)}}))
		r.clock.RunUntil(r.clock.Now() + 500e6)
	}
	mustOK(t, r.do(v, unmap(0, rng(0, extentSectors))))
	s.keep = true
	for range 6 {
		read()
	}
	if s.keep = false; len(s.kept) != 1 {
		t.Fatalf("%d discards are under way", len(s.kept))
	}
	had := s.room()
	q := written(0, extentSectors, 2) // it needs a whole extent, and there is none
	ended := int64(0)
	began := r.clock.Now()
	q.Done = func(*block.Request) { ended = r.clock.Now() }
	v.Submit([]*block.Request{q})
	for range 60 {
		read()
	}
	if ended == 0 || q.Status != block.MediumWrite || ended-began > 25e9 {
		t.Errorf("the write ended %v after %d s", q.Status, (ended-began)/1e9)
	}
	if h := r.a.Health(); len(h) > 0 {
		t.Error(h)
	}
	mustOK(t, r.do(v, unmap(0, rng(extentSectors, extentSectors))))
	for range 30 {
		read()
	}
	if got := s.room(); got > had-layout.ExtentBytes {
		t.Errorf("beside it nothing is discarded: %d bytes take room, %d did", got, had)
	}
	release(&s.kept)
	r.clock.Run()
	if p.Alloc.Withheld() != 0 {
		t.Errorf("%d grains are withheld", p.Alloc.Withheld())
	}
	r.check()
}

// TestSweepGoesOn: an mdisk that fails to say what takes room is asked again, and one with many runs does not hold the
// executor for all of them at once.
func TestSweepGoesOn(t *testing.T) {
	r, s := discardRig(t, Options{})
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, 0)
	v := r.volume("v", "p", 48<<20, true)
	for at := uint64(0); at < 600; at++ {
		mustOK(t, r.do(v, written(at*128, 64, 1))) // half of each grain
		r.clock.RunUntil(r.clock.Now() + 100e6)
	}
	r.clock.Run()
	r.a.DeleteVolume(v, func(error) {})
	r.clock.RunUntil(r.clock.Now() + 500e6)
	asked, most := map[int64]int{}, 0
	calls := 0
	s.surveyed = func() error {
		asked[r.clock.Now()]++
		most = max(most, asked[r.clock.Now()])
		if calls++; calls <= 3 {
			return errors.New("it does not say")
		}
		return nil
	}
	s.crash(r)
	r.clock.Run()
	s.surveyed = nil
	if got := s.room(); got != 0 {
		t.Errorf("%d bytes take room", got)
	}
	if calls < 300 || most > 256 {
		t.Errorf("at one time %d questions of %d were asked", most, calls)
	}
	r.check()
}

// TestDiscardsAreCountedOverStarts: what an mdisk has discarded, and how often it has failed to, starts do not forget.
func TestDiscardsAreCountedOverStarts(t *testing.T) {
	r, s := discardRig(t, Options{})
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, 0)
	v := r.volume("v", "p", 24<<20, true)
	free := func() {
		mustOK(t, r.do(v, written(0, 4096, 1)))
		r.clock.Run()
		mustOK(t, r.do(v, unmap(0, rng(0, 4096))))
		r.clock.Run()
	}
	s.fail = errors.New("broken")
	free()
	s.fail = nil
	free()
	count := func() [3]uint64 {
		d := r.a.Pool("p").Mdisks[0]
		operations, n := d.Discarded()
		return [3]uint64{operations, n, d.FailedDiscards()}
	}
	had := count()
	if had[0] == 0 || had[1] != 2<<20 || had[2] == 0 {
		t.Errorf("%d discards of %d bytes, %d failed", had[0], had[1], had[2])
	}
	s.crash(r)
	if got := count(); got != had {
		t.Errorf("before the start %d were counted, behind it %d", had, got)
	}
}

// pageLimit has a store's media know which pages were written, as a file without blocks for the others does. Of others it takes no
// more than a limit.
type pageLimit struct {
	s     *discardStore
	has   map[pageOf]bool
	limit int
}

type pageOf struct {
	mdisk string
	at    uint64
}

func pagesOf(mdisk string, off, n uint64, fn func(pageOf)) {
	for at := off / layout.PageBytes; at < (off+n+layout.PageBytes-1)/layout.PageBytes; at++ {
		fn(pageOf{mdisk, at})
	}
}

// limitPages returns such a limit, without one. Each start needs one more install.
func limitPages(s *discardStore) *pageLimit {
	l := &pageLimit{s: s, has: map[pageOf]bool{}, limit: 1 << 60}
	s.began = func(name string, off, n uint64) {
		pagesOf(name, off, n, func(p pageOf) { delete(l.has, p) })
	}
	l.install()
	return l
}

// full has the store take no more than it has.
func (l *pageLimit) full() { l.limit = len(l.has) }

func (l *pageLimit) install() {
	for name, m := range l.s.media {
		under := m.Medium
		m.Medium = holding{under.(block.Surveyor), under, func(ios []*block.IO) {
			for _, io := range ios {
				if l.takes(name, io) {
					under.Submit([]*block.IO{io})
					continue
				}
				io.Err = block.ErrFull
				io.Done(io)
			}
		}}
	}
}

// takes books a write, and reports whether there is room for it.
func (l *pageLimit) takes(name string, io *block.IO) bool {
	if !io.Write {
		return true
	}
	grows := 0
	pagesOf(name, io.Off, io.N, func(p pageOf) {
		if !l.has[p] {
			grows++
		}
	})
	if grows > 0 && len(l.has)+grows > l.limit {
		return false
	}
	pagesOf(name, io.Off, io.N, func(p pageOf) { l.has[p] = true })
	return true
}

// TestFullStoreRefusesWhatGrows: in a store without room writes to sectors that were never written, of windows that have their
// grain, end with an error, too, before they have filled the write cache: they would need room as much as new windows.
func TestFullStoreRefusesWhatGrows(t *testing.T) {
	const each, apart = 8, 256 // sectors of a write, and from one to the next: each is destaged by itself
	r, s, v, w := twoVolumes(t)
	limit := limitPages(s)
	for at := uint64(0); at < 24<<11; at += 1024 {
		mustOK(t, r.do(v, written(at, 1024, 1)))
	}
	for at := uint64(0); at < 24<<11; at += apart {
		mustOK(t, r.do(w, written(at, each, 2)))
	}
	r.clock.RunUntil(r.clock.Now() + 60e9)
	limit.full()
	refused := 0
	for page := uint64(2); page < 16; page += 2 {
		for at := uint64(0); at < 24<<11; at += apart {
			began := r.clock.Now()
			status := r.do(w, written(at+page*each, each, 4))
			if took := r.clock.Now() - began; took > 5e9 {
				t.Fatalf("a write ends with %v behind %d ms, with %d pages for which there is no room", status, took/1e6, w.Pool().Part.Refused())
			}
			switch status {
			case block.NoSpace:
				refused++
			case block.OK:
			default:
				t.Fatalf("a write ends with %v", status)
			}
			r.clock.RunUntil(r.clock.Now() + 100e6)
		}
	}
	if refused == 0 {
		t.Error("all of it is taken")
	}
	for at := uint64(0); at < 24<<11; at += 1024 {
		if status := r.do(v, written(at, 1024, 3)); status != block.OK {
			t.Fatalf("a write to space that has its place ends with %v, with %d pages for which there is no room", status, v.Pool().Part.Refused())
		}
	}
	r.a.DeleteVolume(v, func(error) {})
	r.clock.RunUntil(r.clock.Now() + 120e9)
	if n := r.a.Dirty(); n != 0 {
		t.Errorf("%d bytes are dirty though a volume was deleted", n)
	}
	r.check()
}
