package rados_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
)

// process is one that opens an array and keeps it.
type process struct {
	*simulated.Process
	client *simulated.Client
	s      *rados.Store
	err    error
	lost   bool
}

// stand starts a process that stands by for the array, in virtual time.
func stand(c *simulated.Cluster, v *block.Virtual, number int, change func(*rados.Options)) *process {
	p := &process{Process: simulated.NewProcess(v)}
	p.client = c.Connect(p.Process, "array")
	opt := rados.Options{Log: rados.LogReplicated, Cookie: fmt.Sprint("p", number), Lease: leaseNS, Standby: true,
		Self: rados.Owner{Host: fmt.Sprint("node", number), PID: number}, Lost: func(error) { p.lost = true }}
	if change != nil {
		change(&opt)
	}
	p.Go(func() { p.s, p.err = rados.Open(p.Process, p.client, opt) })
	return p
}

func (p *process) end() {
	p.client.Kill()
	p.Kill()
}

func (p *process) serves() bool { return p.s != nil && !p.lost && p.s.Serving() }

// TestManyFenced: three standbys behind an owner that has died, with forty who were fenced before and a monitor that takes
// its time: one of them serves within a bounded time, keeps the array, and all of the forty are kept out.
func TestManyFenced(t *testing.T) {
	const owners = 40
	for _, monitor := range []int64{0, 1e9, 3e9, 8e9} {
		c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
		var last *process
		for i := range owners + 1 {
			if last != nil {
				last.end()
			}
			last = stand(c, v, i+1, func(o *rados.Options) { o.Dead = func(rados.Owner) bool { return true } })
			if v.RunUntil(v.Now() + 2e9); !last.serves() {
				t.Fatalf("owner %d: %v", i, last.err)
			}
		}
		c.SetMonitor(monitor)
		before := c.Blocklisted
		last.end()
		begin, served := v.Now(), int64(0)
		var list []*process
		for i := range 3 {
			list = append(list, stand(c, v, 100+i, nil))
			v.RunUntil(v.Now() + 300e6)
		}
		for served == 0 && v.Now()-begin < 300e9 {
			v.RunUntil(v.Now() + 100e6)
			if slices.ContainsFunc(list, (*process).serves) {
				served = v.Now() - begin
			}
		}
		if limit := 15e9 + 5*monitor; served == 0 || served > limit {
			t.Errorf("with a monitor that takes %d s: somebody serves after %d s (0: nobody), want %d", monitor/1e9, served/1e9, limit/1e9)
			continue
		}
		t.Logf("with a monitor that takes %d s somebody serves after %.1f s", monitor/1e9, float64(served)/1e9)
		for range 600 { // and goes on to
			v.RunUntil(v.Now() + 100e6)
			n := 0
			for _, p := range list {
				if p.serves() {
					n++
				}
				if p.lost || p.err != nil {
					t.Fatalf("with a monitor that takes %d s one of them lost the array: %v", monitor/1e9, p.err)
				}
			}
			if n != 1 {
				t.Fatalf("with a monitor that takes %d s %d processes serve", monitor/1e9, n)
			}
		}
		if n := c.Blocklisted - before; n < owners+1 {
			t.Errorf("%d were blocklisted again, want the %d who had been fenced", n, owners+1)
		}
		for _, p := range list {
			p.end()
		}
	}
}

// fencedIn returns the addresses of the head's list.
func fencedIn(t *testing.T, c *simulated.Cluster) (list []string) {
	t.Helper()
	v := &block.Virtual{}
	op := &rados.Op{Object: "array", Steps: []rados.Step{{Kind: rados.Read, Buf: make([]byte, 1<<20)}}}
	carryOutNow(c.Connect(v, "array"), op)
	var h struct{ Fenced []struct{ Address string } }
	if err := json.Unmarshal(op.Steps[0].Buf[:op.Steps[0].N], &h); err != nil {
		t.Fatal(err)
	}
	for _, f := range h.Fenced {
		list = append(list, f.Address)
	}
	return list
}

// TestFencedAreForgotten: who was fenced is kept out until it is known to be dead and 30 days have passed, and by the start
// that forgets it once more. One of whose death nobody knows is never forgotten, and a clock that is wrong forgets nobody who
// was not blocklisted anew.
func TestFencedAreForgotten(t *testing.T) {
	const day = 24 * 3600 * 1e9
	c, x := newCluster(simulated.Options{}), &block.Virtual{}
	wall := int64(1000 * day)
	start := func(pid int, known ...int) *opened {
		return open(t, c, x, rados.Options{Self: rados.Owner{Host: "a", PID: pid}, Wall: func() int64 { return wall },
			Dead: func(o rados.Owner) bool { return slices.Contains(known, o.PID) }})
	}
	end := func(s *opened) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	one := start(1)
	two := start(2, 1)
	address := one.client.Address()
	wall += 29 * day
	end(two)
	three := start(3)
	if list := fencedIn(t, c); !slices.Contains(list, address) || slices.Contains(list, two.client.Address()) {
		t.Errorf("behind 29 days %v are kept out, want %s, and not who gave the array back", list, address)
	}
	end(three)
	before := c.Blocklisted
	wall += 2 * day
	end(start(4))
	if list := fencedIn(t, c); slices.Contains(list, address) || c.Blocklisted != before+1 {
		t.Errorf("behind 31 days %v are kept out, and %d were blocklisted", list, c.Blocklisted-before)
	}
	// One that ran out of its lease on another machine: nobody knows whether it will go on.
	v := &block.Virtual{}
	paused := stand(c, v, 7, nil)
	v.RunUntil(v.Now() + 1e9)
	if paused.s == nil {
		t.Fatal(paused.err)
	}
	paused.Stop()
	next := stand(c, v, 8, func(o *rados.Options) { o.Wall = func() int64 { return wall } })
	if v.RunUntil(v.Now() + 30e9); next.s == nil {
		t.Fatal(next.err)
	}
	next.end()
	wall += 500 * day
	end(start(9, 8))
	if list := fencedIn(t, c); !slices.Contains(list, paused.client.Address()) {
		t.Errorf("one that may go on was forgotten: %v", list)
	}
}

// TestStandbyLooksFirst: a standby that was told of another array, another log or another size refuses, and takes nothing
// away from the owner, which serves all the time.
func TestStandbyLooksFirst(t *testing.T) {
	layout := block.RegionLayout{State: 512, Counters: 64, Log: 4096}
	larger := layout
	larger.Log *= 2
	for want, change := range map[string]func(*rados.Options){
		"it is the array one":           func(o *rados.Options) { o.ID = "two" },
		"write log: replicated":         func(o *rados.Options) { o.Log = rados.LogLocal },
		"restore the former cache size": func(o *rados.Options) { o.Region, o.Layout = "nvram", larger },
		"of an owner that stops?":       func(o *rados.Options) { o.Region, o.Layout = "nvram", layout },
	} {
		c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
		owner := stand(c, v, 1, func(o *rados.Options) { o.NewID = "one" })
		v.RunUntil(v.Now() + 1e9)
		open := false
		if owner.s == nil {
			t.Fatal(owner.err)
		}
		owner.Go(func() {
			_, _, err := owner.s.Region("nvram", layout)
			open = err == nil
		})
		if v.RunUntil(v.Now() + 1e9); !open {
			t.Fatal("the owner has no log")
		}
		var seen rados.Standby
		p := stand(c, v, 2, func(o *rados.Options) {
			o.Waits = func(w rados.Standby) { seen = w }
			change(o)
		})
		owner.Stop() // for shorter than its lease
		v.RunUntil(v.Now() + 3e9)
		owner.Continue()
		v.RunUntil(v.Now() + 30e9)
		if !owner.serves() {
			t.Errorf("%s: the owner serves no more", want)
		}
		if strings.HasPrefix(want, "of an owner") {
			if p.err != nil || seen.Epoch != 1 || !strings.Contains(seen.Owner, "node1") || seen.Age > 2e9 {
				t.Errorf("a standby that fits: %v, it sees %+v", p.err, seen)
			}
		} else if p.err == nil || !strings.Contains(p.err.Error(), want) {
			t.Errorf("a standby was not refused with %q: %v", want, p.err)
		}
		owner.end()
		p.end()
	}
}

// TestStandbySurvivesTrouble: errors that pass, and an outage of the head that keeps its owner from renewing, end no standby
// and take nothing from an owner that is alive.
func TestStandbySurvivesTrouble(t *testing.T) {
	c, v := newCluster(simulated.Options{Latency: 1e6, OSDs: 1}), &block.Virtual{}
	owner := stand(c, v, 1, nil)
	v.RunUntil(v.Now() + 1e9)
	var seen rados.Standby
	standby := stand(c, v, 2, func(o *rados.Options) { o.Waits = func(w rados.Standby) { seen = w } })
	v.RunUntil(v.Now() + 5e9)
	// The OSD is away for longer than a lease. Then the owner's first renewals fail: its connection comes back late.
	c.Stop(0)
	v.RunUntil(v.Now() + 12e9)
	renewals := 0
	c.Fail = func(op *rados.Op) error {
		if len(op.Steps) > 2 && op.Steps[0].Name == "epoch" && op.Steps[1].Name == "lease" {
			if renewals++; renewals <= 3 {
				return errors.New("injected")
			}
		}
		return nil
	}
	c.Continue()
	v.RunUntil(v.Now() + 30e9)
	if !owner.serves() || standby.s != nil || standby.err != nil || renewals <= 3 {
		t.Fatalf("behind an outage the owner serves: %v, lost %v; the standby: %v", owner.serves(), owner.lost, standby.err)
	}
	c.Fail = func(op *rados.Op) error {
		if op.Reads() {
			return errors.New("injected")
		}
		return nil
	}
	v.RunUntil(v.Now() + 20e9)
	if standby.err != nil || standby.s != nil || !strings.Contains(seen.Trouble, "injected") {
		t.Fatalf("with errors that pass: %v, it sees %+v", standby.err, seen)
	}
	c.Fail = nil
	owner.end()
	if v.RunUntil(v.Now() + 20e9); !standby.serves() || !owner.serves() && owner.s == nil {
		t.Fatalf("behind errors that passed the standby does not take over: %v", standby.err)
	}
	standby.end()
}

// TestClockThatStoodStill: where the clock of leases stands still, as that of a virtual machine that is paused, the time of
// the day ends the lease once it was set forward. It never prolongs one.
func TestClockThatStoodStill(t *testing.T) {
	c, x := newCluster(simulated.Options{}), &block.Virtual{}
	now, wall := int64(100e9), int64(1e18)
	s := open(t, c, x, rados.Options{Lease: leaseNS, Clock: func() int64 { return now }, Wall: func() int64 { return wall }})
	for _, step := range []struct {
		now, wall int64
		serves    bool
	}{{0, 0, true}, {6e9, 6e9, true}, {0, 3600e9, false}, {0, -7200e9, true}, {1e9, 0, false}} {
		now, wall = now+step.now, wall+step.wall
		if got := s.Serving(); got != step.serves {
			t.Errorf("behind a step of %d s, and %d s of the day: it serves %v", step.now/1e9, step.wall/1e9, got)
		}
	}
	if o := s.Ownership(); o.Epoch != 1 || o.Age != 7e9 || o.Left != 0 || o.Serving {
		t.Errorf("it says of itself %+v", o)
	}
}

// TestTroubleOfMetadata: an error of an operation that brings metadata to their place fences nobody: the owner goes on, what
// was committed is there meanwhile, and gets to its place.
func TestTroubleOfMetadata(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	s := open(t, c, x, rados.Options{Patience: 5e9, Lost: func(err error) { t.Errorf("the owner is told that it is fenced: %v", err) }})
	meta, err := s.Meta()
	if err != nil {
		t.Fatal(err)
	}
	commit := func(key string) error {
		failed := errors.New("it has not ended")
		meta.Commit([]block.KV{{Key: []byte(key), Value: []byte("v")}}, func(err error) { failed = err })
		x.RunUntil(x.Now() + 10e9)
		return failed
	}
	c.Fail = func(op *rados.Op) error {
		if len(op.Steps) == 2 && op.Steps[1].Kind == rados.OmapSet {
			return errors.New("injected")
		}
		return nil
	}
	if err := commit("k"); err != nil {
		t.Errorf("a batch that is committed: %v", err)
	}
	if v, err := meta.Get([]byte("k")); err != nil || string(v) != "v" || !s.Serving() {
		t.Errorf("what is committed is %q: %v", v, err)
	}
	if o := s.Ownership(); !strings.Contains(o.Trouble, "metadata cannot be written to its place: injected") || o.Since == 0 {
		t.Errorf("it shows %+v", o)
	}
	c.Fail = nil
	x.RunUntil(x.Now() + 10e9)
	if o := s.Ownership(); o.Trouble != "" || o.Since != 0 {
		t.Errorf("when it gets there it shows %+v", o)
	}
	if err := errors.Join(commit("l"), s.Close()); err != nil {
		t.Error(err)
	}
	s = open(t, c, x, rados.Options{})
	if meta, err = s.Meta(); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"k", "l"} {
		if v, err := meta.Get([]byte(k)); err != nil || string(v) != "v" {
			t.Errorf("%s is %q: %v", k, v, err)
		}
	}
	s.Close()
}

// TestPatienceComesBack: a start that has waited for room in vain does not make later metadata fail that can wait.
func TestPatienceComesBack(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	s := open(t, c, x, rados.Options{Patience: 5e9})
	meta, err := s.Meta()
	if err != nil {
		t.Fatal(err)
	}
	batch := []block.KV{{Key: []byte("k"), Value: make([]byte, 1<<20)}}
	c.SetCapacity(1)
	if err := meta.CommitNow(batch); !errors.Is(err, block.ErrFull) {
		t.Fatalf("a commit of a start: %v", err)
	}
	failed := errors.New("it has not ended")
	meta.Commit(batch, func(err error) { failed = err })
	if x.RunUntil(x.Now() + 60e9); errors.Is(failed, block.ErrFull) {
		t.Fatal("a commit that can wait for room did not")
	}
	c.SetCapacity(0)
	if x.RunUntil(x.Now() + 10e9); failed != nil {
		t.Errorf("a commit for which there is room: %v", failed)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestEmptyCommitOfTheFenced: a commit that has nothing to bring says that this process is the owner, and so fails where
// it is not.
func TestEmptyCommitOfTheFenced(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	old := open(t, c, x, rados.Options{})
	r, _, err := old.Region("nvram", block.RegionLayout{State: 512, Counters: 64, Log: 4096})
	if err != nil {
		t.Fatal(err)
	}
	commit := func() error {
		failed := errors.New("it has not ended")
		r.Commit(func(err error) { failed = err })
		x.RunUntil(x.Now() + 1e9)
		return failed
	}
	if err := commit(); err != nil {
		t.Fatal(err)
	}
	open(t, c, x, rados.Options{})
	old.client.Disturb()
	x.RunUntil(x.Now() + 1e9)
	if err := commit(); !errors.Is(err, block.ErrFenced) {
		t.Errorf("an empty commit of the old owner: %v", err)
	}
	if err := r.(interface{ FlushNow() error }).FlushNow(); !errors.Is(err, block.ErrFenced) {
		t.Errorf("an empty flush of the old owner: %v", err)
	}
}

// TestMonitorFails: a taker that cannot have others kept out tries again, with renewals of its lease under way, and serves
// when the monitors are well again. Where they are not for long it gives the array back in one line, and the next one has
// nobody to fence.
func TestMonitorFails(t *testing.T) {
	for _, passes := range []bool{true, false} {
		c, v := newCluster(simulated.Options{Latency: 100e6}), &block.Virtual{}
		first := stand(c, v, 1, nil)
		v.RunUntil(v.Now() + 5e9)
		first.end()
		c.SetMonitor(3e9)
		var lines []string
		taker := stand(c, v, 2, func(o *rados.Options) {
			o.Dead = func(rados.Owner) bool { return true }
			o.Notice = func(line string) { lines = append(lines, line) }
		})
		v.RunUntil(v.Now() + 8e9) // it has evicted the first one, and renews
		c.FailMonitor = errors.New("injected")
		v.RunUntil(v.Now() + 30e9)
		if taker.s != nil || taker.err != nil || !strings.Contains(strings.Join(lines, "\n"), "injected; it is tried again") {
			t.Fatalf("behind half a minute it ended with %v; it said %q", taker.err, lines)
		}
		if passes {
			c.FailMonitor = nil
			if v.RunUntil(v.Now() + 15e9); !taker.serves() {
				t.Errorf("when the monitors are well again: %v", taker.err)
			}
			taker.end()
			continue
		}
		v.RunUntil(v.Now() + 300e9)
		if taker.s != nil || taker.err == nil || !strings.Contains(taker.err.Error(), "injected") || strings.Contains(taker.err.Error(), "\n") {
			t.Fatalf("it ended with %v", taker.err)
		}
		c.FailMonitor = nil
		next := stand(c, v, 3, nil)
		if v.RunUntil(v.Now() + 30e9); !next.serves() {
			t.Errorf("the next one: %v", next.err)
		}
		if list := fencedIn(t, c); len(list) != 1 || list[0] != first.client.Address() {
			t.Errorf("%v are kept out, want the first owner alone, %s", list, first.client.Address())
		}
		next.end()
	}
}
