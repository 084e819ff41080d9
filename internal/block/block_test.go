package block

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestRange(t *testing.T) {
	const top = ^uint64(0)
	for _, c := range []struct {
		name     string
		a, b     Range
		overlaps bool
	}{
		{"apart", Range{0, 5}, Range{6, 5}, false},
		{"touching", Range{0, 5}, Range{5, 5}, false},
		{"by one", Range{0, 6}, Range{5, 5}, true},
		{"inside", Range{0, 100}, Range{50, 1}, true},
		{"equal", Range{7, 3}, Range{7, 3}, true},
		{"empty inside", Range{0, 100}, Range{50, 0}, false},
	} {
		if c.a.Overlaps(c.b) != c.overlaps || c.b.Overlaps(c.a) != c.overlaps {
			t.Errorf("%s: %v and %v", c.name, c.a, c.b)
		}
	}
	for _, c := range []struct {
		name   string
		r      Range
		size   uint64
		within bool
	}{
		{"all", Range{0, 10}, 10, true},
		{"one too many", Range{0, 11}, 10, false},
		{"one too far", Range{10, 1}, 10, false},
		{"empty at the end", Range{10, 0}, 10, true},
		{"empty behind the end", Range{11, 0}, 10, false},
		{"overflowing", Range{9, top}, 10, false},
		{"at the top", Range{top, 1}, 10, false},
	} {
		if c.r.Within(c.size) != c.within {
			t.Errorf("%s: %v in %d", c.name, c.r, c.size)
		}
	}
}

func TestVirtualOrder(t *testing.T) {
	var v Virtual
	var got []string
	note := func(s string) func() {
		return func() { got = append(got, fmt.Sprintf("%s@%d", s, v.Now())) }
	}
	v.At(20, note("c"))
	v.At(10, note("a"))
	v.At(20, note("d"))
	stopped := v.At(15, note("never"))
	v.At(10, func() {
		note("b")()
		v.Post(note("posted"))
		v.At(5, note("past"))
	})
	if !stopped.Stop() || stopped.Stop() {
		t.Error("a timer is pending once")
	}
	v.RunUntil(15)
	if v.Now() != 15 {
		t.Errorf("it is %d, not 15", v.Now())
	}
	v.Run()
	if want := "[a@10 b@10 posted@10 past@10 c@20 d@20]"; fmt.Sprint(got) != want {
		t.Errorf("ran %v, not %s", got, want)
	}
}

// TestLiveTimeOfAHold: time stands still for the holder until what was posted runs.
func TestLiveTimeOfAHold(t *testing.T) {
	l := NewLive()
	defer l.Stop()
	const work = 2 * time.Millisecond
	var began, same, posted int64
	l.Lock()
	began = l.Now()
	l.Post(func() { posted = l.Now() })
	time.Sleep(work)
	same = l.Now()
	Tick(l)
	ticked := l.Now()
	l.Unlock()
	if same != began {
		t.Errorf("time went on by %d ns during a hold", same-began)
	}
	if ticked-began < int64(work) {
		t.Errorf("after a tick it is %d ns after the beginning of a hold of %v", ticked-began, work)
	}
	if posted-began < int64(work) {
		t.Errorf("what was posted runs %d ns after the beginning of a hold of %v", posted-began, work)
	}
	if after := l.Now(); after < posted {
		t.Errorf("time went back from %d to %d", posted, after)
	}
	l.Lock()
	defer l.Unlock()
	if now := l.Now(); now < posted {
		t.Errorf("time went back from %d to %d", posted, now)
	}
}

// TestTickOfNobody: who does not hold the executor may not have its time go on.
func TestTickOfNobody(t *testing.T) {
	l := NewLive()
	l.Stop() // its goroutine would hold it now and then
	defer func() {
		if recover() == nil {
			t.Error("Tick without the executor does not panic")
		}
	}()
	Tick(l)
}

// TestLiveTimersLetOthersIn: timers that set others for now, each, do not keep the executor.
func TestLiveTimersLetOthersIn(t *testing.T) {
	l := NewLive()
	defer l.Stop()
	var again func()
	const patience = time.Minute
	start, stop, kept := time.Now(), false, false
	began := make(chan struct{}, 1)
	again = func() {
		select {
		case began <- struct{}{}:
		default:
		}
		if kept = time.Since(start) > patience; !stop && !kept {
			l.At(l.Now(), again)
		}
	}
	l.Lock()
	l.At(l.Now(), again)
	l.Unlock()
	<-began
	l.Lock()
	defer l.Unlock()
	stop = true
	if kept {
		t.Error("a chain of timers kept the executor")
	}
}

func TestLivePostsAndTimers(t *testing.T) {
	l := NewLive()
	defer l.Stop()
	// What is posted by many goroutines runs with the executor held: the race
	// detector watches n.
	n := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				l.Post(func() { n++ })
			}
		})
	}
	for range 1000 {
		l.Lock()
		n++
		l.Unlock()
	}
	wg.Wait()
	end := make(chan []int)
	l.Lock()
	var order []int
	now := l.Now()
	for i, at := range []int64{3e6, 1e6, 2e6, 2e6} {
		l.At(now+at, func() {
			if order = append(order, i); len(order) == 4 {
				end <- order
			}
		})
	}
	dead := l.At(now, func() { t.Error("a stopped timer ran") })
	dead.Stop()
	l.Unlock()
	select {
	case got := <-end:
		if fmt.Sprint(got) != "[1 2 3 0]" {
			t.Errorf("timers ran in the order %v", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("the timers never ran")
	}
	l.Lock()
	defer l.Unlock()
	if n != 9000 {
		t.Errorf("%d of 9000 ran", n)
	}
}

// TestVirtualAgainstSortedList sets, stops and runs events at random and expects the
// order of a list that is sorted by time and then by age.
func TestVirtualAgainstSortedList(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		type want struct {
			at    int64
			id    int
			timer Timer
		}
		var v Virtual
		var left []want
		var ran []int
		next := 0
		add := func() {
			id := next
			next++
			at := max(v.Now(), v.Now()+r.Int64N(40)-5)
			left = append(left, want{at: at, id: id, timer: v.At(at, func() { ran = append(ran, id) })})
		}
		// Events of lanes: mostly no earlier than those before them, some far ahead, and some before.
		addIn := func() {
			id, lane := next, LaneFrontEnd+Lane(r.IntN(3))
			next++
			at := max(v.Now(), v.Now()+10*int64(lane)+r.Int64N(2))
			switch r.IntN(20) {
			case 0:
				at = v.Now() - 3
			case 1:
				at += r.Int64N(2 * laneSpan)
			}
			v.CallIn(lane, at, func() { ran = append(ran, id) })
			left = append(left, want{at: max(at, v.Now()), id: id})
		}
		for range 3000 {
			switch n := r.IntN(10); {
			case n < 3:
				add()
			case n < 5:
				addIn()
			case n < 7 && len(left) > 0:
				i := r.IntN(len(left))
				if left[i].timer == nil {
					continue
				}
				if !left[i].timer.Stop() || left[i].timer.Stop() {
					t.Fatalf("seed %d: event %d was not pending once", seed, left[i].id)
				}
				left = slices.Delete(left, i, i+1)
			case len(left) > 0:
				first := 0
				for i := range left {
					if left[i].at < left[first].at {
						first = i
					}
				}
				e := left[first]
				left = slices.Delete(left, first, first+1)
				if !v.Step() || ran[len(ran)-1] != e.id || v.Now() != e.at {
					t.Fatalf("seed %d: ran %d at %d, not %d at %d", seed, ran[len(ran)-1], v.Now(), e.id, e.at)
				}
				if e.timer != nil && e.timer.Stop() {
					t.Fatalf("seed %d: event %d is pending after it ran", seed, e.id)
				}
			}
		}
		for range 5000 { // enough stopped ones to be compacted
			add()
			if i := len(left) - 1; r.IntN(5) > 0 {
				left[i].timer.Stop()
				left = left[:i]
			}
		}
		slices.SortStableFunc(left, func(a, b want) int { return cmp.Compare(a.at, b.at) })
		ran = ran[:0]
		v.Run()
		if len(ran) != len(left) {
			t.Fatalf("seed %d: %d ran, not %d", seed, len(ran), len(left))
		}
		for i := range left {
			if ran[i] != left[i].id {
				t.Fatalf("seed %d: event %d ran in place %d, not %d", seed, ran[i], i, left[i].id)
			}
		}
	}
}

func BenchmarkVirtual(b *testing.B) {
	b.ReportAllocs()
	var v Virtual
	r := rand.New(rand.NewPCG(1, 1))
	var fn func()
	fn = func() { v.Call(v.Now()+r.Int64N(1e6), fn) }
	for range 1000 {
		fn()
	}
	for range b.N {
		v.Step()
	}
}
