package rados_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
)

// TestUnanswered: a start whose operations have no answer says so, and does not keep an array for ever that it cannot
// serve; one that has its answers within a minute goes on.
func TestUnanswered(t *testing.T) {
	for _, passes := range []bool{true, false} {
		c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
		name := "nvram"
		for c.OSDOf("array", name) == c.OSDOf("array", "array") {
			name += "x"
		}
		var lines []string
		var seen rados.Standby
		start := func(number int) (p *process, open *bool) {
			p, open = &process{Process: simulated.NewProcess(v)}, new(bool)
			p.client = c.Connect(p.Process, "array")
			p.Go(func() {
				p.s, p.err = rados.Open(p.Process, p.client, rados.Options{Log: rados.LogReplicated, Cookie: fmt.Sprint("p", number), Lease: leaseNS, Standby: true,
					Self: rados.Owner{Host: fmt.Sprint("node", number), PID: number}, Lost: func(error) { p.lost = true },
					Notice: func(line string) { lines = append(lines, line) }, Waits: func(w rados.Standby) { seen = w }})
				if p.err == nil {
					_, _, p.err = p.s.Region(name, block.RegionLayout{State: 512, Counters: 64, Log: 4096})
					*open = p.err == nil
				}
			})
			return p, open
		}
		c.Stop(c.OSDOf("array", name))
		a, opened := start(1)
		v.RunUntil(v.Now() + 20e9)
		text := strings.Join(lines, "\n")
		if a.err != nil || a.lost || !strings.Contains(text, "the object "+name+" has not answered for 10 s") || !strings.Contains(seen.Trouble, name) {
			t.Fatalf("behind 20 s: %v, lost %v, it said %q, and shows %+v", a.err, a.lost, text, seen)
		}
		if passes {
			v.RunUntil(v.Now() + 30e9)
			if c.Continue(); !reaches(v, func() bool { return *opened }) {
				t.Errorf("it does not go on: %v", a.err)
			}
			v.RunUntil(v.Now() + 5e9)
			if !a.serves() || !strings.Contains(strings.Join(lines, "\n"), "answers again") || seen.Trouble != "" {
				t.Errorf("it serves %v, said %q, and shows %+v", a.serves(), lines, seen)
			}
			a.end()
			continue
		}
		b, opened := start(2)
		v.RunUntil(v.Now() + 30e9)
		if a.lost || b.s != nil {
			t.Errorf("a start was replaced behind 50 s")
		}
		if v.RunUntil(v.Now() + 40e9); !a.lost || !errors.Is(a.err, block.ErrFenced) || b.s == nil {
			t.Errorf("behind 90 s the first one is lost: %v, %v; the other one: %v", a.lost, a.err, b.err)
		}
		if text = strings.Join(lines, "\n"); !strings.Contains(text, "the lease of the array is not renewed") {
			t.Errorf("it said %q", text)
		}
		c.Continue()
		if !reaches(v, func() bool { return *opened }) || !b.serves() {
			t.Errorf("the other one does not go on: %v", b.err)
		}
		a.end()
		b.end()
	}
}

// TestCanceled: a start that waits, for whatever it be, ends when it is canceled: within a second, or within six where it
// has the lock.
func TestCanceled(t *testing.T) {
	head := func(c *simulated.Cluster) { c.Stop(c.OSDOf("array", "array")) }
	for name, row := range map[string]struct {
		before func(*simulated.Cluster) // with an owner that died
		behind func(*simulated.Cluster) // when the start has gone on for so long
		at     int64
	}{
		"for an owner":                      {at: 3e9},
		"for the head":                      {before: head, at: 3e9},
		"for the head, between two looks":   {behind: head, at: 3e9},
		"for the monitors, as they fence":   {behind: func(c *simulated.Cluster) { c.SetMonitor(1e15) }, at: 9e9},
		"for the monitors, behind its lock": {behind: func(c *simulated.Cluster) { c.SetMonitor(1e15) }, at: 10.52e9},
	} {
		t.Run(name, func(t *testing.T) {
			c, v := newCluster(simulated.Options{Latency: 1e6, Monitor: 200e6}), &block.Virtual{}
			first := stand(c, v, 1, nil)
			v.RunUntil(2e9)
			first.end()
			if row.before != nil {
				row.before(c)
			}
			canceled := false
			p := stand(c, v, 2, func(o *rados.Options) { o.Cancel = func() bool { return canceled } })
			v.RunUntil(v.Now() + row.at)
			if row.behind != nil {
				row.behind(c)
			}
			v.RunUntil(v.Now() + 5e9)
			if p.s != nil || p.err != nil {
				t.Fatalf("it does not wait: %v", p.err)
			}
			if has := strings.HasPrefix(holder(t, c.Connect(v, "array")), "p2."); has != strings.Contains(name, "its lock") {
				t.Fatalf("it has the lock: %v", has)
			}
			canceled = true
			if v.RunUntil(v.Now() + 6e9); !errors.Is(p.err, rados.ErrCanceled) {
				t.Errorf("behind 6 s it ended with %v", p.err)
			}
			p.end()
		})
	}
}

// TestCanceledRecovery: a process that has the array and waits for an OSD to recover it ends when it is canceled, and whoever
// is next has its operations refused. One whose array is served does not.
func TestCanceledRecovery(t *testing.T) {
	for _, served := range []bool{false, true} {
		c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
		name := "nvram"
		for c.OSDOf("array", name) == c.OSDOf("array", "array") {
			name += "x"
		}
		c.Stop(c.OSDOf("array", name))
		canceled, closed := false, false
		p := &process{Process: simulated.NewProcess(v)}
		p.client = c.Connect(p.Process, "array")
		layout := block.RegionLayout{State: 512, Counters: 64, Log: 4096}
		p.Go(func() {
			p.s, p.err = rados.Open(p.Process, p.client, rados.Options{Log: rados.LogReplicated, Cookie: "p", Lease: leaseNS, Cancel: func() bool { return canceled },
				Self: rados.Owner{Host: "a", PID: 1}})
			if p.err != nil {
				return
			}
			if served {
				p.s.Opened()
			}
			if _, _, p.err = p.s.Region(name, layout); p.err != nil {
				p.s.Close()
				closed = true
			}
		})
		v.RunUntil(v.Now() + 5e9)
		canceled = true
		v.RunUntil(v.Now() + 6e9)
		if served {
			if c.Continue(); !reaches(v, func() bool { return p.s.Serving() }) || p.err != nil || closed {
				t.Errorf("an array that is served ended with %v", p.err)
			}
			p.end()
			continue
		}
		if !errors.Is(p.err, rados.ErrCanceled) || !closed {
			t.Fatalf("it ended with %v, closed: %v", p.err, closed)
		}
		c.Continue()
		if next := open(t, c, &block.Virtual{}, rados.Options{}); !slices.Contains(fencedIn(t, c), p.client.Address()) {
			t.Errorf("%s is not kept out", p.client.Address())
		} else if _, _, err := next.Region(name, layout); err != nil {
			t.Error(err)
		}
		p.end()
	}
}

// TestNoticesHoldNothing: whoever hears of something may ask the store, as a log that waits for a disk keeps others waiting.
func TestNoticesHoldNothing(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	s := open(t, c, x, rados.Options{})
	if err := transfer(t, x, medium(t, s, extentBytes), true, 0, filled(4096, 1)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	c.Lose("array", "m0.00000000")
	said := 0
	s = nil
	s = open(t, c, x, rados.Options{Notice: func(line string) {
		if s == nil {
			return
		}
		said++
		ok := make(chan bool)
		go func() { s.ID(); close(ok) }()
		select {
		case <-ok:
		case <-time.After(time.Minute):
			t.Errorf("while somebody hears that %q the store is held", line)
		}
	}})
	if err := transfer(t, x, medium(t, s, extentBytes), true, 0, filled(512, 1)); err != nil {
		t.Fatal(err)
	}
	meta, err := s.Meta()
	if err != nil {
		t.Fatal(err)
	}
	c.Fail = func(op *rados.Op) error {
		if len(op.Steps) == 2 && op.Steps[1].Kind == rados.OmapSet {
			return errors.New("injected")
		}
		return nil
	}
	meta.Commit([]block.KV{{Key: []byte("k"), Value: []byte("v")}}, func(error) {})
	if x.RunUntil(x.Now() + 1e9); said != 2 {
		t.Errorf("%d lines were said", said)
	}
}

// TestSaidWhenItIsSo: that an owner is fenced is said when it is.
func TestSaidWhenItIsSo(t *testing.T) {
	c, x := newCluster(simulated.Options{}), &block.Virtual{}
	open(t, c, x, rados.Options{})
	said, before := 0, c.Blocklisted
	open(t, c, x, rados.Options{Notice: func(line string) {
		if strings.Contains(line, "is fenced") {
			if said++; c.Blocklisted == before {
				t.Errorf("%q, and nobody was blocklisted", line)
			}
		}
	}})
	if said != 1 {
		t.Errorf("it was said %d times", said)
	}
}

// TestDeadAreDroppedFirst: where more were fenced than the head names, those are dropped of whom nothing can come.
func TestDeadAreDroppedFirst(t *testing.T) {
	c, x := newCluster(simulated.Options{}), &block.Virtual{}
	open(t, c, x, rados.Options{Self: rados.Owner{Host: "b", PID: 1}})
	cl := c.Connect(x, "array")
	read := &rados.Op{Object: "array", Steps: []rados.Step{{Kind: rados.Read, Buf: make([]byte, 1<<16)}}}
	carryOutNow(cl, read)
	var head map[string]any
	if err := json.Unmarshal(read.Steps[0].Buf[:read.Steps[0].N], &head); err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	for i := range 1024 {
		list = append(list, map[string]any{"address": fmt.Sprint("10.1.1.1:0/", i), "dead": i == 700, "since": 1})
	}
	head["fenced"] = list
	text, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	carryOutNow(cl, &rados.Op{Object: "array", Steps: []rados.Step{{Kind: rados.Replace, Data: [][]byte{text}}}})
	open(t, c, x, rados.Options{Self: rados.Owner{Host: "a", PID: 2}, Wall: func() int64 { return 2e9 }})
	left := fencedIn(t, c)
	if len(left) != 1024 || slices.Contains(left, "10.1.1.1:0/700") || !slices.Contains(left, "10.1.1.1:0/0") {
		t.Errorf("%d are kept out, the first is %s, and the dead one is among them: %v", len(left), left[0], slices.Contains(left, "10.1.1.1:0/700"))
	}
}

// TestClosedServesNothing: a store that was closed has no lease that might be good.
func TestClosedServesNothing(t *testing.T) {
	for _, lease := range []int64{0, leaseNS} {
		c, x := newCluster(simulated.Options{}), &block.Virtual{}
		s := open(t, c, x, rados.Options{Lease: lease})
		if !s.Serving() {
			t.Fatal("it does not serve")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s.Serving() {
			t.Errorf("with a lease of %d s a store that was closed serves", lease/1e9)
		}
	}
}

// TestAgeIsNotKnown: an age of a lease that nobody knows is none, and not 0.
func TestAgeIsNotKnown(t *testing.T) {
	c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	owner := stand(c, v, 1, nil)
	v.RunUntil(2e9)
	var ages []int64
	p := stand(c, v, 2, func(o *rados.Options) { o.Waits = func(w rados.Standby) { ages = append(ages, w.Age) } })
	v.RunUntil(v.Now() + 10e9)
	if len(ages) < 5 || ages[0] != -1 || ages[len(ages)-1] < 0 || ages[len(ages)-1] > 2e9 {
		t.Errorf("of a lease that is renewed a standby sees the ages %v", ages)
	}
	owner.end()
	p.end()
	if o := open(t, c, &block.Virtual{}, rados.Options{}).Ownership(); o.Age != -1 || o.Left != 0 {
		t.Errorf("without a lease: %+v", o)
	}
}
