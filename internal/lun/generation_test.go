package lun

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

func TestKeysHaveGenerations(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	marked := 0
	for range 10_000 {
		host, generation := 1+r.Uint64N(MaxHostKey), r.Uint64N(maxGeneration+1)
		key := markedKey(host, generation)
		if h, g := splitKey(key); h != host || g != generation {
			t.Fatalf("key %#x of host %#x, generation %d: read as %#x, %d", key, host, generation, h, g)
		}
		foreign := r.Uint64() // of something else, such as a cluster's
		if _, g := splitKey(foreign); g > 0 {
			marked++
		}
	}
	if marked > 20 {
		t.Errorf("%d of 10000 keys that are not ours have a generation; 2 or 3 are to be expected", marked)
	}
}

// TestGenerationOutlivesItsHost: whoever takes over reads it, after a restart of the array too, and the fenced host cannot raise it.
func TestGenerationOutlivesItsHost(t *testing.T) {
	l := newLab(t)
	lost, taker := l.openAs(lostName, "0"), l.openAs(takerName, "0")
	generation := func(d *Device, want uint64) {
		t.Helper()
		if g, err := d.Generation(); err != nil || g != want {
			t.Fatalf("generation %d, %v; want %d", g, err, want)
		}
	}
	if err := lost.SetGeneration(1); err == nil {
		t.Fatal("a host without registration has stored something")
	}
	if err := lost.Reserve(lostKey); err != nil {
		t.Fatal(err)
	}
	generation(taker, 0)
	for _, n := range []uint64{1, 5, 6, 6} {
		if err := lost.SetGeneration(n); err != nil {
			t.Fatal(err)
		}
	}
	generation(taker, 6)
	if err := errors.Join(lost.Reserve(lostKey), lost.Fenced()); err != nil { // a second start
		t.Fatal(err)
	}
	l.restart()
	generation(taker, 6)
	if st := l.write(lost, 1); st != block.OK {
		t.Fatalf("the holder cannot write: %v", st)
	}
	for range 2 {
		if err := taker.Fence(takerKey, lostKey); err != nil {
			t.Fatal(err)
		}
		generation(lost, 6)
		l.registered(taker, markedKey(takerKey, 6))
	}
	for _, n := range []uint64{6, 7} {
		if err := lost.SetGeneration(n); !errors.Is(err, ErrFenced) {
			t.Errorf("the fenced host stores generation %d: %v", n, err)
		}
	}
	if err := lost.Fenced(); !errors.Is(err, ErrFenced) {
		t.Errorf("it does not know that it was fenced: %v", err)
	}
	if err := lost.Reserve(lostKey); !errors.Is(err, ErrReserved) {
		t.Errorf("it comes back: %v", err)
	}
	if err := taker.SetGeneration(270); err != nil {
		t.Fatal(err)
	}
	generation(lost, 270)
	l.registered(taker, markedKey(takerKey, 270))
	// A third host that has another one's key in mind hears whose are there, and takes nothing with it.
	third := l.openAs(thirdName, "0")
	if err := third.Fence(thirdKey, lostKey); !errors.Is(err, ErrUnknownKey) || !strings.Contains(err.Error(), "0x12") {
		t.Errorf("a wrong key: %v", err)
	}
	l.registered(taker, markedKey(takerKey, 270))
	for _, key := range []uint64{0, MaxHostKey + 1} {
		if err := third.Reserve(key); err == nil || !strings.Contains(err.Error(), "0xffffff") {
			t.Errorf("key %#x: %v", key, err)
		}
	}
	if err := third.Fence(takerKey, takerKey); err == nil {
		t.Error("a host fences its own key")
	}
}

// TestFenceMeetsAGenerationThatIsRaised: the lost host lives and raises it all the time. What it stored with success is what the
// taker knows.
func TestFenceMeetsAGenerationThatIsRaised(t *testing.T) {
	for range 5 {
		l := newLab(t)
		lost, taker := l.openAs(lostName, "0"), l.openAs(takerName, "0")
		if err := lost.Reserve(lostKey); err != nil {
			t.Fatal(err)
		}
		stored, begun := make(chan uint64), make(chan bool)
		go func() {
			for n := uint64(1); ; n++ {
				if n == 3 {
					close(begun)
				}
				if lost.SetGeneration(n) != nil { // it is fenced
					stored <- n - 1
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		<-begun
		if err := taker.Fence(takerKey, lostKey); err != nil {
			t.Fatal(err)
		}
		g, err := taker.Generation()
		if want := <-stored; err != nil || g != want {
			t.Fatalf("the lost host stored %d, the taker knows %d (%v)", want, g, err)
		}
	}
}

// twice sends each PERSISTENT RESERVE OUT again when it was carried out: a session whose answer was lost does.
type twice struct{ Transport }

func (w twice) Start(c *Command) {
	if c.CDB[0] != opReserveOut {
		w.Transport.Start(c)
		return
	}
	first := &Command{CDB: c.CDB, Out: c.Out}
	first.Done = func(*Command) { w.Transport.Start(c) }
	w.Transport.Start(first)
}

func TestReservationsThatAreSentTwice(t *testing.T) {
	l := newLab(t)
	lost, taker := l.openAs(lostName, "0"), l.openAs(takerName, "0")
	lost.t, taker.t = twice{lost.t}, twice{taker.t}
	if err := errors.Join(lost.Reserve(lostKey), lost.SetGeneration(3), lost.SetGeneration(4)); err != nil {
		t.Fatal(err)
	}
	l.registered(lost, markedKey(lostKey, 4))
	if err := taker.Fence(takerKey, lostKey); err != nil {
		t.Fatal(err)
	}
	l.registered(taker, markedKey(takerKey, 4))
	keys, err := taker.keys()
	if err != nil || slices.Contains(keys, markedKey(lostKey, 4)) {
		t.Errorf("%#x, %v", keys, err)
	}
}

// TestReservationsThatAreGivenBack: by a clean stop, which keeps the generation, and by a start that failed, which keeps what it has
// found.
func TestReservationsThatAreGivenBack(t *testing.T) {
	l := newLab(t)
	host, other := l.openAs(lostName, "0"), l.openAs(takerName, "0")
	writes := func(want bool) {
		t.Helper()
		if st := l.write(other, 1); (st == block.OK) != want {
			t.Fatalf("another host's write ends %v", st)
		}
	}
	if err := host.Reserve(lostKey); err != nil {
		t.Fatal(err)
	}
	writes(false)
	if err := host.Withdraw(); err != nil { // the first start has failed
		t.Fatal(err)
	}
	l.registered(host)
	writes(true)
	if err := errors.Join(host.Reserve(lostKey), host.SetGeneration(4)); err != nil {
		t.Fatal(err)
	}
	writes(false)
	if err := errors.Join(host.Reserve(lostKey), host.Withdraw()); err != nil { // a start behind a crash has failed
		t.Fatal(err)
	}
	writes(false)
	if err := host.Release(); err != nil { // a clean stop
		t.Fatal(err)
	}
	writes(true)
	l.registered(host, markedKey(lostKey, 4))
	if err := errors.Join(host.Reserve(lostKey), host.Withdraw()); err != nil { // a start behind it has failed
		t.Fatal(err)
	}
	writes(true)
	l.registered(host, markedKey(lostKey, 4))
	if err := errors.Join(other.Reserve(takerKey), other.SetGeneration(5), other.Withdraw()); err != nil { // one that has stored something
		t.Fatal(err)
	}
	l.registered(host, markedKey(lostKey, 4), markedKey(takerKey, 5))
}
