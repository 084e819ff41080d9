package cachedaemon

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/trace"
)

// TestHistogramsAreOfClients: reads by which a cache is copied or warmed are none of theirs.
func TestHistogramsAreOfClients(t *testing.T) {
	h := &histoObserver{}
	for _, origin := range []block.Origin{block.OriginMigrate, block.OriginHost} {
		r := &block.Request{Op: block.OpRead, Origin: origin, Range: block.Range{Count: 2048}}
		h.Began(0, r)
		h.Ended(r, 1000)
	}
	for _, k := range []int{int(trace.IOLength), int(trace.Latency)} {
		if n := h.Of[k][0].Count; n != 1 {
			t.Errorf("%d requests of one are in histogram %d", n, k)
		}
	}
}
