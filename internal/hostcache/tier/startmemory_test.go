package tier

import (
	"runtime"
	"testing"

	"github.com/arraysim/arraysim/internal/hostcache"
)

// TestStartTakesLittleMemory: a host that could run a cache can start it again. docs/hostcache.md has the figures.
func TestStartTakesLittleMemory(t *testing.T) {
	const blocks, per, written = 1 << 17, hostcache.MinBlockSectors, 1 << 13
	var c content
	taken := func(what string, n, most int, fn func()) {
		t.Helper()
		held := func() int {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		before := held()
		fn()
		each := (held() - before) / n
		t.Logf("%d bytes for %s", each, what)
		if each > most {
			t.Errorf("%d bytes for %s, want %d at most", each, what, most)
		}
	}
	taken("a block", blocks, 40, func() {
		if err := c.makeContent(blocks, per); err != nil {
			t.Fatal(err)
		}
		for i := range uint32(blocks) {
			s := c.block(hostcache.MakeKey(0, uint64(i)*7919%blocks), i)
			c.ix.SetValid(s, 0, per)
		}
	})
	taken("a block whose sectors were written", written, 350, func() {
		for i := range hostcache.Slot(written) {
			for sector := range per {
				c.wrote(i, sector, uint32(sector), false)
			}
		}
	})
	taken("a sector that was written again", written*per, 32, func() {
		for i := range hostcache.Slot(written) {
			for sector := range per {
				c.wrote(i, sector, uint32(sector), false)
			}
		}
	})
	taken("a sector whose writes were destaged in between, 8 times", written*per, 2, func() {
		for round := range 8 {
			for i := range hostcache.Slot(written) {
				c.cut(i, 0, per)
				for sector := range per {
					c.wrote(i, sector, uint32(round), false)
					c.wrote(i, sector, uint32(round), false)
				}
			}
		}
	})
	runtime.KeepAlive(c)
}
