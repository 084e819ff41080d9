package rados_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
)

// hangs starts a process that has the array, and changes metadata that get no answer: the head's OSD goes on.
func hangs(t *testing.T, change func(*rados.Options)) (c *simulated.Cluster, v *block.Virtual, p *process, ended *error) {
	t.Helper()
	c, v = newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	p, ended = stand(c, v, 1, change), new(error)
	v.RunUntil(v.Now() + 2e9)
	if p.s == nil {
		t.Fatal(p.err)
	}
	p.Go(func() {
		meta, err := p.s.Meta()
		if p.err = err; err != nil {
			return
		}
		c.Stop(c.OSDOf("array", "meta"))
		meta.Commit([]block.KV{{Key: []byte("k"), Value: []byte("v")}}, func(err error) { *ended = err })
	})
	if v.RunUntil(v.Now() + 5e9); p.err != nil || *ended != nil || c.OSDOf("array", "meta") == c.OSDOf("array", "array") {
		t.Fatalf("the test does not get there: %v, %v", p.err, *ended)
	}
	return c, v, p, ended
}

// TestCanceledPosted: what a start waits for on the executor, as a recovery does, ends when the start is canceled. What is
// asked for behind that does not begin, and a start that ends so is not served.
func TestCanceledPosted(t *testing.T) {
	canceled := false
	c, v, p, ended := hangs(t, func(o *rados.Options) { o.Cancel = func() bool { return canceled } })
	canceled = true
	if v.RunUntil(v.Now() + 6e9); !errors.Is(*ended, rados.ErrCanceled) {
		t.Fatalf("behind 6 s the commit has ended with %v", *ended)
	}
	applied := c.Applied
	p.Go(func() {
		meta, err := p.s.Meta()
		if err == nil {
			err = meta.CommitNow([]block.KV{{Key: []byte("l"), Value: []byte("v")}})
		}
		p.err = err
	})
	if v.RunUntil(v.Now() + 5e9); !errors.Is(p.err, rados.ErrCanceled) || c.Applied != applied {
		t.Errorf("another commit ended with %v; %d operations had an effect", p.err, c.Applied-applied)
	}
	if err := p.s.Opened(); !errors.Is(err, rados.ErrCanceled) {
		t.Errorf("a start that was canceled is told that it serves: %v", err)
	}
	closed := errors.New("it has not ended")
	p.Go(func() { closed = p.s.Close() })
	if v.RunUntil(v.Now() + 6e9); closed != nil {
		t.Errorf("its end: %v", closed)
	}
	c.Continue() // what it had sent arrives
	if open(t, c, &block.Virtual{}, rados.Options{}); !slices.Contains(fencedIn(t, c), p.client.Address()) {
		t.Error("it is not kept out")
	}
}

// TestCloseUnanswered: a stop that has no answer ends when its patience does, or a start that ends so when it is canceled.
// It renews no lease any more then, and who is next has what is under way refused.
func TestCloseUnanswered(t *testing.T) {
	for _, cancels := range []bool{false, true} {
		canceled := false
		c, v, p, _ := hangs(t, func(o *rados.Options) { o.Patience, o.Cancel = 20e9, func() bool { return canceled } })
		closed := errors.New("it has not ended")
		waits := closed
		p.Go(func() { closed = p.s.Close() })
		if v.RunUntil(v.Now() + 10e9); closed != waits || !p.s.Serving() {
			t.Fatalf("behind 10 s it ended with %v", closed)
		}
		if canceled = cancels; cancels {
			if v.RunUntil(v.Now() + 6e9); closed != nil {
				t.Errorf("a start that was canceled while it ends: %v", closed)
			}
		} else if v.RunUntil(v.Now() + 13e9); !errors.Is(closed, rados.ErrUnanswered) || strings.Contains(closed.Error(), "\n") {
			t.Errorf("behind 23 s it ended with %v", closed)
		}
		if p.s.Serving() {
			t.Error("it serves")
		}
		next := stand(c, v, 2, nil)
		if v.RunUntil(v.Now() + 3e9); !next.serves() || !slices.Contains(fencedIn(t, c), p.client.Address()) {
			t.Errorf("the next one: %v; kept out: %v", next.err, fencedIn(t, c))
		}
		p.end()
		next.end()
	}
}

// TestCanceledLock: a start that is canceled while it waits for its lock, which it gets, leaves the array unlocked.
func TestCanceledLock(t *testing.T) {
	c, v := newCluster(simulated.Options{Latency: 1e9}), &block.Virtual{}
	canceled := false
	p := stand(c, v, 1, func(o *rados.Options) { o.Cancel = func() bool { return canceled } })
	eye := c.Connect(v, "array")
	for end := v.Now() + 60e9; holder(t, eye) == "" && v.Now() < end; {
		v.RunUntil(v.Now() + 10e6)
	}
	if canceled = true; !strings.HasPrefix(holder(t, eye), "p1.") || p.err != nil {
		t.Fatalf("the test does not get there: %v", p.err)
	}
	v.RunUntil(v.Now() + 10e9)
	if by := holder(t, eye); !errors.Is(p.err, rados.ErrCanceled) || by != "" {
		t.Errorf("it ended with %v, and %q has the lock", p.err, by)
	}
}

// TestTakingIsShown: a process that has an array's lock, and has not raised the epoch, says so, with the epoch that there is; and
// what the cluster does not answer, with when that began.
func TestTakingIsShown(t *testing.T) {
	const day = int64(86_400e9)
	for epoch, begin := range []func(*simulated.Cluster, *block.Virtual){
		func(*simulated.Cluster, *block.Virtual) {},
		func(c *simulated.Cluster, v *block.Virtual) {
			first := stand(c, v, 1, nil)
			v.RunUntil(2e9)
			first.end()
		},
	} {
		c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
		begin(c, v)
		var seen rados.Standby
		p := stand(c, v, 2, func(o *rados.Options) {
			o.Waits = func(s rados.Standby) { seen = s }
			o.Dead = func(rados.Owner) bool { return true }
			o.Wall = func() int64 { return day + v.Now() }
		})
		if !reaches(v, func() bool { return seen.Taking }) {
			t.Fatalf("the test does not get there: %v, it shows %+v", p.err, seen)
		}
		c.Stop(c.OSDOf("array", "array"))
		stopped := v.Now()
		if v.RunUntil(v.Now() + 15e9); p.s != nil || p.err != nil {
			t.Fatalf("the test does not get there: %v", p.err)
		}
		if want := []int64{-1, 1}[epoch]; !seen.Taking || seen.Epoch != want || seen.Owner != "" || seen.Age != -1 || seen.Trouble == "" ||
			seen.Since < day+stopped-1e9 || seen.Since > day+stopped+1e9 {
			t.Errorf("behind its lock it shows %+v, want epoch %d, and trouble since %d", seen, want, day+stopped)
		}
		c.Continue()
		if !reaches(v, func() bool { return p.s != nil }) {
			t.Fatal(p.err)
		}
		if v.RunUntil(v.Now() + 2e9); seen.Taking || seen.Epoch != int64(epoch)+1 || seen.Trouble != "" || seen.Since != 0 {
			t.Errorf("when it has raised the epoch it shows %+v", seen)
		}
		p.end()
	}
}

// TestUnknownEpoch: the epoch of an array that nobody has looked at yet is not known, and that of one whose first owner has not
// raised it is 0.
func TestUnknownEpoch(t *testing.T) {
	c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	var seen rados.Standby
	c.Stop(c.OSDOf("array", "array"))
	p := stand(c, v, 1, func(o *rados.Options) { o.Waits = func(s rados.Standby) { seen = s } })
	if v.RunUntil(15e9); seen.Epoch != -1 || seen.Taking || seen.Trouble == "" {
		t.Errorf("before it has looked it shows %+v", seen)
	}
	c.Continue()
	if !reaches(v, func() bool { return strings.HasPrefix(holder(t, c.Connect(v, "array")), "p1.") }) || p.s != nil {
		t.Fatal("the test does not get there")
	}
	p.Stop()
	other := stand(c, v, 2, func(o *rados.Options) { o.Waits = func(s rados.Standby) { seen = s } })
	if v.RunUntil(v.Now() + 5e9); seen.Epoch != 0 || !strings.Contains(seen.Owner, "node1") {
		t.Errorf("of an owner that has no epoch yet it shows %+v", seen)
	}
	p.end()
	other.end()
}

// TestTakerIsShown: a process that has an array's lock does not say that it waits for the one that had it.
func TestTakerIsShown(t *testing.T) {
	c, v := newCluster(simulated.Options{Latency: 1e6, Monitor: 200e6}), &block.Virtual{}
	first := stand(c, v, 1, nil)
	v.RunUntil(2e9)
	first.end()
	var seen rados.Standby
	p := stand(c, v, 2, func(o *rados.Options) { o.Waits = func(s rados.Standby) { seen = s } })
	if v.RunUntil(v.Now() + 5e9); !strings.Contains(seen.Owner, "node1") || seen.Epoch != 1 {
		t.Fatalf("while it waits it shows %+v", seen)
	}
	v.RunUntil(v.Now() + 5.52e9)
	c.SetMonitor(1e15)
	if v.RunUntil(v.Now() + 3e9); p.s != nil || !strings.HasPrefix(holder(t, c.Connect(v, "array")), "p2.") {
		t.Fatalf("the test does not get there: %v", p.err)
	}
	if seen.Owner != "" || seen.Epoch != 2 || seen.Age != -1 {
		t.Errorf("behind its lock it shows %+v", seen)
	}
	p.end()
}
