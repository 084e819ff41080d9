package export

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
)

// esxtop's batch mode: CSV with a column for each counter of each device, first the
// time, as Windows' performance monitor reads it. The VAAI columns have the names of
// esxtop's fields VAAISTATS and VAAILATSTATS.

type esxtop struct {
	w     *bufio.Writer
	host  string
	tree  tree
	cols  []*object
	was   map[*object]map[string]float64
	last  int64
	begun bool
}

// NewESXTop writes what host sees of its devices, "" for all hosts together, as a batch
// file of esxtop. The devices of the first snapshot are the file's columns; the
// first line of values is of the second snapshot, for most are rates.
func NewESXTop(w io.Writer, host string) SnapshotWriter {
	return &esxtop{w: bufio.NewWriter(w), host: host, was: map[*object]map[string]float64{}}
}

// figure is a column of a device: from the increases of its counters in an interval.
type figure struct {
	name string
	from func(d func(string) float64, seconds float64) float64
}

const mega = 1 << 20

func rate(name, counter string, unit float64) figure {
	return figure{name, func(d func(string) float64, s float64) float64 { return d(counter) / unit / s }}
}

// count is a sum since the start, as esxtop shows the operations of VAAI.
func count(name, counter string) figure {
	return figure{name, func(d func(string) float64, _ float64) float64 { return d("total " + counter) }}
}

func mean(name, sum, n string) figure {
	return figure{name, func(d func(string) float64, _ float64) float64 {
		if d(n) == 0 {
			return 0
		}
		return d(sum) * 1e3 / d(n)
	}}
}

var figures = []figure{
	rate("Commands/sec", "commands", 1), rate("Reads/sec", "read good", 1), rate("Writes/sec", "write good", 1),
	rate("MBytes Read/sec", "read bytes", mega), rate("MBytes Written/sec", "write bytes", mega),
	mean("Average Guest MilliSec/Command", "all seconds", "all n"), mean("Average Guest MilliSec/Read", "read seconds", "read n"), mean("Average Guest MilliSec/Write", "write seconds", "write n"),
	count("ATS", "caw good"), count("ATSF", "caw failed"), mean("AAVG/suc", "caw seconds", "caw n"),
	count("CLONE_RD", "xcopy_src good"), count("CLONE_WR", "xcopy_dst good"), count("CLONE_F", "clone failed"),
	rate("MBC_RD/s", "xcopy_src described", mega), rate("MBC_WR/s", "xcopy_dst described", mega), mean("CAVG/suc", "clone seconds", "clone n"),
	count("ZERO", "write_same good"), count("ZERO_F", "write_same failed"), rate("MBZERO/s", "write_same described", mega), mean("ZAVG/suc", "write_same seconds", "write_same n"),
	count("DELETE", "unmap good"), count("DELETE_F", "unmap failed"), rate("MBDEL/s", "unmap described", mega), mean("DAVG/suc", "unmap seconds", "unmap n"),
}

func (w *esxtop) Write(s *metrics.Snapshot) error {
	w.tree.fill(s)
	if !w.begun {
		w.begun = true
		w.header()
	}
	first := w.last == 0
	seconds := float64(s.Time-w.last) / 1e9
	w.last = s.Time
	if !first && seconds > 0 {
		w.w.WriteString(`"` + time.Unix(0, s.Time).UTC().Format("01/02/2006 15:04:05") + `"`)
	}
	for _, o := range w.cols {
		now, was := w.read(o), w.was[o]
		w.was[o] = now
		if first || seconds <= 0 {
			continue
		}
		d := func(name string) float64 {
			if c, ok := strings.CutPrefix(name, "total "); ok {
				return now[c]
			}
			return max(now[name]-was[name], 0)
		}
		for _, f := range figures {
			w.w.WriteString(`,"` + strconv.FormatFloat(f.from(d, seconds), 'f', 2, 64) + `"`)
		}
	}
	if !first && seconds > 0 {
		w.w.WriteByte('\n')
	}
	return w.w.Flush()
}

func (w *esxtop) Close() error { return w.w.Flush() }

func (w *esxtop) header() {
	host := w.host
	if host == "" {
		host = "hosts"
	}
	w.w.WriteString(`"(PDH-CSV 4.0) (UTC)(0)"`)
	quote := strings.NewReplacer(`"`, `""`, "(", "[", ")", "]", `\`, "/")
	for _, o := range w.tree.volumes {
		if o.pool == "" {
			continue
		}
		w.cols = append(w.cols, o)
		for _, f := range figures {
			fmt.Fprintf(w.w, `,"\\%s\Physical Disk SCSI Device(%s)\%s"`, quote.Replace(host), quote.Replace(o.name), f.name)
		}
	}
	w.w.WriteByte('\n')
}

// read takes the cumulative values of a device's counters.
func (w *esxtop) read(o *object) map[string]float64 {
	m := map[string]float64{"read bytes": o.get(metrics.HostTransferred, "read"), "write bytes": o.get(metrics.HostTransferred, "write")}
	for k, v := range o.sums {
		parts := strings.Split(k, "\xff")
		switch {
		case parts[0] == metrics.HostCommands.Name && len(parts) == 4 && (w.host == "" || parts[1] == w.host):
			result := "good"
			if parts[3] != "good" {
				result = "failed"
			}
			m["commands"] += v
			m[parts[2]+" "+result] += v
			if result == "failed" && strings.HasPrefix(parts[2], "xcopy") {
				m["clone failed"] += v
			}
		case parts[0] == metrics.HostDescribed.Name && len(parts) == 2:
			m[parts[1]+" described"] = v
		}
	}
	for k, h := range o.hists {
		op, ok := strings.CutPrefix(k, metrics.HostDuration.Name+"\xff")
		if !ok {
			continue
		}
		names := []string{op, "all"}
		if strings.HasPrefix(op, "xcopy") {
			names = append(names, "clone")
		}
		for _, n := range names {
			m[n+" seconds"] += float64(h.Sum) / 1e9
			m[n+" n"] += float64(h.Count)
		}
	}
	return m
}
