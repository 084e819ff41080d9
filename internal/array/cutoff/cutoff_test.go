package cutoff

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestRandom: an index finds what a walk through all of a stack does, whatever is pushed and popped in between.
func TestRandom(t *testing.T) {
	seed := testkit.Seed(t)
	found, mapped := 0, 0
	for round := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, round))
		var x Index
		var stack []node.Key
		keys := func(i int) node.Key { return stack[i] }
		orderly, leaf := rnd.IntN(3) > 0, uint64(0)
		for range 400 {
			switch n := rnd.IntN(20); {
			case n < 11: // a start finds leaves in their order
				k := node.LeafKey(uint32(rnd.IntN(2)), rnd.Uint64N(60))
				if n == 0 {
					k.Level, k.Index = uint8(rnd.IntN(node.MaxLevels)), 0
				} else if orderly && len(stack) < 100 {
					leaf += 1 + rnd.Uint64N(2)
					k = node.LeafKey(7, leaf)
				}
				stack = append(stack, k)
			case n < 18 && len(stack) > 0 && (!orderly || n < 14):
				x.Pop(len(stack), stack[len(stack)-1])
				stack = stack[:len(stack)-1]
			case rnd.IntN(100) == 0:
				for len(stack) > 0 {
					x.Pop(len(stack), stack[len(stack)-1])
					stack = stack[:len(stack)-1]
				}
				leaf = 0
			}
			if rnd.IntN(3) > 0 {
				continue
			}
			k := node.LeafKey(uint32([]int{0, 1, 7}[rnd.IntN(3)]), rnd.Uint64N(max(60, leaf+2)))
			var got, want []int
			x.Find(len(stack), keys, k, func(i int) { got = append(got, i) })
			for i, s := range stack {
				if s.Vol == k.Vol && k.Index>>(node.FanoutBits*uint(s.Level)) == s.Index {
					want = append(want, i)
				}
			}
			if slices.Sort(got); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("-seed %d, round %d: leaf %+v is found at %v, not %v, of %v", seed, round, k, got, want, stack)
			}
			found += len(want)
			mapped += len(x.last)
		}
	}
	if found < 1000 || mapped < 1000 {
		t.Errorf("%d leaves were found, and %d keys were in a map: the test shows too little", found, mapped)
	}
}
