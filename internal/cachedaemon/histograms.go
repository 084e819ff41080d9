package cachedaemon

import (
	"net/http"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/trace"
)

// histoObserver counts the reads and writes of the clients of a cached LUN.
type histoObserver struct{ trace.Histograms }

func observed(r *block.Request) (o trace.Op, ok bool) {
	if r.Origin == block.OriginMigrate {
		return 0, false // of a copy of the cache
	}
	switch r.Op {
	case block.OpRead:
		return trace.Read, true
	case block.OpWrite:
		return trace.Write, true
	}
	return 0, false
}

// Began implements tier.Observer.
func (h *histoObserver) Began(now int64, r *block.Request) {
	if o, ok := observed(r); ok {
		h.Begin(now, o, r.Range.Start<<block.SectorShift, r.Range.Bytes())
	}
}

// Ended implements tier.Observer.
func (h *histoObserver) Ended(r *block.Request, took int64) {
	if o, ok := observed(r); ok {
		h.Complete(o, took)
	}
}

func (d *daemon) histograms(w http.ResponseWriter, r *http.Request) {
	d.exec.Lock()
	h := trace.Histograms{Of: d.histo.Of}
	for k := range h.Of {
		for c := range h.Of[k] {
			h.Of[k][c].Buckets = slices.Clone(h.Of[k][c].Buckets)
		}
	}
	if r.Method == http.MethodPost {
		d.histo.Reset()
	}
	d.exec.Unlock()
	d.send(w, h)
}
