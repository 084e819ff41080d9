package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// rebuilt is halting of which a copy may be made anew.
type rebuilt struct {
	halting
	full    bool // there is no room for another copy
	failed  error
	renewed int // how many times one was
}

func (r *rebuilt) Renew(i int, _ error, entries func(func(key, value []byte) error) error) {
	if r.full {
		r.behind = true
		return
	}
	kv := map[string][]byte{}
	if r.failed = entries(func(k, v []byte) error {
		kv[string(k)] = bytes.Clone(v)
		return nil
	}); r.failed == nil {
		r.of(i).kv, r.at[i] = kv, map[string]bool{}
		r.renewed++
	}
}

func (r *rebuilt) CommitNow(batch []block.KV) error {
	for i := range 2 {
		if err := r.of(i).CommitNow(batch); err != nil {
			return err
		}
		for _, e := range batch {
			delete(r.at[i], string(e.Key))
		}
	}
	return nil
}

// TestRebuiltFromBothCopies: a copy that is made anew has each entry that either copy has as the books say. Where it cannot
// be read whether it is the only one that has an entry, it stays as it was. What neither has is as in the loaded copy.
func TestRebuiltFromBothCopies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	refused, mixed := 0, 0
	for n := range 1500 {
		one, keys := withLeaves(t, 60)
		two, _ := withLeaves(t, 60)
		good := maps.Clone(one.kv)
		p := &rebuilt{halting: halting{choosing: choosing{&pair{fake: one, other: two, chosen: rnd.IntN(2)}}, at: [2]map[string]bool{{}, {}}}}
		l := loadedLedger(t, p, one.exec, Hooks{})
		loaded, old := p.chosen, 1-p.chosen
		p.of(old).kv["n of nobody"], p.of(loaded).kv["n of nobody"] = []byte("x"), []byte("x")
		for range 1 + rnd.IntN(4) {
			k := keys[rnd.IntN(len(keys))]
			for i := range 2 {
				switch rnd.IntN(6) {
				case 0:
					p.of(i).kv[k] = fmt.Appendf(nil, "damage %d", i)
				case 1:
					delete(p.of(i).kv, k)
				case 2:
					p.at[i][k] = true
				}
			}
		}
		has := func(i int, k string) bool { return !p.at[i][k] && bytes.Equal(p.of(i).kv[k], good[k]) }
		want, fails, both := map[string][]byte{}, false, false
		for k, v := range good {
			switch {
			case has(loaded, k) || has(old, k):
				want[k] = v
				both = both || !has(loaded, k)
			case p.at[old][k]:
				fails = true
			case !p.at[loaded][k] && p.of(loaded).kv[k] != nil:
				want[k] = p.of(loaded).kv[k]
			}
		}
		was := maps.Clone(p.of(old).kv)
		p.Renew(old, errors.New("a test"), l.whole(p, old))
		if fails {
			want = was
			refused++
		} else if both {
			mixed++
		}
		if got := p.of(old).kv; (p.failed != nil) != fails || !maps.EqualFunc(got, want, bytes.Equal) || p.chosen != loaded {
			t.Fatalf("case %d, -seed %d: %v; it has %d entries, not %d; copy %d is chosen", n, testkit.Seed(t), p.failed, len(got), len(want), p.chosen)
		}
		if both && !fails && !l.seen {
			t.Fatalf("case %d, -seed %d: nobody knows that the loaded copy is damaged", n, testkit.Seed(t))
		}
	}
	if t.Logf("%d were refused, %d made of both", refused, mixed); refused < 100 || mixed < 100 {
		t.Error("the test shows too little")
	}
}

// TestNoPageIsLost: whatever either copy has lost of pages, and be one of them older than the other: each page that one of them had
// is there behind a start, and behind the next.
func TestNoPageIsLost(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	renewed, both := 0, 0
	for n := range 2000 {
		one, keys := withLeaves(t, 40)
		two, _ := withLeaves(t, 40)
		p := &rebuilt{halting: halting{choosing: choosing{&pair{fake: one, other: two}}, at: [2]map[string]bool{{}, {}}}}
		start := func() *Ledger {
			l := New(p, one.exec, Hooks{})
			_, err := l.Parts()
			for _, prefix := range []string{"l", "o"} {
				if err == nil {
					err = l.Load(prefix, func(_, _ []byte) error { return nil })
				}
			}
			if err == nil {
				err = l.Check(1, false)
			}
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		if rnd.IntN(2) == 0 { // a batch that the second copy lacks
			l := start()
			l.store = one
			if err := l.CommitNow([]block.KV{{Key: []byte("o"), Value: []byte("newer")}}); err != nil {
				t.Fatal(err)
			}
			renewed++
		}
		lost := [2]map[string]bool{{}, {}}
		for range rnd.IntN(6) {
			i, k := rnd.IntN(2), keys[rnd.IntN(len(keys))]
			switch lost[i][k] = true; rnd.IntN(3) {
			case 0:
				p.of(i).kv[k] = []byte("damage")
			case 1:
				delete(p.of(i).kv, k)
			default:
				p.at[i][k] = true
			}
		}
		if len(lost[0])*len(lost[1]) > 0 {
			both++
		}
		for round := range 2 {
			p.chosen = 0
			l := start()
			for range rnd.IntN(3) { // the start needs some pages
				_, _ = l.ReadNow([]byte(keys[rnd.IntN(len(keys))]))
			}
			if err := l.SettleCopies(); err != nil {
				t.Fatal(err)
			}
			for _, k := range keys {
				v, err := l.ReadNow([]byte(k))
				if !(lost[0][k] && lost[1][k]) && (err != nil || string(v) != fmt.Sprintf("page %x", k)) {
					t.Fatalf("case %d, -seed %d, start %d: page %x is lost: %v; damage %v", n, seed, round, k, err, lost)
				}
			}
		}
	}
	if renewed < 100 || both < 100 {
		t.Errorf("%d times a copy is older, %d times both are damaged: the test shows too little", renewed, both)
	}
}

// TestDamageOfBothCopies: both copies have lost pages, and the store says that one is damaged. Where each page can be read in one of
// them a start makes both anew, and nothing is said any more. Else both stay, and each start says so. No page is lost.
func TestDamageOfBothCopies(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 2))
	outcomes := map[string]int{}
	for n := range 1500 {
		p, keys := marked(t)
		lost := [2]map[string]bool{{}, {}}
		for i := range 2 {
			for range 1 + rnd.IntN(3) {
				k := keys[rnd.IntN(len(keys))]
				switch lost[i][k] = true; rnd.IntN(3) {
				case 0:
					p.of(i).kv[k] = []byte("damage")
				case 1:
					delete(p.of(i).kv, k)
				default:
					p.at[i][k] = true
				}
			}
		}
		p.full = rnd.IntN(8) == 0
		gone, hidden := 0, 0
		for k := range lost[0] {
			if lost[1][k] {
				if gone++; p.at[1][k] {
					hidden++
				}
			}
		}
		for round := range 2 {
			l := p.started(t, 1)
			for _, k := range keys {
				v, err := l.ReadNow([]byte(k))
				if !(lost[0][k] && lost[1][k]) && (err != nil || string(v) != fmt.Sprintf("page %x", k)) {
					t.Fatalf("case %d, -seed %d, start %d: page %x is lost: %v; damage %v", n, seed, round, k, err, lost)
				}
			}
			damaged, each := l.Damaged()
			whole := verify(p.of(0), 1) == nil && verify(p.of(1), 1) == nil && len(p.at[0])+len(p.at[1]) == 0
			marked, _ := p.Get([]byte(keySuspect))
			switch {
			case gone == 0 && !p.full:
				if outcomes["mended"]++; !whole || damaged || each || marked != nil {
					t.Fatalf("case %d, -seed %d, start %d: both are whole: %v; said of one: %v, of each: %v, in the store: %q", n, seed, round, whole, damaged, each, marked)
				}
			case round == 0 || hidden > 0:
				if outcomes["not mended"]++; !damaged || !each || marked == nil {
					t.Fatalf("case %d, -seed %d, start %d: nobody knows that both are damaged: said of one: %v, of each: %v, in the store: %q; damage %v", n, seed, round, damaged, each, marked, lost)
				}
			}
			if hidden > 0 && p.behind && !p.full {
				t.Fatalf("case %d, -seed %d: a copy is left alone for pages that it cannot read", n, seed)
			}
		}
	}
	if t.Log(outcomes); outcomes["mended"] < 100 || outcomes["not mended"] < 100 {
		t.Error("the test shows too little")
	}
}

// started is a start from the store, with its first checkpoint.
func (r *rebuilt) started(t *testing.T, least uint64) *Ledger {
	t.Helper()
	l, err := FromBest(r, func() Known { return Known{Least: least, Some: true} }, func(damaged []error, _ error) (*Ledger, error) {
		l := loadedLedger(t, r, r.exec, Hooks{})
		l.Mistrust(damaged)
		return l, l.Check(least, false)
	})
	if err == nil {
		err = l.SettleCopies()
	}
	if err == nil {
		err = l.CommitNow(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// marked returns copies that say that one is damaged, and their keys.
func marked(t *testing.T) (*rebuilt, []string) {
	one, keys := withLeaves(t, 40)
	two, _ := withLeaves(t, 40)
	p := &rebuilt{halting: halting{choosing: choosing{&pair{fake: one, other: two}}, at: [2]map[string]bool{{}, {}}}}
	for i := range 2 {
		l := loadedLedger(t, p.of(i), one.exec, Hooks{})
		if l.gen, l.seen = 1, true; l.CommitNow(nil) != nil {
			t.Fatal("no batch")
		}
	}
	return p, keys
}

// TestDamageBesideAnOlderCopy: the newest copy has lost pages, and the other one lacks the last batch. A start makes the older one of
// both, and then the newest one of that, and nothing is said any more.
func TestDamageBesideAnOlderCopy(t *testing.T) {
	for newest := range 2 {
		p, keys := marked(t)
		l := loadedLedger(t, p.of(newest), p.exec, Hooks{})
		err := l.Check(2, false)
		if l.seen = true; err == nil {
			err = l.CommitNow([]block.KV{{Key: []byte("o"), Value: []byte("newer")}})
		}
		if err != nil {
			t.Fatal(err)
		}
		p.at[newest][keys[3]] = true
		delete(p.of(newest).kv, keys[7])
		l = p.started(t, 3)
		if p.chosen == newest {
			t.Errorf("copy %d is not made anew, which is damaged", newest)
		}
		one, each := l.Damaged()
		if v, _ := p.Get([]byte(keySuspect)); one || each || v != nil {
			t.Errorf("said of one: %v, of each: %v, in the store: %q", one, each, v)
		}
		for i := range 2 {
			if err := verify(p.of(i), 3); err != nil {
				t.Errorf("copy %d: %v", i, err)
			}
		}
	}
}

// TestNothingToGain: a copy was lost, and made of the other one, which has a damaged page. The next starts do not make it once more: it
// has all that the other one has.
func TestNothingToGain(t *testing.T) {
	p, keys := marked(t)
	p.at[0][keys[3]], p.other.kv = true, map[string][]byte{}
	for n := range 4 {
		was := p.renewed
		l := p.started(t, 1)
		if anew := p.renewed - was; anew > 0 != (n == 0) {
			t.Errorf("start %d makes %d copies anew", n, anew)
		}
		if _, each := l.Damaged(); !each {
			t.Errorf("start %d does not say that each is damaged", n)
		}
	}
	delete(p.other.kv, keys[5]) // this one the other copy has
	if p.started(t, 1); string(p.other.kv[keys[5]]) != string(p.kv[keys[5]]) {
		t.Error("it does not get a page that it lacks")
	}
}
