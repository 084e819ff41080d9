// Log pages (SPC-5 7.3), with the vendor specific page by which the caches of hosts learn what other
// hosts have changed.

package pages

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Log pages (SPC-5 7.3, SBC-4 6.4).
const (
	logSupported    = 0x00
	logProvisioning = 0x0C
	logTemperature  = 0x0D
	logStartStop    = 0x0E
	logExceptions   = 0x2F
	logChanges      = 0x30 // vendor specific: see Changes
	logSPF          = 0x40 // the page has a subpage code
)

// Fields of log pages and parameters.
const (
	logHead       = 4
	parameterHead = 4
	logBinaryList = 0x03 // FORMAT AND LINKING: a list in binary format
	logASCIIList  = 0x01
	notAvailable  = 0xFF
	allSubpages   = 0xFF
)

// Logs describes what the log pages of a unit say.
type Logs struct {
	Used, Available uint32 // threshold sets of the pool
	Provisioned     bool   // they are known
	Cycles          uint32 // of stopping and starting
	// Changes returns the changed extents; nil for a device that does not keep them.
	Changes func() Changes
}

// Changes are the extents that other hosts have changed, by which a host's cache forgets these and
// nothing else. Parameter 0 of their page has the present GENERATION (8 bytes) and the generation
// that the list goes back to (8): who knows one outside of these two has to take everything for
// changed. Parameters 1 to 1024 are extents, in the order of time: the generation of the last
// change (8), the first LBA (8), the number of blocks (8), the array's number of the initiator that
// changed it (4; 0: several), reserved (4). What the asking initiator port has changed itself is left
// out: two caches of one initiator hear of each other. Generations of an array that was started again
// are far from those before.
type Changes struct {
	Generation, Since uint64
	List              []block.Change // with generations from Base on
	Base              uint64
	Shift             uint8 // log2 of sectors per logical block
}

func (c *Changes) appendTo(b []byte) []byte {
	be := binary.BigEndian
	b = parameter(b, 0, logBinaryList, be.AppendUint64(be.AppendUint64(nil, c.Base+c.Generation), c.Base+c.Since)...)
	v := make([]byte, 0, 32)
	for i, x := range c.List {
		first := x.Start >> c.Shift
		count := (x.End()+1<<c.Shift-1)>>c.Shift - first
		v = be.AppendUint64(v[:0], c.Base+x.Generation)
		v = be.AppendUint64(be.AppendUint64(v, first), count)
		v = append(be.AppendUint32(v, x.Host), 0, 0, 0, 0)
		b = parameter(b, uint16(1+i), logBinaryList, v...)
	}
	return b
}

// codes are the codes of the pages, ascending.
func (l *Logs) codes() []byte {
	codes := make([]byte, 0, 8)
	codes = append(codes, logSupported)
	if l.Provisioned {
		codes = append(codes, logProvisioning)
	}
	codes = append(codes, logTemperature, logStartStop, logExceptions)
	if l.Changes != nil {
		codes = append(codes, logChanges)
	}
	return codes
}

// parameter appends a log parameter.
func parameter(b []byte, code uint16, control byte, value ...byte) []byte {
	b = binary.BigEndian.AppendUint16(b, code)
	return append(append(b, control, byte(len(value))), value...)
}

// Page returns the log page that a LOG SENSE asks for by page and subpage code, with the parameters
// from first on (PARAMETER POINTER), or the fault of its CDB.
func (l *Logs) Page(code, subpage byte, first uint16) (b []byte, fault sense.Data) {
	be := binary.BigEndian
	b, ok := l.parameters(append(make([]byte, 0, 128), code, subpage, 0, 0), code, subpage)
	switch {
	case !ok && subpage != 0:
		return nil, sense.InCDB(3, 7)
	case !ok:
		return nil, sense.InCDB(2, 7)
	case subpage != 0:
		b[0] |= logSPF
	}
	if first != 0 {
		rest := b[logHead:]
		if code == logSupported {
			rest = nil
		}
		for len(rest) >= parameterHead && be.Uint16(rest) < first {
			rest = rest[parameterHead+int(rest[3]):]
		}
		if len(rest) == 0 {
			return nil, sense.InCDB(5, 7)
		}
		b = append(b[:logHead], rest...)
	}
	be.PutUint16(b[2:], uint16(len(b)-logHead))
	return b, sense.Data{}
}

// parameters appends what stands behind the header of a page; ok is false when there is no such
// page.
func (l *Logs) parameters(b []byte, code, subpage byte) (_ []byte, ok bool) {
	be := binary.BigEndian
	switch {
	case code == logSupported && subpage == 0:
		return append(b, l.codes()...), true
	case code == logSupported && subpage == allSubpages:
		for _, p := range l.codes() {
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
		if !l.Provisioned {
			return b, false
		}
		for i, n := range []uint32{l.Available, l.Used} {
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
		b = parameter(b, 4, logBinaryList, be.AppendUint32(nil, l.Cycles)...)
	case logExceptions: // none, and no temperature
		b = parameter(b, 0, logBinaryList, 0, 0, notAvailable, notAvailable)
	case logChanges:
		if l.Changes == nil {
			return b, false
		}
		c := l.Changes()
		return c.appendTo(b), true
	default:
		return b, false
	}
	return b, true
}
