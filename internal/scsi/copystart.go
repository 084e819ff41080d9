// Stage 2 of a copy, admission: an operation begins if the target, the initiator and the I_T_L
// nexus have room for one more, and its list identifier is free. From here on it is listed in
// Target.operations, where whatever fences a unit finds it, until copyend.go takes it out. The
// next stage is copysegment.go or odx.go, then device.go and copyend.go.

package scsi

// operate starts an operation. id is 0 with named false when its result shall not
// be kept. With immed the command ends at once. When it returns false the task has
// ended and the operation has not begun.
func (t *Task) operate(work copier, id uint32, named, discard, immed bool, listIDAt int) bool {
	st := &t.state
	tg, x := st.n.t, st.itl
	if named {
		if r := x.copyWith(id); r != nil {
			if r.op != nil {
				t.fault(listInUse(listIDAt))
				return false
			}
			x.forget(r)
		}
	}
	if !x.roomForCopy() {
		t.end(StatusBusy)
		return false
	}
	o := &operation{t: tg, x: x, task: t, work: work, discard: discard, host: st.n.host.id, port: st.n.portNumber, start: st.start, arrived: st.arrived}
	o.req.Done = o.returned
	o.result = &copyResult{id: id, sa: t.CDB[1] & 0x1F, op: o}
	st.n.host.copies++
	x.running++
	tg.operations = append(tg.operations, o)
	if o.kept = named; named {
		x.keep(o.result)
	}
	if immed {
		o.task = nil
		st.countedByCopy = true
		t.good()
	} else {
		st.continuation = o
		st.to(atDevice)
	}
	work.next(o)
	return true
}

// roomForCopy reports whether another operation may start on the I_T_L nexus. finish gives back
// what operate takes.
func (x *itl) roomForCopy() bool {
	return len(x.u.t.operations) < maxCopies && x.n.host.copies < maxCopiesOfHost && x.running < maxCopiesOfNexus
}

// listInUse is OPERATION IN PROGRESS with a pointer to the list identifier, which
// stands in the CDB or in the parameter list (then at is negative or 0).
func listInUse(at int) sense {
	if at > 0 {
		s := inCDB(at, 7)
		s.code = listIDInUse
		return s
	}
	return inList(listIDInUse, -at)
}
