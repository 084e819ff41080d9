// The offloads in flight, for those who watch. Nobody keeps a list of them for that: it is read
// off the task sets and the operations.

package server

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
)

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
			if o, ok := st.continuation.(Outsourced); ok {
				out = append(out, o.Offload())
			} else if st.row != nil && st.row.Kind == counters.WriteSame {
				out = append(out, task.writeSame())
			}
		}
	}
	return t.copies.Offloads(out)
}

// Progress is the continuation of a command that goes to the device in pieces.
type Progress interface {
	// Progress returns how many bytes are done, and of how many. piece is what is at the device.
	Progress(piece *block.Request) (done, total uint64)
}

// writeSame describes a WRITE SAME whose request is with the device.
func (t *Task) writeSame() Offload {
	st := &t.state
	o := Offload{Primitive: "write_same", Volume: st.u.Volume(), Initiator: st.n.initiator, Total: st.req.Range.Bytes(), Start: st.start}
	if p, ok := st.continuation.(Progress); ok {
		o.Done, o.Total = p.Progress(&st.req)
	}
	return o
}
