package tier

import "github.com/arraysim/arraysim/internal/block"

// A device below that lost power may have lost what was written to it and not flushed since. Of the client's
// writes that is what went through and what was destaged; what of it is clean on the flash would be served
// until it is evicted, and then the old data would come back. So all that is clean is forgotten, the client's
// unit hears of it (the event goes on to the listeners), and the next flush fails: whoever relies on it has to write
// again. A flush that is under way may have been answered by what came after the loss, so it fails as well.

// powerLost is the news that the device below lost power.
func (d *Disk) powerLost() {
	if d.volatile.ended == d.volatile.flushed && d.flushing == 0 {
		return
	}
	d.stats.PowerLosses++
	d.losses++
	d.lostWrites = true
	d.invalidate(block.Range{Count: d.info.Sectors}, func() {})
}

// flushFails reports whether a flush that began after so many losses must fail, and settles it: one flush fails for a loss.
func (d *Disk) flushFails(began uint64) bool {
	fails := d.lostWrites || began != d.losses
	d.lostWrites = false
	return fails
}
