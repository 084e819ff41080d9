package profile

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// Engine is a front end at work: it tells a [scsi.Target] how long each command takes
// before the medium sees it. It belongs to the target's executor.
type Engine struct {
	clock                      block.Clock
	command, read, write       int64
	same, copying, deallocated lanes
}

// NewEngine returns the profile's front end, nil if it takes no time at all. Its Delay
// is for scsi.Options.
func (p *Profile) NewEngine(clock block.Clock) *Engine {
	f := &p.Front
	if f.Command == 0 && p.Cache.Read == 0 && p.Cache.Write == 0 && f.WriteSame.free() && f.Copy.free() && f.Unmap.free() {
		return nil
	}
	c := int64(f.Command)
	return &Engine{clock: clock, command: c, read: c + int64(p.Cache.Read), write: c + int64(p.Cache.Write),
		same: newLanes(f.WriteSame), copying: newLanes(f.Copy), deallocated: newLanes(f.Unmap)}
}

func (l Lanes) free() bool { return l.Command == 0 && l.Time == 0 }

// lanes are the servers of one kind of offload, a FIFO before all of them.
type lanes struct {
	Lanes
	busy []int64
}

func newLanes(l Lanes) lanes { return lanes{l, make([]int64, l.Lanes)} }

// take returns when a command that describes so much will be through.
func (l *lanes) take(now int64, bytes uint64, ranges int) int64 {
	units := int64(ranges)
	if l.Unit != 0 {
		units = int64((bytes + uint64(l.Unit) - 1) / uint64(l.Unit))
	}
	cost := int64(l.Command) + units*int64(l.Time)
	if len(l.busy) == 0 {
		return now + cost
	}
	first := 0
	for i, at := range l.busy {
		if at < l.busy[first] {
			first = i
		}
	}
	l.busy[first] = max(l.busy[first], now) + cost
	return l.busy[first]
}

// Delay returns the nanoseconds of front-end work for a task.
func (e *Engine) Delay(t *scsi.Task) int64 {
	be := binary.BigEndian
	if len(t.CDB) < 6 {
		return e.command
	}
	now := e.clock.Now()
	switch t.CDB[0] {
	case 0x08, 0x28, 0xA8, 0x88: // READ(6), (10), (12), (16)
		return e.read
	case 0x0A, 0x2A, 0xAA, 0x8A, 0x89, 0x8B, 0x2E, 0xAE, 0x8E: // WRITE, COMPARE AND WRITE, ORWRITE, WRITE AND VERIFY
		return e.write
	case 0x41: // WRITE SAME(10)
		if len(t.CDB) >= 10 {
			return e.same.take(now, uint64(be.Uint16(t.CDB[7:]))*t.BlockSize(), 1) - now + e.command
		}
	case 0x93: // WRITE SAME(16)
		if len(t.CDB) >= 16 {
			return e.same.take(now, uint64(be.Uint32(t.CDB[10:]))*t.BlockSize(), 1) - now + e.command
		}
	case 0x42: // UNMAP
		bytes, ranges := unmapped(t)
		return e.deallocated.take(now, bytes, ranges) - now + e.command
	case 0x83: // EXTENDED COPY(LID1), and POPULATE TOKEN, WRITE USING TOKEN
		bytes, segments := copied(t)
		return e.copying.take(now, bytes, segments) - now + e.command
	}
	return e.command
}

// list returns the first bytes of a parameter list; it is not checked yet.
func list(t *scsi.Task) []byte {
	if len(t.DataOut) == 0 {
		return nil
	}
	if len(t.DataOut) == 1 {
		return t.DataOut[0]
	}
	var b []byte
	for _, v := range t.DataOut {
		b = append(b, v...)
	}
	return b
}

// unmapped adds up the descriptors of an UNMAP (SBC-4 5.35).
func unmapped(t *scsi.Task) (bytes uint64, ranges int) {
	b := list(t)
	for at := 8; at+16 <= len(b); at += 16 {
		bytes += uint64(binary.BigEndian.Uint32(b[at+8:])) * t.BlockSize()
		ranges++
	}
	return bytes, ranges
}

// copied adds up the segments of an EXTENDED COPY (SPC-4 6.4.5).
func copied(t *scsi.Task) (bytes uint64, segments int) {
	const header = 16
	b := list(t)
	if len(b) < header || t.CDB[1]&0x1F != 0 {
		return 0, 0
	}
	be := binary.BigEndian
	for at := header + int(be.Uint16(b[2:])); at+28 <= len(b); segments++ {
		s := b[at:]
		switch s[0] {
		case 0x02:
			bytes += uint64(be.Uint16(s[10:])) * t.BlockSize()
		case 0x0A:
			bytes += uint64(be.Uint32(s[8:]))
		}
		at += 4 + int(be.Uint16(s[2:]))
	}
	return bytes, segments
}
