package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) counters() *cobra.Command {
	var watch bool
	var interval time.Duration
	c := &cobra.Command{
		Use: "counters", Short: "Show what hosts see and what the array does below",
		Long: `counters prints, by volume, what hosts move and describe, and what the cache and the
back end do about it. It prints sums since the array was made; with --watch it
goes on with the rates of each interval, or, with --json, a line of sums.`,
		Example: "  arraysim counters\n  arraysim counters --watch\n  arraysim counters --json | jq '.volumes[].undercover_write_bytes'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 10*time.Millisecond {
				return fmt.Errorf("an interval of %v is too short; give 10ms or more", interval)
			}
			a.running = true
			return a.watch(cmd, watch, interval)
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "go on until interrupted")
	c.Flags().DurationVar(&interval, "interval", time.Second, "time between two readings")
	return a.jsonFlag(c)
}

func (a *app) watch(cmd *cobra.Command, watch bool, interval time.Duration) error {
	out, client := cmd.OutOrStdout(), a.client()
	last, err := client.Counters(cmd.Context())
	if err != nil {
		return err
	}
	if !watch {
		return show(a, cmd, last, func(w io.Writer, c admin.Counters) { admin.WriteTotals(w, c) })
	}
	for {
		if a.json {
			if err := admin.WriteLine(out, last); err != nil {
				return err
			}
		}
		time.Sleep(interval)
		now, err := client.Counters(cmd.Context())
		if err != nil {
			return err
		}
		if !a.json {
			if terminal(os.Stdout) {
				fmt.Fprint(out, "\x1b[H\x1b[2J") // to the top, on an empty screen
			}
			admin.WriteRates(out, last, now)
		}
		last = now
	}
}

func (a *app) check() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "check", Short: "Verify the array's maps, cache, checksums and counters",
		Long: `check asks the running daemon to verify itself; hosts wait while it does. When no
daemon runs it opens the data folder, which recovers the log of a crash, and
verifies that. It exits with status 1 when there are problems.`,
		Example: "  arraysim check\n  arraysim check --data /srv/array --json",
		Args:    cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			progress := io.Writer(os.Stderr)
			if a.json {
				progress = io.Discard
			}
			r, err := admin.Check(cmd.Context(), a.folder(), progress)
			if err != nil {
				return err
			}
			if err := show(a, cmd, r, admin.WriteCheck); err != nil {
				return err
			}
			if !r.OK {
				return errSilent
			}
			return nil
		}),
	})
}
