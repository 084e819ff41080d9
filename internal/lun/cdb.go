package lun

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Operation codes (SPC-5, SBC-4).
const (
	opRead16         = 0x88
	opWrite16        = 0x8a
	opOrWrite16      = 0x8b
	opCompareWrite   = 0x89
	opSyncCache16    = 0x91
	opWriteSame16    = 0x93
	opUnmap          = 0x42
	opServiceIn16    = 0x9e
	serviceLBAStatus = 0x12
	opExtendedCopy   = 0x83

	flagFUA       = 0x08
	flagUnmapBit  = 0x08
	flagAnchorBit = 0x10
)

// encode makes the CDB of a request.
func (d *Device) encode(c *Command, r *block.Request) block.Status {
	clear(c.cdb[:])
	c.CDB, c.Once, c.Sync = c.cdb[:], false, r.Op == block.OpFlush
	c.unsynced, c.syncing = false, false
	c.Timed = r.Op == block.OpRead || r.Op == block.OpWrite || r.Op == block.OpCompareWrite || r.Op == block.OpOrWrite || r.Op == block.OpStatus
	g := r.Range
	if (g.Start|g.Count)&(1<<d.shift-1) != 0 {
		return block.Unsupported
	}
	lba, n := g.Start>>d.shift, g.Count>>d.shift
	if n>>32 != 0 && r.Op != block.OpStatus {
		return block.Unsupported
	}
	be.PutUint64(c.cdb[2:], lba)
	be.PutUint32(c.cdb[10:], uint32(n))
	if r.Flags&block.FUA != 0 {
		d.force(c, r)
	}
	switch r.Op {
	case block.OpRead:
		c.cdb[0] = opRead16
		c.In = r.Data
	case block.OpWrite:
		c.cdb[0] = opWrite16
		c.Out = r.Data
	case block.OpOrWrite:
		c.cdb[0], c.Once = opOrWrite16, true
		c.Out = r.Data
	case block.OpCompareWrite:
		c.cdb[0], c.Once = opCompareWrite, true
		if n > 255 {
			return block.Unsupported
		}
		be.PutUint32(c.cdb[10:], 0)
		c.cdb[13] = byte(n)
		c.Out = append(append([][]byte(nil), r.Compare...), r.Data...)
	case block.OpFlush:
		c.cdb[0] = opSyncCache16
	case block.OpWriteSame:
		c.cdb[0], c.cdb[1] = opWriteSame16, 0
		if r.Flags&block.Deallocate != 0 {
			c.cdb[1] |= flagUnmapBit
		}
		if r.Flags&block.Anchor != 0 {
			c.cdb[1] |= flagAnchorBit
		}
		if c.Out = r.Data; len(r.Data) == 0 {
			c.Out = [][]byte{d.zero}
		}
	case block.OpUnmap:
		return d.unmap(c, r)
	case block.OpStatus:
		clear(c.cdb[:])
		c.cdb[0], c.cdb[1] = opServiceIn16, serviceLBAStatus
		be.PutUint64(c.cdb[2:], lba)
		size := 8 + 16*max(cap(r.Extents), 1)
		be.PutUint32(c.cdb[10:], uint32(size))
		c.In = [][]byte{make([]byte, size)}
	case block.OpPlace:
		return d.place(c, r)
	default:
		return block.Unsupported
	}
	return block.OK
}

func (d *Device) unmap(c *Command, r *block.Request) block.Status {
	list := append(c.list[:0], 0, 0, 0, 0, 0, 0, 0, 0)
	for _, g := range r.Ranges {
		for lba, n := g.Start>>d.shift, g.Count>>d.shift; n > 0; {
			k := min(n, 1<<32-1)
			list = be.AppendUint64(list, lba)
			list = be.AppendUint32(list, uint32(k))
			list = append(list, 0, 0, 0, 0)
			lba, n = lba+k, n-k
		}
	}
	if len(list) > 0xffff {
		return block.Resources
	}
	be.PutUint16(list, uint16(len(list)-2))
	be.PutUint16(list[2:], uint16(len(list)-8))
	clear(c.cdb[:])
	c.cdb[0] = opUnmap
	if r.Flags&block.Anchor != 0 {
		c.cdb[1] = 1
	}
	be.PutUint16(c.cdb[7:], uint16(len(list)))
	c.CDB, c.list, c.Out = c.cdb[:10], list, [][]byte{list}
	return block.OK
}

// extents reads the answer of GET LBA STATUS.
func (d *Device) extents(c *Command, r *block.Request) {
	r.Extents = r.Extents[:0]
	b := c.In[0][:c.InLen]
	for b = b[min(8, len(b)):]; len(b) >= 16 && len(r.Extents) < cap(r.Extents); b = b[16:] {
		e := block.Extent{Range: block.Range{Start: be.Uint64(b) << d.shift, Count: uint64(be.Uint32(b[8:])) << d.shift}}
		switch b[12] & 0x0f { // PROVISIONING STATUS (SBC-4 5.6)
		case 1:
			e.State = block.Unmapped
		case 2:
			e.State = block.Anchored
		default: // mapped, or the unit does not say
			e.State = block.Data
		}
		r.Extents = append(r.Extents, e)
	}
}

// Lengths of an EXTENDED COPY(LID1) parameter list (SPC-4 6.4).
const (
	copyHead        = 16
	copyTarget      = 32
	copySegment     = 28
	maxSegmentCount = 255
	maxSegmentLen   = 0xffff // blocks
)

// place makes an EXTENDED COPY of a reference.
func (d *Device) place(c *Command, r *block.Request) block.Status {
	h, ok := r.Ref.(*ref)
	if !ok || h.dev.info.BlockSize != d.info.BlockSize || !h.dev.name.copies() || !d.name.copies() {
		return block.Unsupported
	}
	list := append(c.list[:0], make([]byte, copyHead)...)
	list[1] = 0x18 // no list identifier: nobody asks for the result
	be.PutUint16(list[2:], 2*copyTarget)
	for _, u := range []*Device{h.dev, d} {
		t := len(list)
		list = append(list, make([]byte, copyTarget)...)
		list[t] = 0xe4 // identification descriptor
		list[t+4], list[t+5], list[t+7] = u.name.codeSet, u.name.kind, byte(len(u.name.id))
		copy(list[t+8:], u.name.id)
		list[t+29] = byte(u.info.BlockSize >> 16)
		be.PutUint16(list[t+30:], uint16(u.info.BlockSize))
	}
	for _, g := range h.ranges {
		if (g.Start|g.Count|r.RefOffset)&(1<<d.shift-1) != 0 { // the segments below are of whole blocks
			return block.Unsupported
		}
	}
	var room [4]move
	parts, ok := moves(room[:0], h.ranges, r.RefOffset, r.Range)
	if !ok {
		return block.Unsupported
	}
	if h.dev == d || h.dev.info.NAA == d.info.NAA {
		// Half of it done, such a copy would read what it has written.
		c.Once = slices.ContainsFunc(parts, func(m move) bool { return m.from().Overlaps(r.Range) })
		// An arraysim reads a segment's whole source first, but carries out one segment after the
		// other.
		if !arrange(parts) {
			return block.Unsupported
		}
	}
	segments := 0
	for i := range parts {
		for m := &parts[i]; m.count > 0; segments++ {
			if segments == maxSegmentCount {
				return block.Unsupported
			}
			p := m.take(maxSegmentLen << d.shift)
			s := len(list)
			list = append(list, make([]byte, copySegment)...)
			list[s], list[s+1] = 0x02, 0x02 // block to block, DC: the length is of destination blocks
			be.PutUint16(list[s+2:], copySegment-4)
			be.PutUint16(list[s+6:], 1) // from the first descriptor to the second
			be.PutUint16(list[s+10:], uint16(p.count>>d.shift))
			be.PutUint64(list[s+12:], p.src>>d.shift)
			be.PutUint64(list[s+20:], p.dst>>d.shift)
		}
	}
	be.PutUint32(list[8:], uint32(segments*copySegment))
	clear(c.cdb[:])
	c.cdb[0] = opExtendedCopy
	be.PutUint32(c.cdb[10:], uint32(len(list)))
	c.list, c.Out = list, [][]byte{list}
	return block.OK
}
