package tier

// loosen notes sectors that were written, and flushed with that or not. What was under way when a flush began counts as
// flushed: the flush covers the version before it, and made the record of this one durable in its place.
func (j *journal) loosen(frame uint32, first, n int, flushed bool) {
	if j.d.opt.PowerSafe {
		return
	}
	if j.loose == nil {
		j.loose = make([]uint64, (j.d.totalFrames*uint64(j.d.per)+63)/64)
		j.listed = make([]uint64, (j.d.totalFrames+63)/64)
	}
	at := int(frame) * j.d.per
	for i := at + first; i < at+first+n; i++ {
		set(j.loose, i, !flushed)
	}
	if !flushed && !has(j.listed, int(frame)) {
		set(j.listed, int(frame), true)
		j.looseness = append(j.looseness, frame)
	}
}

// flushing begins a flush: what was written before is flushed when it ends.
func (j *journal) flushing() {
	if !j.on || j.d.opt.PowerSafe {
		return
	}
	j.flushes++
	for _, frame := range j.looseness {
		at := int(frame) * j.d.per
		for i := at; i < at+j.d.per; i++ {
			set(j.loose, i, false)
		}
		set(j.listed, int(frame), false)
	}
	j.looseness = j.looseness[:0]
}
