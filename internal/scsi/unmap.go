// Handlers of UNMAP and GET LBA STATUS. The device works in sectors; what a host sees are logical
// blocks, and one whose sectors differ counts as mapped.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Parameter list of UNMAP (SBC-4 5.35).
const (
	unmapHeader = 8
	unmapDesc   = 16
)

// doUnmap serves UNMAP.
func doUnmap(t *Task) {
	st := &t.state
	u := st.u
	be := binary.BigEndian
	anchor := t.CDB[1]&1 != 0
	n := int(be.Uint16(t.CDB[7:]))
	b, ok := t.parameters(n, n, unmapHeader)
	if !ok {
		return
	}
	descs := b[unmapHeader:]
	// A length that is no multiple of 16 leaves an incomplete descriptor out.
	if d := int(be.Uint16(b[2:])); d < len(descs) {
		descs = descs[:d]
	}
	count := len(descs) / unmapDesc
	if count > maxUnmapRanges {
		t.fault(sense.InList(sense.InvalidFieldInList, 2))
		return
	}
	ranges := make([]block.Range, 0, count)
	var total uint64
	for i := range count {
		d := descs[i*unmapDesc:]
		lba, blocks := be.Uint64(d), uint64(be.Uint32(d[8:]))
		if lba > u.blocks || blocks > u.blocks-lba {
			t.fault(sense.LBAOutOfRange.WithInfo(max(lba, u.blocks)))
			return
		}
		if total += blocks; total > maxUnmapBlocks {
			t.fault(sense.InList(sense.InvalidFieldInList, unmapHeader+i*unmapDesc+8))
			return
		}
		if blocks > 0 {
			ranges = append(ranges, block.Range{Start: lba << u.shift, Count: blocks << u.shift})
		}
	}
	if len(ranges) == 0 {
		t.good()
		return
	}
	t.unit().describe(counters.Unmap, total*u.blockSize())
	r := &st.req
	r.Op, r.Origin, r.Flags, r.Data = block.OpUnmap, block.OriginUnmap, 0, nil
	if anchor {
		r.Flags = block.Anchor
	}
	r.Ranges = ranges
	t.submit((*Task).good)
}

// Parameter data of GET LBA STATUS (SBC-4 5.6).
const (
	statusHeader     = 8
	statusDesc       = 16
	maxStatusExtents = 256
)

// doLBAStatus serves GET LBA STATUS(16).
func doLBAStatus(t *Task) {
	st := &t.state
	u := st.u
	be := binary.BigEndian
	lba, allocation := be.Uint64(t.CDB[2:]), be.Uint32(t.CDB[10:])
	if lba >= u.blocks {
		t.fault(sense.LBAOutOfRange.WithInfo(max(lba, u.blocks)))
		return
	}
	if allocation < statusHeader+statusDesc {
		t.fault(sense.InCDB(10, 7))
		return
	}
	slots := min((allocation-statusHeader)/statusDesc, maxStatusExtents)
	r := &st.req
	r.Op, r.Origin, r.Flags, r.Data = block.OpStatus, block.OriginHost, 0, nil
	r.Range = block.Range{Start: lba << u.shift, Count: (u.blocks - lba) << u.shift}
	r.Extents = make([]block.Extent, 0, slots)
	t.submit(lbaStatusDone)
}

// provisioning is the PROVISIONING STATUS of a state. Zeroed blocks are mapped.
func provisioning(s block.State) byte {
	switch s {
	case block.Unmapped:
		return 1
	case block.Anchored:
		return 2
	}
	return 0
}

// lbaStatusDone turns extents of sectors into descriptors of logical blocks. A
// block whose sectors differ counts as mapped.
func lbaStatusDone(t *Task) {
	st := &t.state
	u := st.u
	be := binary.BigEndian
	b := make([]byte, statusHeader, statusHeader+statusDesc*len(st.req.Extents))
	end := u.blocks << u.shift
	at := st.req.Range.Start
	thin := u.info.Thin
	emit := func(sectors uint64, status byte) {
		for sectors > 0 && at < end {
			n := min(sectors>>u.shift, 1<<32-1)
			last := len(b) - statusDesc
			if last >= statusHeader && b[last+12] == status && uint64(be.Uint32(b[last+8:]))+n < 1<<32 {
				be.PutUint32(b[last+8:], be.Uint32(b[last+8:])+uint32(n))
			} else if (len(b)-statusHeader)/statusDesc < cap(st.req.Extents) {
				b = be.AppendUint64(b, at>>u.shift)
				b = be.AppendUint32(b, uint32(n))
				b = append(b, status, 0, 0, 0)
			} else {
				at = end
				return
			}
			at += n << u.shift
			sectors -= n << u.shift
		}
	}
	mask := uint64(1)<<u.shift - 1
	for _, e := range st.req.Extents {
		stop := min(e.End(), end)
		status := provisioning(e.State)
		if !thin {
			status = 0
		}
		if stop <= at {
			continue
		}
		if whole := (stop - at) &^ mask; whole > 0 {
			emit(whole, status)
		}
		if stop > at { // the extent ends inside a block
			emit(mask+1, 0)
		}
	}
	be.PutUint32(b, uint32(len(b)-4))
	st.req.Extents = nil
	t.reply(b, int(min(be.Uint32(t.CDB[10:]), 1<<30)))
}
