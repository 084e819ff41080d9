package fit

import "math"

// repeat returns by how much the latency of a load differs from one measurement to the next: the standard deviation of
// its logarithm, over all loads that were measured again, and how many there are. NaN if none was: it is not known then.
func repeat(obs []Observation) (deviation float64, loads int) {
	type key struct {
		Load
		writes bool
	}
	type tally struct{ n, sum, squares float64 }
	by := map[key]*tally{}
	var order []*tally
	for i := range obs {
		k := key{obs[i].Load, obs[i].Writes}
		t := by[k]
		if t == nil {
			t = &tally{}
			by[k], order = t, append(order, t)
		}
		v := math.Log(obs[i].Mean)
		t.n++
		t.sum += v
		t.squares += v * v
	}
	squares, free := 0.0, 0.0
	for _, t := range order {
		if t.n < 2 {
			continue
		}
		loads++
		free += t.n - 1
		squares += max(0, t.squares-t.sum*t.sum/t.n)
	}
	if loads == 0 {
		return math.NaN(), 0
	}
	return math.Sqrt(squares / free), loads
}
