package report

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// Findings is what the counters say. Times are nanoseconds since 1970 with what they are
// for people beside them; bytes are bytes; rates are bytes a second.
type Findings struct {
	Source     string       `json:"source"`
	From       string       `json:"from"`
	To         string       `json:"to"`
	Step       float64      `json:"sample_seconds"`
	Pools      []PoolState  `json:"pools"`
	Holders    []Holder     `json:"holders"`
	Undercover []Undercover `json:"undercover"`
	Floor      *Floor       `json:"undercover_floor"` // null where nothing could be judged
	Labelled   []Labelled   `json:"origin_label"`     // null where the array has none
	Towers     []Tower      `json:"towers"`
	Refused    []Refusal    `json:"cannot_tell"`
	Advice     []string     `json:"advice"`
	Notes      []string     `json:"notes,omitempty"`
}

// PoolState is how full a pool's partition was.
type PoolState struct {
	Pool  string `json:"pool"`
	Mean  Amount `json:"mean_fullness"`
	Peak  Amount `json:"peak_fullness"`
	Cap   Amount `json:"cap_bytes"`
	Full  Amount `json:"full_seconds"` // in samples in which it reached its cap
	Spans []Span `json:"full,omitempty"`
}

// Span is a time, from the beginning of a sample to the end of one.
type Span struct {
	From     string `json:"from"`
	To       string `json:"to"`
	from, to int    // samples, to included
}

// Holder is a volume that held much of a full partition.
type Holder struct {
	Pool   string  `json:"pool"`
	Volume string  `json:"volume"`
	At     string  `json:"at"`
	Held   float64 `json:"held_bytes"`
	Share  float64 `json:"share"` // of the cap
	Host   Amount  `json:"host_write_rate"`
	// Explained says whether hosts have written what the volume holds. It is not known where that
	// is not proved and hosts are not seen to have written as much.
	Explained Answer `json:"explained_by_host"`
	// Busiest is the volume of the pool that hosts wrote most, and what it held.
	Busiest     string `json:"busiest"`
	BusiestHost Amount `json:"busiest_host_write_rate"`
	BusiestHeld Amount `json:"busiest_held_bytes"`

	at int
}

// What a partition is judged by.
const (
	fullFrom   = 0.97 // fullness from which a partition counts as full
	holderFrom = 0.5  // of the cap
)

// Analyze makes findings of counters. Towers of an offload are run again by the
// firmware, on a model that is fitted to them, which takes some seconds each.
func Analyze(d *Data) *Findings {
	f := detect(d)
	d.blame(f)
	f.Advice = advise(f)
	return f
}

// detect finds; it does not ask what would be otherwise.
func detect(d *Data) *Findings {
	f := &Findings{Source: d.Source, From: d.at(d.Start), To: d.at(d.Times[len(d.Times)-1]), Step: d.Step(), Notes: d.Notes,
		Pools: []PoolState{}, Holders: []Holder{}, Undercover: []Undercover{}, Towers: []Tower{}, Refused: []Refusal{}, Advice: []string{}}
	noise := d.noise()
	for _, p := range d.Pools {
		f.Pools = append(f.Pools, d.poolState(p))
	}
	for _, v := range d.Volumes {
		f.Undercover = append(f.Undercover, d.undercover(v, noise)...)
		f.refuseUndercover(v)
	}
	for _, p := range d.Pools {
		f.Undercover = append(f.Undercover, d.undercoverByPool(p)...)
		f.Holders = append(f.Holders, d.holders(p, f)...)
		f.refusePool(p, d.of(p.Name))
	}
	f.Floor = d.floor(f, noise)
	if labels, ok := d.labels(f); ok {
		f.Labelled = append([]Labelled{}, labels...)
	}
	slices.SortStableFunc(f.Undercover, func(a, b Undercover) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for _, p := range d.Pools {
		f.Towers = append(f.Towers, d.towers(p, f)...)
	}
	slices.SortStableFunc(f.Towers, func(a, b Tower) int { return cmp.Compare(a.from, b.from) })
	return f
}

// blame finds the shares of the highest towers that offloads made.
func (d *Data) blame(f *Findings) {
	var order []*Tower
	for i := range f.Towers {
		if f.Towers[i].culprit != nil {
			order = append(order, &f.Towers[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *Tower) int { return cmp.Compare(b.Height, a.Height) })
	var all sync.WaitGroup
	for _, t := range order[:min(len(order), towersModelled)] {
		i := slices.IndexFunc(d.Pools, func(p *Pool) bool { return p.Name == t.Pool })
		all.Go(func() { t.Shares = d.shares(t, d.Pools[i], d.of(t.Pool), t.culprit) })
	}
	all.Wait()
}

func (d *Data) span(from, to int) Span {
	begin := d.Start
	if from > 0 {
		begin = d.Times[from-1]
	}
	return Span{From: d.at(begin), To: d.at(d.Times[to]), from: from, to: to}
}

func (d *Data) seconds(i int) float64 {
	begin := d.Start
	if i > 0 {
		begin = d.Times[i-1]
	}
	return float64(d.Times[i]-begin) / 1e9
}

func (d *Data) poolState(p *Pool) PoolState {
	nan := Amount(math.NaN())
	s := PoolState{Pool: p.Name, Mean: nan, Peak: Amount(highest(p.Peak...)), Cap: Amount(highest(p.Cap...)), Full: nan}
	sum, time := 0.0, 0.0
	open := -1
	for i := range d.Times {
		dt := d.seconds(i)
		if !math.IsNaN(p.Full[i]) {
			sum, time = sum+p.Full[i]*dt, time+dt
		}
		full := p.Peak[i] >= fullFrom
		if full && open < 0 {
			open = i
		}
		if open >= 0 && (!full || i == len(d.Times)-1) {
			end := i
			if !full {
				end--
			}
			s.Spans = append(s.Spans, d.span(open, end))
			open = -1
		}
	}
	if time > 0 {
		s.Mean = Amount(sum / time)
	}
	if s.Peak.Known() {
		s.Full = 0
		for _, x := range s.Spans {
			for i := x.from; i <= x.to; i++ {
				s.Full += Amount(d.seconds(i))
			}
		}
	}
	return s
}

// holders are the volumes that held half of a full partition or more, once for each
// time that a volume did, where it held most.
func (d *Data) holders(p *Pool, f *Findings) []Holder {
	var out []Holder
	vols := d.of(p.Name)
	for i := range d.Times {
		if !(p.Peak[i] >= fullFrom) {
			continue
		}
		for _, v := range vols {
			if !(v.Held[i] >= holderFrom*p.Cap[i]) {
				continue
			}
			h := Holder{Pool: p.Name, Volume: v.Name, At: d.at(d.Times[i]), Held: v.Held[i], Share: v.Held[i] / p.Cap[i], Host: Amount(v.Host[write][i]),
				BusiestHost: Amount(math.NaN()), BusiestHeld: Amount(math.NaN()), at: i}
			switch {
			case f.accused(v.Name, i, i):
				h.Explained = No
			case d.written(v, i, v.Held[i]) >= v.Held[i]:
				h.Explained = Yes
			}
			for _, o := range vols {
				if o != v && o.Host[write][i] > highest(float64(h.BusiestHost), 0) {
					h.Busiest, h.BusiestHost, h.BusiestHeld = o.Name, Amount(o.Host[write][i]), Amount(o.Held[i])
				}
			}
			last := slices.IndexFunc(out, func(x Holder) bool { return x.Volume == v.Name && x.Explained == h.Explained && x.at >= i-2 })
			switch {
			case last < 0:
				out = append(out, h)
			case out[last].Held < h.Held:
				out[last] = h
			default:
				out[last].at = i // it goes on
			}
		}
	}
	return out
}

// accused tells whether a volume was written undercover in these samples.
func (f *Findings) accused(volume string, from, to int) bool {
	return slices.ContainsFunc(f.Undercover, func(u Undercover) bool { return u.Volume == volume && u.from <= to && u.to >= from })
}
