package array

import (
	"cmp"
	"hash/crc32"
)

// What survives a loss of power. Of what was written to NVRAM since its last flush,
// any subset does. These rules make the state after a loss of power one that was there at
// some moment between the last flush and the end, and never a mixture:
//
//   - A page goes to the back end only when NVRAM was flushed after its record was
//     written. So no destage overwrites what a record that is lost had left in place.
//   - A page of which sectors were dropped goes there only when NVRAM was flushed after that: else
//     they would not be there when the drop is undone.
//   - A page that was overwritten or dropped keeps its descriptor until NVRAM was flushed
//     after the record that made it so.
//   - Then, or when it is destaged and its mdisk synced, the page is buried: its descriptor is
//     marked, and stays. The newest descriptor of an address wins at recovery, so that the mark of a
//     destaged page that survives alone also buries what is older.
//   - A page is used again only when a flush made its mark durable, and with it the number up to
//     which everything was flushed.
//   - A checkpoint is committed only when NVRAM was flushed behind the last edit that it may have.
//   - Recovery replays the log up to the first record behind that number that lacks a page.
type durable struct {
	flushed   uint64 // number of the last record that survives a loss of power
	wantFlush bool   // somebody cannot go on without a flush
	flushing  bool
	flushWait []func(error) // for a flush that begins from now on
	flushNow  []func(error) // for the one under way
	// What the flush under way lets go.
	coolFlush, buryFlush []uint32
	gen, genDone         uint64 // number of the last batch that went to the meta store, and that is durable
	stored               digest
	otherState           bool // which of the two state blocks was written last
	flushHeld            bool // a flush failed; it is tried again when the timer says so
	// doubtful: the last flush failed, and the kernel may take for clean what is not on the medium. If the process
	// dies now, the next one must trust no more than after a loss of power.
	doubtful   bool
	flushFails int64 // since when no flush has succeeded, 0: the last one did
}

// The state block of the NVRAM header, in sectors of its own:
//
//	 512 flushed u64 | 8 gen u64 | 16 boot u64, 0: not known, or a flush failed | 24 crc32c u32 of bytes 0..23
//	1024 newest record u64 | 8 the same, inverted
//
//	1536 the state block again: the two are written in turns, so that one is whole
//	     whenever the process dies while the other is being written
//
// flushed is written when a flush has ended, and so survives with the next one.
const (
	stateOffset  = 512
	newestOffset = 1024
	otherOffset  = 1536
)

func (n *nvram) newest() []byte { return n.b[newestOffset : newestOffset+16] }

// savedState is the state block as recovery finds it.
type savedState struct {
	flushed, gen, boot uint64
	newest             uint64
	damaged            bool
	other              bool // the second block says so
}

func (n *nvram) loadState() savedState {
	s := savedState{}
	if n.version == 1 {
		s.boot = n.region.Boot() // it never knew of a loss of power
		return s
	}
	s.damaged = true
	for _, at := range [...]int{stateOffset, otherOffset} {
		b := n.b[at : at+28]
		if le.Uint32(b[24:]) != crc32.Checksum(b[:24], castagnoli) && !mendBits(b, 24) {
			continue
		}
		// Both numbers only grow. Of two equal ones that counts which promises less.
		flushed, gen, boot := le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
		if s.damaged || cmp.Or(cmp.Compare(flushed, s.flushed), cmp.Compare(gen, s.gen)) > 0 || flushed == s.flushed && gen == s.gen && boot == 0 {
			s.flushed, s.gen, s.boot, s.other = flushed, gen, boot, at == otherOffset
		}
		s.damaged = false
	}
	if s.damaged {
		return s
	}
	// The smaller of the two: a crash between the two stores leaves them apart, and a
	// flipped bit must not claim records that never were.
	s.newest = min(le.Uint64(n.newest()), ^le.Uint64(n.newest()[8:]))
	return s
}

// sameBoot tells whether the machine has run since the state was saved. What is not known is no proof.
func (s *savedState) sameBoot(now uint64) bool { return s.boot != 0 && s.boot == now }

func (a *Array) saveState() {
	nv := a.cache.nv
	boot := nv.region.Boot()
	if a.doubtful {
		boot = 0
	}
	at := stateOffset
	if a.otherState = !a.otherState; a.otherState {
		at = otherOffset
	}
	nv.touch(at, 28)
	b := nv.b[at : at+28]
	le.PutUint64(b, a.flushed)
	le.PutUint64(b[8:], a.genDone)
	le.PutUint64(b[16:], boot)
	le.PutUint32(b[24:], crc32.Checksum(b[:24], castagnoli))
}

// mendBits looks for the one bit whose flip makes a block agree with the checksum behind its
// first n bytes.
func mendBits(b []byte, n int) bool {
	for bit := range (n + 4) * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		if le.Uint32(b[n:]) == crc32.Checksum(b[:n], castagnoli) {
			return true
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	return false
}

// flushedPage tells whether a page's record survives a loss of power, and those that have dropped
// sectors of it: without the drop, the back end would have to have these, too.
func (a *Array) flushedPage(i uint32) bool {
	return !a.payload || descView(a.cache.nv.desc(i)).seq() <= a.flushed &&
		(a.cache.pages[i].flags&flagDropped == 0 || a.cache.rare[i].dropped <= a.flushed)
}

// afterFlush calls fn when all that was acknowledged until now survives power loss.
// Those who come while a flush is under way share the next one.
func (a *Array) afterFlush(fn func(error)) {
	a.flushWait = append(a.flushWait, fn)
	if !a.flushing {
		a.startFlush()
	}
}

func (a *Array) startFlush() {
	c := a.cache
	a.flushing, a.wantFlush = true, false
	a.flushNow, a.flushWait = a.flushWait, a.flushNow[:0]
	a.coolFlush, c.cooling = c.cooling, a.coolFlush[:0]
	a.buryFlush, c.buried = c.buried, a.buryFlush[:0]
	seq := a.journal.seq
	c.nv.region.Flush(0, len(c.nv.b), func(err error) {
		sure := err == nil && a.doubtful
		a.doubtful = err != nil
		a.flushEnded(err)
		if err != nil {
			a.saveState()
			a.holdFlush()
			c.cooling = append(c.cooling, a.coolFlush...)
			c.buried = append(c.buried, a.buryFlush...)
		} else {
			if seq > a.flushed || sure {
				a.flushed = seq
				a.saveState()
				for _, p := range a.pools {
					if p != nil && (p.part.dirty > 0 || p.anyDirect()) {
						a.needDestage(p)
					}
				}
			}
			for _, i := range a.buryFlush {
				c.giveFree(i)
			}
			for _, i := range a.coolFlush {
				a.bury(i, markVoid)
			}
		}
		a.coolFlush, a.buryFlush = a.coolFlush[:0], a.buryFlush[:0]
		now := a.flushNow
		a.flushNow = nil
		for i, fn := range now {
			now[i] = nil
			fn(err)
		}
		a.flushNow = now[:0]
		a.flushing = false
		if len(a.flushWait) > 0 {
			a.startFlush()
		}
		a.endStep()
	})
}

// holdFlush has what waits for a flush without asking for one wait a while.
func (a *Array) holdFlush() {
	if a.flushHeld {
		return
	}
	a.flushHeld = true
	a.exec.At(a.exec.Now()+retryTime, func() {
		a.flushHeld, a.wantFlush = false, true
		a.endStep()
	})
}

// bury marks a page's descriptor: what it describes is elsewhere, or nothing.
func (a *Array) bury(i uint32, mark byte) {
	c := a.cache
	if !a.payload {
		c.giveFree(i)
		return
	}
	c.nv.bury(i, mark)
	c.pages[i].state = pageCooling
	c.buried = append(c.buried, i)
}

// cycle frees what is written: it syncs the mdisks and flushes NVRAM. One sync and one
// flush run at a time; force starts them however little there is to free.
func (a *Array) cycle(force bool) {
	c := a.cache
	n := len(a.written) + len(c.cooling) + len(c.buried)
	due := force || n >= len(c.pages)/64 || c.freeCount <= len(c.pages)/8 || a.anyWaiting()
	if len(a.written) > 0 && due && !a.cycling {
		a.syncMdisks()
	}
	// Twice, for what a flush that took no time has buried.
	for range 2 {
		if !a.flushing && !a.flushHeld && (a.wantFlush || due && len(c.cooling)+len(c.buried) > 0) {
			a.startFlush()
		}
	}
	if n > 0 && !due && !a.cycleTimer {
		a.cycleTimer = true
		a.exec.At(a.exec.Now()+cycleInterval, a.cycleFn)
	}
}

func (a *Array) syncMdisks() {
	a.cycling = true
	// What a redo will write again waits for it.
	a.cycleBatch = a.cycleBatch[:0]
	kept := a.written[:0]
	for _, i := range a.written {
		if a.redos == 0 || a.mdiskOf(i).redo == nil {
			a.cycleBatch = append(a.cycleBatch, i)
		} else {
			kept = append(kept, i)
		}
	}
	a.written = kept
	a.cycleLeft = 1
	for _, p := range a.pools {
		if p == nil {
			continue
		}
		for _, d := range p.mdisks {
			if d.unsynced && d.redo == nil {
				d.unsynced = false
				a.cycleLeft++
				d.medium.Sync(func(err error) {
					if err != nil {
						d.failing.err = err
						d.lost, a.cycleFailed = true, true
					}
					a.cycleSynced()
				})
			}
		}
	}
	a.cycleSynced()
}

func (a *Array) cycleSynced() {
	if a.cycleLeft--; a.cycleLeft > 0 {
		return
	}
	a.cycling = false
	if a.cycleFailed {
		a.cycleFailed = false
		lost := map[*mdisk][]uint32{}
		kept := a.cycleBatch[:0]
		for _, i := range a.cycleBatch {
			if d := a.mdiskOf(i); d.lost {
				lost[d] = append(lost[d], i)
			} else {
				kept = append(kept, i)
			}
		}
		a.cycleBatch = kept
		for _, p := range a.Pools() {
			for _, d := range p.mdisks {
				if d.lost {
					d.lost = false
					a.lose(d, lost[d])
				}
			}
		}
	}
	a.buryWritten(a.cycleBatch)
	a.cycleBatch = a.cycleBatch[:0]
	a.endStep()
}

// buryWritten buries pages that are on the back end for good.
func (a *Array) buryWritten(pages []uint32) {
	c := a.cache
	var keys [32]pageKey
	for len(pages) > 0 {
		n := min(len(pages), len(keys))
		// These pages and their slots left the processor's caches long ago. Nothing in the first two
		// loops waits for a miss, so that they are all under way at once.
		for j, i := range pages[:n] {
			keys[j] = c.pages[i].key
		}
		c.touch(keys[:n])
		for j, i := range pages[:n] {
			c.removeKnown(i, keys[j])
			pool := a.poolByID(keys[j].Pool())
			pool.meter()
			a.leavePartition(pool, i)
			a.bury(i, markHome)
		}
		pages = pages[n:]
	}
}
