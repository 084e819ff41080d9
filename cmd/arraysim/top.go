package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/top"
)

func (a *app) top() *cobra.Command {
	var batch bool
	var interval time.Duration
	var count int
	var view string
	c := &cobra.Command{
		Use: "top", Short: "Watch volumes, pools, hosts and offloads, as esxtop does",
		Long: `top shows current activity, sorted by a column of your choice: volumes (v), pools (p), hosts (h),
offloads by volume (o), offloads in flight (i), and the nodes of the array (n). UNDERCOVER is what
offloads write below the host layer. Press ? for all keys. Columns that do not fit are left out, the
least important first; a mark such as »2 counts them. With -b, top prints CSV: one line per object
and interval, in base units.`,
		Example: "  arraysim top\n  arraysim top -b -n 60 --interval 1s --view pools > pools.csv",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case interval < 100*time.Millisecond:
				return fmt.Errorf("an interval of %v is too short; give 100ms or more", interval)
			case !slices.Contains(top.Views, view):
				return fmt.Errorf("%q is not a view; give --view one of %s", view, strings.Join(top.Views, ", "))
			case count < 0 || count > 0 && !batch:
				return fmt.Errorf("-n %d goes with -b and is not negative", count)
			}
			a.running = true
			if batch {
				return top.Batch(cmd.Context(), a.client(), cmd.OutOrStdout(), view, interval, count)
			}
			if !terminal(os.Stdin) || !terminal(os.Stdout) {
				return fmt.Errorf("top needs a terminal; give -b for CSV")
			}
			return top.Run(cmd.Context(), a.client(), view, interval)
		},
	}
	f := c.Flags()
	f.BoolVarP(&batch, "batch", "b", false, "print CSV")
	f.IntVarP(&count, "count", "n", 0, "with -b: number of intervals; 0 continues until interrupted")
	f.DurationVar(&interval, "interval", 2*time.Second, "time between two readings")
	f.StringVar(&view, "view", "volumes", strings.Join(top.Views, ", "))
	_ = c.RegisterFlagCompletionFunc("view", cobra.FixedCompletions(top.Views, cobra.ShellCompDirectiveNoFileComp))
	return c
}
