package metadata

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// halting is a pair of which some keys of a copy cannot be read: a walk through that ends there.
type halting struct {
	choosing
	at [2]map[string]bool
}

func (x halting) Get(key []byte) ([]byte, error) {
	if x.at[x.chosen][string(key)] {
		return nil, errFake
	}
	return x.choosing.Get(key)
}

func (x halting) Load(prefix []byte, fn func(key, value []byte) error) error {
	at := x.at[x.chosen]
	return x.choosing.Load(prefix, func(k, v []byte) error {
		if at[string(k)] {
			return errFake
		}
		return fn(k, v)
	})
}

// withLeaves returns a store of the pages of several volumes, and their keys in order.
func withLeaves(t *testing.T, n int) (f *fake, keys []string) {
	t.Helper()
	f = &fake{kv: map[string][]byte{}, exec: &block.Virtual{}, limit: 1 << 20}
	l := New(f, f.exec, Hooks{})
	var batch []block.KV
	for i := range n {
		k := node.Key{Vol: uint32(i / 7), Level: uint8(i / 4 % 2), Index: uint64(i%4) * 200}.Bytes()
		page := fmt.Appendf(nil, "page %x", k)
		keys = append(keys, string(k))
		batch = append(batch, block.KV{Key: k, Value: page},
			block.KV{Key: node.EntryKey(k), Value: binary.LittleEndian.AppendUint32(nil, checksumOf(page))})
	}
	l.VerifyByParts()
	if err := l.CommitNow(append(batch, block.KV{Key: []byte("o"), Value: []byte("objects")})); err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return f, keys
}

// loadedLedger returns a ledger whose entries are loaded, but for the pages.
func loadedLedger(t *testing.T, store block.MetaStore, exec block.Executor, hooks Hooks) *Ledger {
	t.Helper()
	l := New(store, exec, hooks)
	if _, err := l.Parts(); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"l", "o"} {
		if err := l.Load(prefix, func(_, _ []byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// TestPagesOfEitherCopy: each page comes from a copy that has it as its entry says, in the order of the keys, whatever either
// has lost: a value, a key, or what lies behind a place that cannot be read.
func TestPagesOfEitherCopy(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	outcomes := [2]int{}
	for n := range 3000 {
		one, keys := withLeaves(t, 60)
		two, _ := withLeaves(t, 60)
		p := halting{choosing: choosing{&pair{fake: one, other: two, chosen: rnd.IntN(2)}}, at: [2]map[string]bool{{}, {}}}
		state := map[string][2]int{} // good, bad, gone, not to be read
		damage := func(k string, i, how int) {
			x := state[k]
			if x[i] != 0 {
				return
			}
			x[i] = how
			switch state[k] = x; how {
			case 1:
				p.of(i).kv[k] = []byte("damage")
			case 2:
				delete(p.of(i).kv, k)
			case 3:
				p.at[i][k] = true
			}
		}
		for range rnd.IntN(5) {
			k := keys[rnd.IntN(len(keys))]
			damage(k, rnd.IntN(2), 1+rnd.IntN(3))
			if rnd.IntN(16) == 0 { // nearly always another copy has it
				damage(k, rnd.IntN(2), 1+rnd.IntN(3))
			}
		}
		l := loadedLedger(t, p, one.exec, Hooks{})
		if err := l.Check(1, false); err != nil {
			t.Fatal(err)
		}
		prefix := []string{"n", string(node.LevelPrefix(3, 0)), string(node.LevelPrefix(3, 1)), keys[11]}[rnd.IntN(4)]
		var want []string
		fails, other := false, false
		for _, k := range keys {
			if len(k) < len(prefix) || k[:len(prefix)] != prefix {
				continue
			}
			x := state[k]
			switch {
			case x[0] == 0 || x[1] == 0:
				want = append(want, fmt.Sprintf("%x page %x", k, k))
				other = other || x[p.chosen] != 0
			case x != [2]int{2, 2}:
				fails = true
			}
		}
		for _, load := range []func(fn func(k, v []byte) error) error{
			func(fn func(k, v []byte) error) error { return l.Load(prefix, fn) },
			func(fn func(k, v []byte) error) error { return l.LoadAgain([]byte(prefix), fn) },
		} {
			var got []string
			err := load(func(k, v []byte) error {
				got = append(got, fmt.Sprintf("%x %s", k, v))
				return nil
			})
			if (err != nil) != fails || err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("case %d, -seed %d: %v; %d pages, not %d; damage %v", n, seed, err, len(got), len(want), state)
			}
			if err == nil && other && !l.seen {
				t.Fatalf("case %d, -seed %d: nobody knows that a copy is damaged", n, seed)
			}
		}
		if fails {
			outcomes[0]++
		} else if other {
			outcomes[1]++
		}
	}
	if t.Logf("pages that no copy has, and that one has: %d", outcomes); outcomes[0] < 10 || outcomes[1] < 100 {
		t.Error("the test shows too little")
	}
}

// TestWholeCopyIsTheSource: a start that had to read a page from the other copy makes the one that it has loaded anew, and not
// the one that is whole.
func TestWholeCopyIsTheSource(t *testing.T) {
	for damaged := range 3 { // 2: one of each
		one, keys := withLeaves(t, 10)
		two, _ := withLeaves(t, 10)
		p := renewing{choosing{&pair{fake: one, other: two, chosen: damaged % 2}}}
		l := New(p, one.exec, Hooks{})
		_, err := l.Parts()
		if damaged != 1 {
			one.kv[keys[3]] = []byte("damage")
		}
		if damaged != 0 {
			delete(two.kv, keys[4])
		}
		for _, prefix := range []string{"l", "o", "n"} {
			if err == nil {
				err = l.Load(prefix, func(_, _ []byte) error { return nil })
			}
		}
		if err == nil {
			err = l.Check(1, false)
		}
		if err == nil {
			err = l.SettleCopies()
		}
		if err != nil {
			t.Errorf("case %d: %v", damaged, err)
			continue
		}
		for i, f := range []*fake{one, two} {
			if err := verify(f, 1); (err == nil) != (damaged < 2) {
				t.Errorf("case %d: copy %d: %v", damaged, i, err)
			}
		}
		if l.seen != (damaged == 2) || len(one.kv) < len(keys) {
			t.Errorf("case %d: suspect: %v", damaged, l.seen)
		}
	}
}

// TestUnreadableWithoutCopies: where there is no other copy, none is said to be damaged that a start could make anew.
func TestUnreadableWithoutCopies(t *testing.T) {
	one, keys := withLeaves(t, 10)
	l := loadedLedger(t, ending{one, keys[4]}, one.exec, Hooks{})
	if err := l.LoadReadable([]byte("n"), func(_, _ []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if damaged, each := l.Damaged(); damaged || each {
		t.Errorf("it says of one copy: %v, of each: %v", damaged, each)
	}
}

// ending is a meta store in which a walk ends at a key.
type ending struct {
	*fake
	at string
}

func (e ending) Load(prefix []byte, fn func(key, value []byte) error) error {
	return e.fake.Load(prefix, func(k, v []byte) error {
		if string(k) == e.at {
			return errFake
		}
		return fn(k, v)
	})
}
