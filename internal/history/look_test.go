package history

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/testkit"
)

// plain makes a result comparable: NaN is equal to nothing.
func plain(r Result) string {
	return fmt.Sprintf("%v %v %v", r.Step, r.Times, r.Covered) + fmt.Sprintf("%v", r.Objects)
}

// TestLookStaysAsItWas: a query computes without the history's lock, and what happens meanwhile, a
// sample, an object that goes and one that gets its number, does not change its answer.
func TestLookStaysAsItWas(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 2))
	h := Open("", []Kind{{Name: "total", Fields: []Field{{Name: "a"}}, Always: true},
		{Name: "volume", Fields: []Field{{Name: "a", Rank: true}, {Name: "b", Rule: Max}, {Name: "c", Rule: Weighted, Weight: 0}}}}, func(string) {})
	at := time.Unix(1_700_000_000, 0)
	sample := func(generation int) {
		span := time.Duration(1+rnd.IntN(3000)) * time.Millisecond
		at = at.Add(span)
		rows := []Row{{Kind: "total", Values: []float32{rnd.Float32()}}}
		for v := range 80 {
			if rnd.IntN(4) > 0 {
				rows = append(rows, Row{Kind: "volume", Name: fmt.Sprintf("v%d-%d", v, generation), Values: []float32{rnd.Float32(), rnd.Float32(), rnd.Float32()}})
			}
		}
		h.Append(at, span, rows)
	}
	for range 1500 {
		sample(1)
	}
	for round := range 20 {
		var looks []*look
		var before []string
		for _, back := range []time.Duration{time.Minute, 50 * time.Minute, 3 * time.Hour, CoarseAge} {
			l := h.look(Query{From: at.Add(-back), To: at.Add(time.Duration(rnd.IntN(60)) * time.Second), Points: 1 + rnd.IntN(300), Top: rnd.IntN(70)})
			looks, before = append(looks, l), append(before, plain(l.result()))
		}
		for range 300 {
			sample(1 + round/4)
		}
		if round%5 == 4 { // all objects go, and their numbers with them
			at = at.Add(2 * CoarseAge)
			sample(2 + round)
			sample(2 + round)
		}
		h.mu.Lock() // whoever needs it waits for ever
		for i, l := range looks {
			if after := plain(l.result()); !reflect.DeepEqual(before[i], after) {
				t.Fatalf("seed %d, round %d: query %d has another answer:\n%.300s\n%.300s", seed, round, i, before[i], after)
			}
		}
		h.mu.Unlock()
	}
}
