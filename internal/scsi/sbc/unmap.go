// Handlers of UNMAP and GET LBA STATUS. The device works in sectors; what a host sees are logical
// blocks, and one whose sectors differ counts as mapped.

package sbc

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/paramlist"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Parameter list of UNMAP (SBC-4 5.35).
const (
	unmapHeader = 8
	unmapDesc   = 16
)

// Unmap serves UNMAP.
func Unmap(t *server.Task) {
	u := t.Unit()
	be := binary.BigEndian
	anchor := t.CDB[1]&1 != 0
	n := int(be.Uint16(t.CDB[7:]))
	b, ok := paramlist.Begin(t, n, n, unmapHeader)
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
		t.Fault(sense.InList(sense.InvalidFieldInList, 2))
		return
	}
	ranges := make([]block.Range, 0, count)
	var total uint64
	for i := range count {
		d := descs[i*unmapDesc:]
		lba, blocks := be.Uint64(d), uint64(be.Uint32(d[8:]))
		if lba > u.Blocks() || blocks > u.Blocks()-lba {
			t.Fault(sense.LBAOutOfRange.WithInfo(max(lba, u.Blocks())))
			return
		}
		if total += blocks; blocks > 0 {
			ranges = append(ranges, block.Range{Start: lba << u.Shift(), Count: blocks << u.Shift()})
		}
	}
	if total > u.Blocks() { // they overlap: what an UNMAP costs is bounded by the unit
		ranges, total = block.Union(ranges), 0
		for _, x := range ranges {
			total += x.Count >> u.Shift()
		}
	}
	if len(ranges) == 0 {
		t.Good()
		return
	}
	t.Unit().Describe(counters.Unmap, total*u.BlockSize())
	r := t.Request()
	r.Op, r.Origin, r.Flags, r.Data = block.OpUnmap, block.OriginUnmap, 0, nil
	if anchor {
		r.Flags = block.Anchor
	}
	r.Ranges = ranges
	t.Submit((*server.Task).Good)
}

// Parameter data of GET LBA STATUS (SBC-4 5.6).
const (
	statusHeader     = 8
	statusDesc       = 16
	maxStatusExtents = 256
)

// LBAStatus serves GET LBA STATUS(16).
func LBAStatus(t *server.Task) {
	u := t.Unit()
	be := binary.BigEndian
	lba, allocation := be.Uint64(t.CDB[2:]), be.Uint32(t.CDB[10:])
	if lba >= u.Blocks() {
		t.Fault(sense.LBAOutOfRange.WithInfo(max(lba, u.Blocks())))
		return
	}
	if allocation < statusHeader+statusDesc {
		t.Fault(sense.InCDB(10, 7))
		return
	}
	slots := min((allocation-statusHeader)/statusDesc, maxStatusExtents)
	r := t.Request()
	r.Op, r.Origin, r.Flags, r.Data = block.OpStatus, block.OriginHost, 0, nil
	r.Range = block.Range{Start: lba << u.Shift(), Count: (u.Blocks() - lba) << u.Shift()}
	r.Extents = make([]block.Extent, 0, slots)
	t.Submit(lbaStatusDone)
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
func lbaStatusDone(t *server.Task) {
	u := t.Unit()
	be := binary.BigEndian
	b := make([]byte, statusHeader, statusHeader+statusDesc*len(t.Request().Extents))
	end := u.Blocks() << u.Shift()
	at := t.Request().Range.Start
	thin := u.Info().Thin
	emit := func(sectors uint64, status byte) {
		for sectors > 0 && at < end {
			n := min(sectors>>u.Shift(), 1<<32-1)
			last := len(b) - statusDesc
			if last >= statusHeader && b[last+12] == status && uint64(be.Uint32(b[last+8:]))+n < 1<<32 {
				be.PutUint32(b[last+8:], be.Uint32(b[last+8:])+uint32(n))
			} else if (len(b)-statusHeader)/statusDesc < cap(t.Request().Extents) {
				b = be.AppendUint64(b, at>>u.Shift())
				b = be.AppendUint32(b, uint32(n))
				b = append(b, status, 0, 0, 0)
			} else {
				at = end
				return
			}
			at += n << u.Shift()
			sectors -= n << u.Shift()
		}
	}
	mask := uint64(1)<<u.Shift() - 1
	for _, e := range t.Request().Extents {
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
	t.Request().Extents = nil
	t.Reply(b, int(min(be.Uint32(t.CDB[10:]), 1<<30)))
}
