package blocktest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// MetaReads runs the contract of block.MetaStore.Read against stores that run in virtual time: batches and reads in any order, of
// which several are under way. A read gives what was committed before it was asked for, or is newer, is ended once, on the
// executor, and never from inside. Of several copies each is read.
func MetaReads(t *testing.T, seed uint64, open func(t *testing.T, rnd *rand.Rand, exec *block.Virtual) block.MetaStore) {
	const keys = 40
	beside, gone := 0, 0
	for s := seed; s < seed+20; s++ {
		rnd := rand.New(rand.NewPCG(s, 12))
		exec := &block.Virtual{}
		m := open(t, rnd, exec)
		what := fmt.Sprintf("-run %s -seed %d", t.Name(), s)
		key := func(k int) []byte { return fmt.Appendf(nil, "n\x00%d\x01", k) }
		var values [keys][]string // what was committed, in order; "": nothing
		var acked [keys]int       // of these, what is
		for k := range values {
			values[k] = []string{""}
		}
		inside, left := false, 0
		call := func(fn func()) {
			inside = true
			fn()
			inside = false
		}
		for range 300 {
			switch rnd.IntN(3) {
			case 0:
				var batch []block.KV
				at := map[int]int{}
				for range 1 + rnd.IntN(8) {
					k := rnd.IntN(keys)
					if _, ok := at[k]; ok {
						continue
					}
					e, v := block.KV{Key: key(k)}, ""
					if rnd.IntN(5) > 0 {
						v = fmt.Sprint(len(values[k]), rnd.Uint64())
						e.Value = []byte(v)
					}
					values[k] = append(values[k], v)
					at[k] = len(values[k]) - 1
					batch = append(batch, e)
				}
				left++
				call(func() {
					m.Commit(batch, func(err error) {
						if left--; err != nil || inside {
							t.Fatalf("%s: a batch has ended with %v, inside of the call: %v", what, err, inside)
						}
						for k, i := range at {
							acked[k] = i
						}
					})
				})
			case 1:
				k := rnd.IntN(keys)
				least, ended := acked[k], false
				done := func(value []byte, err error) {
					left--
					if err != nil || inside || ended {
						t.Fatalf("%s: a read has ended with %v, inside of the call: %v, again: %v", what, err, inside, ended)
					}
					ended = true
					for i := least; i < len(values[k]); i++ {
						if v := values[k][i]; v == string(value) && (v == "") == (value == nil) {
							if i > least {
								beside++
							}
							if value == nil {
								gone++
							}
							return
						}
					}
					t.Fatalf("%s: key %d is %q, which is none of %q", what, k, value, values[k][least:])
				}
				left++
				call(func() {
					if c, ok := m.(block.MetaCopies); ok && rnd.IntN(2) == 0 {
						c.ReadFrom(rnd.IntN(c.Copies()), key(k), done)
					} else {
						m.Read(key(k), done)
					}
				})
			default:
				exec.RunUntil(exec.Now() + rnd.Int64N(3000))
			}
		}
		exec.RunUntil(exec.Now() + 60e9)
		if left != 0 {
			t.Fatalf("%s: %d batches and reads have not ended", what, left)
		}
	}
	if gone == 0 {
		t.Errorf("%d reads saw what came behind them, %d that there is nothing: the test shows too little", beside, gone)
	}
}
