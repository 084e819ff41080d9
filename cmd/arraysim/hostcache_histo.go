package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/cachedaemon"
	"github.com/arraysim/arraysim/internal/trace"
)

func (a *app) cacheHisto() *cobra.Command {
	var socket, kind string
	var reset bool
	tf := &traceFlags{}
	c := &cobra.Command{
		Use: "histo [TRACE]", Short: "Print the histograms of vscsiStats, of a running cache or of a trace",
		Long: `histo prints what vscsiStats -c prints, for all requests, for reads and for
writes: ioLength, seekDistance (to the previous one, and to the closest of 16),
latency, outstandingIOs and interarrival. A trace has no latencies and no
outstanding requests; without times it has no interarrival either, and one of
objects has no distances.`,
		Example: "  arraysim hostcache histo --kind latency > latency.csv\n  arraysim hostcache histo vm.vscsi",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(trace.HistogramKinds(), kind) {
				return fmt.Errorf("--kind %q: choose from %s", kind, strings.Join(trace.HistogramKinds(), ", "))
			}
			a.running = true
			if len(args) == 0 {
				h, err := cachedaemon.NewClient(socket).Histograms(cmd.Context(), reset)
				if err != nil {
					return err
				}
				return show(a, cmd, h.Only(kind), func(w io.Writer, h *trace.Histograms) { _ = h.WriteCSV(w, kind, 0, "0") })
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
			for _, h := range disks {
				if !s.Times() {
					h.Of[trace.Interarrival] = [3]trace.Histogram{}
				}
				if s.Objects() { // their identifiers are no addresses
					h.Of[trace.SeekDistance], h.Of[trace.SeekDistance16] = [3]trace.Histogram{}, [3]trace.Histogram{}
				}
			}
			var names []string
			byName := map[string]*trace.Histograms{}
			for i, name := range s.Disks() {
				if h := disks[uint16(i)]; h != nil {
					names = append(names, name)
					byName[name] = h.Only(kind)
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
	c.Flags().StringVar(&socket, "socket", cachedaemon.DefaultSocket, "socket of 'arraysim hostcache serve'")
	c.Flags().StringVar(&kind, "kind", "all", strings.Join(trace.HistogramKinds(), ", "))
	c.Flags().BoolVar(&reset, "reset", false, "restart the histograms from 0 afterwards")
	return a.jsonFlag(c)
}
