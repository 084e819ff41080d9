// Syncing all mdisks that were written to. One such sync runs at a time, and ends when the last of
// them has answered, but for those that are late: what was written there waits for their next one.

package backend

// lateTime is how long others wait for the sync of an mdisk.
const lateTime = RetryTime

// Sync makes all that was written survive a loss of power, except on mdisks that redo or are late;
// Hooks.Synced hears of the end. Mdisks whose sync fails redo from then on. One Sync runs at a time.
// Preconditions: Stop was not called.
func (b *Backend) Sync() {
	b.syncing = true
	b.syncLeft = 1
	for _, d := range b.mdisks {
		if d.sync.due && d.redo == nil && !d.sync.late {
			d.sync.due = false
			b.syncLeft++
			d.sync.since = max(1, b.exec.Now())
			d.medium.Sync(d.sync.fn)
		}
	}
	if b.syncLeft > 1 {
		b.hooks.Watch() // it may never end
	}
	b.syncEnded()
}

func (d *Mdisk) synced(err error) {
	d.sync.since = 0
	d.b.answered++
	d.speaks()
	switch {
	case d.sync.late:
		d.lateSynced(err)
		return
	case err != nil:
		d.failing.err = err
		d.sync.lost = true
	}
	d.b.syncEnded()
}

// beLate has nobody wait any longer for the sync of an mdisk that is under way.
func (d *Mdisk) beLate() {
	d.sync.late = true
	d.b.hooks.Late(d, true)
	d.b.syncEnded()
}

// lateSynced ends a sync that nobody waited for: it says nothing of what was written meanwhile, so
// that all waits for the next one.
func (d *Mdisk) lateSynced(err error) {
	b := d.b
	d.sync.late = false
	if d.detached || b.stopped {
		return
	}
	b.hooks.Late(d, false)
	d.sync.due = true
	if err != nil {
		d.failing.err = err
		d.redoAll()
	}
	b.hooks.Step()
}

// syncEnded ends the sync of one mdisk, or the start of them.
func (b *Backend) syncEnded() {
	if b.syncLeft--; b.syncLeft > 0 {
		return
	}
	b.syncing = false
	for _, d := range b.mdisks {
		if d.sync.lost {
			d.sync.lost = false
			d.redoAll()
		}
	}
	b.hooks.Synced()
	b.hooks.Step()
}
