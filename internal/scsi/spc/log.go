// Handlers of LOG SENSE and LOG SELECT. Package pages has the log pages; here is what they
// describe.

package spc

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Fields of LOG SENSE and LOG SELECT.
const (
	logSP         = 0x01
	logPC         = 0xC0
	logCumulative = 0x40 // PC: current cumulative values
)

// changeKeeper is a device that tells a host what others have changed.
type changeKeeper interface {
	ChangesFor(port uint32) (generation, since uint64, list []block.Change)
}

// logs describes what the log pages say to an I_T nexus.
func logs(u *server.Unit, n *server.Nexus) pages.Logs {
	d := pages.Logs{Cycles: u.Medium().Cycles}
	if u.Info().Thin {
		d.Used, d.Available, d.Provisioned = u.Pool().Sets()
	}
	if k, ok := u.Device().(changeKeeper); ok && u.Target().Options().Random != nil {
		d.Changes = func() pages.Changes {
			c := pages.Changes{Base: u.Target().GenerationBase(), Shift: u.Shift()}
			c.Generation, c.Since, c.List = k.ChangesFor(n.PortNumber())
			return c
		}
	}
	return d
}

// LogSense serves LOG SENSE: current cumulative values.
func LogSense(t *server.Task) {
	be := binary.BigEndian
	switch {
	case t.CDB[1]&logSP != 0:
		t.Fault(sense.InCDB(1, 0))
		return
	case t.CDB[2]&logPC != logCumulative && t.CDB[2]&logPC != 0:
		t.Fault(sense.InCDB(2, 7))
		return
	}
	d := logs(t.Unit(), t.Nexus())
	b, s := d.Page(t.CDB[2]&0x3F, t.CDB[3], be.Uint16(t.CDB[5:]))
	if s.Code != sense.NoSense {
		t.Fault(s)
		return
	}
	t.Reply(b, int(be.Uint16(t.CDB[7:])))
}

// LogSelect serves LOG SELECT: there is nothing to reset but the start-stop
// counter, and no parameter can be set.
func LogSelect(t *server.Task) {
	const pcr = 0x02
	switch {
	case t.CDB[1]&logSP != 0:
		t.Fault(sense.InCDB(1, 0))
	case t.CDB[7]|t.CDB[8] != 0:
		t.Fault(sense.InCDB(7, 7))
	default:
		if t.CDB[1]&pcr != 0 {
			t.Unit().Medium().Cycles = 0
		}
		t.Good()
	}
}
