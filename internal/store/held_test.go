package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// queueRig is a queue whose transfers the test ends.
type queueRig struct {
	queue
	begun []*xfer // under way
}

func (r *queueRig) submit(write bool, off, n uint64) *xfer {
	x := &xfer{io: &block.IO{Write: write, Off: off, N: n}}
	if r.enter(x) {
		r.begun = append(r.begun, x)
	}
	return x
}

func (r *queueRig) end(i int) *xfer {
	x := r.begun[i]
	r.begun[i] = r.begun[len(r.begun)-1]
	r.begun = r.begun[:len(r.begun)-1]
	r.remove(x)
	r.begun = r.advance(r.begun)
	return x
}

// TestQueueOrder: of transfers that touch the same sectors, one of them a write, the later one never begins
// before the earlier one has ended; reads wait for no writes that they do not meet, and for no reads but
// for the depth; and all come to their end, whichever ends first.
func TestQueueOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(uint64(testkit.Seed(t)), 2))
	for range 300 {
		var r queueRig
		number, open := map[*xfer]int{}, []*xfer{} // of all; those that have not ended, in order
		size := uint64(8) << rnd.IntN(8)           // sectors
		writes := rnd.IntN(4)                      // of 4
		check := func() {
			t.Helper()
			under := map[*xfer]bool{}
			for _, x := range r.begun {
				under[x] = true
			}
			reads, free := 0, true // of writes that came before
			for i, x := range open {
				if under[x] {
					for _, y := range open[:i] {
						if (x.io.Write || y.io.Write) && x.io.Off < y.io.Off+y.io.N && y.io.Off < x.io.Off+x.io.N {
							t.Fatalf("transfer %d has begun although %d before it has not ended", number[x], number[y])
						}
					}
				}
				if free = free && !x.io.Write; free { // a read, and no write before it
					if reads++; reads <= depth && !under[x] {
						t.Fatalf("read %d waits for nothing", number[x])
					}
				}
			}
		}
		for n := range 1 + rnd.IntN(600) {
			from := uint64(rnd.IntN(int(size)))
			count := 1 + uint64(rnd.IntN(int(min(size-from, 1<<rnd.IntN(8)))))
			if rnd.IntN(50) == 0 { // it is none, and may ask for it
				from, count = from*uint64(rnd.IntN(2)), 0
			}
			x := r.submit(rnd.IntN(4) < writes, from*block.SectorSize, count*block.SectorSize)
			number[x] = n
			open = append(open, x)
			if n%16 == 0 {
				check()
			}
			for rnd.IntN(3) == 0 && len(r.begun) > 0 {
				gone := r.end(rnd.IntN(len(r.begun)))
				open = without(open, gone)
			}
		}
		for len(r.begun) > 0 {
			if rnd.IntN(8) == 0 {
				check()
			}
			open = without(open, r.end(rnd.IntN(len(r.begun))))
		}
		if len(open) != 0 {
			t.Fatalf("%d of %d never began", len(open), len(number))
		}
		emptyQueue(t, &r.queue)
	}
}

func without(list []*xfer, x *xfer) []*xfer {
	for i := range list {
		if list[i] == x {
			return append(list[:i], list[i+1:]...)
		}
	}
	panic("it is not there")
}

// TestReadsHaveTheirOwnDepth: however many writes are under way or held, a read that meets none begins.
func TestReadsHaveTheirOwnDepth(t *testing.T) {
	var r queueRig
	for i := range uint64(10 * depth) {
		r.submit(true, i*4096, 4096)
	}
	r.submit(true, 1<<30, 2*depthBytes)
	before := len(r.begun)
	for i := range uint64(depth) {
		r.submit(false, 1<<32+i*4096, 4096)
	}
	if n := len(r.begun) - before; before != depth || n != depth {
		t.Errorf("%d writes and %d reads have begun", before, n)
	}
}

// loads are what may be held in large numbers, as a redo does it.
var loads = map[string]func(r *queueRig, i, n int){
	"pages":       func(r *queueRig, i, n int) { r.submit(true, uint64(i)*4096, 4096) },
	"parts":       func(r *queueRig, i, n int) { r.submit(true, uint64(i/2)*4096+uint64(i%2)*2048, 1024) },
	"one page":    func(r *queueRig, i, n int) { r.submit(true, 0, 4096) },
	"reads":       func(r *queueRig, i, n int) { r.submit(false, 0, 4096) },
	"overlapping": func(r *queueRig, i, n int) { r.submit(i%3 == 0, uint64(i)*2048, 16384) },
	"mixed": func(r *queueRig, i, n int) {
		r.submit(i%2 == 0, uint64(i*7919%n)*4096, 4096<<(i%3))
	},
}

// held holds n transfers of a load, and has all of them end; it returns what was looked at.
func held(load func(r *queueRig, i, n int), n int) int {
	var r queueRig
	for i := range n {
		load(&r, i, n)
	}
	for len(r.begun) > 0 {
		r.end(0)
	}
	return r.index.looked
}

// TestCostOfHeld: ten times as many transfers that are held cost ten times as much, and not a hundred
// times.
func TestCostOfHeld(t *testing.T) {
	for name, load := range loads {
		const n = 10_000
		few, many := held(load, n), held(load, 10*n)
		t.Logf("%s: %.1f looks a transfer of %d, %.1f of %d", name, float64(few)/n, n, float64(many)/(10*n), 10*n)
		if many > 12*few || few > 2*(2*depth+64)*n {
			t.Errorf("%s: %d transfers have %d looks, %d have %d", name, n, few, 10*n, many)
		}
	}
}

// BenchmarkHeld holds transfers and ends them: the time of one must not depend on their number.
func BenchmarkHeld(b *testing.B) {
	for _, name := range []string{"pages", "overlapping"} {
		for _, n := range []int{1000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for range b.N {
					held(loads[name], n)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/transfer")
			})
		}
	}
}
