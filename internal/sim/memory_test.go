package sim

import (
	"runtime"
	"testing"
)

// TestHugeArray holds an array of 100 TiB with 10,000 volumes, of which some are zeroed
// and unmapped again and most were never written, to 2 GiB of memory.
func TestHugeArray(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("takes seconds and gigabytes; the race detector multiplies both")
	}
	s, err := Parse([]byte(`
name: huge
profile: all-flash
until: 2s
sample: 1s
series: 1s
arrays:
  - name: a
    pools: [{name: p, mdisks: [{size: 4095GiB, count: 26}]}]
    volumes:
      - {name: big, pool: p, size: 10TiB}
      - {name: v, count: 9999, group: all, pool: p, size: 9GiB}
hosts: [{name: h}]
jobs:
  - {name: zero, kind: zero, volume: big, size: 64GiB}
  - {name: unmap, kind: unmap, after: zero, volume: big, size: 64GiB, io: 1GiB, ranges: 8}
  - {name: touch, volume: all, rate: 20000, total: true, io: 4KiB, write: 0.5}
`))
	if err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	r, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	made := heap() - before
	r.Advance(2 * second)
	used := heap() - before
	t.Logf("made %d MiB, after 2 s of work %d MiB", made>>20, used>>20)
	for _, j := range r.jobs {
		if j.ios == 0 {
			t.Errorf("job %s did nothing", j.spec.Name)
		}
	}
	if used > 2<<30 {
		t.Errorf("it takes %d MiB, more than 2 GiB", used>>20)
	}
	r.Finish()
}
