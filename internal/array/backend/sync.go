// Syncing all mdisks that were written to. One such sync runs at a time, and ends when the last of
// them has answered.

package backend

// Sync makes all that was written survive a loss of power, except on mdisks that redo; Hooks.Synced
// hears of the end. Mdisks whose sync fails redo from then on. One Sync runs at a time.
func (b *Backend) Sync() {
	b.syncing = true
	b.syncLeft = 1
	for _, d := range b.mdisks {
		if d.unsynced && d.redo == nil {
			d.unsynced = false
			b.syncLeft++
			d.medium.Sync(d.syncFn)
		}
	}
	b.syncEnded()
}

func (d *Mdisk) synced(err error) {
	if err != nil {
		d.failing.err = err
		d.lost = true
	}
	d.b.syncEnded()
}

// syncEnded ends the sync of one mdisk, or the start of them.
func (b *Backend) syncEnded() {
	if b.syncLeft--; b.syncLeft > 0 {
		return
	}
	b.syncing = false
	for _, d := range b.mdisks {
		if d.lost {
			d.lost = false
			d.redoAll()
		}
	}
	b.hooks.Synced()
	b.hooks.Step()
}
