package sim

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// fence keeps both hosts' commands from a LUN, by a reset or by PREEMPT AND ABORT of the key that both have: nothing
// that was under way lands there after the answer, on slow and absent disks and in full caches as well.
func (m *torture) fence() {
	lun := int(m.rng.N(uint64(len(m.vols))))
	if m.vols[lun].unit == nil {
		return
	}
	if m.copies > 0 {
		m.saw(fencedCopies)
	}
	kind := m.rng.N(3)
	if kind == 2 && !m.registerBoth(lun) {
		kind = 0
	}
	answered := false
	answer := func(scsi.TMFResponse) { answered = true }
	switch kind {
	case 0:
		m.note("fence LUN %d by a reset", lun)
		m.nexus[1].Manage(scsi.LogicalUnitReset, uint64(lun)<<48, 0, answer)
	case 1:
		m.note("fence all LUNs by a target reset")
		m.nexus[1].Manage(scsi.TargetWarmReset, 0, 0, answer)
	case 2:
		m.note("fence LUN %d by PREEMPT AND ABORT", lun)
		m.saw(reservations)
		m.reserveOut(1, lun, 5, fenceKey, fenceKey, func(t *scsi.Task) {
			if answered = true; t.Status != scsi.StatusGood {
				m.fail("PREEMPT AND ABORT of LUN %d: status %02x sense %06x", lun, t.Status, senseOf(t.Sense))
			}
		})
	}
	m.until(func() bool { return answered }, "a fence to answer")
	before, known := m.checksum(lun)
	m.exec.RunUntil(m.exec.Now() + 3e9) // not until all tasks have ended: those of other LUNs may wait for a repair
	if after, still := m.checksum(lun); known && still && before != after {
		m.fail("LUN %d has checksum %08x when its fence answers, and %08x later", lun, before, after)
	}
}

const fenceKey = 0xFE9CE

// reserveOut sends PERSISTENT RESERVE OUT of a service action that needs no scope and type here.
func (m *torture) reserveOut(nexus, lun int, action byte, key, other uint64, done func(*scsi.Task)) {
	list := make([]byte, 24)
	binary.BigEndian.PutUint64(list, key)
	binary.BigEndian.PutUint64(list[8:], other)
	t := &scsi.Task{LUN: uint64(lun) << 48, Attr: scsi.AttrSimple, CDB: []byte{0x5F, action, 0, 0, 0, 0, 0, 0, 24, 0}, DataOut: [][]byte{list}, Bufs: heapBuffers{}, Done: done}
	m.nexus[nexus].Submit([]*scsi.Task{t})
}

// registerBoth registers both hosts with one key. It fails where an ORDERED command lies before it, for which it does
// not wait.
func (m *torture) registerBoth(lun int) bool {
	good := 0
	for i := range m.nexus {
		for range 4 { // unit attention conditions come first
			m.reserveOut(i, lun, 6, 0, fenceKey, func(t *scsi.Task) {
				if t.Status == scsi.StatusGood {
					good |= 1 << i
				}
			})
			m.exec.RunUntil(m.exec.Now())
		}
	}
	return good == 3
}

// checksum returns that of a LUN, read behind the SCSI layer; false if it cannot be read now.
func (m *torture) checksum(lun int) (sum uint32, known bool) {
	v := m.vols[lun]
	known = true
	for first := uint64(0); known && m.bad == "" && first < uint64(len(v.units)); {
		n := v.together(first, 1<<20)
		b := m.memory.get(int(n * unitBytes))
		over := false
		q := &block.Request{Op: block.OpRead, Range: block.Range{Start: v.lba(first), Count: n * unitSecs}, Data: [][]byte{b}, Done: func(*block.Request) { over = true }}
		m.arr.Volume(v.name).Submit([]*block.Request{q})
		m.until(func() bool { return over }, "a fenced LUN to be read")
		sum = crc32.Update(sum, crc32.IEEETable, b)
		if over {
			m.memory.put(b)
		}
		known = q.Status == block.OK
		first += n
	}
	return sum, known
}
