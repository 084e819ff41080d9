package rados

import "github.com/arraysim/arraysim/internal/metrics"

// figures are what is counted of a lane. They are guarded by Store.mu.
type figures struct {
	operations, errors uint64
	took               metrics.Histogram
}

// note counts an operation that ends at a time.
func (f *figures) note(op *Op, now int64) {
	f.operations++
	if op.Err != nil {
		f.errors++
	}
	f.took.Observe(now - op.began)
}

// Emit implements metrics.Source. It takes no executor.
func (s *Store) Emit(e metrics.Emitter) {
	own := s.Ownership()
	e.Value(metrics.OwnerEpoch, float64(own.Epoch))
	serving := 0.0
	if own.Serving {
		serving = 1
	}
	e.Value(metrics.OwnerServing, serving)
	if own.Age >= 0 {
		e.Value(metrics.OwnerLeaseAge, float64(own.Age)/1e9)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range []struct {
		kind string
		lane *lane
	}{{"data", &s.dataLane}, {"log", &s.logLane}, {"lease", &s.leaseLane}, {"reserve", &s.reserveLane}} {
		f := &l.lane.figures
		e.Value(metrics.RadosOperations, float64(f.operations), l.kind)
		e.Value(metrics.RadosErrors, float64(f.errors), l.kind)
		e.Value(metrics.RadosWaits, float64(l.lane.waited), l.kind)
		e.Value(metrics.RadosInFlight, float64(l.lane.ops), l.kind)
		e.Histogram(metrics.RadosDuration, &f.took, l.kind)
	}
}
