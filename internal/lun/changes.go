package lun

import "github.com/arraysim/arraysim/internal/block"

// The array's vendor specific log page of extents that other hosts have changed; internal/scsi/logs.go
// says what is in it.
const (
	opLogSense     = 0x4d
	pageChanges    = 0x30
	changesHead    = 4 + 4 + 16 // with parameter 0
	changeLen      = 4 + 32
	changesMost    = changesHead + 1024*changeLen
	parameterPlace = 4 // of a parameter's value
)

func logSense(room int) []byte {
	return []byte{opLogSense, 0, 0x40 | pageChanges, 0, 0, 0, 0, byte(room >> 8), byte(room), 0}
}

// TracksChanges tells whether ChangedSince can be asked.
func (d *Device) TracksChanges() bool { return d.tracks }

// ChangedSince asks what other hosts have changed after generation since. done is called on the executor,
// with complete false when the unit does not remember that far, or did not answer; a generation of 0 means
// that it did not.
func (d *Device) ChangedSince(since uint64, done func(generation uint64, extents []block.Range, complete bool)) {
	d.ask(&Command{CDB: logSense(changesMost), In: [][]byte{make([]byte, changesMost)}}, func(c *Command) {
		if c.Lost != nil || c.Status != statusGood {
			done(0, nil, false)
			return
		}
		generation, extents, complete := d.changes(c.In[0][:c.InLen], since)
		if !complete {
			d.touchRange(block.Range{Count: d.info.Sectors})
		}
		for _, g := range extents {
			d.touchRange(g)
		}
		done(generation, extents, complete)
	})
}

// changes reads the page.
func (d *Device) changes(b []byte, since uint64) (generation uint64, extents []block.Range, complete bool) {
	if len(b) < changesHead || b[0]&0x3f != pageChanges || b[7] != 16 {
		return 0, nil, false
	}
	generation = be.Uint64(b[8:])
	end := 4 + int(be.Uint16(b[2:]))
	complete = since >= be.Uint64(b[16:]) && since <= generation && end <= len(b)
	b = b[4:max(min(len(b), end), changesHead)]
	for b = b[min(4+16, len(b)):]; len(b) >= changeLen && b[3] == changeLen-4; b = b[changeLen:] {
		v := b[parameterPlace:]
		if be.Uint64(v) <= since {
			continue
		}
		first, blocks, end := be.Uint64(v[8:]), be.Uint64(v[16:]), d.info.Sectors>>d.shift
		switch {
		case first+blocks < first:
			complete = false // no unit has so many
		case first < end: // what lies behind is cut off, or has grown unheard: nobody has anything of that
			extents = append(extents, block.Range{Start: first << d.shift, Count: min(blocks, end-first) << d.shift})
		}
	}
	return generation, extents, complete
}
