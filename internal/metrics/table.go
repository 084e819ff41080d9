package metrics

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
	Write(*Snapshot) error
	// Close writes what is left. The file below stays open.
	Close() error
}

// columnsOf gives the place of each of a family's labels among LabelColumns.
func columnsOf(f *Family) []int {
	at := make([]int, len(f.Labels))
	for i, l := range f.Labels {
		at[i] = slices.Index(LabelColumns, l)
	}
	return at
}

var (
	labelColumns = func() [][]int {
		all := make([][]int, len(All()))
		for i, f := range All() {
			all[i] = columnsOf(f)
		}
		return all
	}()
	leAt     = slices.Index(LabelColumns, leColumn)
	leLabels = func() (b [len(LatencyBounds) + 1]string) {
		for i, ns := range LatencyBounds {
			b[i] = strconv.FormatFloat(float64(ns)/1e9, 'g', -1, 64)
		}
		b[len(LatencyBounds)] = "+Inf"
		return b
	}()
)

// rows calls fn for every row of s. The row is used again.
func (s *Snapshot) rows(fn func(*Row) error) error {
	r := Row{Time: s.Time, Labels: make([]string, len(LabelColumns))}
	for i := range s.samples {
		m := &s.samples[i]
		clear(r.Labels)
		r.Layer = m.f.Layer()
		for j, at := range labelColumns[m.f.index] {
			r.Labels[at] = s.labels[m.at+j]
		}
		h := s.histOf(m)
		if h == nil {
			r.Family, r.Value = m.f.Name, m.v
			if err := fn(&r); err != nil {
				return err
			}
			continue
		}
		r.Family = m.f.Name + "_bucket"
		sum := uint64(0)
		for b, n := range h.Buckets {
			sum += n
			r.Labels[leAt], r.Value = leLabels[b], float64(sum)
			if err := fn(&r); err != nil {
				return err
			}
		}
		r.Labels[leAt] = ""
		for _, x := range [...]struct {
			suffix string
			v      float64
		}{{"_count", float64(h.Count)}, {"_sum", float64(h.Sum) / 1e9}} {
			r.Family, r.Value = m.f.Name+x.suffix, x.v
			if err := fn(&r); err != nil {
				return err
			}
		}
	}
	return nil
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

func (w *csvWriter) Write(s *Snapshot) error {
	if !w.header {
		w.header = true
		if err := w.c.Write(Columns()); err != nil {
			return err
		}
	}
	w.cells[0] = time.Unix(0, s.Time).UTC().Format(tableTime)
	if err := s.rows(func(r *Row) error {
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

// RowReader reads a table; Read returns io.EOF behind the last row.
type RowReader interface{ Read(*Row) error }

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

func (r *csvReader) bad(what, text string) error {
	line, _ := r.c.FieldPos(0)
	return fmt.Errorf("line %d: %q is not a valid %s", line, text, what)
}

// SnapshotReader turns the rows of a table into snapshots again.
type SnapshotReader struct {
	rows  RowReader
	next  Row
	ahead bool
	names map[string]*Family
	hists map[string]*tableHist // by family and labels
	order []*tableHist
}

// tableHist is a histogram that is read row by row.
type tableHist struct {
	Histogram
	f      *Family
	labels []string
}

// NewSnapshotReader reads snapshots from rows. Rows of families that this version does
// not know are passed over.
func NewSnapshotReader(rows RowReader) *SnapshotReader {
	r := &SnapshotReader{rows: rows, names: make(map[string]*Family)}
	for _, f := range All() {
		r.names[f.Name] = f
	}
	return r
}

// Read fills s with the rows of the next instant; io.EOF says that there are no more.
func (r *SnapshotReader) Read(s *Snapshot) error {
	if !r.ahead {
		if err := r.rows.Read(&r.next); err != nil {
			return err
		}
		r.ahead = true
	}
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

func (r *SnapshotReader) take(s *Snapshot, row *Row) {
	if f := r.names[row.Family]; f != nil && f.Kind != Histo {
		s.Value(f, row.Value, pick(row.Labels, labelColumns[f.index])...)
		return
	}
	i := strings.LastIndexByte(row.Family, '_')
	if i < 0 {
		return
	}
	f := r.names[row.Family[:i]]
	if f == nil || f.Kind != Histo {
		return
	}
	labels := pick(row.Labels, labelColumns[f.index])
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
func (h *Histogram) differences() *Histogram {
	for i := len(h.Buckets) - 1; i > 0; i-- {
		h.Buckets[i] -= min(h.Buckets[i], h.Buckets[i-1])
	}
	return h
}
