// Handlers of LOG SENSE and LOG SELECT. Package pages has the log pages; here is what they describe.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Fields of LOG SENSE and LOG SELECT.
const (
	logSP         = 0x01
	logPC         = 0xC0
	logCumulative = 0x40 // PC: current cumulative values
)

// changeKeeper is a device that tells a host what others have changed.
type changeKeeper interface {
	ChangesFor(host uint32) (generation, since uint64, list []block.Change)
}

// logs describes what the log pages say to an I_T nexus.
func (u *Unit) logs(n *Nexus) pages.Logs {
	d := pages.Logs{Cycles: u.medium.cycles}
	d.Used, d.Available, d.Provisioned = u.provisioned()
	if k, ok := u.dev.(changeKeeper); ok && u.t.opt.Random != nil {
		d.Changes = func() pages.Changes {
			c := pages.Changes{Base: u.t.generationBase(), Shift: u.shift}
			c.Generation, c.Since, c.List = k.ChangesFor(n.host.id)
			return c
		}
	}
	return d
}

// generationBase is what the target adds to generations, which begin anew in every process.
func (t *Target) generationBase() uint64 {
	if t.genBase == 0 {
		var b [4]byte
		t.opt.Random(b[:])
		t.genBase = uint64(binary.BigEndian.Uint32(b[:])|1) << 32
	}
	return t.genBase
}

// doLogSense serves LOG SENSE: current cumulative values.
func doLogSense(t *Task) {
	be := binary.BigEndian
	switch {
	case t.CDB[1]&logSP != 0:
		t.fault(sense.InCDB(1, 0))
		return
	case t.CDB[2]&logPC != logCumulative && t.CDB[2]&logPC != 0:
		t.fault(sense.InCDB(2, 7))
		return
	}
	d := t.state.u.logs(t.state.n)
	b, s := d.Page(t.CDB[2]&0x3F, t.CDB[3], be.Uint16(t.CDB[5:]))
	if s.Code != sense.NoSense {
		t.fault(s)
		return
	}
	t.reply(b, int(be.Uint16(t.CDB[7:])))
}

// doLogSelect serves LOG SELECT: there is nothing to reset but the start-stop
// counter, and no parameter can be set.
func doLogSelect(t *Task) {
	const pcr = 0x02
	switch {
	case t.CDB[1]&logSP != 0:
		t.fault(sense.InCDB(1, 0))
	case t.CDB[7]|t.CDB[8] != 0:
		t.fault(sense.InCDB(7, 7))
	default:
		if t.CDB[1]&pcr != 0 {
			t.state.u.medium.cycles = 0
		}
		t.good()
	}
}
