package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/hostcache"
	"github.com/arraysim/arraysim/internal/replay"
	"github.com/arraysim/arraysim/internal/trace"
)

// diskAdvice is what advise says of a disk.
type diskAdvice struct {
	Disk      string  `json:"disk"`
	Reads     int64   `json:"reads"`
	Writes    int64   `json:"writes"`
	Bytes     int64   `json:"size_bytes"`
	BlockSize int     `json:"block_size"`
	Hits      float64 `json:"read_hits"`
	AtMost    float64 `json:"read_hits_at_most"`
	Index     int64   `json:"index_bytes"`
	Phase     int     `json:"phase_sectors"`
	Aligned   float64 `json:"phase_share"`
	Sampled   float64 `json:"sampled"`
	// Curve has the read hits by cache size and block size.
	Curve []curvePoint `json:"curve"`
}

type curvePoint struct {
	Bytes int64           `json:"size_bytes"`
	Hits  map[int]float64 `json:"read_hits_by_block_size"`
}

// slotBytes and ghosts are what an index takes for a block, at most.
const slotBytes, slotsPerBlock = 24, 2

func (a *app) advise() *cobra.Command {
	var tf traceFlags
	var budget admin.Size
	var regions int
	c := &cobra.Command{
		Use: "advise TRACE", Short: "Recommend a cache for each disk of a trace",
		Long: `advise reads a trace of block I/O and prints, for each disk, the size and block size
of the read cache that it should have, where its partition begins, and the read
hits of all sizes and block sizes (LRU, validity by sector, write-through).

The size is the smallest that reaches 95 % of the hits that any size can; with
--size, a flash device of that size is divided so that the most reads hit. Memory is
bounded: a disk that touches more regions of 1 MiB than --regions is sampled, and a
trace whose disks together need more than 8 GiB is refused.`,
		Example: "  arraysim hostcache advise vm.vscsi\n  arraysim hostcache advise msr.csv.gz --size 64GiB --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if regions < 16 || regions > 1<<20 {
				return fmt.Errorf("--regions: %d regions are not possible; give 16 to 1048576", regions)
			}
			a.running = true
			r, err := tf.open(args[0])
			if err != nil {
				return err
			}
			s := newSource(r, args[0])
			advice, err := replay.Advise(s, regions)
			s.end()
			if err != nil {
				return err
			}
			type result struct {
				*source
				Disks []diskAdvice `json:"disks"`
			}
			res := result{source: s}
			sizes := make([]int64, len(advice))
			if budget > 0 {
				sizes = hostcache.Split(advice, int64(budget))
			} else {
				for i := range advice {
					sizes[i] = advice[i].Size()
				}
			}
			for i := range advice {
				res.Disks = append(res.Disks, newDiskAdvice(s.Disks()[i], &advice[i], sizes[i]))
			}
			return show(a, cmd, res, func(w io.Writer, r result) {
				r.source.head(w)
				writeAdvice(w, r.Disks)
			})
		},
	}
	tf.add(c)
	c.Flags().Var(&budget, "size", "divide a flash device of this size among the disks")
	c.Flags().IntVar(&regions, "regions", 4096, "most regions of 1 MiB to follow per disk; each takes about 40 KiB")
	return a.jsonFlag(c)
}

func newDiskAdvice(name string, adv *hostcache.Advice, size int64) diskAdvice {
	best := adv.Best(size)
	d := diskAdvice{
		Disk: name, Reads: adv.Reads, Writes: adv.Writes, Bytes: size, BlockSize: best.BlockSectors * trace.SectorSize, Hits: best.At(size),
		Phase: adv.Phase, Aligned: adv.Aligned, Sampled: adv.Sampled,
	}
	d.Index = size / int64(d.BlockSize) * slotBytes * slotsPerBlock
	top, last := 0, 0
	for i := range adv.Curves {
		c := &adv.Curves[i]
		d.AtMost = max(d.AtMost, c.Hits[len(c.Hits)-1])
		top = max(top, len(c.Hits)-1)
	}
	// Points at doublings, from where there is something to see.
	const doubling = 4
	for s := 0; s < top+doubling; s += doubling {
		p := curvePoint{Bytes: hostcache.StepBytes(s), Hits: map[int]float64{}}
		most := 0.0
		for i := range adv.Curves {
			h := adv.Curves[i].At(p.Bytes)
			most = max(most, h)
			p.Hits[adv.Curves[i].BlockSectors*trace.SectorSize] = h
		}
		if most >= 0.01 || last > 0 {
			d.Curve = append(d.Curve, p)
			last = s
		}
	}
	return d
}

func writeAdvice(w io.Writer, disks []diskAdvice) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nDISK\tREADS\tWRITES\tSIZE\tBLOCK\tREAD HITS\tAT MOST\tINDEX\tPHASE\tSAMPLED\t")
	for _, d := range disks {
		size, blockSize := "none", "-"
		if d.Bytes > 0 {
			size, blockSize = admin.Size(d.Bytes).Human(), admin.Size(d.BlockSize).Human()
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%.1f %%\t%.1f %%\t%s\t%d (%.1f %%)\t%.1f %%\t\n", d.Disk, d.Reads, d.Writes, size, blockSize,
			100*d.Hits, 100*d.AtMost, admin.Size(d.Index).Human(), d.Phase, 100*d.Aligned, 100*d.Sampled)
	}
	t.Flush()
	for _, d := range disks {
		if len(d.Curve) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s: %% of reads that hit, by cache size and block size\n", d.Disk)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "SIZE\t")
		for b := hostcache.MinBlockSectors; b <= hostcache.MaxBlockSectors; b *= 2 {
			fmt.Fprintf(t, "%s\t", admin.Size(b*trace.SectorSize).Human())
		}
		fmt.Fprintln(t)
		for _, p := range d.Curve {
			fmt.Fprintf(t, "%s\t", admin.Size(p.Bytes).Human())
			for b := hostcache.MinBlockSectors; b <= hostcache.MaxBlockSectors; b *= 2 {
				fmt.Fprintf(t, "%.1f\t", 100*p.Hits[b*trace.SectorSize])
			}
			fmt.Fprintln(t)
		}
		t.Flush()
		if d.Phase != 0 && d.Aligned > 0.5 {
			fmt.Fprintf(w, "%.1f %% of the requests begin at sector %d modulo 8: the partition is not aligned to 4 KiB; blocks that begin there hit more\n", 100*d.Aligned, d.Phase)
		}
	}
}
