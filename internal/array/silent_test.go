// An NVRAM that does not answer.

package array

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
)

// silentStore is a store with an NVRAM whose flushes never end while it is told so.
type silentStore struct {
	*store.Memory
	silent *bool
}

func (s silentStore) Region(name string, l block.RegionLayout) (block.Region, bool, error) {
	region, fresh, err := s.Memory.Region(name, l)
	return silentRegion{region, s.silent}, fresh, err
}

type silentRegion struct {
	block.Region
	silent *bool
}

func (d silentRegion) Flush(done func(error)) {
	if !*d.silent {
		d.Region.Flush(done)
	}
}

// TestWritesEndWhileNVRAMIsSilent: a flush of NVRAM does not end. Who waits for room in the cache, or in the log, hears of a
// hardware error in time, and health names the disk.
func TestWritesEndWhileNVRAMIsSilent(t *testing.T) {
	for name, make := range map[string]func(i uint64) *block.Request{
		"cache": func(i uint64) *block.Request { return write(i*8, 8) },
		"log": func(i uint64) *block.Request {
			q := &block.Request{Op: block.OpUnmap}
			for n := range uint64(64) {
				q.Ranges = append(q.Ranges, block.Range{Start: i*8 + n*16, Count: 1 + i%2})
			}
			return q
		},
	} {
		t.Run(name, func(t *testing.T) {
			silent := false
			clock := &block.Virtual{}
			st := store.NewMemory(clock, store.MemoryOptions{})
			a, err := Open(Options{Exec: clock, Store: silentStore{st, &silent}, CacheBytes: 4 << 20, LogBytes: 64 << 10})
			mustDo(t, err)
			r := &rig{t: t, clock: clock, store: st, a: a}
			r.pool("p", PoolSpec{}, 64<<20)
			v := r.volume("v", "p", 32<<20, true)
			silent = true
			open, ended := 0, map[block.Status]int{}
			for i := range uint64(3000) {
				open++
				q := make(i)
				q.Done = func(q *block.Request) { open--; ended[q.Status]++ }
				v.Submit([]*block.Request{q})
			}
			r.clock.RunUntil(r.clock.Now() + 25e9)
			if open > 0 || ended[block.Hardware] == 0 || ended[block.OK]+ended[block.Hardware] != 3000 {
				t.Errorf("%d commands are open, ended: %v", open, ended)
			}
			if h := strings.Join(r.a.Health(), "; "); !strings.Contains(h, "has not answered") || strings.Contains(h, "make room") {
				t.Errorf("health: %q", h)
			}
		})
	}
}
