// FUA at units that do not have it. Such a unit refuses a command with the FUA bit, so the request
// becomes the command without it and a SYNCHRONIZE CACHE of the same blocks. It ends well when both
// have. If the unit loses power in between, the second command finds nothing to save: then the first
// one is sent again.

package lun

import (
	"errors"

	"github.com/arraysim/arraysim/internal/block"
)

// Fields of MODE SENSE, whose DEVICE-SPECIFIC PARAMETER says whether there is FUA (SBC-4 6.5.1).
const (
	opModeSense6  = 0x1a
	opModeSense10 = 0x5a
	allModePages  = 0x3f
	modeHead6     = 4
	modeHead10    = 8
	modeDevice6   = 2
	modeDevice10  = 3
	modeDPOFUA    = 0x10
)

// learnFUA asks the unit whether it has FUA. One that does not say so has none: that is slower, and
// never wrong.
func (d *Device) learnFUA() error {
	for _, q := range [...]struct {
		cdb      []byte
		head, at int
	}{
		{[]byte{opModeSense6, 0, allModePages, 0, modeHead6, 0}, modeHead6, modeDevice6},
		{[]byte{opModeSense10, 0, allModePages, 0, 0, 0, 0, 0, modeHead10, 0}, modeHead10, modeDevice10},
	} {
		b, err := d.do(q.cdb, nil, q.head)
		if err == nil {
			d.fua = len(b) > q.at && b[q.at]&modeDPOFUA != 0
			return nil
		}
		if !illegalRequest(err) && !errors.Is(err, ErrReserved) {
			return err
		}
	}
	return nil
}

// force has what a request with FUA does survive a loss of power: by the bit of its command, where
// the command and the unit have that.
func (d *Device) force(c *Command, r *block.Request) {
	switch r.Op {
	case block.OpRead, block.OpWrite, block.OpOrWrite, block.OpCompareWrite:
		if c.unsynced = !d.fua; d.fua {
			c.cdb[1] |= flagFUA
		}
	case block.OpWriteSame, block.OpUnmap, block.OpPlace:
		c.unsynced = true
	}
}

// sync sends the SYNCHRONIZE CACHE behind a command that has ended well. That of an UNMAP is for all
// blocks of the unit.
func (d *Device) sync(c *Command) {
	c.unsynced, c.syncing = false, true
	clear(c.cdb[:])
	c.cdb[0] = opSyncCache16
	be.PutUint64(c.cdb[2:], c.req.Range.Start>>d.shift)
	be.PutUint32(c.cdb[10:], uint32(c.req.Range.Count>>d.shift))
	c.CDB, c.Out, c.In, c.Once, c.Timed, c.Sync = c.cdb[:], nil, nil, false, false, true
	d.t.Start(c)
}

// unsaved reports whether the SYNCHRONIZE CACHE behind a command, which has ended with status s, may
// have come too late: the unit has lost power since the command was sent.
func (d *Device) unsaved(c *Command, s block.Status, news bool) bool {
	return c.syncing && c.losses != d.losses && (news || s == block.OK)
}

// halfDone returns how a request ends whose command was executed and whose SYNCHRONIZE CACHE ended
// with status s. It may be sent again, unless it would find what it did: then s must not say that
// the unit has not executed it.
func (d *Device) halfDone(c *Command, s block.Status) block.Status {
	switch s {
	case block.Resources, block.Unsupported, block.ReadOnly, block.NoSpace, block.OutOfRange:
		if d.encode(c, c.req); c.Once {
			return c.aborted()
		}
	}
	return s
}
