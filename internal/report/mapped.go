package report

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/profile"
	bytesize "github.com/arraysim/arraysim/internal/size"
)

// Mapping explains a CSV file of another tool: which column is what, in which unit.
// One row is a volume, or a pool, at one instant.
type Mapping struct {
	// Time is the column of the instant, and Layout its form as Go's time package has
	// it; "unix" is seconds since 1970.
	Time   string `yaml:"time"`
	Layout string `yaml:"layout"`
	Volume string `yaml:"volume"` // columns of the names
	Pool   string `yaml:"pool"`
	Comma  string `yaml:"comma"`
	// Kind says whether columns are "rates" (a second, means over the time before) or
	// "sums" that only grow.
	Kind    string                  `yaml:"kind"`
	Columns map[string]MappedColumn `yaml:"columns"`
}

// MappedColumn is a column of a quantity, and what one of its units is in base units.
type MappedColumn struct {
	Column string  `yaml:"column"`
	Unit   float64 `yaml:"unit"`
}

// quantities are what columns can be, with their base units.
var quantities = []string{
	"reads", "writes", // operations
	"read_bytes", "write_bytes", // of hosts
	"read_seconds", "write_seconds", // response time: the mean of an operation with rates, their sum with sums
	"held_bytes",                // write cache that the volume holds
	"lower_bytes",               // that leave the cache for the back end
	"fullness", "fullness_peak", // of the pool's partition, 0 to 1
	"limit_bytes", // its cap
}

func loadMapping(path string) (*Mapping, error) {
	text, err := bytesize.ReadFile(path, bytesize.MaxDocument)
	if err != nil {
		return nil, fmt.Errorf("mapping: %w", err)
	}
	m := &Mapping{Layout: time.RFC3339, Kind: "rates"}
	if err := profile.DecodeYAML(text, m); err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	if m.Time == "" || m.Volume == "" && m.Pool == "" {
		return nil, fmt.Errorf("mapping %s: it needs time, and volume or pool", path)
	}
	if m.Kind != "rates" && m.Kind != "sums" {
		return nil, fmt.Errorf("mapping %s: kind is rates or sums, not %q", path, m.Kind)
	}
	for q := range m.Columns {
		if !slices.Contains(quantities, q) {
			return nil, fmt.Errorf("mapping %s: %q is not a valid quantity; there are %s", path, q, strings.Join(quantities, ", "))
		}
	}
	return m, nil
}

// mappedPlace is what a row is of: a volume at an instant, or its pool if it names no volume.
type mappedPlace struct {
	at           int64
	volume, pool string
}

func (p mappedPlace) kind() string {
	if p.volume != "" {
		return "volume"
	}
	return "pool"
}

// fromMapped reads a CSV file of others.
func fromMapped(source string, f io.Reader, mapping string) (*Data, error) {
	m, err := loadMapping(mapping)
	if err != nil {
		return nil, err
	}
	b := bufio.NewReader(f)
	if mark, _ := b.Peek(3); string(mark) == "\ufeff" { // which spreadsheets write in front of UTF-8
		_, _ = b.Discard(len(mark)) // they are buffered
	}
	c := csv.NewReader(b)
	if m.Comma != "" {
		c.Comma = []rune(m.Comma)[0]
	}
	head, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("it has no header: %w", err)
	}
	col := func(name string) (int, error) {
		if i := slices.Index(head, name); i >= 0 {
			return i, nil
		}
		return -1, fmt.Errorf("it has no column %q that the mapping names", name)
	}
	at := map[string]int{}
	for q, x := range m.Columns {
		if at[q], err = col(x.Column); err != nil {
			return nil, err
		}
	}
	timeAt, err := col(m.Time)
	volAt, poolAt := -1, -1
	if err == nil && m.Volume != "" {
		volAt, err = col(m.Volume)
	}
	if err == nil && m.Pool != "" {
		poolAt, err = col(m.Pool)
	}
	if err != nil {
		return nil, err
	}
	readings := map[int64]*reading{}
	lines := map[mappedPlace]int{}
	for {
		rec, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := c.FieldPos(timeAt)
		t, err := m.instant(rec[timeAt])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		this := mappedPlace{at: t, pool: m.pool(rec, poolAt)}
		if volAt >= 0 && rec[volAt] != "" {
			this.volume, this.pool = rec[volAt], ""
		}
		if first := lines[this]; first > 0 {
			return nil, fmt.Errorf("line %d: line %d is of the same %s and time, too; leave one of them out", line, first, this.kind())
		}
		lines[this] = line
		r := readings[t]
		if r == nil {
			r = newReading(t)
			readings[t] = r
		}
		var bad error
		cell := func(q string) float64 {
			i, ok := at[q]
			if !ok {
				return math.NaN()
			}
			x, err := mappedNumber(strings.TrimSpace(rec[i]))
			if err != nil && bad == nil {
				bad = fmt.Errorf("line %d, column %q: %w", line, m.Columns[q].Column, err)
			}
			if u := m.Columns[q].Unit; u != 0 {
				x *= u
			}
			return x
		}
		if m.row(r, rec, volAt, poolAt, cell); bad != nil {
			return nil, bad
		}
	}
	var all []*reading
	for _, r := range readings {
		all = append(all, r)
	}
	d := series(source, all, units{bytes: 1, time: 1, rates: m.Kind == "rates"})
	d.guessCaps()
	return d, nil
}

// mappedNumber is a cell as a number; an empty one is a missing value.
func mappedNumber(text string) (float64, error) {
	if text == "" {
		return math.NaN(), nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err == nil && !math.IsNaN(x) && !math.IsInf(x, 0) {
		return x, nil
	}
	if point := strings.Replace(text, ",", ".", 1); point != text {
		if _, err := strconv.ParseFloat(point, 64); err == nil {
			return math.NaN(), fmt.Errorf("%q is not a number; write %s", text, point)
		}
	}
	return math.NaN(), fmt.Errorf("%q is not a number; leave the cell empty if it is unknown", text)
}

func (m *Mapping) instant(text string) (int64, error) {
	if m.Layout == "unix" {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(math.Abs(x) < math.MaxInt64/1e9) {
			return 0, fmt.Errorf("%q is not a valid time in seconds", text)
		}
		return int64(x * 1e9), nil
	}
	t, err := time.Parse(m.Layout, text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a valid time of the layout %q", text, m.Layout)
	}
	return t.UnixNano(), nil
}

// pool is that of a row; where the file names none, there is one.
func (m *Mapping) pool(rec []string, poolAt int) string {
	if poolAt >= 0 && rec[poolAt] != "" {
		return rec[poolAt]
	}
	return "pool"
}

func (m *Mapping) row(r *reading, rec []string, volAt, poolAt int, cell func(string) float64) {
	pool := m.pool(rec, poolAt)
	p := r.pool(pool)
	set := func(to *float64, q string) {
		if x := cell(q); !math.IsNaN(x) {
			*to = x
		}
	}
	set(&p.full, "fullness")
	set(&p.peak, "fullness_peak")
	set(&p.cap, "limit_bytes")
	if math.IsNaN(p.peak) {
		p.peak = p.full
	}
	if volAt < 0 || rec[volAt] == "" {
		return
	}
	v := r.volume(rec[volAt], pool)
	for d, q := range [2][3]string{{"reads", "read_bytes", "read_seconds"}, {"writes", "write_bytes", "write_seconds"}} {
		set(&v.ops[d], q[0])
		set(&v.bytes[d], q[1])
		set(&v.time[d], q[2])
		if m.Kind == "rates" {
			v.time[d] *= v.ops[d] // a mean of one, here the sum of all
		}
	}
	set(&v.held, "held_bytes")
	set(&v.lower, "lower_bytes")
}
