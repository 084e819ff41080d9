package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Labelled is what the origin label of an array that has one, such as ours, says of a volume: so
// much was written below for offloads. It is no finding: those are made without the label, as
// real arrays have none. Proved says whether they came to the same volume.
type Labelled struct {
	Pool   string `json:"pool"`
	Volume string `json:"volume"`
	Origin string `json:"origin"`
	Span
	Bytes  float64 `json:"bytes"`
	Proved bool    `json:"proved"`
}

// label adds to what the origin label says.
func (v *volumeReading) label(origin string, bytes float64) {
	if v.labelled == nil {
		v.labelled = map[string]float64{}
	}
	v.labelled[origin] += bytes
}

// labels returns what the origin label says, the most first; ok is false where there is none.
func (d *Data) labels(f *Findings) (out []Labelled, ok bool) {
	for _, v := range d.Volumes {
		for _, origin := range slices.Sorted(maps.Keys(v.Labelled)) {
			sum, from, to := 0.0, -1, 0
			for i, rate := range v.Labelled[origin] {
				if math.IsNaN(rate) {
					continue
				}
				if ok = true; rate == 0 {
					continue
				}
				if from < 0 {
					from = i
				}
				sum, to = sum+rate*v.Span[i], i
			}
			if from >= 0 {
				out = append(out, Labelled{v.Pool, v.Name, origin, d.span(from, to), math.Round(sum), f.accused(v.Name, from, to)})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Labelled) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return out, ok
}
