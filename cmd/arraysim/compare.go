package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/experiment"
	"github.com/arraysim/arraysim/internal/fio"
)

func (a *app) compare() *cobra.Command {
	var array fio.Array
	c := &cobra.Command{
		Use:   "compare RESULT.json",
		Short: "Compare a fio result with the simulation of its jobs",
		Long: `compare reads a result of fio (--output-format=json) and runs its jobs in the simulator, against
an array of --profile. It prints IOPS, mean latency and each percentile, measured and simulated,
with the residual.

The loads come from the job options in the result. Jobs of a group run concurrently. A group runs
after the groups before it, unless it has new_group=1, which only divides fio's report. For jobs
that run concurrently, only the time until the first reaches --ios is simulated. Each job's figures
are of its own time: the output has both, with the part of it in which each other job ran, and says
where the parts differ. The percentiles are those in fio's result, usually of completion latency
(clat).`,
		Example: "  fio --output-format=json --output=lun.json reads.fio\n  arraysim compare lun.json --profile mine.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			if array.IOs < 100 {
				return fmt.Errorf("--ios %d: give 100 or more", array.IOs)
			}
			if array.Mdisks < 1 || array.Mdisks > 1024 {
				return fmt.Errorf("--mdisks %d: give 1 to 1024", array.Mdisks)
			}
			r, err := fio.ReadResult(args[0])
			if err != nil {
				return err
			}
			ctx, _ := signals()
			w, end := metered(experiment.Work{}, !a.json && terminal(os.Stderr))
			out, notes, err := experiment.BesideFio(ctx, r, array, w)
			end()
			if err != nil {
				return err
			}
			for _, n := range notes {
				fmt.Fprintln(admin.PrintableWriter(os.Stderr), "arraysim: "+n)
			}
			return show(a, cmd, out, writeComparisons)
		}),
	}
	c.Flags().StringVar(&array.Profile, "profile", "all-flash", "profile of the array")
	c.Flags().IntVar(&array.Mdisks, "mdisks", 1, "number of mdisks in the pool")
	c.Flags().Int64Var(&array.IOs, "ios", 20000, "most I/Os to simulate for each job")
	return a.jsonFlag(c)
}

func writeComparisons(w io.Writer, all []experiment.Comparison) {
	for _, c := range all {
		fmt.Fprintf(w, "%s, %ss: %d by fio in %s, %d simulated in %.4g s\n", c.Job, c.Direction, c.Fio, seconds(c.Window.Fio), c.Simulated, c.Window.Simulated)
		for _, b := range c.Window.Beside {
			fmt.Fprintf(w, "beside %s: %s of fio's time, %.0f %% of the simulated\n", b.Job, amount(b.Fio, 100).Text("%.0f %%"), 100*b.Simulated)
		}
		if c.Window.Differ {
			fmt.Fprintln(w, "the two windows differ, so residuals compare different loads; give more --ios, or measure jobs of one length")
		}
		fmt.Fprintf(w, "%-12s %12s %12s %10s\n", "", "FIO", "SIMULATED", "RESIDUAL")
		for _, f := range c.Figures {
			fmt.Fprintf(w, "%-12s %12.1f %12.1f %+9.1f %%\n", f.Figure, f.Fio, f.Simulated, 100*f.Residual)
		}
		fmt.Fprintln(w)
	}
}

// seconds is a time that fio may not say.
func seconds(x *float64) string {
	if x == nil {
		return "an unknown time"
	}
	return fmt.Sprintf("%.4g s", *x)
}
