package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/cachedaemon"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
	"github.com/arraysim/arraysim/internal/size"
)

func (a *app) cachePolicy() *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use: "policy", Short: "Change a running cache: policy, quiesce, statistics",
		Example: "  arraysim hostcache policy set write_back+1\n  arraysim hostcache policy quiesce --expire 10m",
		Args:    cobra.NoArgs, Annotations: map[string]string{"group": "yes"},
		RunE: func(*cobra.Command, []string) error { return errors.New("policy needs a command") },
	}
	c.PersistentFlags().StringVar(&socket, "socket", cachedaemon.DefaultSocket, "socket of 'arraysim hostcache serve'")
	client := func() *cachedaemon.Client { return cachedaemon.NewClient(socket) }
	print := func(cmd *cobra.Command, r *cachedaemon.Report, err error) error {
		if err != nil {
			return err
		}
		return show(a, cmd, r, printCache)
	}
	var noWait bool
	set := &cobra.Command{
		Use: "set POLICY", Short: "Set the policy: off, write_through, write_back or write_back+PEERS", Example: "  arraysim hostcache policy set write_through",
		Long: "set requests a policy and waits until it is in effect. Dirty data is destaged before a policy\nwithout write-back takes over.",
		Args: cobra.ExactArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			if _, err := tier.ParsePolicy(args[0]); err != nil {
				return err
			}
			r, err := client().SetPolicy(cmd.Context(), args[0], !noWait)
			return print(cmd, r, err)
		}),
	}
	set.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until the policy is in effect")
	var expire time.Duration
	quiesce := &cobra.Command{
		Use: "quiesce", Short: "Destage everything and write through, for a backup or a snapshot; prints a token", Example: "  token=$(arraysim hostcache policy quiesce --expire 30m)",
		Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			t, err := client().Quiesce(cmd.Context(), expire)
			if err != nil {
				return err
			}
			return show(a, cmd, t, func(w io.Writer, t cachedaemon.Token) { fmt.Fprintln(w, t.Token) })
		}),
	}
	quiesce.Flags().DurationVar(&expire, "expire", 10*time.Minute, "time after which the quiesce ends by itself")
	resume := &cobra.Command{
		Use: "resume TOKEN", Short: "End a quiesce", Example: "  arraysim hostcache policy resume 1", Args: cobra.ExactArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil {
				return fmt.Errorf("%q is not a valid token; give the number that quiesce printed", args[0])
			}
			r, err := client().Resume(cmd.Context(), cachedaemon.Token{Token: n})
			return print(cmd, r, err)
		}),
	}
	var reset bool
	stats := &cobra.Command{
		Use: "stats", Short: "Print the state of the cache and its statistics", Example: "  arraysim hostcache policy stats --json", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			ask := client().Report
			if reset {
				ask = client().ResetStats
			}
			r, err := ask(cmd.Context())
			return print(cmd, r, err)
		}),
	}
	stats.Flags().BoolVar(&reset, "reset", false, "restart the statistics from 0")
	for _, sub := range []*cobra.Command{set, quiesce, resume, stats} {
		c.AddCommand(a.jsonFlag(sub))
	}
	return c
}

// printCache prints a report for people, in the words of the documents.
func printCache(w io.Writer, r *cachedaemon.Report) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, v any) { fmt.Fprintf(t, "%s\t%v\n", name, v) }
	line("Requested policy", r.Requested)
	effective := r.Effective
	if r.State.Why != "" {
		effective += " (" + r.State.Why + ")"
	}
	line("Effective policy", effective)
	guess := ""
	if r.State.Assumed {
		guess = " (a guess: nothing was destaged so far)"
	}
	line("Dirty", fmt.Sprintf("%s of %s, time to destage %.1f s%s", sectors(uint64(r.State.DirtySectors)), sectors(uint64(r.State.AreaSectors)), r.TimeToGo, guess))
	line("Peers", fmt.Sprintf("%v, lost %v", r.State.Peers, r.State.LostPeers))
	for _, why := range r.State.LeftAlone {
		line("Left alone", why)
	}
	if r.State.Unmarked {
		line("Unmarked", "a flash was left out, and nothing records it: format it before it is used again")
	}
	line("Read: cache hit rate (%)", number(r.Cache.HitRate))
	line("Cache usage rate (%)", r.Cache.UsageRate)
	line("Blocks cached", fmt.Sprintf("%d of %d of %d KB", r.Cache.NumBlocksCached, r.Cache.NumBlocks, r.Cache.BlockSizeKB))
	line("Evict: mean blocks per I/O operation", number(r.Cache.EvictMeanBlocks))
	for _, v := range []struct {
		name        string
		read, write tier.Flow
	}{
		{"Total (effective)", r.Views.Effective.Read, r.Views.Effective.Write},
		{"Local flash", r.Views.LocalFlash.Read, r.Views.LocalFlash.Write},
		{"Network flash", r.Views.NetworkFlash.Read, r.Views.NetworkFlash.Write},
		{"Datastore", r.Views.Datastore.Read, r.Views.Datastore.Write},
	} {
		line(v.name, fmt.Sprintf("read %d I/Os, %d KiB, %s; write %d I/Os, %d KiB, %s",
			v.read.IOs, v.read.Bytes>>10, meanOf(v.read), v.write.IOs, v.write.Bytes>>10, meanOf(v.write)))
	}
	line("Throttled writes", r.Counters.ThrottledWrites)
	line("Superseded by offloads (KiB)", r.Counters.SupersededSectors/2)
	line("Destaged for offloads (KiB)", r.Counters.OffloadFlushSectors/2)
	t.Flush()
}

// meanOf writes a mean latency, which nobody knows of no I/O.
func meanOf(f tier.Flow) string {
	if f.IOs == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f ms", float64(f.Mean())/1e6)
}

// sectors writes a number of sectors as a size.
func sectors(n uint64) string { return size.Bytes(n << block.SectorShift).Human() }
