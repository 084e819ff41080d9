package tier

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// fit lays out the flash once its label is read, if one counts. A cache keeps the size that it was laid out for, which its label
// says: its flash may have been copied to a larger device, and what a peer lends may be larger than the flash that it has a copy of.
func (d *Disk) fit() error {
	m := d.local()
	size := d.opt.Flash.Size()
	if l := &m.label; m.found == labelOurs && !d.opt.Format && l.per == uint32(d.per) && l.size > 0 {
		size = min(size, l.size) // one that is too small is refused; see judge
	}
	for _, p := range d.members[1:] {
		if err := p.holds(size); err != nil {
			return err
		}
	}
	if d.ix != nil && d.size == size {
		return nil
	}
	if err := d.layOut(size); err != nil {
		return err
	}
	if err := d.makeIndex(int64(d.totalFrames) - int64(d.spareFrames)); err != nil {
		return err
	}
	d.throttle.set(d.opt.Throttle, uint64(d.ix.Capacity())*uint64(d.per))
	return nil
}

// holds refuses a peer that lends less than a flash has.
func (m *member) holds(size uint64) error {
	if n := m.medium.Size(); n < size {
		return fmt.Errorf("peer %s lends %d bytes, the flash has %d; it needs as many", m.peer.Name, n, size)
	}
	return nil
}

// layOut divides so many bytes of flash: two halves of the journal, then the frames.
func (d *Disk) layOut(size uint64) error {
	d.size = size
	blockBytes := uint64(d.per) << block.SectorShift
	frames := size / blockBytes
	if d.j.on {
		d.j.slack = align(min(max(size/64, 192<<10), 4<<20))
		if d.opt.slack > 0 {
			d.j.slack = align(d.opt.slack)
		}
		entries := frames * entrySize(d.per)
		pieces := entries/(pieceBytes-batchHead-entrySize(d.per)) + 2
		d.j.half = align(snapshotHead+min(frames*uint64(d.per), maxDamaged)*16+entries+pieces*(batchHead+batchAlign)) + d.j.slack
		if labelBytes+2*d.j.half >= size {
			return fmt.Errorf("a flash device of %d bytes is too small for a journal; give 1 MiB or more", size)
		}
		d.dataStart = labelBytes + 2*d.j.half
		frames = (size - d.dataStart) / blockBytes
	}
	spare := min(max(frames/64, 1), 4096)
	if frames < 16 {
		return fmt.Errorf("a flash device of %d bytes holds %d blocks of %d; give 16 or more, or smaller blocks", size, frames, blockBytes)
	}
	if frames > hostcache.MaxResident { // a start has all of them in an index
		return fmt.Errorf("a flash device of %d bytes holds %d blocks of %d, and %d are possible; give larger blocks", size, frames, blockBytes, hostcache.MaxResident)
	}
	d.totalFrames, d.spareFrames = frames, int(spare)
	return nil
}

// makeIndex makes an empty index of n blocks.
func (d *Disk) makeIndex(n int64) error {
	ix, err := hostcache.New(hostcache.Config{Policy: d.opt.Eviction, Plugged: d.opt.Plugged, Capacity: n, BlockSectors: d.per, Dirty: true, OnEvict: d.evicted})
	if err != nil {
		return err
	}
	d.ix = ix
	d.frameOf = make([]uint32, n)
	for i := range d.frameOf {
		d.frameOf[i] = noFrame
	}
	d.j.limbo, d.j.resets = nil, d.j.resets+1
	d.freeFrames = make([]uint32, 0, d.totalFrames)
	for f := int64(d.totalFrames) - 1; f >= 0; f-- {
		d.freeFrames = append(d.freeFrames, uint32(f))
	}
	return nil
}
