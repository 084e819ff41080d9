package trace

import (
	"encoding/csv"
	"fmt"
	"io"
	"sort"
	"strconv"
)

// Kind is one of the histograms that vscsiStats keeps of a virtual disk.
type Kind uint8

// The kinds, by vscsiStats' names for them; SeekDistance16 is shown with seekDistance.
const (
	IOLength Kind = iota
	SeekDistance
	SeekDistance16
	Latency
	OutstandingIOs
	Interarrival
	numKinds
)

// kinds has for each what vscsiStats calls it on the command line and in the heads of its
// histograms (for all, reads, writes), and the inclusive upper limits of its buckets.
var kinds = [numKinds]struct {
	name   string
	titles [3]string
	limits []int64
}{
	{"ioLength", [3]string{"IO lengths of commands", "IO lengths of Read commands", "IO lengths of Write commands"},
		[]int64{512, 1024, 2048, 4095, 4096, 8191, 8192, 16383, 16384, 32768, 49152, 65535, 65536, 81920, 131072, 262144, 524288}},
	{"seekDistance", titles("distance (in LBNs) between successive %scommands"), distances},
	{"seekDistance", titles("distance (in LBNs) between each %scommand from the closest of previous 16"), distances},
	{"latency", titles("latency of %sIOs in Microseconds (us)"), times},
	{"outstandingIOs", titles("number of outstanding %sIOs when a new %[1]sIO is issued"), []int64{1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 64}},
	{"interarrival", titles("latency of %sIO interarrival time in Microseconds (us)"), times},
}

var (
	distances = []int64{-500000, -50000, -5000, -500, -64, -16, -6, -2, -1, 0, 1, 2, 6, 16, 64, 500, 5000, 50000, 500000}
	times     = []int64{1, 10, 100, 500, 1000, 5000, 15000, 30000, 50000, 100000}
)

func titles(format string) (t [3]string) {
	for i, what := range []string{"", "Read ", "Write "} {
		t[i] = fmt.Sprintf(format, what)
	}
	return t
}

// HistogramKinds returns the names that vscsiStats -p takes.
func HistogramKinds() []string {
	return []string{"all", "ioLength", "seekDistance", "outstandingIOs", "latency", "interarrival"}
}

// Histogram counts values by bucket. The last bucket has what is above all limits.
type Histogram struct {
	Min     int64   `json:"min"`
	Max     int64   `json:"max"`
	Sum     int64   `json:"sum"`
	Count   int64   `json:"count"`
	Buckets []int64 `json:"buckets"`
}

func (h *Histogram) add(limits []int64, v int64) {
	if h.Buckets == nil {
		h.Buckets = make([]int64, len(limits)+1)
	}
	if h.Count == 0 || v < h.Min {
		h.Min = v
	}
	if h.Count == 0 || v > h.Max {
		h.Max = v
	}
	h.Sum += v
	h.Count++
	h.Buckets[sort.Search(len(limits), func(i int) bool { return v <= limits[i] })]++
}

// Histograms are those of vscsiStats for one virtual disk: of all requests, of reads, of writes. They take no
// memory per request and are not safe for concurrent use.
type Histograms struct {
	Of   [numKinds][3]Histogram `json:"of"`
	past [3]past
}

// past is what a class of requests needs to know of those before.
type past struct {
	issued      bool
	at          int64 // when the last one came
	next        int64 // the LBN behind it
	behind      [16]int64
	n           int
	outstanding int64
}

// classes of a request: all, and reads or writes.
func classes(o Op) [2]int { return [2]int{0, 1 + int(o)} }

// Issue counts a request as it comes, at a time in nanoseconds; offset and length are in bytes.
func (h *Histograms) Issue(now int64, o Op, offset uint64, length uint64) {
	first, end := int64(offset/SectorSize), int64((offset+length)/SectorSize)
	for _, c := range classes(o) {
		p := &h.past[c]
		h.add(IOLength, c, int64(length))
		if p.issued {
			h.add(SeekDistance, c, first-p.next)
			h.add(Interarrival, c, (now-p.at)/1000)
			near := first - p.behind[0]
			for _, b := range p.behind[1:min(p.n, len(p.behind))] {
				if d := first - b; max(d, -d) < max(near, -near) {
					near = d
				}
			}
			h.add(SeekDistance16, c, near)
		}
		p.issued, p.at, p.next = true, now, end
		p.behind[p.n%len(p.behind)] = end
		p.n++
	}
}

// Begin is Issue of a request that will Complete.
func (h *Histograms) Begin(now int64, o Op, offset uint64, length uint64) {
	h.Issue(now, o, offset, length)
	for _, c := range classes(o) {
		h.past[c].outstanding++
		h.add(OutstandingIOs, c, h.past[c].outstanding)
	}
}

// Complete counts the end of a request, which took so many nanoseconds.
func (h *Histograms) Complete(o Op, took int64) {
	for _, c := range classes(o) {
		h.past[c].outstanding--
		h.add(Latency, c, took/1000)
	}
}

// Reset forgets what was counted; requests under way stay under way.
func (h *Histograms) Reset() {
	h.Of = [numKinds][3]Histogram{}
	for i := range h.past {
		h.past[i] = past{outstanding: h.past[i].outstanding}
	}
}

// Only returns the histograms of a name that vscsiStats takes. Others are as if nothing had been counted.
func (h *Histograms) Only(kind string) *Histograms {
	out := &Histograms{}
	for k := range kinds {
		if kind == "all" || kind == kinds[k].name {
			out.Of[k] = h.Of[k]
		}
	}
	return out
}

func (h *Histograms) add(k Kind, class int, v int64) { h.Of[k][class].add(kinds[k].limits, v) }

// WriteCSV writes histograms as `vscsiStats -p kind -c` does. Kinds that nothing was counted for are
// left out. world and handle stand in the heads, where vscsiStats has numbers of the virtual machine and the disk.
func (h *Histograms) WriteCSV(w io.Writer, kind string, world int, handle string) error {
	rows := csv.NewWriter(w)
	// Errors of rows come out at the last Flush.
	row := func(cells ...string) { _ = rows.Write(cells) }
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for k := range kinds {
		if kind != "all" && kind != kinds[k].name || h.Of[k][0].Count == 0 {
			continue
		}
		for class, title := range kinds[k].titles {
			x := &h.Of[k][class]
			mean := int64(0)
			if x.Count > 0 {
				mean = x.Sum / x.Count
			}
			row("Histogram: "+title, "virtual machine worldGroupID", strconv.Itoa(world), "virtual disk handleID", handle)
			row("min", number(x.Min))
			row("max", number(x.Max))
			row("mean", number(mean))
			row("count", number(x.Count))
			row("Frequency", "Histogram Bucket Limit")
			limits := kinds[k].limits
			for i := range len(limits) + 1 {
				n, limit := int64(0), ">"+number(limits[len(limits)-1])
				if x.Buckets != nil {
					n = x.Buckets[i]
				}
				if i < len(limits) {
					limit = number(limits[i])
				}
				row(number(n), limit)
			}
			if rows.Flush(); rows.Error() != nil {
				return rows.Error()
			}
			if _, err := fmt.Fprintln(w); err != nil { // a line that is empty, which is no row of CSV
				return err
			}
		}
	}
	return nil
}
