package metadata

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// sweepAll returns what a sweep finds, which between is called in.
func sweepAll(t *testing.T, l *Ledger, exec *block.Virtual, between func()) (bad []int, read int64) {
	t.Helper()
	s, more := l.NewSweep(), true
	for steps := 0; more; steps++ {
		ended, inside := false, true
		s.Step(func(n int64, m bool) {
			if read, more, ended = read+n, m, true; inside {
				t.Error("done is called from inside")
			}
		})
		inside = false
		for between(); !ended; {
			if !exec.Step() {
				t.Fatal("a step does not end")
			}
		}
		if steps > 1000 {
			t.Fatal("it does not end")
		}
	}
	return s.Bad, read
}

// twice is a pair of which both copies get all batches.
type twice struct{ *pair }

func (x twice) Commit(batch []block.KV, done func(error)) {
	for i := range 2 {
		if err := x.of(i).CommitNow(batch); err != nil {
			panic(err)
		}
	}
	x.exec.Post(func() { done(nil) })
}

// TestSweep: a sweep finds each entry that a copy has not as the books say, in whichever copy, also one that nobody reads
// otherwise; the next start makes the copy anew. Until then the copy has the entry again, if the other one has it, and it is not
// the objects.
func TestSweep(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for n := range 300 {
		one, _ := withLeaves(t, 60)
		two, _ := withLeaves(t, 60)
		two.exec = one.exec
		p := &pair{fake: one, other: two, chosen: n % 2}
		l := loadedLedger(t, twice{p}, one.exec, Hooks{Durable: func(uint64) {}})
		good := maps.Clone(one.kv)
		size, want := 0, make([]int, 2)
		var keys []string
		for k, v := range one.kv {
			if k != keyGen {
				keys = append(keys, k)
				size += len(v)
			}
		}
		slices.Sort(keys)
		for range rnd.IntN(4) {
			i, k := rnd.IntN(2), keys[rnd.IntN(len(keys))]
			if string(p.of(i).kv[k]) != "damage" {
				p.of(i).kv[k] = []byte("damage")
				want[i]++
			}
		}
		bad, read := sweepAll(t, l, one.exec, func() {})
		if fmt.Sprint(bad) != fmt.Sprint(want) || l.seen != (want[0]+want[1] > 0) {
			t.Fatalf("case %d, -seed %d: %d entries are damaged, it finds %d; suspect: %v", n, seed, want, bad, l.seen)
		}
		lost := 0
		for _, k := range keys {
			if k == "o" || string(p.of(0).kv[k]) == "damage" && string(p.of(1).kv[k]) == "damage" {
				continue
			}
			for i := range 2 {
				if string(p.of(i).kv[k]) != string(good[k]) {
					lost++
				}
			}
		}
		if lost > 0 {
			t.Fatalf("case %d, -seed %d: behind it copies still lack %d entries that the other one has", n, testkit.Seed(t), lost)
		}
		if want[0]+want[1] == 0 && read != int64(2*size) {
			t.Fatalf("case %d: it has read %d bytes, not twice %d", n, read, size)
		}
		if l.marked { // a batch has said that a copy is damaged
			keys = append(keys, keySuspect)
		}
		if p.fails[rnd.IntN(2)] = true; n%4 == 0 {
			if bad, _ = sweepAll(t, l, one.exec, func() {}); bad[0] != len(keys) && bad[1] != len(keys) {
				t.Fatalf("case %d: of %d entries that cannot be read it finds %d", n, len(keys), bad)
			}
		}
	}
}

// TestSweepBesideBatches: what batches change while it is read is no damage, nor what they leave in doubt. Whatever else is damaged is
// found, however many batches are under way meanwhile.
func TestSweepBesideBatches(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for n := range 100 {
		f, keys := withLeaves(t, 60)
		f.rnd, f.fails = rnd, n%2 == 0
		want := 0
		l := New(f, f.exec, Hooks{Durable: func(uint64) {}, Again: func(e block.KV) []block.KV { return []block.KV{e} }})
		if err := l.Load("", func(_, _ []byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
		rnd.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		for _, k := range keys[:rnd.IntN(4)] { // no batch has these
			f.kv[k] = []byte("damage")
			want++
		}
		bad, _ := sweepAll(t, l, f.exec, func() {
			for range rnd.IntN(4) {
				e := block.KV{Key: []byte(keys[4+rnd.IntN(len(keys)-4)])}
				if rnd.IntN(3) > 0 {
					e.Value = fmt.Appendf(nil, "page %d", rnd.Uint64())
				}
				l.Commit(func() []block.KV { return []block.KV{e} }, func(error) {})
			}
			for range rnd.IntN(10) {
				f.exec.Step()
			}
		})
		if bad[0] != want {
			t.Fatalf("round %d, -seed %d: %d entries are damaged, it finds %d", n, seed, want, bad)
		}
	}
}

// unreadable is a pair whose copies cannot read some keys.
type unreadable struct {
	*pair
	at map[string]bool
}

func (u unreadable) ReadFrom(i int, key []byte, done func([]byte, error)) {
	if u.at[string(key)] {
		u.exec.Post(func() { done(nil, errFake) })
		return
	}
	u.pair.ReadFrom(i, key, done)
}

// TestSweepBesideAFailedCopy: where a copy has failed, which is known, the other one is read all the same.
func TestSweepBesideAFailedCopy(t *testing.T) {
	for failed := range 2 {
		one, keys := withLeaves(t, 60)
		two, _ := withLeaves(t, 60)
		two.exec = one.exec
		p := unreadable{&pair{fake: one, other: two, chosen: failed, behind: true}, map[string]bool{keys[20]: true, keys[50]: true}}
		l := New(p, one.exec, Hooks{})
		if err := l.Load("", func(_, _ []byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
		p.fails[failed] = true
		p.of(1 - failed).kv[keys[30]] = []byte("damage")
		want := make([]int, 2)
		want[1-failed] = 3
		if bad, _ := sweepAll(t, l, one.exec, func() {}); fmt.Sprint(bad) != fmt.Sprint(want) || !l.seen {
			t.Errorf("copy %d has failed; it finds %d, not %d; suspect: %v", failed, bad, want, l.seen)
		}
	}
}

// TestSweepBesideACopyThatFails: a copy that fails as a whole while it is read, which is known, has no damaged entries for that.
func TestSweepBesideACopyThatFails(t *testing.T) {
	for failed := range 2 {
		one, keys := withLeaves(t, 60)
		two, _ := withLeaves(t, 60)
		two.exec = one.exec
		p := &pair{fake: one, other: two, chosen: 1 - failed}
		l := New(p, one.exec, Hooks{})
		if err := l.Load("", func(_, _ []byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
		p.of(1 - failed).kv[keys[len(keys)-1]] = []byte("damage")
		want, steps := make([]int, 2), 0
		want[1-failed] = 1
		bad, _ := sweepAll(t, l, one.exec, func() {
			if steps++; steps == 3 {
				p.fails[failed], p.behind = true, true
			}
		})
		if steps < 5 || fmt.Sprint(bad) != fmt.Sprint(want) {
			t.Errorf("copy %d fails in step 3 of %d; it finds %d, not %d", failed, steps, bad, want)
		}
	}
}

// slowly is a pair of which each read takes long.
type slowly struct{ twice }

func (s slowly) ReadFrom(i int, key []byte, done func([]byte, error)) {
	s.exec.At(s.exec.Now()+30e9, func() { s.pair.ReadFrom(i, key, done) })
}

// TestSweepOfASlowDisk: a disk that reads a damaged block again and again answers after many batches. The damage is found all the
// same, and the sweep goes on.
func TestSweepOfASlowDisk(t *testing.T) {
	one, keys := withLeaves(t, 20)
	two, _ := withLeaves(t, 20)
	two.exec = one.exec
	p := slowly{twice{&pair{fake: one, other: two}}}
	l := New(p, one.exec, Hooks{Durable: func(uint64) {}})
	if _, err := l.Parts(); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"l", "o"} {
		if err := l.Load(prefix, func(_, _ []byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	p.of(1).kv[keys[5]] = []byte("damage")
	batches := 0
	var commit func()
	commit = func() {
		if batches++; batches < 2000 {
			l.Commit(func() []block.KV { return []block.KV{{Key: []byte("b"), Value: fmt.Append(nil, batches)}} }, func(error) {
				one.exec.At(one.exec.Now()+1e9, commit)
			})
		}
	}
	commit()
	bad, _ := sweepAll(t, l, one.exec, func() {})
	if steps := int64(len(keys)/sweepKeys + 2); bad[0] != 0 || bad[1] != 1 || one.exec.Now() > steps*31e9 {
		t.Errorf("it finds %d in %d s", bad, one.exec.Now()/1e9)
	}
}
