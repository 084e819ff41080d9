package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Gain is a cached disk in a performance map: what its cache gains it in a period.
type Gain struct {
	Disk string `json:"disk"`
	// IOPS that the client sees, and the share of its I/Os that flash answered: not known without I/Os.
	IOPS       float64 `json:"iops"`
	FlashShare Amount  `json:"flash_share"`
	// Effective latency, and what the datastore takes for the same mix of reads and writes, in ms. The second is not
	// known if the client reads, or writes, and the datastore was never seen to do so.
	Effective Amount `json:"effective_ms"`
	Datastore Amount `json:"datastore_ms"`
	// Saved is seconds of waiting spared in a second: the disk's weight in the map. It is 0 for a disk that did
	// nothing, and not known where Datastore is not.
	Saved Amount `json:"saved_seconds_per_second"`
	// Weight is its share of what is known to be gained by all disks.
	Weight Amount `json:"weight"`
	// HostWrites and ArrayWrites are the shares of writes in the I/Os that the client sends and that the
	// array gets.
	HostWrites  Amount `json:"host_write_share"`
	ArrayWrites Amount `json:"array_write_share"`
}

// PerformanceMap weighs cached disks by what they gain between two times, in seconds: the I/Os, times
// what each would have waited longer at the datastore. What the datastore takes is what it took
// for this disk in the period, else for all disks, reads and writes apart. Disks that gain most come first, those of
// which that is not known last.
func PerformanceMap(caches []*HostCache, from, to float64) []Gain {
	type sums struct{ ios, nanos float64 }
	take := func(c *HostCache, f FlowSeries) (s sums) {
		for i, t := range c.Times {
			if t > from && t <= to {
				s.ios, s.nanos = s.ios+f.IOs[i], s.nanos+f.Nanos[i]
			}
		}
		return s
	}
	var common [2]sums
	for _, c := range caches {
		for k := range common {
			s := take(c, c.Datastore[k])
			common[k].ios, common[k].nanos = common[k].ios+s.ios, common[k].nanos+s.nanos
		}
	}
	var out []Gain
	total := Amount(0)
	for _, c := range caches {
		seconds := 0.0
		for i, t := range c.Times {
			if t > from && t <= to {
				seconds += c.span(i)
			}
		}
		none := Amount(math.NaN())
		g := Gain{Disk: c.Name, FlashShare: none, Effective: none, Datastore: none, HostWrites: none, ArrayWrites: none}
		var ios, flash, nanos, without, below [2]float64
		for k := range common {
			e, d := take(c, c.Effective[k]), take(c, c.Datastore[k])
			ios[k], nanos[k], below[k] = e.ios, e.nanos, d.ios
			flash[k] = min(e.ios, take(c, c.Local[k]).ios+take(c, c.Network[k]).ios)
			if k == 1 { // peers have writes that the host's own flash has, too
				flash[k] = min(e.ios, take(c, c.Local[k]).ios)
			}
			if d.ios == 0 {
				d = common[k]
			}
			switch {
			case e.ios == 0:
			case d.ios > 0:
				without[k] = e.ios * d.nanos / d.ios
			default:
				without[k] = math.NaN() // nobody knows
			}
		}
		if n := ios[0] + ios[1]; n > 0 && seconds > 0 {
			g.IOPS, g.FlashShare, g.HostWrites = n/seconds, Amount((flash[0]+flash[1])/n), Amount(ios[1]/n)
			g.Effective, g.Datastore = Amount((nanos[0]+nanos[1])/n/1e6), Amount((without[0]+without[1])/n/1e6)
			g.Saved = (g.Datastore - g.Effective) / 1e3 * Amount(g.IOPS)
		}
		if n := below[0] + below[1]; n > 0 {
			g.ArrayWrites = Amount(below[1] / n)
		}
		if g.Saved.Known() {
			total += max(g.Saved, 0)
		}
		out = append(out, g)
	}
	for i := range out {
		if g := &out[i]; total > 0 || !g.Saved.Known() {
			g.Weight = max(g.Saved, 0) / total // NaN stays
		}
	}
	slices.SortStableFunc(out, func(a, b Gain) int { return cmp.Compare(b.Saved, a.Saved) })
	return out
}

// WritePerformanceMap prints a map as a table, a bar of the weight behind each disk.
func WritePerformanceMap(w io.Writer, gains []Gain) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "DISK\tI/O/S\tFROM FLASH\tEFFECTIVE MS\tDATASTORE MS\tSAVED S/S\tWRITES HOST\tARRAY\tWEIGHT\t")
	for _, g := range gains {
		bar := ""
		if g.Weight.Known() {
			bar = strings.Repeat("#", int(math.Round(float64(g.Weight)*30)))
		}
		fmt.Fprintf(t, "%s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t %s\n", g.Disk, g.IOPS, (100 * g.FlashShare).Text("%.0f %%"), g.Effective.Text("%.3f"), g.Datastore.Text("%.3f"),
			g.Saved.Text("%.2f"), (100 * g.HostWrites).Text("%.0f %%"), (100 * g.ArrayWrites).Text("%.0f %%"), (100 * g.Weight).Text("%.0f %%"), bar)
	}
	return t.Flush()
}

func mapPicture(gains []Gain) *Picture {
	p := &Picture{ID: "map", Kind: "bars", Title: "Performance map: disks by what their cache gains them",
		Text: "Seconds of waiting at the datastore that each second is spared, and what part of the host's I/Os flash answers.", Y: []axis{{Name: "waiting spared", Unit: "s/s"}, {Name: "answered by flash", Unit: "%"}},
		Bars: []bar{{Name: "spared"}, {Name: "from flash", Axis: 1}}}
	for _, g := range gains {
		p.Names = append(p.Names, g.Disk)
		p.Bars[0].Values = append(p.Bars[0].Values, value(g.Saved))
		p.Bars[1].Values = append(p.Bars[1].Values, value(100*g.FlashShare))
	}
	return p
}
