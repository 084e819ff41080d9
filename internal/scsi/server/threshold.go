// The thin provisioning soft threshold: how full the pool of a unit is, in threshold sets, and
// when hosts are notified that it is above. Every request that may have taken space, of a command
// or of a copy, is followed by a look.

package server

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// provisioner is a device that knows how full the pool is that it is allocated
// from, in sectors.
type provisioner interface {
	Provisioning() (used, available uint64)
}

// ThresholdExponent makes the threshold set of the unit 4 MiB: the unit of the
// counts in the logical block provisioning pages (SBC-4 6.6.7). 0 is a unit without thresholds.
func (u *Unit) ThresholdExponent() byte {
	if u.provisioner == nil {
		return 0
	}
	return 13 - u.shift
}

// SoftThreshold is the part of the pool, in percent, that the thin provisioning
// soft threshold allows to be used.
const SoftThreshold = 80

// Provisioned returns used and available threshold sets of the unit's pool.
func (u *Unit) Provisioned() (used, available uint32, ok bool) {
	if u.provisioner == nil || !u.info.Thin {
		return 0, 0, false
	}
	a, b := u.provisioner.Provisioning()
	shift := uint(u.ThresholdExponent() + u.shift)
	return uint32(min(a>>shift, 1<<32-1)), uint32(min(b>>shift, 1<<32-1)), true
}

// Wrote is called when a request of this kind has ended well. Only where the device knows its pool,
// and only after what may have taken space, is there anything to look at: what gives space back changes
// nothing here, the next write sees it.
func (u *Unit) Wrote(op block.Op) {
	if u.provisioner != nil && op.TakesSpace() {
		u.fuller()
	}
}

// fuller looks whether the pool has crossed the soft threshold, and notifies the hosts: once,
// until it falls below again.
func (u *Unit) fuller() {
	used, available := u.provisioner.Provisioning()
	over := used*100 >= (used+available)*SoftThreshold
	if over && !u.overThreshold {
		u.Establish(sense.UAThreshold, nil)
	}
	u.overThreshold = over
}
