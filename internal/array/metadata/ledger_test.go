package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fake is a meta store whose commits take a while, and fail, applied or not.
type fake struct {
	kv    map[string][]byte
	exec  *block.Virtual
	rnd   *rand.Rand
	limit int
	fails bool
}

func (f *fake) Limit() int { return f.limit }

func (f *fake) Get(key []byte) ([]byte, error) { return bytes.Clone(f.kv[string(key)]), nil }

func (f *fake) Read(key []byte, done func([]byte, error)) {
	value := bytes.Clone(f.kv[string(key)])
	f.exec.Post(func() { done(value, nil) })
}

func (f *fake) CommitNow(batch []block.KV) error {
	if err := block.CheckBatch(batch, f.limit); err != nil {
		return err
	}
	for _, e := range batch {
		if f.kv[string(e.Key)] = e.Value; e.Value == nil {
			delete(f.kv, string(e.Key))
		}
	}
	return nil
}

var errFake = errors.New("input/output error")

func (f *fake) Commit(batch []block.KV, done func(error)) {
	f.exec.At(f.exec.Now()+f.rnd.Int64N(100), func() {
		err := block.CheckBatch(batch, f.limit)
		fails := f.fails && f.rnd.IntN(3) == 0
		if err == nil && (!fails || f.rnd.IntN(2) == 0) {
			err = f.CommitNow(batch)
		}
		if err == nil && fails {
			err = errFake
		}
		done(err)
	})
}

func (f *fake) Load(prefix []byte, fn func(key, value []byte) error) error {
	for _, k := range slices.Sorted(maps.Keys(f.kv)) {
		if strings.HasPrefix(k, string(prefix)) {
			if err := fn([]byte(k), f.kv[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// reopen is a start: everything is read, some of it by its keys, and checked.
func reopen(f *fake, hooks Hooks, least uint64) (*Ledger, error) {
	l := New(f, f.exec, hooks)
	for _, prefix := range []string{"a", "b", "c"} {
		if err := l.Load(prefix, func(k, v []byte) error { return nil }); err != nil {
			return nil, err
		}
	}
	if _, err := l.Get("x"); err != nil {
		return nil, err
	}
	return l, l.Check(least, false)
}

// TestBooks commits batches of which some fail, applied or not, and some are too large, and dies at any moment: what is there then
// has the number and the digest that it should, and holds for every key what was durable last or was tried since.
func TestBooks(t *testing.T) {
	seed := testkit.Seed(t)
	failed, refused, starts := 0, 0, 0
	for s := seed; s < seed+200; s++ {
		rnd := rand.New(rand.NewPCG(s, 3))
		f := &fake{kv: map[string][]byte{}, exec: &block.Virtual{}, rnd: rnd, limit: 2000, fails: s%2 == 0}
		what := fmt.Sprintf("-run %s -seed %d", t.Name(), s)
		least := uint64(0)
		may := map[string][][]byte{} // what a key may have
		hooks := Hooks{Durable: func(gen uint64) { least = gen }, Again: func(e block.KV) []block.KV { return []block.KV{e} }}
		l, err := reopen(f, hooks, 0)
		if err != nil {
			t.Fatal(err)
		}
		keys := []string{"a1", "a2", "b", "c1", "c2", "c3", "x"}
		for range 6 {
			for range rnd.IntN(30) {
				var entries []block.KV
				for range 1 + rnd.IntN(4) {
					k := keys[rnd.IntN(len(keys))]
					if slices.ContainsFunc(entries, func(e block.KV) bool { return string(e.Key) == k }) {
						continue
					}
					v := bytes.Repeat([]byte{byte(rnd.Uint32())}, 1+rnd.IntN(100))
					if n := rnd.IntN(12); n == 0 {
						v = bytes.Repeat(v, 2500/len(v))
					} else if n < 4 {
						v = nil
					}
					entries = append(entries, block.KV{Key: []byte(k), Value: v})
				}
				l.Commit(func() []block.KV {
					for _, e := range entries {
						if may[string(e.Key)] == nil {
							may[string(e.Key)] = [][]byte{nil}
						}
						may[string(e.Key)] = append(may[string(e.Key)], e.Value)
					}
					return entries
				}, func(err error) {
					switch {
					case err == nil:
						for k := range may {
							may[k] = may[k][len(may[k])-1:]
						}
					case errors.Is(err, block.ErrBatch):
						for _, e := range entries {
							k := string(e.Key)
							may[k] = may[k][:len(may[k])-1]
						}
						refused++
					default:
						failed++
					}
				})
				if rnd.IntN(3) == 0 {
					f.exec.RunUntil(f.exec.Now() + rnd.Int64N(200))
				}
			}
			f.exec = &block.Virtual{} // it dies
			if l, err = reopen(f, hooks, least); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			starts++
			for _, k := range keys {
				v, err := f.Get([]byte(k))
				list := may[k]
				if list == nil {
					list = [][]byte{nil}
				}
				if err != nil || !slices.ContainsFunc(list, func(w []byte) bool { return bytes.Equal(v, w) && (v == nil) == (w == nil) }) {
					t.Fatalf("%s: %s holds %d bytes, %v, that it may not", what, k, len(v), err)
				}
				may[k] = [][]byte{v}
			}
		}
	}
	if failed == 0 || refused == 0 || starts == 0 {
		t.Errorf("%d batches failed, %d were too large: the test does not get there", failed, refused)
	}
}

// TestLossesAreFound: a store that lost its last batch, a key, or has another value, is refused in one line.
func TestLossesAreFound(t *testing.T) {
	for what, row := range map[string]struct {
		damage func(f *fake)
		least  uint64
		says   string
	}{
		"nothing":       {func(*fake) {}, 2, ""},
		"a lost batch":  {func(*fake) {}, 5, "have lost their last 3 changes"},
		"a lost key":    {func(f *fake) { delete(f.kv, "a1") }, 2, "missing or older"},
		"another value": {func(f *fake) { f.kv["b"] = []byte("y") }, 2, "missing or older"},
		"a torn number": {func(f *fake) { f.kv["g"] = f.kv["g"][:9] }, 2, "the number of the last checkpoint is damaged"},
	} {
		f := &fake{kv: map[string][]byte{}, exec: &block.Virtual{}, limit: 1000}
		l := New(f, f.exec, Hooks{})
		for i := range 2 {
			if err := l.CommitNow([]block.KV{{Key: fmt.Appendf(nil, "a%d", i), Value: []byte{1}}, {Key: []byte("b"), Value: []byte{byte(i)}}}); err != nil {
				t.Fatal(err)
			}
		}
		row.damage(f)
		_, err := reopen(f, Hooks{}, row.least)
		if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestClosedLedgerRefuses: what waits when it is closed is refused, in its order, and nothing of it is written.
func TestClosedLedgerRefuses(t *testing.T) {
	f := &fake{kv: map[string][]byte{}, exec: &block.Virtual{}, rnd: rand.New(rand.NewPCG(1, 1)), limit: 1000}
	l := New(f, f.exec, Hooks{Durable: func(uint64) {}, Again: func(e block.KV) []block.KV { return []block.KV{e} }})
	var ended []string
	for _, k := range []string{"a1", "a2", "a3"} {
		l.Commit(func() []block.KV { return []block.KV{{Key: []byte(k), Value: []byte{1}}} },
			func(err error) { ended = append(ended, fmt.Sprint(k, " ", err)) })
	}
	l.Close()
	f.exec.Run()
	if want := []string{"a1 <nil>", "a2 the array has stopped", "a3 the array has stopped"}; !slices.Equal(ended, want) || len(f.kv) != 2 || !l.Closed() || l.Busy() {
		t.Errorf("%q, and the store has %d keys", ended, len(f.kv))
	}
}
