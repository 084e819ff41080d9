package array

import (
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
