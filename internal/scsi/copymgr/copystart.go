// Stage 2 of a copy, admission: an operation begins if the target, the initiator and the I_T_L
// nexus have room for one more, and its list identifier is free. From here on it is listed in
// manager.operations, where whatever fences a unit finds it, until copyend.go takes it out. The
// next stage is copysegment.go, populate.go or writetoken.go, then copyend.go.

package copymgr

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copylist"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// operate starts an operation. id is 0 with named false when its result shall not
// be kept. With immed the command ends at once. When it returns false the task has
// ended and the operation has not begun.
func operate(t *server.Task, work copier, id uint32, named, discard, immed bool, listIDAt int) bool {
	m, x := managerOf(t), t.ITL()
	s := m.source(x)
	var before *copyResult // of the same identifier
	if named {
		before = s.with(id)
	}
	if before != nil && before.op != nil {
		t.Fault(listInUse(listIDAt))
		return false
	}
	if !m.room(s, x.Nexus().HostID()) {
		t.End(sam.StatusBusy)
		return false
	}
	if before != nil { // only now: who is told BUSY may still ask for it
		s.forget(before)
	}
	o := &operation{m: m, x: x, source: s, task: t, work: work, discard: discard, host: x.Nexus().HostID(), port: x.Nexus().PortNumber(), start: t.Started(), arrived: t.Arrived()}
	o.req.Done = o.returned
	o.far = work.farUnits()
	for _, g := range o.far {
		g.far().o = o
	}
	o.result = &copyResult{id: id, sa: t.CDB[1] & 0x1F, op: o}
	m.host(o.host).operations++
	s.running++
	m.operations = append(m.operations, o)
	if o.kept = named; named {
		s.keep(o.result)
	}
	if immed {
		o.task, o.early = nil, t.Command()
		t.CountedElsewhere()
		t.Good()
	} else {
		t.Outsource(o)
	}
	work.next(o)
	return true
}

// room reports whether another operation may start on an I_T_L nexus. finish gives back what
// operate takes.
func (m *Manager) room(s *source, host uint32) bool {
	own := m.host(host).operations
	return own < maxCopiesOfHost && block.Left(own, len(m.operations), maxCopies) > 0 && s.running < copylist.MaxCopiesOfNexus
}

// search reports whether an initiator may have peers asked for one more operation, and counts that; whoever asks ends it
// by searched. What peers have not answered is bounded, and no initiator may have all of that.
func (m *Manager) search(host uint32) bool {
	h := m.host(host)
	if h.operations+h.searches >= maxCopiesOfHost {
		return false
	}
	h.searches++
	return true
}

func (m *Manager) searched(host uint32) { m.host(host).searches-- }

// returned is the Done of an operation's requests. What it submits next, for one unit or the
// other, goes in one batch.
func (o *operation) returned(*block.Request) {
	o.m.t.Enter()
	o.requestDone()
	o.m.t.Leave()
}

// listInUse is OPERATION IN PROGRESS with a pointer to the list identifier, which
// stands in the CDB or in the parameter list (then at is negative or 0).
func listInUse(at int) sense.Data {
	if at > 0 {
		s := sense.InCDB(at, 7)
		s.Code = sense.ListIDInUse
		return s
	}
	return sense.InList(sense.ListIDInUse, -at)
}
