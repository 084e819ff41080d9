package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/trace"
)

// histoObserver counts the reads and writes of a cached LUN.
type histoObserver struct{ trace.Histograms }

func observed(r *block.Request) (o trace.Op, ok bool) {
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

func (d *cacheDaemon) histograms(w http.ResponseWriter, r *http.Request) {
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

func (a *app) cacheHisto() *cobra.Command {
	var socket, kind string
	var reset bool
	tf := &traceFlags{}
	c := &cobra.Command{
		Use: "histo [TRACE]", Short: "Print the histograms of vscsiStats, of a running cache or of a trace",
		Long: `histo prints what vscsiStats -c prints, for all requests, for reads and for
writes: ioLength, seekDistance (to the one before, and to the closest of 16),
latency, outstandingIOs and interarrival. A trace has no latencies and no
outstanding requests, and one without times no interarrival.`,
		Example: "  arraysim hostcache histo --kind latency > latency.csv\n  arraysim hostcache histo vm.vscsi",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(trace.HistogramKinds(), kind) {
				return fmt.Errorf("--kind %q: choose from %s", kind, strings.Join(trace.HistogramKinds(), ", "))
			}
			a.running = true
			if len(args) == 0 {
				var h trace.Histograms
				method := http.MethodGet
				if reset {
					method = http.MethodPost
				}
				if err := askCache(cmd.Context(), socket, method, "/v1/cache/histograms", nil, &h); err != nil {
					return err
				}
				return show(a, cmd, &h, func(w io.Writer, h *trace.Histograms) { _ = h.WriteCSV(w, kind, 0, "0") })
			}
			if reset {
				return errors.New("--reset is for a running cache; leave it out with a trace")
			}
			r, err := tf.open(args[0])
			if err != nil {
				return err
			}
			s := newSource(r, args[0])
			disks := map[uint16]*trace.Histograms{}
			var rec trace.Record
			for err = s.Next(&rec); err == nil; err = s.Next(&rec) {
				h := disks[rec.Disk]
				if h == nil {
					h = &trace.Histograms{}
					disks[rec.Disk] = h
				}
				h.Issue(rec.Time, rec.Op, rec.Offset, uint64(rec.Length))
			}
			s.end()
			if err != io.EOF {
				return err
			}
			if s.Nanoseconds == 0 { // no times
				for _, h := range disks {
					h.Of[trace.Interarrival] = [3]trace.Histogram{}
				}
			}
			var names []string
			byName := map[string]*trace.Histograms{}
			for i, name := range s.Disks() {
				if h := disks[uint16(i)]; h != nil {
					names = append(names, name)
					byName[name] = h
				}
			}
			return show(a, cmd, byName, func(w io.Writer, m map[string]*trace.Histograms) {
				for _, name := range names {
					_ = m[name].WriteCSV(w, kind, 0, name)
				}
			})
		},
	}
	tf.add(c)
	c.Flags().StringVar(&socket, "socket", defaultSocket, "socket of 'arraysim hostcache serve'")
	c.Flags().StringVar(&kind, "kind", "all", strings.Join(trace.HistogramKinds(), ", "))
	c.Flags().BoolVar(&reset, "reset", false, "restart from 0 after this")
	return a.jsonFlag(c)
}
