package storetest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/testkit"
)

// virtual drives a store in virtual time.
type virtual struct{ block.Virtual }

func (v *virtual) Wait(start func(done func())) {
	ended := false
	start(func() { ended = true })
	for !ended && v.Step() {
	}
	if !ended {
		panic("it never ended")
	}
}

func open(t testing.TB, v *virtual, d *Disk) *store.Files {
	t.Helper()
	s, err := store.OpenFiles(v, "/data", store.FilesOptions{FS: d, Later: func(fn func()) { v.At(v.Now()+1000, fn) }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFilesOverDisk(t *testing.T) {
	disks := map[string]*Disk{}
	blocktest.Store(t, func(t *testing.T) (block.Store, blocktest.Driver) {
		if disks[t.Name()] == nil {
			disks[t.Name()] = NewDisk(1)
			// Nothing is ever done whole at once.
			rnd := rand.New(rand.NewPCG(1, 1))
			disks[t.Name()].SetFault(func(op Op, path string, n int) (int, error) {
				if op != Sync && strings.Contains(path, "/mdisk/") && n > 1 {
					return 1 + rnd.IntN(n), nil
				}
				return n, nil
			})
		}
		v := &virtual{}
		return open(t, v, disks[t.Name()]), v
	})
}

// rig is a store with one mdisk on a disk.
type rig struct {
	*virtual
	t testing.TB
	d *Disk
	s *store.Files
	m block.Medium
}

func newRig(t testing.TB, d *Disk) *rig {
	r := &rig{virtual: &virtual{}, t: t, d: d}
	r.s = open(t, r.virtual, d)
	var err error
	if r.m, err = r.s.Medium("m", 4<<20); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) io(write bool, off uint64, b []byte) error {
	io := &block.IO{Write: write, Off: off, Vec: [][]byte{b}, N: uint64(len(b))}
	r.Wait(func(done func()) {
		io.Done = func(*block.IO) { done() }
		r.m.Submit([]*block.IO{io})
	})
	return io.Err
}

func (r *rig) sync() (err error) {
	r.Wait(func(done func()) { r.m.Sync(func(e error) { err = e; done() }) })
	return err
}

// TestOnlySyncedSurvives writes each sector, syncs, writes it again once or twice and cuts:
// every sector is one of the versions since the sync, and over the cuts all of them occur.
func TestOnlySyncedSurvives(t *testing.T) {
	const sectors = 64
	seen := map[byte]int{}
	s := testkit.Seed(t)
	for i := range uint64(40) {
		r := newRig(t, NewDisk(s+i))
		for version := byte(1); version <= 3; version++ {
			if err := r.io(true, 0, bytes.Repeat([]byte{version}, sectors*512)); err != nil {
				t.Fatal(err)
			}
			if version == 1 {
				if err := r.sync(); err != nil {
					t.Fatal(err)
				}
			}
		}
		image := r.d.Cut()
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := image.OpenData("/data/mdisk/m.img")
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, sectors*512)
		if _, err := f.Readv([][]byte{got}, 0); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(got); at += 512 {
			if v := got[at]; v < 1 || v > 3 || !bytes.Equal(got[at:at+512], bytes.Repeat([]byte{v}, 512)) {
				t.Fatalf("sector %d holds what was never written, or is torn inside", at/512)
			}
			seen[got[at]]++
		}
		if image.Boot() == r.d.Boot() {
			t.Error("a cut is no new start of the machine")
		}
	}
	if len(seen) != 3 {
		t.Errorf("of three versions only these survived: %v", seen)
	}
}

func TestNamesSurviveTheSyncOfTheirFolder(t *testing.T) {
	kept := 0
	s := testkit.Seed(t)
	for i := range uint64(40) {
		d := NewDisk(s + i)
		d.MkdirAll("/a", 0)
		root, _ := d.OpenDir("/")
		root.Sync()
		f, _ := d.Create("/a/synced")
		f.Write([]byte("x"))
		f.Sync()
		dir, _ := d.OpenDir("/a")
		dir.Sync()
		f, _ = d.Create("/a/later")
		f.Sync()
		image := d.Cut()
		if _, err := image.Stat("/a/synced"); err != nil {
			t.Fatal(err)
		}
		if _, err := image.Stat("/a/later"); err == nil {
			kept++
		}
	}
	if kept == 0 || kept == 40 {
		t.Errorf("a name in a folder that was not synced survived %d of 40 cuts", kept)
	}
}

func TestFlippedBitsAreNeverRead(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	found := 0
	for range 300 {
		r := newRig(t, NewDisk(rnd.Uint64()))
		want := make([]byte, 64<<10)
		testkit.Fill(rnd, want)
		if err := r.io(true, 8192, want); err != nil {
			t.Fatal(err)
		}
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
		path, off := r.d.Flip(rnd, "/data/mdisk/m.")
		r = newRig(t, r.d)
		for at := 0; at < len(want); at += 512 {
			got := make([]byte, 512)
			err := r.io(false, uint64(8192+at), got)
			var sum *block.ChecksumError
			switch {
			case errors.As(err, &sum):
				if len(sum.Sectors) != 1 || sum.Sectors[0] != uint64(8192+at)/512 || sum.Medium != "m" {
					t.Fatalf("%+v", sum)
				}
				found++
			case err != nil:
				t.Fatal(err)
			case !bytes.Equal(got, want[at:at+512]):
				t.Fatalf("%s: a bit of byte %d was flipped, and sector %d was read with it", path, off, at/512)
			}
		}
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if found < 100 {
		t.Errorf("%d of 300 flips were found", found)
	}
}

// TestOlderFolderGetsChecksums opens an mdisk without its file of checksums.
func TestOlderFolderGetsChecksums(t *testing.T) {
	r := newRig(t, NewDisk(1))
	want := bytes.Repeat([]byte("data"), 2048)
	if err := r.io(true, 1<<20, want); err != nil {
		t.Fatal(err)
	}
	r.s.Close()
	if err := r.d.Remove("/data/mdisk/m.sum"); err != nil {
		t.Fatal(err)
	}
	r = newRig(t, r.d)
	r.s.Close()
	r.d.FlipAt("/data/mdisk/m.img", 1<<20+5000, 3)
	r = newRig(t, r.d)
	defer r.s.Close()
	got := make([]byte, len(want))
	var sum *block.ChecksumError
	if err := r.io(false, 1<<20, got); !errors.As(err, &sum) || len(sum.Sectors) != 1 || sum.Sectors[0] != (1<<20+5000)/512 {
		t.Errorf("after a flip of a bit: %v", err)
	}
	if err := r.io(false, 0, got); err != nil || !bytes.Equal(got, make([]byte, len(got))) {
		t.Errorf("a hole reads %v", err)
	}
}

func TestFullDisk(t *testing.T) {
	r := newRig(t, NewDisk(1))
	defer r.s.Close()
	r.d.SetFree(3 * page)
	if err := r.io(true, 0, make([]byte, 16*page)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("16 pages went where 3 are free: %v", err)
	}
	r.d.SetFree(-1)
	if err := r.io(true, 0, make([]byte, 16*page)); err != nil {
		t.Error(err)
	}
}
