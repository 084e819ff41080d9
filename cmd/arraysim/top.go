package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) top() *cobra.Command {
	var batch bool
	var interval time.Duration
	var count int
	var view string
	c := &cobra.Command{
		Use: "top", Short: "Watch volumes, pools, hosts and offloads, as esxtop does",
		Long: `top shows what happens now, sorted by what you choose: volumes (v), pools (p), hosts (h),
offloads by volume (o), and those in flight, one by one (i). UNDERCOVER is what offloads write
below the host layer. Press ? for all keys. Columns that do not fit give way; a mark such as »2
at the end of the heads counts them. With -b, top prints CSV: one line per object and interval,
in base units.`,
		Example: "  arraysim top\n  arraysim top -b -n 60 --interval 1s --view pools > pools.csv",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case interval < 100*time.Millisecond:
				return fmt.Errorf("an interval of %v is too short; give 100ms or more", interval)
			case !slices.Contains(topViews, view):
				return fmt.Errorf("there is no view %q; give --view one of %s", view, strings.Join(topViews, ", "))
			case count < 0 || count > 0 && !batch:
				return fmt.Errorf("-n %d goes with -b and is not negative", count)
			}
			a.running = true
			if batch {
				return topBatch(cmd.Context(), a.client(), cmd.OutOrStdout(), view, interval, count)
			}
			if !terminal(os.Stdin) || !terminal(os.Stdout) {
				return fmt.Errorf("top needs a terminal; give -b for CSV")
			}
			return runTop(cmd.Context(), a.client(), view, interval)
		},
	}
	f := c.Flags()
	f.BoolVarP(&batch, "batch", "b", false, "print CSV")
	f.IntVarP(&count, "count", "n", 0, "with -b: number of intervals; 0 goes on until interrupted")
	f.DurationVar(&interval, "interval", 2*time.Second, "time between two readings")
	f.StringVar(&view, "view", "volumes", strings.Join(topViews, ", "))
	_ = c.RegisterFlagCompletionFunc("view", cobra.FixedCompletions(topViews, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func topBatch(ctx context.Context, client *admin.Client, out io.Writer, view string, interval time.Duration, count int) error {
	last, err := readTop(ctx, client, view)
	if err != nil {
		return err
	}
	t := time.NewTicker(interval)
	defer t.Stop()
	w := csv.NewWriter(out)
	for n := 0; count == 0 || n < count; n++ {
		<-t.C
		now, err := readTop(ctx, client, view)
		if err != nil {
			return err
		}
		table := newTopTable(view, last, now)
		if n == 0 {
			if err := table.heads(w); err != nil {
				return err
			}
		}
		if err := table.lines(w, time.Now()); err != nil {
			return err
		}
		last = now
	}
	return nil
}

func runTop(ctx context.Context, client *admin.Client, view string, interval time.Duration) error {
	m := newTopModel(view, interval, func(view string) (topReading, error) { return readTop(ctx, client, view) })
	first, err := m.read(view)
	if err != nil {
		return err
	}
	m.last, m.now = first, first
	_, err = tea.NewProgram(m, tea.WithAltScreen(), tea.WithContext(ctx)).Run()
	return err
}
