package lab

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/lab/plug"
)

// bad answers as it is told.
type bad struct {
	slot  int
	delay int64
	next  int
	way   plug.Way
}

func (bad) Insert(int, uint64)            {}
func (bad) Hit(int)                       {}
func (bad) Remove(int)                    {}
func (b bad) Victim(func(int) bool) int   { return b.slot }
func (b bad) Delay(plug.Area) int64       { return b.delay }
func (b bad) Rate(plug.Fullness) int64    { return -1 }
func (b bad) Next([]plug.DirtyVolume) int { return b.next }
func (b bad) Place(plug.Copy) plug.Way    { return b.way }

// TestBadPolicies: a policy that answers what is impossible ends the run with one line that names it, and so does a
// name that nobody knows.
func TestBadPolicies(t *testing.T) {
	for _, row := range []struct {
		what, says string
		by         bad
		set        func(s *Scenario, b bad)
	}{
		{"a victim that is not there", "host h, cache v: eviction policy mine named slot -1, which holds no block", bad{slot: -1}, func(s *Scenario, b bad) {
			s.Hosts[0].Cache[0].Eviction = "mine"
			s.Plugged.Eviction = map[string]func(plug.Cache) (plug.Eviction, error){"mine": func(plug.Cache) (plug.Eviction, error) { return b, nil }}
		}},
		{"a constructor that fails", "eviction policy mine: no luck", bad{}, func(s *Scenario, b bad) {
			s.Hosts[0].Cache[0].Eviction = "mine"
			s.Plugged.Eviction = map[string]func(plug.Cache) (plug.Eviction, error){"mine": func(plug.Cache) (plug.Eviction, error) { return nil, errors.New("no luck") }}
		}},
		{"no such eviction", `no eviction policy is named "mine"; choose from lru, fifo`, bad{}, func(s *Scenario, b bad) { s.Hosts[0].Cache[0].Eviction = "mine" }},
		{"no such module", "eviction policy: open there.wasm: no such file", bad{}, func(s *Scenario, b bad) { s.Hosts[0].Cache[0].Eviction = Wasm("there.wasm") }},
		{"no such admission", `no admission policy is named "mine"`, bad{}, func(s *Scenario, b bad) { s.Hosts[0].Cache[0].Admission = "mine" }},
		{"a negative delay", "throttle policy mine delayed a write for -5 ns", bad{delay: -5}, func(s *Scenario, b bad) {
			s.Hosts[0].Cache[0].Throttle = "mine"
			s.Plugged.Throttle = map[string]func(plug.Cache) (plug.Throttle, error){"mine": func(plug.Cache) (plug.Throttle, error) { return b, nil }}
		}},
		{"a volume that is not there", "destage policy mine chose volume 9 of", bad{next: 9}, func(s *Scenario, b bad) {
			s.Arrays[0].Destage = "mine"
			s.Plugged.Destage = map[string]func(plug.Partition) (plug.Destage, error){"mine": func(plug.Partition) (plug.Destage, error) { return b, nil }}
		}},
		{"a name of ours", "eviction policy lru: arraysim has a built-in one of that name", bad{}, func(s *Scenario, b bad) {
			s.Plugged.Eviction = map[string]func(plug.Cache) (plug.Eviction, error){"lru": func(plug.Cache) (plug.Eviction, error) { return b, nil }}
		}},
		{"a name of a module", "eviction policy wasm:x: a name that begins with wasm:", bad{}, func(s *Scenario, b bad) {
			s.Plugged.Eviction = map[string]func(plug.Cache) (plug.Eviction, error){"wasm:x": func(plug.Cache) (plug.Eviction, error) { return b, nil }}
		}},
		{"no such module of another kind", "destage policy: open x.wasm: no such file", bad{}, func(s *Scenario, b bad) { s.Arrays[0].Destage = Wasm("x.wasm") }},
		{"a name of a module of another kind", "throttle policy wasm:x: a name that begins with wasm:", bad{}, func(s *Scenario, b bad) {
			s.Plugged.Throttle = map[string]func(plug.Cache) (plug.Throttle, error){"wasm:x": func(plug.Cache) (plug.Throttle, error) { return b, nil }}
		}},
		{"an eviction that is nothing", "eviction policy mine: its constructor returned neither", bad{}, func(s *Scenario, b bad) {
			s.Hosts[0].Cache[0].Eviction = "mine"
			s.Plugged.Eviction = map[string]func(plug.Cache) (plug.Eviction, error){"mine": func(plug.Cache) (plug.Eviction, error) { return nil, nil }}
		}},
		{"an admission that is nothing", "admission policy mine: its constructor returned neither", bad{}, func(s *Scenario, b bad) {
			s.Hosts[0].Cache[0].Admission = "mine"
			s.Plugged.Admission = map[string]func(plug.Cache) (plug.Admission, error){"mine": func(plug.Cache) (plug.Admission, error) { return nil, nil }}
		}},
		{"a throttle that is nothing", "throttle policy mine: its constructor returned neither", bad{}, func(s *Scenario, b bad) {
			s.Hosts[0].Cache[0].Throttle = "mine"
			s.Plugged.Throttle = map[string]func(plug.Cache) (plug.Throttle, error){"mine": func(plug.Cache) (plug.Throttle, error) { return nil, nil }}
		}},
		{"a destage that is nothing", "destage policy mine: its constructor returned neither", bad{}, func(s *Scenario, b bad) {
			s.Arrays[0].Destage = "mine"
			s.Plugged.Destage = map[string]func(plug.Partition) (plug.Destage, error){"mine": func(plug.Partition) (plug.Destage, error) { return nil, nil }}
		}},
		{"a placement that is nothing", "placement policy mine: its constructor returned neither", bad{}, func(s *Scenario, b bad) {
			s.Arrays[0].Placement = "mine"
			s.Plugged.Placement = map[string]func(plug.Array) (plug.Placement, error){"mine": func(plug.Array) (plug.Placement, error) { return nil, nil }}
		}},
		{"a constructor that is nothing", "placement policy mine has no constructor", bad{}, func(s *Scenario, b bad) {
			s.Arrays[0].Placement = "mine"
			s.Plugged.Placement = map[string]func(plug.Array) (plug.Placement, error){"mine": nil}
		}},
		{"an error of two lines", "throttle policy mine: one; two", bad{}, func(s *Scenario, b bad) {
			s.Hosts[0].Cache[0].Throttle = "mine"
			s.Plugged.Throttle = map[string]func(plug.Cache) (plug.Throttle, error){"mine": func(plug.Cache) (plug.Throttle, error) { return nil, errors.New("one\ntwo") }}
		}},
		{"no such way", "placement policy mine answered 7; it is Reference or Data", bad{way: 7}, func(s *Scenario, b bad) {
			s.Arrays[0].Placement = "mine"
			s.Plugged.Placement = map[string]func(plug.Array) (plug.Placement, error){"mine": func(plug.Array) (plug.Placement, error) { return b, nil }}
		}},
	} {
		s := small()
		s.Hosts[0].Cache[0].Size = MiB
		row.set(&s, row.by)
		_, err := s.Run(context.Background())
		if err == nil || !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", row.what, err)
		}
	}
}

// counted counts what it is asked, and lets all happen as without it.
type counted struct{ admissions, delays, rates, places int }

func (c *counted) Admit(uint64, bool) bool { c.admissions++; return true }
func (c *counted) Rate(f plug.Fullness) int64 {
	if c.rates++; f.Used < 0 || f.Limit <= 0 || f.CacheLimit < f.Limit {
		panic("the fullness is not one")
	}
	return -1
}
func (c *counted) Next(v []plug.DirtyVolume) int { return len(v) - 1 }
func (c *counted) Place(p plug.Copy) plug.Way {
	if c.places++; p.Bytes <= 0 || !p.Moves || p.To != 2 {
		panic("the copy is not the one")
	}
	return plug.Reference
}
func (c *counted) Delay(a plug.Area) int64 {
	if c.delays++; a.Dirty == 0 || a.Size < a.Threshold {
		panic("the area is not one")
	}
	return 0
}

// dead works like counted until it has been asked once; then it has failed. It counts how often it was closed.
type dead struct {
	counted
	closed *int
}

func (d *dead) Err() error {
	if d.admissions+d.delays+d.rates+d.places < 1 {
		return nil
	}
	return errors.New("my process died")
}

func (d *dead) Close() error { *d.closed++; return nil }

// TestDeadPolicies: a policy of any kind that has failed ends the run with its error, and is closed; so it is where
// the run cannot begin.
func TestDeadPolicies(t *testing.T) {
	for _, kind := range []string{"admission", "throttle", "destage", "placement"} {
		closed := 0
		d := &dead{closed: &closed}
		s := small()
		s.Plugged = plug.Policies{
			Admission: map[string]func(plug.Cache) (plug.Admission, error){"mine": func(plug.Cache) (plug.Admission, error) { return d, nil }},
			Throttle:  map[string]func(plug.Cache) (plug.Throttle, error){"mine": func(plug.Cache) (plug.Throttle, error) { return d, nil }},
			Destage:   map[string]func(plug.Partition) (plug.Destage, error){"mine": func(plug.Partition) (plug.Destage, error) { return d, nil }},
			Placement: map[string]func(plug.Array) (plug.Placement, error){"mine": func(plug.Array) (plug.Placement, error) { return d, nil }},
		}
		c, a := &s.Hosts[0].Cache[0], &s.Arrays[0]
		switch kind {
		case "admission":
			c.Admission = "mine"
		case "throttle":
			c.Throttle = "mine"
		case "destage":
			a.Destage = "mine"
		case "placement":
			a.Placement = "mine"
		}
		if _, err := s.Run(context.Background()); err == nil || err.Error() != kind+" policy mine: my process died" || closed != 1 {
			t.Errorf("%s: %v; closed %d times", kind, err, closed)
		}
		s.Jobs = append(s.Jobs, Job{Name: "j", Volume: "v", Host: "nowhere", IO: 4 * KiB, Outstanding: 1})
		if _, err := s.Run(context.Background()); err == nil || closed > 2 || kind != "destage" && kind != "placement" && closed != 2 {
			t.Errorf("%s, a run that does not begin: %v; closed %d times", kind, err, closed)
		}
	}
}

// TestAllAreAsked: each kind of policy is asked, and the copy that it wants by reference is one, although the pool is
// set to move data.
func TestAllAreAsked(t *testing.T) {
	var c counted
	s := small()
	s.Hosts[0].Cache[0].Admission, s.Hosts[0].Cache[0].Throttle, s.Arrays[0].Destage, s.Arrays[0].Placement = "mine", "mine", "mine", "mine"
	s.Plugged = plug.Policies{
		Admission: map[string]func(plug.Cache) (plug.Admission, error){"mine": func(plug.Cache) (plug.Admission, error) { return &c, nil }},
		Throttle:  map[string]func(plug.Cache) (plug.Throttle, error){"mine": func(plug.Cache) (plug.Throttle, error) { return &c, nil }},
		Destage:   map[string]func(plug.Partition) (plug.Destage, error){"mine": func(plug.Partition) (plug.Destage, error) { return &c, nil }},
		Placement: map[string]func(plug.Array) (plug.Placement, error){"mine": func(plug.Array) (plug.Placement, error) { return &c, nil }},
	}
	r := run(t, s)
	if c.admissions == 0 || c.delays == 0 || c.rates == 0 || c.places == 0 {
		t.Errorf("asked: %+v", c)
	}
	if v, err := r.Value("metric.offload_bytes_total,primitive=xcopy,path=metadata"); err != nil || v != float64(64*MiB) {
		t.Errorf("%g bytes were copied by reference, %v", v, err)
	}
	if v, err := r.Value("array.a.problems"); err != nil || v != 0 {
		t.Errorf("%g problems, %v", v, err)
	}
}

// TestModuleInAFile: a scenario file names a WebAssembly module in two ways, both as a program does, and a map with
// another key is refused.
func TestModuleInAFile(t *testing.T) {
	const module = "../examples/wasm/clock.wasm"
	s := small()
	s.Hosts[0].Cache[0].Eviction = Wasm(module)
	want := string(run(t, s).Files()["hostcache.csv"])
	for _, eviction := range []string{"{wasm: " + module + "}", "wasm:" + module} {
		r, err := RunYAML(context.Background(), []byte(strings.Replace(file, "eviction: s3-fifo", "eviction: "+eviction, 1)), plug.Policies{})
		if err != nil || string(r.Files()["hostcache.csv"]) != want {
			t.Errorf("%s: %v", eviction, err)
		}
	}
	_, err := RunYAML(context.Background(), []byte(strings.Replace(file, "eviction: s3-fifo", "eviction: {command: x}", 1)), plug.Policies{})
	if err == nil || !strings.Contains(err.Error(), "a policy is a name, or wasm:") {
		t.Errorf("another key: %v", err)
	}
}
