// Handlers of LOG SENSE and LOG SELECT, and the log pages (SPC-5 7.3), with the vendor specific
// page by which the caches of hosts learn what other hosts have changed.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
)

// Log pages (SPC-5 7.3, SBC-4 6.4).
const (
	logSupported    = 0x00
	logProvisioning = 0x0C
	logTemperature  = 0x0D
	logStartStop    = 0x0E
	logExceptions   = 0x2F
	logChanges      = 0x30 // vendor specific: see changesPage
	logSPF          = 0x40 // the page has a subpage code
)

// Fields of LOG SENSE and of log parameters.
const (
	logSP         = 0x01
	logPC         = 0xC0
	logCumulative = 0x40 // PC: current cumulative values
	logBinaryList = 0x03 // FORMAT AND LINKING: a list in binary format
	logASCIIList  = 0x01
	notAvailable  = 0xFF
	allSubpages   = 0xFF
)

// logPages are the codes of the pages, ascending.
func (u *Unit) logPages() []byte {
	pages := make([]byte, 0, 8)
	pages = append(pages, logSupported)
	if _, _, ok := u.provisioned(); ok {
		pages = append(pages, logProvisioning)
	}
	pages = append(pages, logTemperature, logStartStop, logExceptions)
	if _, ok := u.dev.(changeKeeper); ok && u.t.opt.Random != nil {
		pages = append(pages, logChanges)
	}
	return pages
}

// changeKeeper is a device that tells an initiator port what others have changed.
type changeKeeper interface {
	ChangesFor(port uint32) (generation, since uint64, list []block.Change)
}

// changesPage appends the page of changed extents, by which a host's cache forgets what other
// hosts have changed and nothing else. Parameter 0 has the present GENERATION (8 bytes) and the
// generation that the list goes back to (8): who knows one outside of these two has to take
// everything for changed. Parameters 1 to 1024 are extents, in the order of time: the generation
// of the last change (8), the first LBA (8), the number of blocks (8), the array's number of the
// initiator that changed it (4; 0: several), reserved (4). What the asking initiator port has changed
// itself is left out: two caches of one initiator, by whatever name, hear of each other. Generations of
// an array that was started again are far from those before.
func (u *Unit) changesPage(b []byte, n *Nexus) ([]byte, bool) {
	k, ok := u.dev.(changeKeeper)
	if !ok || n.t.opt.Random == nil {
		return b, false
	}
	be := binary.BigEndian
	base := n.t.generationBase()
	generation, since, list := k.ChangesFor(n.portNumber)
	b = parameter(b, 0, logBinaryList, be.AppendUint64(be.AppendUint64(nil, base+generation), base+since)...)
	v := make([]byte, 0, 32)
	for i, c := range list {
		first := c.Start >> u.shift
		count := (c.End()+1<<u.shift-1)>>u.shift - first
		v = be.AppendUint64(v[:0], base+c.Generation)
		v = be.AppendUint64(be.AppendUint64(v, first), count)
		v = append(be.AppendUint32(v, c.Host), 0, 0, 0, 0)
		b = parameter(b, uint16(1+i), logBinaryList, v...)
	}
	return b, true
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

// parameter appends a log parameter.
func parameter(b []byte, code uint16, control byte, value ...byte) []byte {
	b = binary.BigEndian.AppendUint16(b, code)
	return append(append(b, control, byte(len(value))), value...)
}

// logPage appends the parameters of a page; ok is false when there is no such page.
func (u *Unit) logPage(b []byte, n *Nexus, code, subpage byte) (_ []byte, ok bool) {
	be := binary.BigEndian
	switch {
	case code == logSupported && subpage == 0:
		return append(b, u.logPages()...), true
	case code == logSupported && subpage == allSubpages:
		for _, p := range u.logPages() {
			b = append(b, p, 0)
			if p == logSupported {
				b = append(b, p, allSubpages)
			}
		}
		return b, true
	case subpage != 0:
		return b, false
	}
	switch code {
	case logProvisioning:
		const ofPool = 2 // SCOPE: not dedicated to the unit
		used, available, ok := u.provisioned()
		if !ok {
			return b, false
		}
		for i, n := range []uint32{available, used} {
			b = parameter(b, uint16(1+i), logBinaryList, append(be.AppendUint32(nil, n), ofPool, 0, 0, 0)...)
		}
	case logTemperature: // an array of software has no thermometer
		b = parameter(b, 0, logBinaryList, 0, notAvailable)
		b = parameter(b, 1, logBinaryList, 0, notAvailable)
	case logStartStop:
		never := []byte("      ") // year and week
		b = parameter(b, 1, logASCIIList, never...)
		b = parameter(b, 2, logASCIIList, never...)
		b = parameter(b, 3, logBinaryList, be.AppendUint32(nil, 1<<32-1)...)
		b = parameter(b, 4, logBinaryList, be.AppendUint32(nil, u.medium.cycles)...)
	case logExceptions: // none, and no temperature
		b = parameter(b, 0, logBinaryList, 0, 0, notAvailable, notAvailable)
	case logChanges:
		return u.changesPage(b, n)
	default:
		return b, false
	}
	return b, true
}

// doLogSense serves LOG SENSE: current cumulative values.
func doLogSense(t *Task) {
	u := t.state.u
	be := binary.BigEndian
	code, subpage, first := t.CDB[2]&0x3F, t.CDB[3], be.Uint16(t.CDB[5:])
	switch {
	case t.CDB[1]&logSP != 0:
		t.fault(inCDB(1, 0))
		return
	case t.CDB[2]&logPC != logCumulative && t.CDB[2]&logPC != 0:
		t.fault(inCDB(2, 7))
		return
	}
	const head = 4
	b, ok := u.logPage(append(make([]byte, 0, 128), code, subpage, 0, 0), t.state.n, code, subpage)
	if !ok {
		at := 2
		if subpage != 0 {
			at = 3
		}
		t.fault(inCDB(at, 7))
		return
	}
	if subpage != 0 {
		b[0] |= logSPF
	}
	if first != 0 { // PARAMETER POINTER: what is before it is left out
		rest := b[head:]
		if code == logSupported {
			rest = nil
		}
		for len(rest) >= 4 && be.Uint16(rest) < first {
			rest = rest[4+int(rest[3]):]
		}
		if len(rest) == 0 {
			t.fault(inCDB(5, 7))
			return
		}
		b = append(b[:head], rest...)
	}
	be.PutUint16(b[2:], uint16(len(b)-head))
	t.reply(b, int(be.Uint16(t.CDB[7:])))
}

// doLogSelect serves LOG SELECT: there is nothing to reset but the start-stop
// counter, and no parameter can be set.
func doLogSelect(t *Task) {
	const pcr = 0x02
	switch {
	case t.CDB[1]&logSP != 0:
		t.fault(inCDB(1, 0))
	case t.CDB[7]|t.CDB[8] != 0:
		t.fault(inCDB(7, 7))
	default:
		if t.CDB[1]&pcr != 0 {
			t.state.u.medium.cycles = 0
		}
		t.good()
	}
}
