package trace

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Request is a record with the time that it took, for writing.
type Request struct {
	Record
	Latency int64 // nanoseconds
}

// byIssue returns the requests in the order of their beginning.
func byIssue(all []Request) []Request {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Request) int { return cmp.Compare(a.Time, b.Time) })
	return sorted
}

// WriteFioIOLog writes requests as an I/O log of fio, version 3 (--read_iolog): it replays them. Times are
// whole microseconds there (log_io_u of fio 3.42's iolog.c).
func WriteFioIOLog(out io.Writer, disks []string, all []Request) error {
	w := bufio.NewWriter(out)
	fmt.Fprintln(w, "fio version 3 iolog")
	for _, d := range disks {
		fmt.Fprintf(w, "0 %s add\n0 %s open\n", d, d)
	}
	last := int64(0)
	for _, r := range byIssue(all) {
		last = r.Time / 1e3
		fmt.Fprintf(w, "%d %s %s %d %d\n", last, disks[r.Disk], r.Op, r.Offset, r.Length)
	}
	for _, d := range disks {
		fmt.Fprintf(w, "%d %s close\n", last, d)
	}
	return w.Flush()
}

// WriteFioLatencyLog writes requests as a latency log of fio (NAME_lat.1.log, with log_offset): milliseconds at
// the end (add_log_sample of fio 3.42's stat.c), nanoseconds, 0 or 1 for a read or write, bytes, offset, in the order of
// their ends. The priority comes last, always (flush_samples of iolog.c): without it, the offset would be taken for one.
func WriteFioLatencyLog(out io.Writer, all []Request) error {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Request) int { return cmp.Compare(a.Time+a.Latency, b.Time+b.Latency) })
	w := bufio.NewWriter(out)
	for _, r := range sorted {
		fmt.Fprintf(w, "%d, %d, %d, %d, %d, 0\n", (r.Time+r.Latency)/1e6, r.Latency, r.Op, r.Length, r.Offset)
	}
	return w.Flush()
}

// WriteBlkparse writes requests as the default text of blkparse: an event Q where one begins and C where it ends.
// Disk number n is the device 8,16n.
func WriteBlkparse(out io.Writer, all []Request) error {
	type event struct {
		at     int64
		action byte
		r      *Request
	}
	var events []event
	for i := range all {
		r := &all[i]
		events = append(events, event{r.Time, 'Q', r}, event{r.Time + r.Latency, 'C', r})
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	w := bufio.NewWriter(out)
	for i, e := range events {
		kind, who := "R", "arraysim"
		if e.r.Op == Write {
			kind = "W"
		}
		if e.action == 'C' {
			who = "0"
		}
		fmt.Fprintf(w, "%3d,%-3d %2d %8d %5d.%09d %5d %2c %3s %d + %d [%s]\n", 8, 16*int(e.r.Disk), 0, i+1, e.at/1e9, e.at%1e9, 0, e.action, kind,
			e.r.Offset/SectorSize, e.r.Length/SectorSize, who)
	}
	return w.Flush()
}
