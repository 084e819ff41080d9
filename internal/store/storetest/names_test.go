package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/testkit"
)

// parts are those of a store, as an array opens them.
type parts struct {
	*rig
	region block.Region
	fresh  bool
	meta   block.MetaStore
}

var (
	partsLayout = block.RegionLayout{State: 512, Counters: 64, Descriptors: 64, Log: 64, Pages: page}
	poolKey     = []byte("pool")
)

// openParts opens all parts of a store; the mdisk is made if the meta store does not know it.
func openParts(t *testing.T, d *Disk) *parts {
	t.Helper()
	p := &parts{rig: &rig{virtual: &virtual{}, t: t, d: d}}
	p.s = open(t, p.virtual, d)
	var err error
	if p.region, p.fresh, err = p.s.Region("nvram", partsLayout); err != nil {
		t.Fatal(err)
	}
	if p.meta, err = p.s.Meta(); err != nil {
		t.Fatal(err)
	}
	known, err := p.meta.Get(poolKey)
	if err != nil {
		t.Fatal(err)
	}
	if known == nil {
		p.Wait(func(done func()) { p.s.MakeMedium("m", 1<<20, func(e error) { err = e; done() }) })
		if err != nil {
			t.Fatal(err)
		}
		if err := p.meta.CommitNow([]block.KV{{Key: poolKey, Value: []byte("m")}}); err != nil {
			t.Fatal(err)
		}
	}
	if p.m, err = p.s.Medium("m", 1<<20); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNamesOfAnEarlierProcess: the process dies within any sync of its first start. What the next one makes durable
// survives a loss of power, under names that the first one has made and perhaps never synced.
func TestNamesOfAnEarlierProcess(t *testing.T) {
	want := bytes.Repeat([]byte("kept"), 128)
	for n := 1; ; n++ {
		d := NewDisk(uint64(n))
		d.KillAtSync(n)
		openParts(t, d).s.Close()
		if d = d.Image(); d == nil {
			if n < 20 {
				t.Errorf("a first start has %d syncs only", n)
			}
			return
		}
		p := openParts(t, d)
		copy(p.region.Memory().Pages, want)
		if err := p.region.FlushNow(); err != nil {
			t.Fatal(err)
		}
		if err := p.io(true, 4096, want); err != nil {
			t.Fatal(err)
		}
		if err := p.sync(); err != nil {
			t.Fatal(err)
		}
		p.s.Close()
		d = d.cutWith(func(uint64) bool { return false })
		for _, name := range []string{"nvram", "meta", "meta.copy", "mdisk/m.img", "mdisk/m.sum"} {
			if _, err := d.Stat("/data/" + name); err != nil {
				t.Errorf("death in sync %d, a start, and a loss of power: %v", n, err)
			}
		}
		if t.Failed() {
			return
		}
		p = openParts(t, d)
		got := make([]byte, len(want))
		if err := p.io(false, 4096, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("death in sync %d: the mdisk has other data: %v", n, err)
		}
		if p.fresh || !bytes.HasPrefix(p.region.Memory().Pages, want) {
			t.Errorf("death in sync %d: the NVRAM has other data, or is new: %v", n, p.fresh)
		}
		p.s.Close()
	}
}

// TestRemovedMdiskStaysAway: an mdisk is removed, and the power goes. No file of it comes back.
func TestRemovedMdiskStaysAway(t *testing.T) {
	p := openParts(t, NewDisk(1))
	for _, mine := range []bool{true, false} {
		var err error
		p.Wait(func(done func()) {
			if mine {
				p.s.RemoveMedium("m", func(e error) { err = e; done() })
				return
			}
			// One that was made and never opened, likewise.
			p.s.MakeMedium("n", 1<<20, func(error) { p.s.RemoveMedium("n", func(e error) { err = e; done() }) })
		})
		if err != nil {
			t.Fatal(err)
		}
		names, err := p.d.cutWith(func(uint64) bool { return false }).List("/data/mdisk")
		if err != nil || len(names) > 0 {
			t.Errorf("behind a loss of power there is %q, %v", names, err)
		}
	}
	p.s.Close()
}

// TestFailedSyncOfAnEarlierProcess: a sync fails, and the process dies before it hears of that. What the kernel has lost
// is lost although the next process syncs well, if that does not write it again; names are not.
func TestFailedSyncOfAnEarlierProcess(t *testing.T) {
	one, two := bytes.Repeat([]byte{1}, page), bytes.Repeat([]byte{2}, page)
	seen := map[byte]int{}
	for seed := range uint64(40) {
		r := newRig(t, NewDisk(seed))
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		check(r.io(true, 0, append(one, one...)))
		check(r.sync())
		check(r.io(true, 0, append(two, two...)))
		r.d.SetFault(func(op Op, path string, n int) (int, error) {
			if op == Sync && path == "/data/mdisk/m.img" {
				return 0, syscall.EIO
			}
			return n, nil
		})
		r.d.KillAtFailedSync(1)
		if r.sync() == nil {
			t.Fatal("the sync did not fail")
		}
		r = newRig(t, r.d.Image())
		check(r.io(true, 0, two))
		check(r.sync())
		f, _ := r.d.OpenData("/data/mdisk/m.img")
		got := make([]byte, 2*page)
		f.Readv([][]byte{got}, 0)
		seen[got[page]]++
		f, _ = r.d.cutWith(func(uint64) bool { return true }).OpenData("/data/mdisk/m.img")
		f.Readv([][]byte{got}, 0)
		if !bytes.Equal(got[:page], two) || !bytes.Equal(got[page:], one) {
			t.Fatalf("seed %d: behind a loss of power the sectors have versions %d and %d", seed, got[0], got[page])
		}
	}
	if seen[1] == 0 || seen[2] == 0 {
		t.Errorf("before it, what the first process wrote was read as versions %v", seen)
	}
}

// TestChecksumsOfAnEarlierProcessKeepTheirName: the process dies while it makes the checksums of an older mdisk. Those that
// the next one finds or makes are there behind a loss of power, and are not made from damaged data then.
func TestChecksumsOfAnEarlierProcessKeepTheirName(t *testing.T) {
	deaths := 0
	for n := 1; ; n++ {
		r := newRig(t, NewDisk(uint64(n)))
		r.s.Close()
		r.d.Remove("/data/mdisk/m.sum")
		dir, _ := r.d.OpenDir("/data/mdisk")
		dir.Sync()
		r.d.KillAtSync(n)
		newRig(t, r.d).s.Close()
		d := r.d.Image()
		if d == nil {
			break
		}
		deaths++
		newRig(t, d).s.Close()
		if _, err := d.cutWith(func(uint64) bool { return false }).Stat("/data/mdisk/m.sum"); err != nil {
			t.Errorf("death in sync %d, a start, and a loss of power: %v", n, err)
		}
	}
	if deaths < 4 {
		t.Errorf("it could die in %d syncs only", deaths)
	}
}

// TestFirstStartsAndPowerCuts: the power goes during a first start, and during the next ones; then one succeeds.
func TestFirstStartsAndPowerCuts(t *testing.T) {
	base := testkit.Seed(t)
	for seed := base; seed < base+100 && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			d := NewDisk(seed)
			for range 3 {
				d.CutAtSync(1 + rnd.IntN(16))
				openParts(t, d).s.Close()
				d = d.Cut()
			}
			openParts(t, d).s.Close()
		})
	}
}

// TestFailedSyncOfNewChecksums: where those of an older mdisk cannot be made durable, the next start makes them once
// more, and does not believe what the kernel has of the first ones.
func TestFailedSyncOfNewChecksums(t *testing.T) {
	want := bytes.Repeat([]byte("data"), 128)
	for seed := range uint64(20) {
		r := newRig(t, NewDisk(seed))
		if err := errors.Join(r.io(true, 0, want), r.sync()); err != nil {
			t.Fatal(err)
		}
		r.s.Close()
		r.d.Remove("/data/mdisk/m.sum")
		r.d.SetFault(func(op Op, path string, n int) (int, error) {
			if op == Sync && strings.HasPrefix(path, "/data/mdisk/m.sum") {
				return 0, syscall.EIO
			}
			return n, nil
		})
		s := open(t, r.virtual, r.d)
		if _, err := s.Medium("m", 4<<20); !errors.Is(err, syscall.EIO) {
			t.Fatalf("a sync of the checksums fails, and opening the mdisk says: %v", err)
		}
		s.Close()
		r.d.SetFault(nil)
		r = newRig(t, r.d)
		if err := r.sync(); err != nil {
			t.Fatal(err)
		}
		r.s.Close()
		r = newRig(t, r.d.Cut())
		got := make([]byte, len(want))
		if err := r.io(false, 0, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("seed %d: behind a loss of power the sector reads %v", seed, err)
		}
		r.s.Close()
	}
}

// blind is a file system that cannot look at one file.
type blind struct {
	*Disk
	path string
}

func (b blind) Stat(path string) (os.FileInfo, error) {
	if path == b.path {
		return nil, syscall.EIO
	}
	return b.Disk.Stat(path)
}

// TestWhatCannotBeLookedAtIsNotMadeAnew: a file that is there, and that the file system cannot tell of, is kept.
func TestWhatCannotBeLookedAtIsNotMadeAnew(t *testing.T) {
	p := openParts(t, NewDisk(1))
	copy(p.region.Memory().Pages, "kept")
	if err := p.io(true, 0, make([]byte, 512)); err != nil {
		t.Fatal(err)
	}
	p.s.Close()
	p.d.FlipAt("/data/mdisk/m.img", 100, 1)
	for name, start := range map[string]func(s *store.Files) error{
		"nvram":       func(s *store.Files) error { _, _, err := s.Region("nvram", partsLayout); return err },
		"mdisk/m.sum": func(s *store.Files) error { _, err := s.Medium("m", 1<<20); return err },
	} {
		s, err := store.OpenFiles(p.virtual, "/data", store.FilesOptions{FS: blind{p.d, "/data/" + name}, Later: func(fn func()) { fn() }})
		if err != nil {
			t.Fatal(err)
		}
		if err := start(s); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s cannot be looked at, and opening it says: %v", name, err)
		}
		s.Close()
	}
	p = openParts(t, p.d)
	defer p.s.Close()
	var bad *block.ChecksumError
	if err := p.io(false, 0, make([]byte, 512)); !errors.As(err, &bad) {
		t.Errorf("the damage of the mdisk is hidden: %v", err)
	}
	if p.fresh || !bytes.HasPrefix(p.region.Memory().Pages, []byte("kept")) {
		t.Error("the NVRAM was made anew")
	}
}
