// Package export writes counters to files that others read, and reads the table again: CSV and
// Parquet, statistics files as SAN Volume Controller leaves them, and batch files of esxtop.
package export

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
)

// The table: counters as rows of (time, layer, family, labels..., value), the one
// schema of CSV and Parquet files. See docs/counters.md, "The table".

// LabelColumns are the label columns of the table, in their order. New ones are added
// at the end only, so that readers by position go on working.
var LabelColumns = []string{
	"volume", "pool", "host", "mdisk", "op", "status", "direction", "origin", "reason", "mode", "primitive", "path", "result",
	"src_pool", "dst_pool", "state", "kind", "version", "goversion", "le", "node", "peer", "role",
}

// Columns are all columns of the table, in their order.
func Columns() []string {
	return slices.Concat([]string{"time", "layer", "family"}, LabelColumns, []string{"value"})
}

const leColumn = "le"

// Row is a row of the table. A label that the family does not have is empty.
type Row struct {
	Time   int64 // nanoseconds since 1970
	Layer  string
	Family string // a histogram's rows end in _bucket, _count or _sum
	Labels []string
	Value  float64
}

// SnapshotWriter writes snapshots, one after the other in the order of their times, to
// a file or a folder in one of the formats.
type SnapshotWriter interface {
	Write(*metrics.Snapshot) error
	// Close writes what is left. The file below stays open.
	Close() error
}

// columnsOf gives the place of each of a family's labels among LabelColumns.
func columnsOf(f *metrics.Family) []int {
	at := make([]int, len(f.Labels))
	for i, l := range f.Labels {
		at[i] = slices.Index(LabelColumns, l)
	}
	return at
}

var (
	labelColumns = func() [][]int {
		all := make([][]int, len(metrics.All()))
		for i, f := range metrics.All() {
			all[i] = columnsOf(f)
		}
		return all
	}()
	leAt     = slices.Index(LabelColumns, leColumn)
	leLabels = func() (b [len(metrics.LatencyBounds) + 1]string) {
		for i, ns := range metrics.LatencyBounds {
			b[i] = strconv.FormatFloat(float64(ns)/1e9, 'g', -1, 64)
		}
		b[len(metrics.LatencyBounds)] = "+Inf"
		return b
	}()
)

// rows calls fn for every row of s until it fails. The row is used again.
func rows(s *metrics.Snapshot, fn func(*Row) error) (err error) {
	r := Row{Time: s.Time, Labels: make([]string, len(LabelColumns))}
	put := func(family string, v float64) {
		if err == nil {
			r.Family, r.Value = family, v
			err = fn(&r)
		}
	}
	s.Each(func(f *metrics.Family, labels []string, v float64, h *metrics.Histogram) {
		if err != nil {
			return
		}
		clear(r.Labels)
		r.Layer = f.Layer()
		for j, at := range labelColumns[f.Index()] {
			r.Labels[at] = labels[j]
		}
		if h == nil {
			put(f.Name, v)
			return
		}
		sum := uint64(0)
		bucket := f.Name + "_bucket"
		for b, n := range h.Buckets {
			sum += n
			r.Labels[leAt] = leLabels[b]
			put(bucket, float64(sum))
		}
		r.Labels[leAt] = ""
		put(f.Name+"_count", float64(h.Count))
		put(f.Name+"_sum", float64(h.Sum)/1e9)
	})
	return err
}

// tableTime is how CSV files write a time: RFC 3339, always with all nine digits.
const tableTime = "2006-01-02T15:04:05.000000000Z"

type csvWriter struct {
	w      *bufio.Writer
	c      *csv.Writer
	cells  []string
	header bool
}

// NewCSV writes the table as CSV (RFC 4180), with a header.
func NewCSV(w io.Writer) SnapshotWriter {
	b := bufio.NewWriterSize(w, 1<<16)
	return &csvWriter{w: b, c: csv.NewWriter(b), cells: make([]string, len(Columns()))}
}

func (w *csvWriter) Write(s *metrics.Snapshot) error {
	if !w.header {
		w.header = true
		if err := w.c.Write(Columns()); err != nil {
			return err
		}
	}
	w.cells[0] = time.Unix(0, s.Time).UTC().Format(tableTime)
	if err := rows(s, func(r *Row) error {
		w.cells[1], w.cells[2] = r.Layer, r.Family
		copy(w.cells[3:], r.Labels)
		w.cells[len(w.cells)-1] = strconv.FormatFloat(r.Value, 'g', -1, 64)
		return w.c.Write(w.cells)
	}); err != nil {
		return err
	}
	return w.flush()
}

func (w *csvWriter) flush() error {
	w.c.Flush()
	if err := w.c.Error(); err != nil {
		return err
	}
	return w.w.Flush()
}

func (w *csvWriter) Close() error { return w.flush() }

// RowReader reads a table; Read returns io.EOF behind the last row. Where says which row of the
// file it read last, for errors.
type RowReader interface {
	Read(*Row) error
	Where() string
}

type csvReader struct{ c *csv.Reader }

// NewCSVReader reads what NewCSV wrote, of this or an older version.
func NewCSVReader(r io.Reader) (RowReader, error) {
	c := csv.NewReader(bufio.NewReaderSize(r, 1<<16))
	c.ReuseRecord = true
	head, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("the counters have no header: %w", err)
	}
	n := len(head) - 4
	if n < 0 || n > len(LabelColumns) || !slices.Equal(head[:3], Columns()[:3]) || !slices.Equal(head[3:3+n], LabelColumns[:n]) || head[3+n] != "value" {
		return nil, fmt.Errorf("this is not a table of counters: its columns are %s", strings.Join(head, ","))
	}
	return &csvReader{c}, nil
}

func (r *csvReader) Read(row *Row) error {
	rec, err := r.c.Read()
	if err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339Nano, rec[0])
	if err != nil {
		return r.bad("time", rec[0])
	}
	v, err := strconv.ParseFloat(rec[len(rec)-1], 64)
	if err != nil {
		return r.bad("value", rec[len(rec)-1])
	}
	row.Time, row.Layer, row.Family, row.Value = t.UnixNano(), rec[1], rec[2], v
	row.Labels = append(row.Labels[:0], rec[3:len(rec)-1]...)
	for len(row.Labels) < len(LabelColumns) {
		row.Labels = append(row.Labels, "")
	}
	return nil
}

func (r *csvReader) Where() string {
	line, _ := r.c.FieldPos(0)
	return fmt.Sprintf("line %d", line)
}

func (r *csvReader) bad(what, text string) error {
	return fmt.Errorf("%s: %q is not a valid %s", r.Where(), text, what)
}

// SnapshotReader turns the rows of a table into snapshots again.
type SnapshotReader struct {
	rows  RowReader
	next  Row
	ahead bool
	seen  map[int64]bool // the times of the snapshots before
	names map[string]*metrics.Family
	hists map[string]*tableHist // by family and labels
	order []*tableHist
}

// tableHist is a histogram that is read row by row.
type tableHist struct {
	metrics.Histogram
	f      *metrics.Family
	labels []string
}

// NewSnapshotReader reads snapshots from rows. Rows of families that this version does
// not know are passed over.
func NewSnapshotReader(rows RowReader) *SnapshotReader {
	r := &SnapshotReader{rows: rows, seen: make(map[int64]bool), names: make(map[string]*metrics.Family)}
	for _, f := range metrics.All() {
		r.names[f.Name] = f
	}
	return r
}

// Read fills s with the rows of the next instant; io.EOF says that there are no more. The time may go
// back, as the clock of a recording can. A time that was there before is an error: the table was
// sorted by something else, and its snapshots would be parts.
func (r *SnapshotReader) Read(s *metrics.Snapshot) error {
	if !r.ahead {
		if err := r.rows.Read(&r.next); err != nil {
			return err
		}
		r.ahead = true
	}
	if r.seen[r.next.Time] {
		r.ahead = false
		return fmt.Errorf("%s: other rows of the same time are above; sort the table by time", r.rows.Where())
	}
	r.seen[r.next.Time] = true
	s.Reset(r.next.Time)
	r.hists, r.order = make(map[string]*tableHist), r.order[:0]
	for r.ahead && r.next.Time == s.Time {
		r.take(s, &r.next)
		if err := r.rows.Read(&r.next); err != nil {
			r.ahead = false
			if err != io.EOF {
				return err
			}
		}
	}
	for _, h := range r.order {
		s.Histogram(h.f, h.differences(), h.labels...)
	}
	return nil
}

func (r *SnapshotReader) take(s *metrics.Snapshot, row *Row) {
	if f := r.names[row.Family]; f != nil && f.Kind != metrics.Histo {
		s.Value(f, row.Value, pick(row.Labels, labelColumns[f.Index()])...)
		return
	}
	i := strings.LastIndexByte(row.Family, '_')
	if i < 0 {
		return
	}
	f := r.names[row.Family[:i]]
	if f == nil || f.Kind != metrics.Histo {
		return
	}
	labels := pick(row.Labels, labelColumns[f.Index()])
	key := fmt.Sprintf("%s%q", f.Name, labels) // quoted: a label may hold anything
	h := r.hists[key]
	if h == nil {
		h = &tableHist{f: f, labels: labels}
		r.hists[key] = h
		r.order = append(r.order, h)
	}
	switch row.Family[i:] {
	case "_count":
		h.Count = uint64(row.Value)
	case "_sum":
		h.Sum = int64(math.Round(row.Value * 1e9))
	case "_bucket":
		if b := slices.Index(leLabels[:], row.Labels[leAt]); b >= 0 {
			h.Buckets[b] = uint64(row.Value)
		}
	}
}

func pick(from []string, at []int) []string {
	out := make([]string, len(at))
	for i, j := range at {
		out[i] = from[j]
	}
	return out
}

// differences makes cumulative buckets what they are in a Histogram.
func (h *tableHist) differences() *metrics.Histogram {
	for i := len(h.Buckets) - 1; i > 0; i-- {
		h.Buckets[i] -= min(h.Buckets[i], h.Buckets[i-1])
	}
	return &h.Histogram
}
