// Handlers of REPORT TARGET PORT GROUPS and SET TARGET PORT GROUPS. Package alua has the groups.

package spc

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/paramlist"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// ReportGroups serves REPORT TARGET PORT GROUPS.
func ReportGroups(t *server.Task) {
	b, ok := t.Target().ALUA().Report(t.CDB[1] >> 5)
	if !ok {
		t.Fault(sense.InCDB(1, 7))
		return
	}
	t.Reply(b, int(min(binary.BigEndian.Uint32(t.CDB[6:]), 1<<30)))
}

// SetGroups serves SET TARGET PORT GROUPS (SPC-5 6.46). Nothing is changed
// unless the whole list is right.
func SetGroups(t *server.Task) {
	n := binary.BigEndian.Uint32(t.CDB[6:])
	switch {
	case n == 0:
		t.Good()
		return
	case !alua.ListFits(n):
		t.Check(sense.ParameterListLength)
		return
	}
	b, ok := paramlist.Of(t, int(n))
	if !ok {
		return
	}
	tg := t.Target()
	wishes, s := tg.ALUA().Parse(b)
	if s.Code != sense.NoSense {
		t.Fault(s)
		return
	}
	for _, w := range wishes {
		tg.ChangeAccess(w.Group, w.State, alua.ByCommand, t.Nexus())
	}
	t.Good()
}
