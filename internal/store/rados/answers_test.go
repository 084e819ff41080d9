package rados_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
)

// TestOutagesOfTheHead: an owner that has an answer late behind two outages of the head, each shorter than the pause behind
// which a standby begins anew, keeps the array: the standby had no more answers than it had. One that is dead loses it also
// where each answer takes long.
func TestOutagesOfTheHead(t *testing.T) {
	for phase := int64(0); phase < 1e9; phase += 50e6 {
		c, v := newCluster(simulated.Options{Latency: 1e6, OSDs: 1}), &block.Virtual{}
		owner := stand(c, v, 1, nil)
		v.RunUntil(v.Now() + 1e9)
		standby := stand(c, v, 2, nil)
		v.RunUntil(v.Now() + 5e9 + phase)
		late := true
		c.Fail = func(op *rados.Op) error {
			if late && len(op.Steps) > 2 && op.Steps[0].Name == "epoch" && op.Steps[1].Name == "lease" {
				return errors.New("injected")
			}
			return nil
		}
		for range 2 {
			c.Stop(0)
			v.RunUntil(v.Now() + 4.8e9)
			c.Continue()
			v.RunUntil(v.Now() + 100e6)
		}
		v.RunUntil(v.Now() + 3e9)
		late = false
		if v.RunUntil(v.Now() + 10e9); !owner.serves() || owner.lost || standby.s != nil || standby.err != nil {
			t.Errorf("with a phase of %d ms the owner serves: %v, lost: %v; the standby: %v", phase/1e6, owner.serves(), owner.lost, standby.err)
		}
		owner.end()
		standby.end()
	}
	c, v := newCluster(simulated.Options{Latency: 600e6}), &block.Virtual{}
	owner := stand(c, v, 1, nil)
	v.RunUntil(v.Now() + 20e9)
	standby := stand(c, v, 2, nil)
	if v.RunUntil(v.Now() + 60e9); !owner.serves() || owner.lost {
		t.Fatalf("an owner whose answers take long serves: %v, lost: %v, %v", owner.serves(), owner.lost, owner.err)
	}
	owner.end()
	if v.RunUntil(v.Now() + 90e9); !standby.serves() {
		t.Errorf("where answers take long nobody serves: %v", standby.err)
	}
	standby.end()
}

// TestMonitorTimesOut: calls of monitors that end without an answer do not keep a taker's lease: it gives the array back
// when a minute has gone by, and the call that was under way has ended.
func TestMonitorTimesOut(t *testing.T) {
	c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
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
	if !strings.HasPrefix(holder(t, c.Connect(v, "array")), "p2.") {
		t.Fatalf("the test does not get there: %v", taker.err)
	}
	c.MonitorTimeout = 30e9
	v.RunUntil(v.Now() + 105e9) // a call that was well may be under way, and then three
	if taker.s != nil || !errors.Is(taker.err, rados.ErrUnanswered) || holder(t, c.Connect(v, "array")) != "" {
		t.Fatalf("behind 105 s it ended with %v, and %q has the lock", taker.err, holder(t, c.Connect(v, "array")))
	}
	if text := strings.Join(lines, "\n"); !strings.Contains(text, "has not answered for 10 s") || !strings.Contains(text, "the lease of the array is not renewed") {
		t.Errorf("it said %q", text)
	}
}

// TestMonitorAnswersInPart: a request that the monitors answer in part is no silence: a taker's lease goes on being renewed, and
// it gives the array back when they have not done the rest for a minute, with an error that says how much.
func TestMonitorAnswersInPart(t *testing.T) {
	c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	for i := range 2 {
		p := stand(c, v, i, func(o *rados.Options) { o.Dead = func(rados.Owner) bool { return true } })
		if v.RunUntil(v.Now() + 5e9); !p.serves() {
			t.Fatal(p.err)
		}
		p.end()
	}
	c.SetMonitor(3e9)
	var lines []string
	taker := stand(c, v, 2, func(o *rados.Options) {
		o.Dead = func(rados.Owner) bool { return true }
		o.Notice = func(line string) { lines = append(lines, line) }
	})
	v.RunUntil(v.Now() + 5900e6)
	if !reaches(v, func() bool { return strings.HasPrefix(holder(t, c.Connect(v, "array")), "p2.") }) { // it has evicted the last one
		t.Fatalf("the test does not get there: %v", taker.err)
	}
	c.MonitorTimeout, c.MonitorPart = 30e9, 1
	v.RunUntil(v.Now() + 110e9)
	if taker.s != nil || taker.err == nil || errors.Is(taker.err, rados.ErrUnanswered) || !strings.Contains(taker.err.Error(), "1 of 2 parts") ||
		holder(t, c.Connect(v, "array")) != "" {
		t.Errorf("behind 110 s it ended with %v, and %q has the lock", taker.err, holder(t, c.Connect(v, "array")))
	}
	if text := strings.Join(lines, "\n"); strings.Contains(text, "is not renewed") {
		t.Errorf("it said %q", text)
	}
}

// TestRequestError: of a request of several parts the error is unanswered where all parts are, and fenced where one is.
func TestRequestError(t *testing.T) {
	silent, other := fmt.Errorf("late: %w", rados.ErrUnanswered), errors.New("injected")
	fenced := fmt.Errorf("refused: %w", block.ErrFenced)
	for _, row := range []struct {
		parts []error
		is    error // nil: none of the two below
		want  string
	}{
		{[]error{silent}, rados.ErrUnanswered, "late: the cluster does not answer in time"},
		{[]error{silent, silent}, rados.ErrUnanswered, "2 of 2"},
		{[]error{nil, silent}, nil, "1 of 2 parts of a request failed, one of them: late"},
		{[]error{silent, other, nil}, nil, "2 of 3"},
		{[]error{other}, nil, "injected"},
		{[]error{silent, fenced, nil}, block.ErrFenced, "refused"},
	} {
		err := rados.RequestError(row.parts)
		if err == nil || !strings.Contains(err.Error(), row.want) || errors.Is(err, rados.ErrUnanswered) != (row.is == rados.ErrUnanswered) ||
			errors.Is(err, block.ErrFenced) != (row.is == block.ErrFenced) {
			t.Errorf("of %v it is %v", row.parts, err)
		}
	}
	if err := rados.RequestError([]error{nil, nil}); err != nil {
		t.Error(err)
	}
}

// TestUnansweredBesideOthers: what goes on beside a start that hangs, as changes of metadata that do not get to their place,
// does not hide that it has no answer.
func TestUnansweredBesideOthers(t *testing.T) {
	c, v := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	name := "nvram"
	for c.OSDOf("array", name) == c.OSDOf("array", "array") || c.OSDOf("array", name) == c.OSDOf("array", "meta") {
		name += "x"
	}
	key := 0
	for c.OSDOf("array", shardOf(key)) == c.OSDOf("array", name) {
		key++
	}
	c.Fail = func(op *rados.Op) error {
		if len(op.Steps) == 2 && op.Steps[1].Kind == rados.OmapSet {
			return errors.New("injected")
		}
		return nil
	}
	var lines []string
	p := &process{Process: simulated.NewProcess(v)}
	p.client = c.Connect(p.Process, "array")
	p.Go(func() {
		p.s, p.err = rados.Open(p.Process, p.client, rados.Options{Log: rados.LogReplicated, Cookie: "p", Lease: leaseNS, Self: rados.Owner{Host: "a", PID: 1},
			Notice: func(line string) { lines = append(lines, line) }})
		if p.err != nil {
			return
		}
		meta, err := p.s.Meta()
		if p.err = err; err != nil {
			return
		}
		if p.err = meta.CommitNow([]block.KV{{Key: []byte(fmt.Sprint(key)), Value: []byte("v")}}); p.err == nil {
			c.Stop(c.OSDOf("array", name))
			_, _, p.err = p.s.Region(name, block.RegionLayout{State: 512, Counters: 64, Log: 4096})
		}
	})
	v.RunUntil(v.Now() + 80e9)
	text := strings.Join(lines, "\n")
	for _, want := range []string{"a change of the metadata cannot be written to its place", "the object " + name + " has not answered for 10 s", "the lease of the array is not renewed"} {
		if !strings.Contains(text, want) {
			t.Errorf("behind 80 s (%v) it said %q, want %q", p.err, text, want)
		}
	}
	p.end()
}

// shardOf returns the object that has the entry of a key that is a number.
func shardOf(key int) string {
	h := fnv.New32a()
	fmt.Fprint(h, key)
	return fmt.Sprintf("meta.%02x", h.Sum32()%16)
}
