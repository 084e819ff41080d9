package cachedaemon

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

func TestFileWitnessKeepsTheMark(t *testing.T) {
	w := &fileWitness{exec: block.NewLive(), path: filepath.Join(t.TempDir(), "mark")}
	load := func() (tier.Mark, error) {
		type answer struct {
			m   tier.Mark
			err error
		}
		ch := make(chan answer, 1)
		w.Load(func(m tier.Mark, err error) { ch <- answer{m, err} })
		a := <-ch
		return a.m, a.err
	}
	if m, err := load(); err != nil || m != (tier.Mark{}) {
		t.Fatalf("without a file: %+v, %v", m, err)
	}
	want := tier.Mark{NAA: [16]byte{0x60, 1}, Cache: 1<<63 + 5, Generation: 7}
	stored := make(chan error, 1)
	w.Store(want, func(err error) { stored <- err })
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	if m, err := load(); err != nil || m != want {
		t.Fatalf("%+v, %v; want %+v", m, err, want)
	}
	if left, _ := filepath.Glob(w.path + ".*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if err := os.WriteFile(w.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(); err == nil {
		t.Error("a damaged file counts as none")
	}
}

// TestFileWitnessIsOfOneLUN: two caches are given one file. Neither takes from the other what says who was left out.
func TestFileWitnessIsOfOneLUN(t *testing.T) {
	x := block.NewLive()
	defer x.Stop()
	w := &fileWitness{exec: x, path: filepath.Join(t.TempDir(), "mark")}
	one, two := tier.Mark{NAA: [16]byte{0x60, 1}, Cache: 5, Generation: 7}, tier.Mark{NAA: [16]byte{0x60, 2}, Cache: 6, Generation: 9}
	if err := stored(w, one); err != nil {
		t.Fatal(err)
	}
	if err := stored(w, two); err == nil || !strings.Contains(err.Error(), "LUN 6001") || !strings.Contains(err.Error(), "its own --witness") {
		t.Errorf("another LUN's mark: %v", err)
	}
	if m, err := loaded(w); err != nil || m != one {
		t.Errorf("the file has %+v, %v", m, err)
	}
}

// TestWitnessOfAnEarlierVersionIsHandedOver: it lay beside the socket. Where it says more than the LUN, or a file of the host's
// state, that gets it before anything is believed, once; what it says no more than is not changed.
func TestWitnessOfAnEarlierVersionIsHandedOver(t *testing.T) {
	naa := [16]byte{0x60, 1}
	x := block.NewLive()
	defer x.Stop()
	for name, row := range map[string]struct {
		lun, want uint64
		left      bool // the file stays
		earlier   tier.Mark
		takeOver  bool
	}{
		"it says more":           {3, 7, false, tier.Mark{NAA: naa, Cache: 5, Generation: 7}, false},
		"nothing else says any":  {0, 7, false, tier.Mark{NAA: naa, Cache: 5, Generation: 7}, false},
		"it says the same":       {7, 7, false, tier.Mark{NAA: naa, Cache: 5, Generation: 7}, false},
		"it says less":           {9, 9, false, tier.Mark{NAA: naa, Cache: 5, Generation: 7}, false},
		"it is of another LUN":   {3, 3, true, tier.Mark{NAA: [16]byte{0x60, 2}, Generation: 7}, false},
		"before the other fence": {3, 7, true, tier.Mark{NAA: naa, Cache: 5, Generation: 7}, true},
	} {
		for _, suffix := range []string{"." + hex.EncodeToString(naa[:]) + ".witness", ".witness"} {
			socket := filepath.Join(t.TempDir(), "sock")
			earlier := &fileWitness{exec: x, path: socket + suffix}
			if err := stored(earlier, row.earlier); err != nil {
				t.Fatal(err)
			}
			k := &keeper{n: row.lun}
			for range 2 { // the second start has no earlier one any more
				w, err := withEarlier(&keyWitness{exec: x, at: k, naa: naa}, x, socket, naa, row.takeOver)
				if err != nil {
					t.Fatal(err)
				}
				if m, err := loaded(w); err != nil || m.Generation != row.want || m.NAA != naa {
					t.Errorf("%s: the mark is %+v, %v", name, m, err)
				}
			}
			if want := row.want; !row.takeOver && k.n != want || row.takeOver && k.n != row.lun {
				t.Errorf("%s: the LUN has generation %d", name, k.n)
			}
			if _, err := os.Stat(earlier.path); (err == nil) != row.left {
				t.Errorf("%s: the file: %v", name, err)
			}
		}
	}
	socket := filepath.Join(t.TempDir(), "sock")
	given := &fileWitness{exec: x, path: socket + ".witness"}
	if err := stored(given, tier.Mark{NAA: naa, Generation: 7}); err != nil {
		t.Fatal(err)
	}
	if w, err := withEarlier(given, x, socket, naa, false); err != nil || w != tier.Witness(given) {
		t.Errorf("a witness that is given is its own earlier one: %v", err)
	}
	k := &keeper{n: 3, err: nil}
	w, err := withEarlier(&refusing{keyWitness{exec: x, at: k, naa: naa}}, x, socket, naa, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loaded(w); err == nil || !strings.Contains(err.Error(), given.path) {
		t.Errorf("it could not be handed over: %v", err)
	}
	if _, err := os.Stat(given.path); err != nil {
		t.Errorf("and is gone: %v", err)
	}
	if err := os.WriteFile(given.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := withEarlier(&keyWitness{exec: x, at: k, naa: naa}, x, socket, naa, false); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged one: %v", err)
	}
}

// TestEarlierWitnessOfASecondCacheStays: an earlier version had a file for each of two caches of one LUN, by their sockets. The file
// of the host's state is the first one's; what the second one had is kept until it is given a --witness, and counts there.
func TestEarlierWitnessOfASecondCacheStays(t *testing.T) {
	x := block.NewLive()
	defer x.Stop()
	naa := [16]byte{0x60, 1}
	socket := filepath.Join(t.TempDir(), "sock")
	first, second := tier.Mark{NAA: naa, Cache: 6, Generation: 9}, tier.Mark{NAA: naa, Cache: 5, Generation: 7}
	earlier := &fileWitness{exec: x, path: socket + ".witness"}
	state := &fileWitness{exec: x, path: filepath.Join(t.TempDir(), "state")}
	given := &fileWitness{exec: x, path: filepath.Join(t.TempDir(), "given")}
	for _, err := range []error{stored(earlier, second), stored(state, first)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		of   *fileWitness
		want tier.Mark
		left bool
	}{{state, first, true}, {given, second, false}, {given, second, false}, {state, first, false}} {
		w, err := withEarlier(row.of, x, socket, naa, false)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := loaded(w); err != nil || m != row.want {
			t.Errorf("the mark is %+v, %v, want %+v", m, err, row.want)
		}
		if _, err := os.Stat(earlier.path); (err == nil) != row.left {
			t.Errorf("with %s, the earlier file: %v", row.of.path, err)
		}
	}
}

// TestWitnessIsNotItsOwnEarlierOne: by another name of its folder, such as /var/run, the file that --witness names lies beside the
// socket. It is not removed.
func TestWitnessIsNotItsOwnEarlierOne(t *testing.T) {
	x := block.NewLive()
	defer x.Stop()
	naa := [16]byte{0x60, 1}
	folder := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"." + hex.EncodeToString(naa[:]) + ".witness", ".witness"} {
		file := &fileWitness{exec: x, path: filepath.Join(folder, "sock"+suffix)}
		want := tier.Mark{NAA: naa, Cache: 5, Generation: 7}
		if err := stored(file, want); err != nil {
			t.Fatal(err)
		}
		for name, given := range map[string]tier.Witness{"a file": file, "a file of a host alone": &aloneWitness{fileWitness: file, at: &keeper{}, naa: naa}} {
			for range 2 {
				w, err := withEarlier(given, x, filepath.Join(link, "sock"), naa, false)
				if err != nil {
					t.Fatal(err)
				}
				if m, err := loaded(w); err != nil || m != want {
					t.Errorf("%s: the mark is %+v, %v", name, m, err)
				}
			}
		}
	}
}

// refusing is a witness that stores nothing.
type refusing struct{ keyWitness }

func (w *refusing) Store(_ tier.Mark, done func(error)) {
	w.exec.Post(func() { done(os.ErrPermission) })
}
