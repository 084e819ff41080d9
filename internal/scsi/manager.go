// The copy manager of a target, as what fences units knows it, and what it keeps for whom.

package scsi

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// manager is the copy manager of a target. It owns the operations that run, the ROD tokens, and
// what is counted of both for each I_T_L nexus and each initiator.
type manager struct {
	t          *Target
	operations []*operation // that run, in the order of their beginning (start.go)
	tokens     []*rodToken  // in the order of creation (token.go)
	sources    map[*itl]*source
	hosts      []hostUse // by number of the initiator
}

// hostUse is what operations and tokens of one initiator take. Both are bounded, so that one
// initiator leaves room for the others.
type hostUse struct {
	operations int // that run
	tokens     int // that are valid
}

// newManager makes the copy manager of a target.
func newManager(t *Target) *manager { return &manager{t: t, sources: make(map[*itl]*source)} }

// managerOf returns the copy manager of a task's target.
func managerOf(t *Task) *manager { return t.target().copies.(*manager) }

// source returns what is kept for an I_T_L nexus.
func (m *manager) source(x *itl) *source {
	s := m.sources[x]
	if s == nil {
		s = &source{}
		m.sources[x] = s
	}
	return s
}

// host returns what an initiator takes. The pointer is good until the next call.
func (m *manager) host(id uint32) *hostUse {
	for uint32(len(m.hosts)) <= id {
		m.hosts = append(m.hosts, hostUse{})
	}
	return &m.hosts[id]
}

// fence implements copyManager.
func (m *manager) fence(u *Unit, w *waiter, what scope, verdict verdict) {
	for _, o := range slices.Clone(m.operations) {
		x, how := o.work.uses(o, u, what)
		if how == 0 {
			continue
		}
		status, why := verdict(o.x, x, how)
		if status == sense.StatusGood {
			continue
		}
		o.await(w)
		o.interrupt(interruption{u, status, why})
	}
}

// stop implements copyManager.
func (m *manager) stop(w *waiter, match func(*itl) bool) {
	for _, o := range slices.Clone(m.operations) {
		if !match(o.x) {
			continue
		}
		o.await(w)
		if o.task == nil {
			o.stop()
		}
	}
}

// drop implements copyManager.
func (m *manager) drop(x *itl) {
	s := m.sources[x]
	if s == nil {
		return
	}
	for _, r := range s.results {
		if r.op != nil && r.op.task == nil {
			r.op.stop()
		}
	}
	if s.results = nil; s.running == 0 {
		delete(m.sources, x)
	}
}

// left forgets an I_T_L nexus that is gone, when its last operation is over.
func (m *manager) left(x *itl, s *source) {
	if s.running == 0 && !x.attached() {
		delete(m.sources, x)
	}
}

// offloads implements copyManager.
func (m *manager) offloads(out []Offload) []Offload {
	for _, o := range m.operations {
		if o.task == nil {
			out = append(out, o.offload())
		}
	}
	return out
}

// offload implements outsourced.
func (o *operation) offload() Offload {
	f := Offload{Volume: o.x.u.volume(), Initiator: o.x.n.initiator, Done: o.result.moved, Start: o.start, Background: o.task == nil}
	switch w := o.work.(type) {
	case *copying:
		f.Primitive = "xcopy"
		if w.dst != nil {
			f.Volume = w.dst.x.u.volume()
		}
		f.Total = max(w.total(), f.Done)
	case *populating:
		f.Primitive, f.Total = "odx", total(w.ranges)
	case *writing:
		f.Primitive, f.Total = "odx", total(w.ranges)
	}
	return f
}
