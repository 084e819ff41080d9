package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Picture is a chart: lines over time, bars by volume, or a heat map. It is what
// assets/report.js draws.
type Picture struct {
	ID    string    `json:"id"`
	Title string    `json:"title"`
	Text  string    `json:"-"`
	Kind  string    `json:"kind"`
	X     []float64 `json:"x,omitempty"` // milliseconds since 1970
	Y     []axis    `json:"y,omitempty"`
	// Seconds says that X is time since the beginning; for SVG only.
	Seconds bool   `json:"-"`
	Lines   []line `json:"lines,omitempty"`
	Marks   []mark `json:"marks,omitempty"`

	Names []string     `json:"names,omitempty"` // of bars and of a heat map's rows
	Bars  []bar        `json:"bars,omitempty"`
	Cells [][3]float64 `json:"cells,omitempty"` // column, row, log10 of milliseconds
	Low   float64      `json:"low,omitempty"`
	High  float64      `json:"high,omitempty"`
	Spans []cellSpan   `json:"spans,omitempty"`
}

type axis struct {
	Name string  `json:"name"`
	Unit string  `json:"unit"`
	Max  float64 `json:"max,omitempty"`
}

type line struct {
	Name   string  `json:"name"`
	Axis   int     `json:"axis,omitempty"`
	Area   bool    `json:"area,omitempty"`
	Stack  string  `json:"stack,omitempty"`
	Dash   bool    `json:"dash,omitempty"`
	Thin   bool    `json:"thin,omitempty"`
	Values []value `json:"values"`
}

type bar struct {
	Name   string  `json:"name"`
	Axis   int     `json:"axis,omitempty"`
	Values []value `json:"values"`
}

type mark struct {
	Name string  `json:"name"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

type cellSpan struct {
	Name string `json:"name"`
	From int    `json:"from"`
	To   int    `json:"to"`
}

// LatencyPicture is one of latency in milliseconds over time in seconds.
func LatencyPicture(title string, seconds, ms []float64) *Picture {
	p := &Picture{ID: "latency", Kind: "lines", Title: title, Seconds: true, Y: []axis{{Name: "latency", Unit: "ms"}}, Lines: []line{{Name: "latency", Area: true, Values: scaled(ms, 1)}}}
	for _, s := range seconds {
		p.X = append(p.X, s*1e3)
	}
	return p
}

// value is a number that is null where it is not known.
type value float64

// MarshalJSON implements [encoding/json.Marshaler].
func (v value) MarshalJSON() ([]byte, error) {
	if x := float64(v); !math.IsNaN(x) && !math.IsInf(x, 0) {
		return fmt.Appendf(nil, "%.5g", x), nil
	}
	return []byte("null"), nil
}

// Units of the charts.
const (
	toMB = 1e-6
	toGB = 1e-9
	toMS = 1e3
)

func scaled(s Series, unit float64) []value {
	out := make([]value, len(s))
	for i, x := range s {
		out[i] = value(x * unit)
	}
	return out
}

// Shown is how many volumes pictures of volumes show.
const (
	shownLines = 8
	shownRows  = 60
	shownBars  = 10
)

// painter makes the pictures of one run.
type painter struct {
	d     *Data
	f     *Findings
	x     []float64
	marks map[string][]mark // towers by pool
	pool  *Pool             // that most happened to
	vols  []*Volume         // of it
	out   []*Picture
}

// Pictures draws a run and what was found in it.
func Pictures(d *Data, f *Findings) []*Picture {
	p := &painter{d: d, f: f, marks: map[string][]mark{}}
	for _, t := range d.Times {
		p.x = append(p.x, float64(t)/1e6)
	}
	for i, t := range f.Towers {
		begin := float64(d.Start) / 1e6
		if t.from > 0 {
			begin = p.x[t.from-1]
		}
		p.marks[t.Pool] = append(p.marks[t.Pool], mark{fmt.Sprintf("tower %d", i+1), begin, p.x[t.to]})
	}
	p.pool = p.worstPool()
	if p.pool != nil {
		p.vols = d.of(p.pool.Name)
		p.fullness()
		p.load()
		p.responses()
		p.holders()
		p.layers()
		p.typical()
		p.held()
		p.heat()
	}
	p.offloads()
	p.backEnd()
	p.zeroing()
	return p.out
}

func (p *painter) worstPool() *Pool {
	if len(p.f.Towers) > 0 || len(p.f.Undercover) > 0 {
		name := ""
		if len(p.f.Undercover) > 0 {
			name = p.f.Undercover[0].Pool
		} else {
			name = slices.MaxFunc(p.f.Towers, func(a, b Tower) int { return cmp.Compare(a.Height, b.Height) }).Pool
		}
		for _, q := range p.d.Pools {
			if q.Name == name {
				return q
			}
		}
	}
	if len(p.d.Pools) == 0 {
		return nil
	}
	return slices.MaxFunc(p.d.Pools, func(a, b *Pool) int {
		return cmp.Compare(rank(quantile(a.Full, 0.9)), rank(quantile(b.Full, 0.9)))
	})
}

func (p *painter) add(q Picture) {
	if q.Kind == "" {
		q.Kind, q.X = "lines", p.x
		any := false
		for _, l := range q.Lines {
			for _, v := range l.Values {
				any = any || !math.IsNaN(float64(v))
			}
		}
		if !any {
			return // the counters do not say
		}
	}
	p.out = append(p.out, &q)
}

func (p *painter) fullness() {
	q := Picture{ID: "fullness", Title: "Cache partition fullness", Y: []axis{{"fullness of the cap", "%", 100}}, Marks: p.marks[p.pool.Name],
		Text: "How full each pool's partition of the write cache is, in the mean of a sample, and for the pool that most happened to, its highest. At 100 % a write waits until something has been destaged."}
	q.Lines = append(q.Lines, line{Name: p.pool.Name + ", mean", Area: true, Values: scaled(p.pool.Full, 100)}, line{Name: p.pool.Name + ", peak", Dash: true, Values: scaled(p.pool.Peak, 100)})
	for _, o := range p.d.Pools {
		if o != p.pool && len(q.Lines) < shownLines+2 {
			q.Lines = append(q.Lines, line{Name: o.Name + ", mean", Thin: true, Values: scaled(o.Full, 100)})
		}
	}
	p.add(q)
}

func (p *painter) load() {
	n := len(p.d.Times)
	ops, mean := [2]Series{gaps(n), gaps(n)}, gaps(n)
	for i := range n {
		mean[i], _ = response(p.vols, i)
		for d := range ops {
			for _, v := range p.vols {
				add(&ops[d][i], v.Ops[d][i])
			}
		}
	}
	p.add(Picture{ID: "load", Title: fmt.Sprintf("I/O and response time of the %d volumes of %s", len(p.vols), p.pool.Name), Marks: p.marks[p.pool.Name],
		Y:    []axis{{Name: "I/O", Unit: "1/s"}, {Name: "mean response", Unit: "ms"}},
		Text: "Reads and writes of hosts, and the mean response time of all volumes together. A tower is where the response rises and the load does not.",
		Lines: []line{{Name: "reads", Values: scaled(ops[read], 1)}, {Name: "writes", Values: scaled(ops[write], 1)},
			{Name: "response", Axis: 1, Area: true, Values: scaled(mean, toMS)}}})
}

// most returns the volumes that have most of something.
func most(vols []*Volume, n int, of func(*Volume) float64) []*Volume {
	vols = slices.Clone(vols)
	slices.SortStableFunc(vols, func(a, b *Volume) int { return cmp.Compare(of(b), of(a)) })
	vols = slices.DeleteFunc(vols, func(v *Volume) bool { return of(v) <= 0 })
	return vols[:min(n, len(vols))]
}

func (v *Volume) responses() Series {
	s := make(Series, len(v.Span))
	for i := range s {
		s[i] = v.Response(i)
	}
	return s
}

func (p *painter) responses() {
	q := Picture{ID: "responses", Title: "Response times of volumes", Y: []axis{{Name: "mean response", Unit: "ms"}}, Marks: p.marks[p.pool.Name],
		Text: "One line a volume, those with the highest response: towers rise in all of them at once. The highest belong to volumes with next to no I/O, whose mean is of a few commands that all fell into the tower."}
	for _, v := range most(p.vols, 30, func(v *Volume) float64 { return rank(quantile(v.responses(), 1)) }) {
		q.Lines = append(q.Lines, line{Name: v.Name, Thin: true, Values: scaled(v.responses(), toMS)})
	}
	p.add(q)
}

// instants are the samples that the pictures of holders show: where each tower is
// highest, and the one before the last of them.
func (p *painter) instants() []int {
	var out []int
	for _, t := range p.f.Towers {
		if t.Pool == p.pool.Name && len(out) < 4 {
			out = append(out, t.highest)
		}
	}
	if len(out) > 1 && out[len(out)-1]-1 > out[len(out)-2] {
		out = slices.Insert(out, len(out)-1, out[len(out)-1]-1)
	}
	if len(out) == 0 {
		best := 0
		for i := range p.d.Times {
			if rank(p.pool.Peak[i]) > rank(p.pool.Peak[best]) {
				best = i
			}
		}
		out = append(out, best)
	}
	return out
}

func (p *painter) holders() {
	for k, i := range p.instants() {
		vols := most(p.vols, shownBars/2, func(v *Volume) float64 { return rank(v.Held[i]) })
		for _, v := range most(p.vols, shownBars, func(v *Volume) float64 { return rank(v.Host[write][i]) }) {
			if len(vols) < shownBars && !slices.Contains(vols, v) {
				vols = append(vols, v)
			}
		}
		held, rate := bar{Name: "cache held"}, bar{Name: "host writes", Axis: 1}
		q := Picture{ID: fmt.Sprintf("holders-%d", k+1), Kind: "bars", Title: "Cache held against host write rate, sample until " + p.d.at(p.d.Times[i]),
			Y:    []axis{{Name: "cache held", Unit: "MB"}, {Name: "host writes", Unit: "MB/s"}},
			Text: "The volumes that hold most of the partition and those that hosts write most. Usually they are the same. A volume that holds the partition without being written by a host is being written below."}
		for _, v := range vols {
			q.Names = append(q.Names, v.Name)
			held.Values = append(held.Values, value(v.Held[i]*toMB))
			rate.Values = append(rate.Values, value(v.Host[write][i]*toMB))
		}
		if q.Bars = []bar{held, rate}; len(vols) > 0 {
			p.add(q)
		}
	}
}

// layers shows the culprit: what hosts write above, what is written below.
func (p *painter) layers() {
	shown := map[string]bool{}
	for _, u := range p.f.Undercover {
		if shown[u.Volume] || len(shown) == 3 {
			continue
		}
		for _, v := range p.d.Volumes {
			if v.Name != u.Volume {
				continue
			}
			shown[v.Name] = true
			host, under := gaps(len(p.x)), gaps(len(p.x))
			for i := range under {
				host[i] = v.Host[write][i]
				if x, _, _, ok := v.excess(i); ok {
					under[i] = max(x/v.Span[i], 0)
				}
			}
			p.add(Picture{ID: "layers-" + fmt.Sprint(len(shown)), Title: "Above and below the cache: " + v.Name, Marks: p.marks[u.Pool],
				Y:    []axis{{Name: "writes", Unit: "MB/s"}, {Name: "cache held", Unit: "MB"}},
				Text: "What hosts write to the volume, and on it the area of what was written undercover: what left the cache and what it came to hold, less what hosts sent. The dashed line is the cache that the volume holds.",
				Lines: []line{{Name: "host writes (upper layer)", Area: true, Stack: "w", Values: scaled(host, toMB)}, {Name: "undercover", Area: true, Stack: "w", Values: scaled(under, toMB)},
					{Name: "lower layer: leaves the cache", Thin: true, Values: scaled(v.Lower, toMB)}, {Name: "cache held", Axis: 1, Dash: true, Values: scaled(v.Held, toMB)}}})
		}
	}
}

// typical shows a volume that holds cache because hosts write to it.
func (p *painter) typical() {
	var best *Volume
	top := 0.0
	for _, v := range p.vols {
		if slices.ContainsFunc(p.f.Undercover, func(u Undercover) bool { return u.Volume == v.Name }) {
			continue
		}
		if x := rank(quantile(v.Held, 1)); x > top {
			best, top = v, x
		}
	}
	if best == nil {
		return
	}
	p.add(Picture{ID: "typical", Title: "How it usually is: " + best.Name, Marks: p.marks[p.pool.Name], Y: []axis{{Name: "host writes", Unit: "MB/s"}, {Name: "cache held", Unit: "MB"}},
		Text:  "The volume with most in the cache from hosts' own writes: what it holds follows what is written to it.",
		Lines: []line{{Name: "host writes", Area: true, Values: scaled(best.Host[write], toMB)}, {Name: "cache held", Axis: 1, Dash: true, Values: scaled(best.Held, toMB)}}})
}

func (p *painter) held() {
	q := Picture{ID: "held", Title: "Who holds the partition of " + p.pool.Name, Y: []axis{{Name: "cache held", Unit: "GB"}}, Marks: p.marks[p.pool.Name],
		Text: "The partition by volume, at the end of each sample, under its cap. Pools that are added lower the caps of all."}
	top := most(p.vols, shownLines-1, func(v *Volume) float64 { return rank(quantile(v.Held, 1)) })
	rest := gaps(len(p.x))
	for _, v := range p.vols {
		if !slices.Contains(top, v) {
			for i, x := range v.Held {
				add(&rest[i], x)
			}
		}
	}
	for _, v := range top {
		q.Lines = append(q.Lines, line{Name: v.Name, Area: true, Stack: "held", Values: scaled(v.Held, toGB)})
	}
	q.Lines = append(q.Lines, line{Name: "all others", Area: true, Stack: "held", Values: scaled(rest, toGB)}, line{Name: capLine, Dash: true, Values: scaled(p.pool.Cap, toGB)})
	p.add(q)
}

func (p *painter) heat() {
	n := len(p.x)
	step := (n + 199) / 200
	q := Picture{ID: "heat", Kind: "heat", Title: "Response time by volume and time", Low: math.Inf(1), High: math.Inf(-1),
		Text: "Each row is a volume, darker (in the dark: brighter) is slower, on a logarithmic scale; towers are framed. A tower is a column through all rows: what the volumes have in common is the partition."}
	vols := most(p.vols, shownRows, func(v *Volume) float64 { return rank(quantile(v.responses(), 0.98)) })
	for c := 0; c*step < n; c++ {
		q.X = append(q.X, p.x[min((c+1)*step, n)-1])
	}
	for row, v := range vols {
		q.Names = append(q.Names, v.Name)
		r := v.responses()
		for c := range q.X {
			x := math.Log10(quantile(r[c*step:min((c+1)*step, n)], 1) * toMS)
			if math.IsNaN(x) || math.IsInf(x, 0) {
				continue
			}
			x = math.Round(x*1000) / 1000
			q.Cells = append(q.Cells, [3]float64{float64(c), float64(row), x})
			q.Low, q.High = min(q.Low, x), max(q.High, x)
		}
	}
	for i, t := range p.f.Towers {
		if t.Pool == p.pool.Name {
			q.Spans = append(q.Spans, cellSpan{fmt.Sprintf("tower %d", i+1), t.from / step, t.to / step})
		}
	}
	if len(q.Cells) > 0 {
		p.add(q)
	}
}

func (p *painter) offloads() {
	q := Picture{ID: "offloads", Title: "Offloads by the path they take", Y: []axis{{Name: "bytes covered", Unit: "MB/s"}},
		Text: "Metadata is an edit of the extent map and moves nothing; copy moves data through the cache. Only the second shows below."}
	for _, o := range p.d.Offloads {
		q.Lines = append(q.Lines, line{Name: o.Primitive + ", " + o.Path, Area: true, Values: scaled(o.Bytes, toMB)})
	}
	p.add(q)
}

func (p *painter) backEnd() {
	q := Picture{ID: "backend", Title: "Back-end writes by origin", Y: []axis{{Name: "back-end writes", Unit: "MB/s"}},
		Text: "The origin of the data written to disks, for all pools together. Real arrays do not publish it, and findings do not use it."}
	sums := map[string]Series{}
	var order []string
	for _, pool := range p.d.Pools {
		for o, s := range pool.ByOrigin {
			if sums[o] == nil {
				sums[o] = gaps(len(p.x))
				order = append(order, o)
			}
			for i, x := range s {
				add(&sums[o][i], x)
			}
		}
	}
	slices.Sort(order)
	for _, o := range order {
		q.Lines = append(q.Lines, line{Name: o, Area: true, Stack: "back", Values: scaled(sums[o], toMB)})
	}
	p.add(q)
}

func (p *painter) zeroing() {
	q := Picture{ID: "zeroing", Title: "Zeroing", Y: []axis{{Name: "zeroed by WRITE SAME", Unit: "MB/s"}, {Name: "known to be zero", Unit: "GB"}},
		Text: "What WRITE SAME describes, which no host sends, and how much of a volume the map knows to be zero without a byte on disk."}
	for _, v := range most(p.d.Volumes, shownLines/2, func(v *Volume) float64 { return rank(quantile(v.Described["write_same"], 1)) }) {
		q.Lines = append(q.Lines, line{Name: v.Name, Values: scaled(v.Described["write_same"], toMB)})
		if s := v.States["zero"]; s != nil {
			q.Lines = append(q.Lines, line{Name: v.Name + ", zero", Axis: 1, Dash: true, Values: scaled(s, toGB)})
		}
	}
	p.add(q)
}
