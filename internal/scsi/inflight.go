// The offloads in flight, for those who watch. Nobody keeps a list of them for that: it is read
// off the task sets and the operations.

package scsi

import "github.com/arraysim/arraysim/internal/scsi/counters"

// Offload is an offload command that has begun and not ended.
type Offload struct {
	Primitive string // "xcopy", "write_same" or "odx"
	Volume    string // that is written, or of which a token is made
	Initiator string
	// Total is what the command describes, Done what of it is written for certain: whole
	// segments of an EXTENDED COPY, whole ranges of a token's, pieces of a pattern. Bytes.
	Total, Done uint64
	Start       int64 // when the command arrived, in the executor's nanoseconds
	Background  bool  // its command has ended (IMMED=1)
}

// Offloads appends the offloads in flight to out: those of tasks by unit in the order of
// their arrival, then those whose command has ended. It walks through the task sets, so nobody
// has to keep a list. On the executor.
func (t *Target) Offloads(out []Offload) []Offload {
	for _, u := range t.units {
		for task := u.first; task != nil; task = task.state.next {
			st := &task.state
			if st.phase != atDevice && st.phase != aborting {
				continue
			}
			if o, ok := st.continuation.(*operation); ok {
				out = append(out, o.offload())
			} else if st.row != nil && st.row.kind == counters.WriteSame {
				out = append(out, task.writeSame())
			}
		}
	}
	for _, o := range t.operations {
		if o.task == nil {
			out = append(out, o.offload())
		}
	}
	return out
}

// writeSame describes a WRITE SAME whose request is with the device.
func (t *Task) writeSame() Offload {
	st := &t.state
	o := Offload{Primitive: "write_same", Volume: st.u.stats.Name(), Initiator: st.n.initiator, Total: st.req.Range.Bytes(), Start: st.start}
	if p, ok := st.continuation.(*patterned); ok {
		o.Done = p.size - p.rest.Bytes() - st.req.Range.Bytes()
		o.Total = p.size
	}
	return o
}

func (o *operation) offload() Offload {
	f := Offload{Volume: o.x.u.stats.Name(), Initiator: o.x.n.initiator, Done: o.result.moved, Start: o.start, Background: o.task == nil}
	switch w := o.work.(type) {
	case *copying:
		f.Primitive = "xcopy"
		if w.dst != nil {
			f.Volume = w.dst.x.u.stats.Name()
		}
		f.Total = max(w.total(), f.Done)
	case *populating:
		f.Primitive, f.Total = "odx", total(w.ranges)
	case *writing:
		f.Primitive, f.Total = "odx", total(w.ranges)
	}
	return f
}
