// Stage 1 of a command, receive: a task gets its number, its I_T_L nexus and its place in the
// unit's task set. What names no unit, or finds the set full, is answered here. The stages after
// this one are enable.go, check.go, the command's handler, device.go, complete.go and deliver.go;
// none calls an earlier one, but that a task that ends enables others.

package server

import (
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Submit starts tasks, in order.
func (n *Nexus) Submit(tasks []*Task) {
	t := n.t
	t.Enter()
	now := t.exec.Now()
	for _, task := range tasks {
		n.receive(task, now)
	}
	t.Leave()
}

func (n *Nexus) receive(t *Task, now int64) {
	st := &t.state
	st.to(received)
	t.Status, t.Sense, t.DataIn, t.InTotal, t.OutTotal, t.Aborted = sam.StatusGood, nil, nil, 0, 0, false
	n.t.arrivals++
	st.n, st.start, st.row, st.arrived = n, now, nil, n.t.arrivals
	st.reportTaskAborted, st.countedByCopy = false, false
	st.itl = n.lookup(t.LUN)
	if st.itl == nil || n.closed || t.Remaps < max(st.itl.since, n.since) {
		st.itl, st.u = nil, nil
		st.row = n.t.commands.Lookup(t.CDB)
		if serving := n.t.opt.Serving; serving != nil && !serving() { // another process may have made a unit there
			t.End(sam.StatusBusy)
		} else if w := n.t.commands.withoutUnit; w == nil || !w(t) {
			t.Check(sense.LUNNotSupported)
		}
		return
	}
	u := st.itl.u
	st.u = u
	if u.full(n.host) {
		st.row = n.t.commands.Lookup(t.CDB) // for the counters
		t.End(sam.StatusTaskSetFull)
		return
	}
	u.push(t)
	st.to(dormant)
	switch {
	case t.Remaps < st.itl.cut:
		t.End(sam.StatusTaskAborted)
	case t.Attr == sam.AttrACA:
		// NACA is refused, so no ACA condition exists that would admit it.
		t.Check(sense.InvalidFieldInCDB)
	case t.Attr == sam.AttrHeadOfQueue, u.blockers == 0:
		t.enable()
	default:
		u.schedule()
	}
}
