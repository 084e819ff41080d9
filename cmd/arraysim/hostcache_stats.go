package main

import (
	"fmt"
	"io"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/cachedaemon"
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
			client := cachedaemon.NewClient(socket)
			ask := client.Report
			if reset {
				ask = client.ResetStats
			}
			r, err := ask(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, cmd, r.Cache, printCacheStats)
		}),
	}
	c.Flags().StringVar(&socket, "socket", cachedaemon.DefaultSocket, "socket of 'arraysim hostcache serve'")
	c.Flags().BoolVar(&reset, "reset", false, "print the statistics and restart them from 0")
	return a.jsonFlag(c)
}

// number writes a number, or a pointer to one that is nil where nobody knows it.
func number(v any) string {
	p := reflect.ValueOf(v)
	switch {
	case p.Kind() != reflect.Pointer:
		return fmt.Sprint(v)
	case p.IsNil():
		return "unknown"
	}
	return fmt.Sprint(p.Elem().Interface())
}

func printCacheStats(w io.Writer, s tier.CacheStats) {
	group := func(name string, lines ...any) {
		indent := "   "
		if name != "" {
			fmt.Fprintf(w, "   %s:\n", name)
			indent += "   "
		}
		for i := 0; i < len(lines); i += 2 {
			fmt.Fprintf(w, "%s%s: %s\n", indent, lines[i], number(lines[i+1]))
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
