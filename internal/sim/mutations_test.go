//go:build !race

package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var printMutations = flag.Bool("mutations.print", false, "print the rows of docs/virtual-time.md's table of mutations")

// mutation switches a mechanism off, by a setting of the scenario or (adjust) of all its arrays'
// profiles, and turns a predicted expectation red.
type mutation struct {
	mechanism      string
	scenario, name string // and its case
	adjust, set    string
	value          string
	row            string // how the expectation's text begins
}

// mutations are in the order of the table. The first ones are the cheapest, which short runs do.
var mutations = []mutation{
	{"offload of copies", "cross-pool-copy", "cross-pool", "", "hosts.esx.vaai.HardwareAcceleratedMove", "false", "on the wire"},
	{"copies by reference", "cross-pool-copy", "same-pool", "", "arrays.array.copy", "data", "data moved below inside a pool"},
	{"offload budget", "throttle-timeout", "throttled", "policy.budget.pool", "", "0", "commands that timed out"},
	{"acknowledgement by the flash (write-back)", "000-destaging", "part-II", "", "hosts.esx.cache.vm.policy", "write_through", "latency under throttle against the datastore"},
	{"host cache throttle", "000-destaging", "part-II", "", "hosts.esx.cache.vm.threshold", "1000", "destaging area under throttle"},
	{"round robin of the destage", "001-small", "small", "policy.destage", "", "lru", "tower: the cache of the copy's target"},
	{"admission in one FIFO", "001-small", "small", "policy.admission", "", "fair", "tower: writes of the active volumes"},
	{"ramp of the destage", "001-small", "small", "policy.ramp.points", "", "[{at: 0, rate: 225MiB}]", "before: the busiest volume's cache"},
	{"depth of the offload's queue", "001-small", "small", "", "jobs.rtt.outstanding", "1", "tower: writes of the active volumes"},
	{"copies through the cache", "001-small", "small", "copy.mode", "", "reference", "tower: written below the cache"},
	{"lanes of WRITE SAME", "first-write-storm", "offload", "front_end.write_same.lanes", "", "0", "zeroed"},
	{"RAID 5's small write", "002-transactions", "dvd-15GB", "mdisks.sas10k", "", "{parallel: 10, base: 6.1ms, bandwidth: 100MiB, low: 500, high: 1500}", "with 15 GB against none"},
	{"caps by the number of pools", "001-small", "pools-added", "", "faults", "[]", "right after"},
	{"admission in one FIFO, typical tower", "001-small", "typical", "policy.admission", "", "fair", "typical tower: writes of the active volumes"},
	{"destage in several slots", "000-areas", "periodic", "", "hosts.esx.destage_slots", "4", "between the peaks"},
	{"region that grows", "000-areas", "region", "", "hosts.esx.cache.vm.area", "4MiB", "in the peak: dirty region"},
	{"integral term", "000-areas", "integral", "", "hosts.esx.cache.vm.integral", "0", "with the integral term: area"},
	{"slots that all disks share", "000-areas", "three", "", "hosts.esx.destage_slots", "96", "three disks: destaged"},
	{"room of the destaging area", "000-areas", "disks", "", "hosts.esx.cache.vm.threshold", "1", "hard disks: latency that the VM sees"},
	{"unused part of the cache file", "002-moves", "file-1G", "", "jobs.move.caches", "blocks", "cache of 1 GiB: seconds"},
	{"move of the cache", "002-moves", "file-1G", "", "jobs.move.caches", "drop", "reads that hit there"},
	{"destruction by a resume", "002-moves", "suspend", "", "faults", "[]", "resumed: reads that hit"},
	{"destruction by a restart", "002-moves", "cold-restart", "", "faults", "[]", "restarted: reads that hit"},
	{"destruction by a revert", "002-moves", "snapshot-revert", "", "faults", "[]", "snapshot reverted"},
	{"destruction by a consolidation", "002-moves", "snapshot-consolidate", "", "faults", "[]", "snapshot consolidated"},
	{"reads that spare the neighbour's disks", "002-workloads", "neighbour-cached", "", "hosts.esx.cache.c.policy", "\"off\"", "the writing neighbour: writes a second"},
	{"blocks that never come again", "002-workloads", "once-cached", "", "jobs.reader.steps.0.span", "32MiB", "blocks that are read once: reads that hit"},
	{"size beyond the working set", "002-workloads", "large", "", "hosts.esx.cache.c.size", "16MiB", "oversized: numBlocksCurrentlyCached"},
	{"channels by address", "002-workloads", "depth-32", "", "hosts.esx.flash.interleave", "0", "at depth 32"},
	{"zeroing before the first write", "003-zeroing", "lazy-5.0", "front_end.write_same.time", "", "0s", "zeroedthick: first writes against eager"},
	{"VVols without VMFS", "003-zeroing", "vvol", "", "jobs.vdbench.disk", "thin", "VVol: WRITE SAME"},
	{"processors of a full build", "004-compile", "full-cached", "", "jobs.compile1.steps.0.compute", "3ms", "full build: files a minute"},
	{"reads of what was never read", "004-compile", "cold", "", "jobs.compile1.steps.0.span", "256MiB", "cold reads: datastore's I/Os"},
}

// cheap is how many of them short runs do.
const cheap = 1

// dear are those of several seconds, which run with -proofs alone. Of each scenario others stay that take less.
var dear = []string{
	"lanes of WRITE SAME", "RAID 5's small write", "processors of a full build", "host cache throttle", "round robin of the destage",
	"ramp of the destage", "depth of the offload's queue", "admission in one FIFO, typical tower", "integral term", "slots that all disks share",
	"blocks that never come again", "zeroing before the first write",
}

// TestMutations switches mechanisms off, one at a time: each turns a predicted expectation red. What
// each does is a row of docs/virtual-time.md, figures included.
func TestMutations(t *testing.T) {
	for _, name := range dear {
		if !slices.ContainsFunc(mutations, func(m mutation) bool { return m.mechanism == name }) {
			t.Errorf("no mutation is %q", name)
		}
	}
	text, err := os.ReadFile("../../docs/virtual-time.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n| off: "); n != len(mutations) && !*printMutations {
		t.Errorf("docs/virtual-time.md has %d rows of mutations, there are %d", n, len(mutations))
	}
	for i, m := range mutations {
		t.Run(m.mechanism, func(t *testing.T) {
			if testing.Short() && i >= cheap {
				t.Skip("left out of short runs")
			}
			if slices.Contains(dear, m.mechanism) && !*proofs {
				t.Skip("left to the proof of the scenarios")
			}
			o := m.carryOut(t)
			if o.OK || o.Problem != "" {
				t.Errorf("without it, %s still holds: %s, %v %s", o.What, o.Want, o.Ours, o.Problem)
			}
			row := fmt.Sprintf("| off: %s | `%s` | %s, %s | %s | %s | %s |", m.mechanism, m.setting(), m.scenario, o.name(), o.Document, o.Want, figure(o.Ours))
			if *printMutations {
				fmt.Println(row)
			} else if !strings.Contains(string(text), row+"\n") {
				t.Errorf("docs/virtual-time.md does not have the row\n%s\n(-mutations.print prints all)", row)
			}
		})
	}
}

func (m *mutation) setting() string { return m.adjust + m.set + ": " + m.value }

// carryOut runs the case of the expectation, and the one that it is compared with, without the mechanism.
func (m *mutation) carryOut(t *testing.T) Outcome {
	text, err := os.ReadFile("../../testdata/scenarios/" + m.scenario + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Expect, func(e Expect) bool {
		return e.Kind == Predicted && e.Case == m.name && strings.HasPrefix(e.What, m.row)
	})
	if i < 0 {
		t.Fatalf("%s has no predicted expectation %q", m.scenario, m.row)
	}
	e := &s.Expect[i]
	runs := map[string]*Run{}
	s.Cases = slices.DeleteFunc(s.Cases, func(c Case) bool { return c.Name != e.Case && c.Name != e.TimesCase })
	grid, err := s.Runs()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range grid {
		r, err := carryOut(m.apply(t, c))
		if err != nil {
			t.Fatal(err)
		}
		name := c.Name
		if len(s.Cases) == 0 {
			name = ""
		}
		runs[name] = r
	}
	return e.compare(runs)
}

// apply returns a case without the mechanism.
func (m *mutation) apply(t *testing.T, c *Scenario) *Scenario {
	v, err := ParseValue(m.value)
	if err != nil {
		t.Fatal(err)
	}
	name := c.Name
	if m.set != "" {
		if c, err = c.Set(m.set, v); err != nil {
			t.Fatal(err)
		}
	} else {
		for _, a := range c.Arrays {
			settings := maps.Clone(a.Adjust)
			if settings == nil {
				settings = map[string]any{}
			}
			settings[m.adjust] = v
			if c, err = c.Set("arrays."+a.Name+".adjust", settings); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Name = name
	return c
}
