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

// refuseMaps has the cluster not take the next so many writes of object maps.
func refuseMaps(c *simulated.Cluster, times int) {
	c.Fail = func(op *rados.Op) error {
		if times > 0 && strings.HasSuffix(op.Object, ".map") && !op.Reads() {
			times--
			return errors.New("injected")
		}
		return nil
	}
}

// TestLateMapsAreShown: that the cluster does not take an object map is said in one line when it begins and in one when it ends,
// and who asks for the state hears of it meanwhile.
func TestLateMapsAreShown(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	var lines []string
	s := open(t, c, x, rados.Options{Notice: func(line string) { lines = append(lines, line) }, Wall: func() int64 { return 1e18 + x.Now() }})
	m := medium(t, s, 64*extentBytes)
	n, err := s.Medium("n", extentBytes)
	if err != nil {
		t.Fatal(err)
	}
	refuseMaps(c, 1000)
	for _, m := range []block.Medium{m, n} {
		if io, _ := begin(m, true, 0, filled(512, 1)); io.Err != nil {
			t.Fatal(io.Err)
		}
	}
	if x.RunUntil(x.Now() + 5e9); len(lines) != 1 || !strings.Contains(lines[0], ".map is not written: injected; it is tried again") {
		t.Errorf("behind 5 s it said %q", lines)
	}
	if o := s.Ownership(); !strings.Contains(o.Trouble, ".map is not written: injected") || !o.Serving || o.Since < 1e18 || o.Since > 1e18+4e9 {
		t.Errorf("it shows %+v", o)
	}
	refuseMaps(c, 0)
	if x.RunUntil(x.Now() + 2e9); len(lines) != 2 || !strings.Contains(lines[1], "in order again") || s.Ownership().Trouble != "" {
		t.Errorf("when the cluster takes them it said %q, and shows %+v", lines, s.Ownership())
	}
	// One that is late goes with its mdisk.
	refuseMaps(c, 1000)
	begin(m, true, 40*extentBytes, filled(512, 1))
	x.RunUntil(x.Now() + 100e6)
	if s.Ownership().Trouble == "" {
		t.Error("the test does not get there")
	}
	s.RemoveMedium("m", func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	c.Fail = nil
	if x.RunUntil(x.Now() + 100e6); s.Ownership().Trouble != "" || len(lines) != 4 {
		t.Errorf("when the mdisk is gone it said %q, and shows %+v", lines, s.Ownership())
	}
}

// TestStopWithLateMaps: a stop tries for seconds to bring an object map. Where the cluster takes it then the map is right, and
// where it does not the stop ends with an error that names it, and gives the array back all the same.
func TestStopWithLateMaps(t *testing.T) {
	for times, want := range map[int]string{3: "", 1000: "the object map m0.map could not be written"} {
		c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
		s := open(t, c, x, rados.Options{})
		m := medium(t, s, extentBytes)
		if err := transfer(t, x, m, true, 0, filled(512, 1)); err != nil {
			t.Fatal(err)
		}
		c.Forget = func(op *rados.Op) error { // the bit is cleared, and the discard fails all the same
			if op.Object == "m0.map" {
				return errors.New("injected")
			}
			return nil
		}
		failed := false
		m.(block.Discarder).Discard(0, extentBytes, func(err error) { failed = err != nil })
		if x.RunUntil(x.Now() + 10e6); !failed {
			t.Fatal("the discard has not failed")
		}
		c.Forget = nil
		refuseMaps(c, times)
		before := x.Now()
		err := s.Close()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("with %d failures the stop ended with %v, want %q", times, err, want)
		}
		if x.Now()-before > 10e9 {
			t.Errorf("with %d failures the stop took %d s", times, (x.Now()-before)/1e9)
		}
		if c.Fail = nil; holder(t, c.Connect(x, "array")) != "" || slices.Contains(fencedIn(t, c), s.client.Address()) {
			t.Errorf("with %d failures the array was not given back", times)
		}
		c.Lose("array", "m0.00000000")
		next := open(t, c, x, rados.Options{})
		if found := lost(t, x, medium(t, next, extentBytes), 0, 512) != nil; found != (want == "") {
			t.Errorf("with %d failures what is lost is found: %v", times, found)
		}
	}
}

// TestFencedStopSaysNothingOfMaps: maps that an owner could not bring are no matter of one that was replaced.
func TestFencedStopSaysNothingOfMaps(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	s := open(t, c, x, rados.Options{})
	m := medium(t, s, extentBytes)
	refuseMaps(c, 1000)
	begin(m, true, 0, filled(512, 1))
	x.RunUntil(x.Now() + 100e6)
	if s.Ownership().Trouble == "" {
		t.Fatal("the test does not get there")
	}
	open(t, c, x, rados.Options{})
	s.client.Disturb()
	x.RunUntil(x.Now() + 1e9)
	if err := s.Close(); err != nil {
		t.Errorf("its stop: %v", err)
	}
}
