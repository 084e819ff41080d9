package metadata

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// tornRenewing is torn whose copies are made anew, from what can be read of the chosen one.
type tornRenewing struct{ torn }

func (r tornRenewing) Renew(i int, _ error) {
	kv := maps.Clone(r.of(r.chosen).kv)
	for k := range r.at[r.chosen] {
		delete(kv, k)
	}
	clear(r.at[i])
	r.of(i).kv = kv
}

func (r tornRenewing) CommitNow(batch []block.KV) error {
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

// TestNoPageIsLost: whatever either copy has lost of pages, and be one of them older than the other: each page that one of them had
// is there behind a start, and behind the next.
func TestNoPageIsLost(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	renewed, both := 0, 0
	for n := range 2000 {
		one, keys := withLeaves(t, 40)
		two, _ := withLeaves(t, 40)
		p := tornRenewing{torn{choosing: choosing{&pair{fake: one, other: two}}, at: [2]map[string]bool{{}, {}}}}
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
					t.Fatalf("case %d, -seed %d, start %d: page %x is lost: %v; damage %x", n, seed, round, k, err, lost)
				}
			}
		}
	}
	if renewed < 100 || both < 100 {
		t.Errorf("%d times a copy is older, %d times both are damaged: the test shows too little", renewed, both)
	}
}
