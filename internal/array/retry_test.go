package array

import (
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// counting has a medium of a store count the writes that it is given, and end those with an error that fails says.
func counting(s *discardStore, name string, fails func(io *block.IO) error) (writes *int) {
	m := s.media[name]
	under, n := m.Medium, 0
	m.Medium = holding{under.(block.Surveyor), under, func(ios []*block.IO) {
		for _, io := range ios {
			if io.Write {
				n++
				if err := fails(io); err != nil {
					io.Err = err
					io.Done(io)
					continue
				}
			}
			under.Submit([]*block.IO{io})
		}
	}}
	return &n
}

func never(*block.IO) error { return nil }

// TestRefusedPagesOfADeletedVolume: what there was no room for, and nobody needs any more, is not tried again.
func TestRefusedPagesOfADeletedVolume(t *testing.T) {
	for _, crash := range []bool{false, true} {
		r, s, v, w := fullRig(t)
		for at := uint64(0); at < 20*256; at += 256 {
			mustOK(t, r.do(w, written(at, 8, 2)))
		}
		r.clock.RunUntil(r.clock.Now() + 40e9)
		p := w.Pool()
		if p.Part.Refused() == 0 {
			t.Fatal("all of it finds room: nothing is shown")
		}
		r.a.DeleteVolume(w, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		r.clock.RunUntil(r.clock.Now() + 60e9)
		if n := r.a.Dirty(); n != 0 || p.Part.Refused() != 0 {
			t.Errorf("%d bytes are dirty, and %d pages wait for room, of a volume that was deleted", n, p.Part.Refused())
		}
		if h := r.a.Health(); len(h) > 0 {
			t.Errorf("health is %q", h)
		}
		writes := counting(s, "p.m", never)
		r.clock.RunUntil(r.clock.Now() + 120e9)
		if *writes > 0 {
			t.Errorf("%d writes come later", *writes)
		}
		if crash {
			s.crash(r)
			limitRoom(s)
			r.clock.RunUntil(r.clock.Now() + 60e9)
			if n := r.a.Dirty(); n != 0 {
				t.Errorf("a start finds %d bytes of it", n)
			}
		} else {
			mustOK(t, r.do(v, written(0, 1024, 3)))
		}
		r.check()
	}
}

// TestNothingIsTriedAtAnOfflineMdisk: what an mdisk has failed to take, or may have lost, is tried again when it is back, at once,
// and not before.
func TestNothingIsTriedAtAnOfflineMdisk(t *testing.T) {
	for name, lost := range map[string]bool{"writes": false, "redo": true} {
		t.Run(name, func(t *testing.T) {
			r, s, v, _ := twoVolumes(t)
			mustOK(t, r.do(v, written(0, 1024, 1)))
			r.clock.RunUntil(r.clock.Now() + 60e9)
			bad := false
			writes := counting(s, "p.m", func(*block.IO) error {
				if bad {
					return errors.New("input/output error")
				}
				return nil
			})
			p := v.Pool()
			d := p.Mdisks[0]
			began := func() bool {
				if lost {
					return d.Redoing()
				}
				since, _ := d.Failing()
				return since != 0
			}
			if bad = !lost; lost {
				s.lost = errors.New("the sync is lost")
			}
			for n := 0; !began(); n++ {
				if n == 1000 {
					t.Fatal("nothing has failed: nothing is shown")
				}
				mustOK(t, r.do(v, written(0, 1024, 2)))
				r.clock.RunUntil(r.clock.Now() + 1e8)
			}
			if bad = true; lost { // until its tries are far apart
				r.clock.RunUntil(r.clock.Now() + 100e9)
			}
			if err := p.SetMdiskOffline("m", true); err != nil {
				t.Fatal(err)
			}
			*writes = 0
			r.clock.RunUntil(r.clock.Now() + 120e9)
			if *writes > 0 {
				t.Errorf("%d writes were tried while it was offline", *writes)
			}
			bad = false
			if err := p.SetMdiskOffline("m", false); err != nil {
				t.Fatal(err)
			}
			r.clock.RunUntil(r.clock.Now() + 1e8)
			if n := p.Part.Pinned(); *writes == 0 || n != 0 || d.Redoing() {
				t.Errorf("0.1 s behind its return it has got %d writes; %d pages are pinned; it redoes: %v", *writes, n, d.Redoing())
			}
			r.clock.RunUntil(r.clock.Now() + 60e9)
			if n := r.a.Dirty(); n != 0 {
				t.Errorf("%d bytes are dirty", n)
			}
			r.check()
		})
	}
}

// TestErrorAtAFullMdisk: what fails for another reason at an mdisk that has had no room for long is tried again soon.
func TestErrorAtAFullMdisk(t *testing.T) {
	r, s, v, w := fullRig(t)
	mustOK(t, r.do(w, written(0, 8, 2)))
	r.clock.RunUntil(r.clock.Now() + 200e9)
	if w.Pool().Part.Refused() == 0 {
		t.Fatal("all of it finds room: nothing is shown")
	}
	failed := int64(0)
	again := int64(0)
	at := uint64(0)
	counting(s, "p.m", func(io *block.IO) error {
		switch {
		case failed == 0 && io.N == 4096*8:
			failed, at = r.clock.Now(), io.Off
			return errors.New("input/output error")
		case failed != 0 && again == 0 && io.Off == at:
			again = r.clock.Now()
		}
		return nil
	})
	mustOK(t, r.do(v, written(0, 64, 3)))
	r.clock.RunUntil(r.clock.Now() + 60e9)
	if failed == 0 || again == 0 || again-failed > 2*retryTime {
		t.Errorf("what failed at %d ms was tried again at %d ms", failed/1e6, again/1e6)
	}
	r.check()
}
