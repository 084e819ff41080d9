package storetest

import (
	"hash/maphash"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestToldIsAsGoodAsCompared: a disk that is told what a program writes to its NVRAM leaves the same, whatever happens, as
// one that compares all of it at each flush.
func TestToldIsAsGoodAsCompared(t *testing.T) {
	const size, untold = 40 * page, 3 * page
	seed := testkit.Seed(t)
	for s := seed; s < seed+40; s++ {
		var disks [2]*Disk
		var maps [2]store.Tracker
		hash := maphash.MakeSeed()
		open := func() {
			for i, d := range disks {
				f, err := d.OpenData("/nvram")
				if err != nil {
					t.Fatal(err)
				}
				m, err := f.Map(size)
				if err != nil {
					t.Fatal(err)
				}
				if maps[i] = m.(store.Tracker); i == 1 {
					maps[i].Track(untold, 2*page)
				}
			}
		}
		for i := range disks {
			disks[i] = NewDisk(s)
		}
		rnd := rand.New(rand.NewPCG(s, 9))
		open()
		for step := range 400 {
			off, n := rnd.IntN(size), 1+rnd.IntN(2*page)
			n = min(n, size-off)
			k, value := rnd.IntN(20), byte(rnd.IntN(3))
			again := rnd.Uint64()
			for i, d := range disks {
				switch {
				case k < 10:
					if off < untold || off+n > untold+2*page { // else it is known that nobody says so
						maps[i].Wrote(off, n)
					}
					for at := off; at < off+n; at++ {
						maps[i].Bytes()[at] = value
					}
				case k < 14:
					maps[i].Flush(off, n)
				case k == 14:
					d.SetFault(func(Op, string, int) (int, error) { return 0, syscall.EIO })
					maps[i].Flush(0, size)
					d.SetFault(nil)
				case k == 15:
					maps[i].Dirty(off, n)
				case k == 16:
					d.WriteBack(rand.New(rand.NewPCG(again, 1)))
				case k == 17:
					disks[i] = d.Cut()
				case k == 18:
					disks[i] = d.Kill()
				case k == 19:
					maps[i].Unmap()
				}
			}
			if k >= 17 {
				if a, b := disks[0].Hash(hash), disks[1].Hash(hash); a != b {
					t.Fatalf("-seed %d: the disks differ after step %d", s, step)
				}
				open()
			}
		}
	}
}

// TestUnannouncedWriteIsFound: whoever forgets to say what he writes hears of it within some flushes.
func TestUnannouncedWriteIsFound(t *testing.T) {
	f, err := NewDisk(1).OpenData("/nvram")
	if err != nil {
		t.Fatal(err)
	}
	m, err := f.Map(8 * page)
	if err != nil {
		t.Fatal(err)
	}
	m.(store.Tracker).Track(0, 0)
	m.Bytes()[5*page] = 1
	defer func() {
		if recover() == nil {
			t.Error("a forgotten announcement goes unnoticed")
		}
	}()
	for range auditEvery {
		m.Flush(0, 8*page)
	}
}
