package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

func (a *app) cacheStats() *cobra.Command {
	var socket string
	var reset bool
	c := &cobra.Command{
		Use: "stats", Short: "Print the statistics of a running cache under esxcli's names",
		Long: `stats prints what "esxcli storage vflash cache stats get" prints of a cache, and
the fields by which the paper on vSphere Flash Read Cache sizes one. A cache whose
numBlocksCurrentlyCached stays below numBlocks is larger than it needs to be.
Everything else that a cache counts is in "hostcache policy stats".`,
		Example: "  arraysim hostcache stats\n  arraysim hostcache stats --reset",
		Args:    cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			method, path := http.MethodGet, "/v1/cache"
			if reset {
				method, path = http.MethodPost, "/v1/cache/reset"
			}
			var r cacheReport
			if err := askCache(cmd.Context(), socket, method, path, nil, &r); err != nil {
				return err
			}
			return show(a, cmd, r.Cache, printCacheStats)
		}),
	}
	c.Flags().StringVar(&socket, "socket", defaultSocket, "socket of 'arraysim hostcache serve'")
	c.Flags().BoolVar(&reset, "reset", false, "print the statistics and restart them from 0")
	return a.jsonFlag(c)
}

func printCacheStats(w io.Writer, s tier.CacheStats) {
	group := func(name string, lines ...any) {
		indent := "   "
		if name != "" {
			fmt.Fprintf(w, "   %s:\n", name)
			indent += "   "
		}
		for i := 0; i < len(lines); i += 2 {
			fmt.Fprintf(w, "%s%s: %d\n", indent, lines[i], lines[i+1])
		}
	}
	group("Read", "Cache hit rate (as a percentage)", s.HitRate, "Total cache I/Os", s.CacheIOs,
		"Mean cache I/O latency (in microseconds)", s.MeanCacheLatency, "Mean disk I/O latency (in microseconds)", s.MeanDiskLatency,
		"Total I/Os", s.IOs, "Mean IOPS", s.MeanIOPS, "Max observed IOPS", s.MaxIOPS,
		"Mean number of KB per I/O", s.MeanKBPerIO, "Max observed number of KB per I/O", s.MaxKBPerIO,
		"Mean I/O latency (in microseconds)", s.MeanLatency, "Max observed I/O latency (in microseconds)", s.MaxLatency)
	group("Evict", "Last I/O operation time (in milliseconds)", s.EvictLastTime,
		"Number of I/O blocks in last operation", s.EvictLastBlocks, "Mean blocks per I/O operation", s.EvictMeanBlocks)
	group("", "Cache usage rate (as a percentage)", s.UsageRate, "Total failed SSD I/Os", s.FailedSSD,
		"Total failed disk I/Os", s.FailedDisk, "Mean number of cache blocks in use", s.MeanBlocksInUse)
	// The names of the paper, for those who follow its rules of sizing.
	group("Blocks", "numBlocks", s.NumBlocks, "numBlocksCurrentlyCached", s.NumBlocksCached,
		"Evict:avgNumBlocksPerOp", s.EvictMeanBlocks, "Evict:numBlocks", s.Evictions, "vFlash:cacheHitPercentage", s.HitRate,
		"Block size (in KB)", s.BlockSizeKB, "Dirty blocks", s.DirtyBlocks, "Memory (in bytes)", s.MemoryBytes)
}

// mapEntry is a disk of the performance map.
type mapEntry struct {
	LUN    string `json:"lun"`
	Socket string `json:"socket"`
	IOs    uint64 `json:"ios"`
	Hits   int    `json:"cache_hit_rate_percent"`
	// Effective and Datastore are mean latencies in nanoseconds.
	Effective int64 `json:"effective_nanoseconds"`
	Datastore int64 `json:"datastore_nanoseconds"`
	// Saved is the time that clients did not wait, in nanoseconds.
	Saved int64   `json:"saved_nanoseconds"`
	Share float64 `json:"share"`
}

func newMapEntry(r *cacheReport, socket string) mapEntry {
	e, d := r.Views.Effective, r.Views.Datastore
	m := mapEntry{LUN: r.LUN, Socket: socket, IOs: e.Read.IOs + e.Write.IOs, Hits: r.Cache.HitRate}
	if m.IOs > 0 {
		m.Effective = (e.Read.Nanos + e.Write.Nanos) / int64(m.IOs)
	}
	if n := d.Read.IOs + d.Write.IOs; n > 0 {
		m.Datastore = (d.Read.Nanos + d.Write.Nanos) / int64(n)
	}
	for _, x := range [][2]tier.Flow{{e.Read, d.Read}, {e.Write, d.Write}} {
		if x[0].IOs > 0 && x[1].IOs > 0 {
			m.Saved += int64(x[0].IOs)*x[1].Mean() - x[0].Nanos
		}
	}
	m.Saved = max(m.Saved, 0)
	return m
}

// mapOfRunning prints the disks of running caches in the order of the time that their clients
// were spared: each read and write at the datastore's mean latency, less what it took. A disk that
// has sent nothing to its datastore since its statistics were reset has nothing to compare with and gains 0.
func (a *app) mapOfRunning(cmd *cobra.Command, sockets []string) error {
	var list []mapEntry
	total := int64(0)
	for _, socket := range sockets {
		var r cacheReport
		if err := askCache(cmd.Context(), socket, http.MethodGet, "/v1/cache", nil, &r); err != nil {
			return err
		}
		list = append(list, newMapEntry(&r, socket))
		total += list[len(list)-1].Saved
	}
	for i := range list {
		list[i].Share = float64(list[i].Saved) / float64(max(total, 1))
	}
	slices.SortStableFunc(list, func(a, b mapEntry) int { return cmp.Compare(b.Saved, a.Saved) })
	return show(a, cmd, list, func(w io.Writer, list []mapEntry) {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "LUN\tI/OS\tREAD HITS\tEFFECTIVE ms\tDATASTORE ms\tSAVED s\tSHARE\t")
		for _, m := range list {
			fmt.Fprintf(t, "%s\t%d\t%d %%\t%.3f\t%.3f\t%.3f\t%.1f %%\t\n", m.LUN, m.IOs, m.Hits,
				float64(m.Effective)/1e6, float64(m.Datastore)/1e6, float64(m.Saved)/1e9, 100*m.Share)
		}
		t.Flush()
	})
}
