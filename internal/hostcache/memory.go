package hostcache

// Memory says what an Index takes.
type Memory struct {
	Slots       int64 // resident and ghost
	SlotBytes   int64 // nodes, meta and table
	BitmapBytes int64 // validity and dirtiness by sector
	PolicyBytes int64 // what the policy has beside the slots: sketch, queue, shadow caches
}

// Memory returns what the index takes. The order of dirty blocks comes on top,
// about 12 bytes for each that is dirty.
func (ix *Index) Memory() Memory {
	m := Memory{
		Slots:       int64(len(ix.meta)) - numLists,
		SlotBytes:   int64(len(ix.nodes)*16 + len(ix.meta) + len(ix.sizes)*4 + len(ix.table.entries)*4),
		BitmapBytes: int64(len(ix.bitmaps.valid)+len(ix.bitmaps.dirty)) * 8,
	}
	if p, ok := ix.policy.(interface{ bytes() int64 }); ok {
		m.PolicyBytes = p.bytes()
	}
	return m
}

func (p *tinyLFU) bytes() int64 { return int64(len(p.sketch.counts)) * 8 }

func (p *lirs) bytes() int64 { return int64(cap(p.q.nodes)*12 + len(p.q.index)*4) }

func (p *auto) bytes() int64 {
	sum := int64(0)
	for _, q := range p.live {
		if b, ok := q.(interface{ bytes() int64 }); ok {
			sum += b.bytes()
		}
	}
	for _, s := range p.shadows {
		m := s.ix.Memory()
		sum += m.SlotBytes + m.PolicyBytes
	}
	return sum
}
