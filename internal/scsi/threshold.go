// The thin provisioning soft threshold: how full the pool of a unit is, in threshold sets, and
// when hosts are notified that it is above. Every request that may have taken space, of a command
// or of a copy, is followed by a look.

package scsi

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// provisioner is a device that knows how full the pool is that it is allocated
// from, in sectors.
type provisioner interface {
	Provisioning() (used, available uint64)
}

// thresholdExponent makes the threshold set of the unit 4 MiB: the unit of the
// counts in the logical block provisioning pages (SBC-4 6.6.7).
func (u *Unit) thresholdExponent() byte { return 13 - u.shift }

// softThreshold is the part of the pool, in percent, that the thin provisioning
// soft threshold allows to be used.
const softThreshold = 80

// provisioned returns used and available threshold sets of the unit's pool.
func (u *Unit) provisioned() (used, available uint32, ok bool) {
	if u.provisioner == nil || !u.info.Thin {
		return 0, 0, false
	}
	a, b := u.provisioner.Provisioning()
	shift := uint(u.thresholdExponent() + u.shift)
	return uint32(min(a>>shift, 1<<32-1)), uint32(min(b>>shift, 1<<32-1)), true
}

// wrote is called when a request of this kind has ended well. Only where the device knows its pool,
// and only after what may have taken space, is there anything to look at.
func (u *Unit) wrote(op block.Op) {
	if u.provisioner != nil && writesMore(op) {
		u.fuller()
	}
}

// fuller looks whether the pool has crossed the soft threshold, and notifies the hosts: once,
// until it falls below again.
func (u *Unit) fuller() {
	used, available := u.provisioner.Provisioning()
	over := used*100 >= (used+available)*softThreshold
	if over && !u.overThreshold {
		u.establish(sense.UAThreshold, nil)
	}
	u.overThreshold = over
}

// writesMore reports whether an operation can take space from the pool. What gives space back
// changes nothing here: the next write sees it.
func writesMore(op block.Op) bool {
	switch op {
	case block.OpWrite, block.OpWriteSame, block.OpPlace, block.OpCompareWrite, block.OpOrWrite:
		return true
	}
	return false
}
