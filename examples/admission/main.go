// Admission: a block gets into the cache when it is missed for the second time, so that a scan leaves the cache alone.
package main

import (
	"time"

	"github.com/arraysim/arraysim/lab"
	"github.com/arraysim/arraysim/lab/plug"
)

// twice remembers what was missed, by a hash, in a table that it overwrites.
type twice struct{ missed []uint64 }

func newTwice(c plug.Cache) (plug.Admission, error) {
	return &twice{make([]uint64, 4*c.Blocks)}, nil
}

func (t *twice) Admit(block uint64, write bool) bool {
	seen := &t.missed[block*0x9E3779B97F4A7C15>>32%uint64(len(t.missed))]
	again := *seen == block+1
	*seen = block + 1
	return again
}

func main() {
	s := lab.Scenario{
		Until:  20 * time.Second,
		Arrays: []lab.Array{{Profile: "all-flash", Pools: []lab.Pool{{Name: "pool", Mdisks: []lab.Mdisk{{Size: 4 * lab.GiB}}}}, Volumes: []lab.Volume{{Name: "db", Size: lab.GiB, Filled: lab.GiB}}}},
		Hosts:  []lab.Host{{Name: "host", Cache: []lab.Cache{{Volume: "db", Size: 32 * lab.MiB, Eviction: "lru"}}}},
		Jobs: []lab.Job{{Name: "queries", Volume: "db", IO: 8 * lab.KiB, Rate: 2000, Span: 24 * lab.MiB},
			{Name: "scan", Volume: "db", IO: 8 * lab.KiB, Rate: 4000, Pattern: "sequential"}},
		Plugged: plug.Policies{Admission: plug.Admissions{"twice": newTwice}},
	}
	lab.Main(s, "hosts.host.cache.db.admission", []string{"", "twice"}, "job.queries.p50_ms")
}
