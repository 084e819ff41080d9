package fit

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// TestServersAreBounded: latencies that hardly depend on the number of servers pull it on by a factor of e at each step, and
// each server takes memory in the simulation: the fit of an iSCSI target took all that the machine had.
func TestServersAreBounded(t *testing.T) {
	f := &fitter{params: []Parameter{{Key: "mdisks.default.parallel", kind: count}, {Key: "mdisks.default.base", kind: duration}}}
	p := &point{x: []float64{math.Log(40), math.Log(90e3)}, r: []float64{1, 1, 1}}
	j := mat.NewDense(3, 2, []float64{-1e-3, 0, -1e-3, 1e-9, -1e-3, 0})
	for range 30 {
		x, ok := f.step(p, j, 1e-6)
		if !ok {
			t.Fatal("there is no step")
		}
		p.x = x
	}
	if v := p.values(); v[0] < mostServers/2 || v[0] > mostServers*1.001 {
		t.Errorf("the search is at %g servers; want the most that there may be, %d", v[0], mostServers)
	}
	j.Scale(-1, j)
	for range 30 {
		p.x, _ = f.step(p, j, 1e-6)
	}
	if v := p.values(); v[0] < 0.999 || v[0] > 1.001 {
		t.Errorf("the search is at %g servers; want the least that there may be, 1", v[0])
	}
}
