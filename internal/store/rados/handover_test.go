package rados_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestHandOver: an owner that leaves hands the array to a standby by name. That one has it at once, whoever else stands by and
// looks as often; where it does not come another one has it, within half the time of a lease and two looks.
func TestHandOver(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 20
	}
	first := testkit.Seed(t)
	var took, without []int64
	for seed := first; seed < first+seeds; seed++ {
		rnd := rand.New(rand.NewPCG(seed, 33))
		c, v := simulated.New(simulated.Options{Latency: 1 + rnd.Int64N(3e6), Tail: rnd.IntN(20)}, rnd), &block.Virtual{}
		named := func(i int) func(*rados.Options) {
			return func(o *rados.Options) {
				o.Name = fmt.Sprint(i)
				o.Eager = func() bool { return i != 4 }
			}
		}
		owner := stand(c, v, 1, named(1))
		v.RunUntil(v.Now() + 2e9)
		if owner.s == nil {
			t.Fatalf("seed %d: %v", seed, owner.err)
		}
		var list []*process
		for i := 2; i <= 4; i++ {
			list = append(list, stand(c, v, i, named(i)))
			v.RunUntil(v.Now() + rnd.Int64N(2e9))
		}
		heir := 2 + int(seed%4) // 5: there is no such process; if they were drawn, 20 seeds might have none of a kind
		var closed error
		over := false
		owner.Go(func() {
			owner.s.HandTo(fmt.Sprint(heir))
			closed = owner.s.Close()
			over = true
		})
		begin := v.Now()
		served := func() int {
			return slices.IndexFunc(list, (*process).serves) + 2
		}
		for end := begin + 15e9; (!over || served() == 1) && v.Now() < end; {
			v.RunUntil(v.Now() + 5e6)
		}
		after := v.Now() - begin
		if closed != nil || served() == 1 {
			t.Fatalf("seed %d: nobody has the array behind %d ms; the owner ended with %v", seed, after/1e6, closed)
		}
		v.RunUntil(v.Now() + 20e9)
		if n := served(); heir <= 4 && n != heir {
			t.Fatalf("seed %d: process %d has the array, which was handed to %d", seed, n, heir)
		}
		if c.Blocklisted > 0 {
			t.Fatalf("seed %d: %d are blocklisted", seed, c.Blocklisted)
		}
		switch {
		case heir < 4:
			took = append(took, after)
		case heir == 5:
			if after < leaseNS/2-1e9 {
				t.Fatalf("seed %d: an array that was handed to somebody is taken by another one behind %d ms", seed, after/1e6)
			}
			without = append(without, after)
		}
		for _, p := range list {
			p.end()
		}
	}
	slices.Sort(took)
	slices.Sort(without)
	t.Logf("%d handed over: %d ms in the middle, %d at most; %d without an heir that comes: %d and %d ms", len(took), took[len(took)/2]/1e6, took[len(took)-1]/1e6,
		len(without), without[len(without)/2]/1e6, without[len(without)-1]/1e6)
	if worst := took[len(took)-1]; worst > 2e9 {
		t.Errorf("an heir that looks often has the array behind %d ms", worst/1e6)
	}
	if worst := without[len(without)-1]; worst > leaseNS/2+3e9 {
		t.Errorf("without an heir another one has the array behind %d ms", worst/1e6)
	}
}

// lateClient is a client of which some calls wait.
type lateClient struct {
	*simulated.Client
	unlocks, looks func() // called before Unlock, and behind Lockers
}

func (c *lateClient) Unlock(object, name, cookie string) error {
	if c.unlocks != nil {
		c.unlocks()
	}
	return c.Client.Unlock(object, name, cookie)
}

func (c *lateClient) Lockers(object, name string) ([]rados.Locker, error) {
	list, err := c.Client.Lockers(object, name)
	if c.looks != nil && len(list) > 0 {
		c.looks()
	}
	return list, err
}

// sleep waits for so many nanoseconds.
func (c *lateClient) sleep(ns int64) {
	over := false
	c.After(ns, func() { over = true })
	c.Wait(func() bool { return over })
}

// TestOthersLeaveTheLock: a process that starts while an owner hands the array to another one does not try the lock, which is given
// back behind its look at it.
func TestOthersLeaveTheLock(t *testing.T) {
	c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	start := func(i int, late func(*lateClient)) *process {
		p := &process{Process: simulated.NewProcess(v)}
		p.client = c.Connect(p.Process, "array")
		l := &lateClient{Client: p.client}
		if late != nil {
			late(l)
		}
		opt := rados.Options{Log: rados.LogReplicated, Name: fmt.Sprint(i), Cookie: fmt.Sprint("p", i), Lease: leaseNS, Standby: true,
			Self: rados.Owner{Host: fmt.Sprint("node", i), PID: i}, Lost: func(error) { p.lost = true }}
		p.Go(func() { p.s, p.err = rados.Open(p.Process, l, opt) })
		return p
	}
	leaving, looked := false, false
	owner := start(1, func(l *lateClient) {
		l.unlocks = func() {
			for leaving = true; !looked; {
				l.sleep(1e6)
			}
		}
	})
	v.RunUntil(2e9)
	if owner.s == nil {
		t.Fatal(owner.err)
	}
	owner.Go(func() {
		owner.s.HandTo("2")
		if err := owner.s.Close(); err != nil {
			t.Error(err)
		}
	})
	for end := v.Now() + 10e9; !leaving && v.Now() < end; {
		v.RunUntil(v.Now() + 1e6)
	}
	other := start(3, func(l *lateClient) {
		l.looks = func() {
			if !looked {
				looked = true
				l.sleep(100e6) // in which the owner gives the lock back
			}
		}
	})
	v.RunUntil(v.Now() + 2e9)
	if !looked || other.serves() {
		t.Fatalf("the array was handed to another process than the one that has it, which has looked: %v", looked)
	}
	heir := start(2, nil)
	v.RunUntil(v.Now() + 2e9)
	if !heir.serves() {
		t.Errorf("the heir has it not: %v", heir.err)
	}
	for _, p := range []*process{other, heir} {
		p.end()
	}
}

// TestCountersOfTheDead: an owner that dies leaves counters that are a second old at most, though nobody flushed.
func TestCountersOfTheDead(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	owner := open(t, c, x, rados.Options{})
	r, _, err := owner.Region("nvram", smallLayout)
	if err != nil {
		t.Fatal(err)
	}
	m := r.Memory()
	for i := range 100 { // ten seconds
		m.Counters[0] = byte(i + 1)
		r.Append(i*512, filled(512, byte(i+1)))
		r.Commit(func(err error) {
			if err != nil {
				t.Errorf("commit %d: %v", i, err)
			}
		})
		x.RunUntil(x.Now() + 100e6)
	}
	owner.client.Kill()
	c.Settle()
	next := open(t, c, &block.Virtual{}, rados.Options{})
	if r, _, err = next.Region("nvram", smallLayout); err != nil {
		t.Fatal(err)
	}
	if n := r.Memory().Counters[0]; n < 100-11 {
		t.Errorf("of 100 changes, ten a second, the counters have %d", n)
	}
	next.Close()
}
