// Package copymgr is the copy manager of a target (SPC-5 5.18): EXTENDED COPY, copies by ROD
// tokens, and what hosts can ask of them. An operation uses units that its command did not come
// to, and with IMMED=1 outlives its command. So it has requests of its own, asks each unit before
// each step whether that would serve it (server.ITL.Refuses), and ends when a unit that it uses is
// fenced, which reaches it through server.CopyManager.
//
// A copy goes through extendedcopy.go, copystart.go, copysegment.go and copyend.go; those of tokens
// through populate.go or writetoken.go in the place of the first and the third. What of it is in
// another I/O group, or in a linked array, goes through peer.go and package copysource.
package copymgr

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/copysource"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Manager is the copy manager of a target. It owns the operations that run, and
// what is counted of both for each I_T_L nexus and each initiator.
type Manager struct {
	t          *server.Target
	operations []*operation      // that run, in the order of their beginning (copystart.go)
	read       *copysource.Store // ROD tokens, and units' parts in operations elsewhere
	// sources has whatever copies came on, until it is gone and its last operation is over. It is never
	// walked through.
	sources map[*server.ITL]*source
	hosts   []hostUse // by number of the initiator
	peers   []*peer   // the copy managers of other I/O groups, and of linked arrays (peer.go)
}

// hostUse is what operations of one initiator take. They are bounded, so that one initiator leaves room for the
// others.
type hostUse struct {
	operations int // that run
	searches   int // of units and tokens elsewhere, for operations that are yet to begin
}

// NewManager makes the copy manager of a target.
func NewManager(t *server.Target) *Manager {
	return &Manager{t: t, read: copysource.New(t), sources: make(map[*server.ITL]*source)}
}

// managerOf returns the copy manager of a task's target.
func managerOf(t *server.Task) *Manager { return t.Target().CopyManager().(*Manager) }

// source returns what is kept for an I_T_L nexus.
func (m *Manager) source(x *server.ITL) *source {
	s := m.sources[x]
	if s == nil {
		s = &source{}
		m.sources[x] = s
	}
	return s
}

// host returns what an initiator takes. The pointer is good until the next call.
func (m *Manager) host(id uint32) *hostUse {
	for uint32(len(m.hosts)) <= id {
		m.hosts = append(m.hosts, hostUse{})
	}
	return &m.hosts[id]
}

// Fence implements server.CopyManager.
func (m *Manager) Fence(u *server.Unit, w *server.Waiter, what server.Scope, verdict server.Verdict) {
	for _, o := range slices.Clone(m.operations) {
		x, how := o.work.uses(o, u, what)
		if how == 0 {
			continue
		}
		status, why := verdict(o.x, x, how)
		if status == sam.StatusGood {
			continue
		}
		o.await(w)
		o.interrupt(interruption{u: u, status: status, why: why})
	}
	m.read.Fence(u, w, what, verdict)
}

// Revoke implements server.CopyManager.
func (m *Manager) Revoke(u *server.Unit) { m.read.Revoke(u) }

// Lends returns what of the target other arrays may read, for a link to them.
func (m *Manager) Lends() *copysource.Store { return m.read }

// Stop implements server.CopyManager.
func (m *Manager) Stop(w *server.Waiter, match func(*server.ITL) bool) {
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

// Unmap implements server.CopyManager.
func (m *Manager) Unmap(x *server.ITL, w *server.Waiter) {
	for _, o := range slices.Clone(m.operations) {
		if o.x == x {
			o.await(w)
			o.stop()
		} else if why := o.work.without(o, x); why != sense.NoSense {
			o.await(w)
			o.interrupt(interruption{u: x.Unit(), status: sam.StatusCheckCondition, why: why, gone: true})
		}
	}
	m.read.Unmap(x, w)
}

// UnmapLeft implements server.CopyManager.
func (m *Manager) UnmapLeft(u *server.Unit, w *server.Waiter, match func(*server.ITL) bool) {
	m.read.UnmapLeft(u, w, match)
}

// Drop implements server.CopyManager.
func (m *Manager) Drop(x *server.ITL) {
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
func (m *Manager) left(x *server.ITL, s *source) {
	if s.running == 0 && !x.Attached() {
		delete(m.sources, x)
	}
}

// Offloads implements server.CopyManager.
func (m *Manager) Offloads(out []server.Offload) []server.Offload {
	for _, o := range m.operations {
		if o.task == nil {
			out = append(out, o.Offload())
		}
	}
	return out
}

// Offload implements server.Outsourced.
func (o *operation) Offload() server.Offload {
	f := server.Offload{Volume: o.x.Unit().Volume(), Initiator: o.x.Nexus().Initiator(), Done: o.result.moved, Start: o.start, Background: o.task == nil}
	switch w := o.work.(type) {
	case *copying:
		f.Primitive = "xcopy"
		if w.dst != nil {
			f.Volume = w.dst.volume()
		}
		f.Total = max(w.total(), f.Done)
	case *populating:
		f.Primitive, f.Total = "odx", total(w.ranges)
	case *writing:
		f.Primitive, f.Total = "odx", total(w.ranges)
	}
	return f
}
