package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/cachedaemon"
	"github.com/arraysim/arraysim/internal/report"
)

// cacheMap is `arraysim hostcache map`.
func (a *app) cacheMap() *cobra.Command {
	var svg string
	var from, to time.Duration
	c := &cobra.Command{
		Use: "map DIR | SOCKET...", Short: "Print the performance map: cached disks, weighted by what they gain",
		Long: `map weighs cached disks by what they gain.

For the folder of a run (sim --out): the seconds of waiting at the datastore that each second
saves. With --svg it draws that, and each disk's I/Os, latency, throughput and destaging area over
time. For running caches, each by its socket: the time that their clients saved since their
statistics were reset, each read and write at the datastore's mean latency less what it took. It is
negative for a cache that made its clients wait longer. What a disk gains is unknown if it read, or
wrote, and its datastore was not seen to do so.`,
		Example: "  arraysim sim testdata/scenarios/004-compile.yaml --case cached --out out\n  arraysim hostcache map out --svg pictures\n  arraysim hostcache map hostcache.sock",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			if at, err := os.Stat(args[0]); err == nil && !at.IsDir() {
				if svg != "" || from != 0 || to != 0 {
					return errors.New("--svg, --from and --to are for the folder of a run")
				}
				return a.mapOfRunning(cmd, args)
			}
			if len(args) > 1 {
				return errors.New("one folder at a time")
			}
			end := math.Inf(1)
			if to > 0 {
				end = to.Seconds()
			}
			if from < 0 || from.Seconds() >= end {
				return errors.New("--from and --to are times of the run, one before the other")
			}
			caches, err := report.LoadHostCaches(args[0])
			if err != nil {
				return err
			}
			if svg != "" {
				if err := writePictures(&report.Report{Pictures: report.HostCachePictures(caches)}, svg); err != nil {
					return err
				}
			}
			return show(a, cmd, report.PerformanceMap(caches, from.Seconds(), end), func(w io.Writer, gains []report.Gain) {
				_ = report.WritePerformanceMap(w, gains)
			})
		}),
	}
	c.Flags().DurationVar(&from, "from", 0, "beginning of the period, in the run's time")
	c.Flags().DurationVar(&to, "to", 0, "end of the period (default: of the run)")
	c.Flags().StringVar(&svg, "svg", "", "folder for pictures as SVG files")
	return a.jsonFlag(c)
}

// mapOfRunning prints the disks of running caches, the one that has spared its clients the most time first.
func (a *app) mapOfRunning(cmd *cobra.Command, sockets []string) error {
	var list []cachedaemon.Gain
	for _, socket := range sockets {
		r, err := cachedaemon.NewClient(socket).Report(cmd.Context())
		if err != nil {
			return err
		}
		list = append(list, r.Gain(socket))
	}
	cachedaemon.Rank(list)
	return show(a, cmd, list, func(w io.Writer, list []cachedaemon.Gain) {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "LUN\tI/OS\tREAD HITS\tEFFECTIVE ms\tDATASTORE ms\tSAVED s\tSHARE\t")
		for _, g := range list {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t\n", g.LUN, g.IOs, amount(g.Hits, 1).Text("%.0f %%"), amount(g.Effective, 1e-6).Text("%.3f"), amount(g.Datastore, 1e-6).Text("%.3f"),
				amount(g.Saved, 1e-9).Text("%.3f"), amount(g.Share, 100).Text("%.1f %%"))
		}
		t.Flush()
	})
}

// amount is what a daemon says times a factor. The daemon has nil for what is not known: it imports nothing of the array's.
func amount[T int | int64 | float64](x *T, factor float64) report.Amount {
	if x == nil {
		return report.Amount(math.NaN())
	}
	return report.Amount(float64(*x) * factor)
}
