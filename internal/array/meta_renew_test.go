// Copies of the metadata that are rebuilt from one which is damaged itself, and starts that end in between.

package array

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/storetest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// wideLeaves is how many leaves the map of a volume has.
const wideLeaves = 12

// wideRig is an array of which one copy of the metadata lacks the last batches, and the other one has a damaged block.
type wideRig struct {
	*powerRig
	other string // the folder of the copy that is damaged
}

// newWideRig returns the rig before anything is damaged: the process has died.
func newWideRig(t *testing.T, seed uint64, behind, other string) *wideRig {
	r := &wideRig{other: other}
	r.powerRig = newPowerRigWith(t, seed, false, func(r *powerRig) { r.opt.CheckpointBytes, r.opt.LeafBytes, r.opt.MapBytes = 0, 0, 0 })
	r.a.CreateVolume(VolumeSpec{Name: "wide", Pool: "a", Sectors: wideLeaves * node.LeafSectors, Thin: true}, func(_ *Volume, err error) { r.must(nil, err) })
	r.clock.Run()
	r.vols = append(r.vols, r.a.Volume("wide"))
	for n := range uint64(wideLeaves) {
		r.put(len(r.vols)-1, n*node.LeafSectors, 8, n+1)
	}
	r.commit()
	r.reopen() // the logs of the copies become tables
	r.failing(behind)
	r.put(2, 0, 100, 50)
	r.commit()
	r.disk = r.disk.Kill()
	r.files.Close()
	return r
}

// start starts the array over a disk, and reports whether it has all that was written.
func (r *wideRig) start(d *storetest.Disk) (all bool, err error) {
	r.disk, r.clock = d, &block.Virtual{}
	if r.a, r.files, err = openOn(d, r.clock, r.rnd, r.opt); err != nil {
		return false, err
	}
	r.find()
	r.vols = append(r.vols, r.a.Volume("wide"))
	all = r.has(2, 0, 50)
	for n := range uint64(wideLeaves) {
		all = r.has(len(r.vols)-1, n*node.LeafSectors, n+1) && all
	}
	return all, nil
}

// has reports whether a sector can be read, and is the first one of what has a stamp.
func (r *wideRig) has(vol int, at, stamp uint64) bool {
	got, want := make([]byte, 512), make([]byte, 512)
	s := r.wait(vol, &block.Request{Op: block.OpRead, Range: rng(at, 1), Data: [][]byte{got}})
	fillStamp(want, stamp<<20)
	return s == block.OK && string(got) == string(want)
}

// damaged calls fn with disks over which a start finds everything: the copy with the last batches has a damaged block, of which the
// other one has all.
func (r *wideRig) damaged(fn func(d func() *storetest.Disk, off int64)) {
	image, n := r.disk, 0
	names, _ := image.List(r.other)
	for _, name := range names {
		path := r.other + "/" + name
		info, err := image.Stat(path)
		if err != nil || !strings.HasSuffix(name, ".sst") {
			continue
		}
		for off := int64(0); off < info.Size(); off += 150 {
			damaged := func() *storetest.Disk {
				d := image.Kill()
				d.FlipAt(path, off, 3)
				return d
			}
			if all, err := r.start(damaged()); err != nil {
				continue // nobody has what it lost
			} else if !all {
				r.t.Errorf("%s, byte %d: it starts without something", path, off)
			}
			n++
			fn(damaged, off)
			r.files.Close()
		}
	}
	if n < 3 {
		r.t.Errorf("%s: with %d of the blocks damaged it starts", r.other, n)
	}
}

var metaFolders = []string{"/data/meta", "/data/meta.copy"}

// TestRebuildFromADamagedCopy: one copy of the metadata lacks the last batches, and of the other one, which has them, a block of
// pages cannot be read. The start rebuilds the first one from both, and uses it; the next one does so with the second. A copy
// each, they survive that the other one is lost.
func TestRebuildFromADamagedCopy(t *testing.T) {
	for i, behind := range metaFolders {
		r := newWideRig(t, uint64(i+3), behind+"/", metaFolders[1-i])
		r.damaged(func(_ func() *storetest.Disk, off int64) {
			if r.a.meta.Alone() || r.files.Renewed() != 1 {
				t.Errorf("%s is behind, byte %d: it is left alone: %v; %d copies are rebuilt", behind, off, r.a.meta.Alone(), r.files.Renewed())
				return
			}
			r.commit()
			image := r.disk.Kill()
			for _, lost := range []string{"", r.other} {
				d := image.Kill()
				if lost != "" {
					d.RemoveAll(lost)
				}
				r.files.Close()
				if all, err := r.start(d); err != nil || !all {
					t.Errorf("%s is behind, byte %d, then %q is lost: %v, all is there: %v", behind, off, lost, err, all)
				} else if lines := r.a.CheckCopies(); len(lines) > 0 || r.files.Renewed() > 1 {
					t.Errorf("%s is behind, byte %d, then %q is lost: %d copies are rebuilt, %v", behind, off, lost, r.files.Renewed(), lines)
				}
			}
		})
	}
}

// TestDeathInARebuild: the process dies, or the power goes, anywhere in a start that rebuilds a copy of the metadata, which is the
// only one that has some pages. The next start has everything.
func TestDeathInARebuild(t *testing.T) {
	deaths := 0
	for i, behind := range metaFolders {
		r := newWideRig(t, uint64(i+3), behind+"/", metaFolders[1-i])
		once := false
		r.damaged(func(damaged func() *storetest.Disk, off int64) {
			if once {
				return
			}
			once = true
			for _, how := range []struct {
				what string
				step int
				arm  func(d *storetest.Disk, n int)
			}{
				{"death in sync", 1, (*storetest.Disk).KillAtSync},
				{"death in write", 3, (*storetest.Disk).KillAtWrite},
				{"loss of power at sync", 1, (*storetest.Disk).CutAtSync},
			} {
				for n := 1; ; n += how.step {
					d := damaged()
					how.arm(d, n)
					r.files.Close()
					if _, err := r.start(d); err != nil {
						t.Fatal(err)
					}
					image := d.Image()
					if image == nil {
						break
					}
					r.files.Close()
					deaths++
					if all, err := r.start(image); err != nil || !all {
						t.Fatalf("%s is behind, byte %d, %s %d: %v, all is there: %v", behind, off, how.what, n, err, all)
					}
				}
			}
		})
	}
	if deaths < 60 {
		t.Errorf("it could die at %d places only", deaths)
	}
}

// TestScrubRewritesPages: a block of one copy of the metadata is damaged. A scrub finds that, and has the copy get the pages
// of it from the other one: the array survives that this one is lost, before anything is rebuilt.
func TestScrubRewritesPages(t *testing.T) {
	for i, damaged := range metaFolders {
		r := newWideRig(t, uint64(i+3), "nothing", damaged)
		image, other := r.disk, metaFolders[1-i]
		names, _ := image.List(damaged)
		saved, found := 0, 0
		for _, name := range names {
			info, err := image.Stat(damaged + "/" + name)
			if err != nil || !strings.HasSuffix(name, ".sst") {
				continue
			}
			for off := int64(0); off < info.Size(); off += 150 {
				survives := [2]bool{}
				for scrubbed := range survives {
					d := image.Kill()
					d.FlipAt(damaged+"/"+name, off, 3)
					if all, err := r.start(d); err != nil || !all {
						t.Fatalf("%s, byte %d: %v, all is there: %v", damaged, off, err, all)
					}
					renewed := r.files.Renewed() > 0
					if scrubbed == 1 {
						ended := false
						r.a.StartScrub(0, func(s *Scrub) {
							ended = true
							found += s.Damaged[i]
						})
						for !ended && r.clock.Step() {
						}
					}
					d = r.disk.Kill()
					r.files.Close()
					d.RemoveAll(other)
					all, err := r.start(d)
					if err == nil {
						r.files.Close()
					}
					survives[scrubbed] = err == nil && all
					if renewed { // the start has met it
						survives = [2]bool{true, true}
						break
					}
				}
				if survives[0] && !survives[1] {
					t.Errorf("%s, byte %d: it is lost by the scrub", damaged, off)
				} else if survives[1] && !survives[0] {
					saved++
				}
			}
		}
		if t.Logf("%s: the scrubs find %d entries; with %d of the blocks damaged they save the array", damaged, found, saved); saved < 3 {
			t.Error("the test shows too little")
		}
	}
}

// tables returns the files of a copy of the metadata that have pages, with their sizes.
func tables(d *storetest.Disk, folder string) (paths []string, sizes []int64) {
	names, _ := d.List(folder)
	for _, name := range names {
		if info, err := d.Stat(folder + "/" + name); err == nil && strings.HasSuffix(name, ".sst") {
			paths, sizes = append(paths, folder+"/"+name), append(sizes, info.Size())
		}
	}
	return paths, sizes
}

// TestBothCopiesAreDamaged: a block of each copy of the metadata is damaged, and a page was read that one of them has lost. The next
// start makes both anew, wherever one is interrupted, so that either may be lost afterwards. Health tells of it until then.
func TestBothCopiesAreDamaged(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	r := newWideRig(t, 5, "nothing", metaFolders[0])
	image, mended, deaths := r.disk, 0, 0
	for n := 0; n < 60 || n < 600 && (mended < 5 || deaths < 3); n++ {
		d := image.Kill()
		for _, folder := range metaFolders {
			paths, sizes := tables(d, folder)
			i := rnd.IntN(len(paths))
			d.FlipAt(paths[i], rnd.Int64N(sizes[i]), 3)
		}
		if all, err := r.start(d); err != nil {
			continue // the same is lost in both, and each start needs it
		} else if !all {
			r.files.Close()
			continue
		}
		r.put(0, 0, 8, 1)
		r.commit()
		said := strings.Join(r.a.Health(), "; ")
		marked := r.disk.Kill()
		r.files.Close()
		if !strings.Contains(said, "copy of the checkpoints is damaged") {
			continue // nothing of it was read, or it was rebuilt
		}
		if rnd.IntN(3) > 0 { // a start that does not end
			d := marked.Kill()
			[]func(int){d.KillAtSync, d.KillAtWrite, d.CutAtSync}[rnd.IntN(3)](1 + rnd.IntN(40))
			if _, err := r.start(d); err != nil {
				t.Fatal(err)
			}
			if at := d.Image(); at != nil {
				marked = at
				deaths++
			}
			r.files.Close()
		}
		if all, err := r.start(marked); err != nil || !all {
			t.Fatalf("%v, all is there: %v", err, all)
		}
		r.put(0, 0, 8, 1)
		if r.commit(); len(r.a.Health()) > 0 {
			t.Fatalf("behind a start that rebuilds %d copies it says %q", r.files.Renewed(), r.a.Health())
		}
		if lines := r.a.CheckCopies(); len(lines) > 0 {
			t.Fatal(lines)
		}
		marked = r.disk.Kill()
		for _, folder := range metaFolders {
			d := marked.Kill()
			d.RemoveAll(folder)
			r.files.Close()
			if all, err := r.start(d); err != nil || !all {
				t.Fatalf("without %s: %v, all is there: %v", folder, err, all)
			}
		}
		r.files.Close()
		mended++
	}
	if t.Logf("%d times both were damaged, %d times a start was interrupted", mended, deaths); mended < 5 || deaths < 3 {
		t.Error("the test shows too little")
	}
}
