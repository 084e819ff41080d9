package cachedaemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// TestWitnessIsTheSameFromAnyFolder: a start from another folder must not begin without what the witness knows.
func TestWitnessIsTheSameFromAnyFolder(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "state"))
	t.Setenv("STATE_DIRECTORY", filepath.Join(home, "systemd")+":other")
	var places []string
	for range 2 {
		t.Chdir(t.TempDir())
		d := daemon{cfg: Config{Socket: DefaultSocket}, below: namedDevice{}, exec: block.NewLive()}
		t.Cleanup(d.exec.Stop)
		var opt tier.Options
		if err := d.secure(&opt); err != nil {
			t.Fatal(err)
		}
		w, ok := opt.Witness.(*fileWitness)
		if !ok {
			t.Fatalf("the witness is a %T", opt.Witness)
		}
		places = append(places, w.path)
	}
	if places[0] != places[1] || !filepath.IsAbs(places[0]) || !strings.HasPrefix(places[0], filepath.Join(home, "systemd")+"/") {
		t.Errorf("the witnesses are %v", places)
	}
	if !strings.Contains(places[0], "60ab") {
		t.Errorf("%s does not name the LUN", places[0])
	}
	t.Setenv("STATE_DIRECTORY", "")
	if os.Geteuid() == 0 {
		return // it would be the system's
	}
	if folder, err := stateFolder(); err != nil || !strings.HasPrefix(folder, home) {
		t.Errorf("%s, %v", folder, err)
	}
}

type namedDevice struct{ block.Device }

func (namedDevice) Info() block.Info { return block.Info{NAA: [16]byte{0x60, 0xab}} }

// stored stores a mark in a witness.
func stored(w tier.Witness, m tier.Mark) error {
	ch := make(chan error, 1)
	w.Store(m, func(err error) { ch <- err })
	return <-ch
}

func loaded(w tier.Witness) (m tier.Mark, err error) {
	ch := make(chan struct{})
	w.Load(func(x tier.Mark, e error) { m, err = x, e; close(ch) })
	<-ch
	return m, err
}

// TestFileWitnessDoesNotGoBack: two hosts share the file, and one of them has been fenced.
func TestFileWitnessDoesNotGoBack(t *testing.T) {
	x := block.NewLive()
	defer x.Stop()
	path := filepath.Join(t.TempDir(), "mark")
	lost, taker := &fileWitness{exec: x, path: path}, &fileWitness{exec: x, path: path}
	at := func(n uint64) tier.Mark { return tier.Mark{NAA: [16]byte{1}, Cache: 5, Generation: n} }
	if err := errors.Join(stored(lost, at(2)), stored(lost, at(2)), stored(taker, at(258))); err != nil {
		t.Fatal(err)
	}
	for _, m := range []tier.Mark{at(3), at(257), {NAA: [16]byte{1}, Cache: 6, Generation: 258}} {
		if err := stored(lost, m); err == nil {
			t.Errorf("%+v is stored over generation 258", m)
		}
	}
	if m, err := loaded(lost); err != nil || m != at(258) {
		t.Errorf("the file has %+v, %v", m, err)
	}
	// A file of its own does not make a host that was fenced acknowledge anything.
	fenced := errors.New("fenced")
	alone := &fileWitness{exec: x, path: path + "2", fenced: func() error { return fenced }}
	if err := stored(alone, at(1)); !errors.Is(err, fenced) {
		t.Errorf("a fenced host stores: %v", err)
	}
}

// keeper is a LUN with a registration.
type keeper struct {
	n   uint64
	err error
}

func (k *keeper) Generation() (uint64, error)  { return k.n, k.err }
func (k *keeper) SetGeneration(n uint64) error { k.n = n; return k.err }

func TestKeyWitness(t *testing.T) {
	x := block.NewLive()
	defer x.Stop()
	k := &keeper{}
	own, taker := &keyWitness{exec: x, at: k, naa: [16]byte{1}}, &keyWitness{exec: x, at: k, naa: [16]byte{1}, takeOver: true}
	if m, err := loaded(own); err != nil || m.Generation != 0 {
		t.Errorf("without a generation: %+v, %v", m, err)
	}
	if _, err := loaded(taker); err == nil || !strings.Contains(err.Error(), "--witness") {
		t.Errorf("a take-over that nothing tells anything: %v", err)
	}
	if err := stored(own, tier.Mark{NAA: [16]byte{1}, Cache: 7, Generation: 9}); err != nil {
		t.Fatal(err)
	}
	if m, err := loaded(taker); err != nil || m != (tier.Mark{NAA: [16]byte{1}, Generation: 9}) {
		t.Errorf("%+v, %v", m, err)
	}
	k.err = errors.New("gone")
	if err := stored(own, tier.Mark{Generation: 10}); !errors.Is(err, k.err) {
		t.Errorf("a store that failed: %v", err)
	}
	if _, err := loaded(own); !errors.Is(err, k.err) {
		t.Errorf("a load that failed: %v", err)
	}
}

// TestWitnessOfAHostAloneAsksTheLUN: it may have had peers before.
func TestWitnessOfAHostAloneAsksTheLUN(t *testing.T) {
	x := block.NewLive()
	defer x.Stop()
	k := &keeper{n: 9}
	w := &aloneWitness{fileWitness: &fileWitness{exec: x, path: filepath.Join(t.TempDir(), "mark")}, at: k, naa: [16]byte{1}}
	if m, err := loaded(w); err != nil || m != (tier.Mark{NAA: [16]byte{1}, Elsewhere: 9}) {
		t.Errorf("without a file: %+v, %v", m, err)
	}
	mark := tier.Mark{NAA: [16]byte{1}, Cache: 7, Generation: 3}
	if err := stored(w, mark); err != nil {
		t.Fatal(err)
	}
	if mark.Elsewhere = 9; k.n != 9 {
		t.Errorf("the registrations have generation %d", k.n)
	}
	if m, err := loaded(w); err != nil || m != mark {
		t.Errorf("%+v, %v", m, err)
	}
	k.err = errors.New("gone")
	if _, err := loaded(w); !errors.Is(err, k.err) {
		t.Errorf("a load that failed: %v", err)
	}
}

func TestKeysOfHosts(t *testing.T) {
	one, two := defaultKey("iqn.2026-01.io.arraysim:one"), defaultKey("iqn.2026-01.io.arraysim:two")
	if one == two || one == 0 || one > 0xffffff || two > 0xffffff {
		t.Errorf("%#x, %#x", one, two)
	}
}
