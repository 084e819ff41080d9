// Package paramlist gathers the parameter lists that come with commands, for their handlers.
package paramlist

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Of gathers a parameter list of n bytes from Data-Out; ok is false, and the
// task has ended, when less came.
func Of(t *server.Task, n int) (b []byte, ok bool) {
	t.OutTotal = n
	if n > 0 && block.VecLen(t.DataOut) < n {
		t.Check(sense.ParameterListLength)
		return nil, false
	}
	if len(t.DataOut) > 0 && len(t.DataOut[0]) >= n {
		return t.DataOut[0][:n], true
	}
	b = make([]byte, 0, n)
	for _, v := range t.DataOut {
		b = append(b, v[:min(len(v), n-len(b))]...)
	}
	return b, true
}

// Begin begins a command whose parameter list has n bytes: it gathers the list, at most
// longest bytes of it, of which the first head must have come. ok is false when the task has
// ended: well when there is no list, else with PARAMETER LIST LENGTH ERROR.
func Begin(t *server.Task, n, longest, head int) (b []byte, ok bool) {
	if n == 0 {
		t.Good()
		return nil, false
	}
	if b, ok = Of(t, min(n, longest)); !ok {
		return nil, false
	}
	t.OutTotal = n
	if len(b) < head {
		t.Check(sense.ParameterListLength)
		return nil, false
	}
	return b, true
}
