package experiment

import (
	"fmt"
	"math"

	"github.com/arraysim/arraysim/internal/fio"
)

// interval is a part of a clock, in any unit.
type interval struct{ from, to float64 }

// share returns the part of an interval in which another one is, from 0 to 1.
func (i interval) share(other interval) float64 {
	if i.to <= i.from {
		return 0
	}
	return max(0, min(i.to, other.to)-max(i.from, other.from)) / (i.to - i.from)
}

// fioIntervals returns when each job ran, in ms since its stage began. fio says how long a job ran; that all of a stage begin
// at once, but for startdelay, is fio's rule. A job whose length is unknown is left out.
func fioIntervals(ran []fio.Ran) (map[string]interval, error) {
	out := map[string]interval{}
	for i := range ran {
		j := &ran[i]
		ms := max(j.Read.RuntimeMS, j.Write.RuntimeMS)
		if ms <= 0 {
			continue
		}
		from := 0.0
		if text := j.Options["startdelay"]; text != "" {
			ns, err := fio.ParseTime(text, 1e9)
			if err != nil {
				return nil, fmt.Errorf("job %s: startdelay: %w", j.Name, err)
			}
			from = float64(ns) / 1e6
		}
		out[j.Name] = interval{from, from + ms}
	}
	return out, nil
}

// windowOf says of which time the figures of a job are, reads or writes, and which other jobs ran in it.
func windowOf(j *fio.Ran, d *fio.Direction, ours interval, measured map[string]interval, simulated map[string]*answers) Window {
	w := Window{Simulated: (ours.to - ours.from) / 1e9}
	if d.RuntimeMS > 0 {
		w.Fio = new(d.RuntimeMS / 1e3)
	}
	theirs, known := measured[j.Name]
	for _, name := range j.Beside {
		a := simulated[name]
		b := BesideJob{Job: name, Simulated: ours.share(interval{float64(a.first), float64(a.last)})}
		if other, ok := measured[name]; ok && known {
			share := theirs.share(other)
			b.Fio = &share
			w.Differ = w.Differ || math.Abs(share-b.Simulated) > sameShare
		}
		w.Beside = append(w.Beside, b)
	}
	return w
}
