package tier

// Close destages everything and then calls done; requests that come later end Gone.
// With hurry dirty data stays on flash, where the next Open finds it.
func (d *Disk) Close(hurry bool, done func()) {
	d.closing, d.requested.Mode = true, WriteThrough
	end := func() {
		d.closed = true
		if t := d.generation.timer; t != nil {
			t.Stop()
		}
		o := &op{d: d, mode: freeMode, marker: true}
		d.recorded(o, !hurry, func(*op) {
			if hurry {
				done()
				return
			}
			d.seal(o, done)
		})
		d.pump()
	}
	if hurry {
		end()
		return
	}
	d.waiters = append(d.waiters, waiter{clean: true, fn: end})
	d.review()
	d.pump()
}
