package array

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// What the array does when writing to an mdisk fails, or its store is full. What is in
// NVRAM stays there and is tried again, less and less often; those who wait for room meanwhile
// get an error in time, which loses nothing.
const (
	maxRetryTime = 30_000_000_000
	// patience is what a command waits for an mdisk that fails: less than the 30 s after which
	// Linux aborts it.
	patience = 20_000_000_000
	// abortPatience is the same for a command that was aborted: open-iscsi waits 15 s for the
	// answer to an abort, and then drops the session.
	abortPatience = 5_000_000_000
)

// failing is the state of an mdisk whose writes fail.
type failing struct {
	since int64 // 0: it works
	err   error
}

// failed notes that a write or a sync failed, and returns when to try again.
func (d *mdisk) failed(err error) (wait int64) {
	a, f := d.a, &d.failing
	d.failures++
	now := max(1, a.exec.Now())
	f.err = err
	if f.since == 0 {
		f.since = now
		d.pool.tellHealth()
		a.watch()
	}
	return min(max(retryTime, (now-f.since)/2), maxRetryTime)
}

// works notes that a write succeeded.
func (d *mdisk) works() {
	if d.failing.since != 0 && d.redo == nil {
		d.failing = failing{}
		d.pool.tellHealth()
	}
}

func (p *Pool) tellHealth() {
	for _, v := range p.a.Volumes() {
		if v.pool == p {
			v.tell(block.EventHealth)
		}
	}
}

// tellHealth tells all volumes that what all of them need got worse or better.
func (a *Array) tellHealth() {
	for _, v := range a.Volumes() {
		v.tell(block.EventHealth)
	}
}

// stuck tells whether an mdisk has work and has ended none of it for as long as anybody waits.
func (d *mdisk) stuck(now int64) bool { return d.silent(now, patience) }

// silent reports whether an mdisk has work and has ended none of it for so long.
func (d *mdisk) silent(now, long int64) bool { return d.out > 0 && now-d.progress >= long }

// expect puts a read on the list of those that somebody waits for, and forget takes it off.
func (d *mdisk) expect(x *diskIO) {
	x.place = len(d.reads)
	d.reads = append(d.reads, x)
	d.a.readsOut++
}

func (d *mdisk) forget(x *diskIO) {
	last := d.reads[len(d.reads)-1]
	d.reads[x.place], last.place = last, x.place
	d.reads[len(d.reads)-1] = nil
	d.reads = d.reads[:len(d.reads)-1]
	d.a.readsOut--
}

// endReads ends the readings that have waited too long for a medium that is silent, if it gives their buffers back.
// What it still answers to them is not looked at. It reports whether there were any.
func (d *mdisk) endReads(now int64) bool {
	m, ok := d.medium.(block.Abandoner)
	if !ok {
		return false
	}
	// Of a copy of the list: who ends may begin something else.
	stuck := d.stuck(now)
	overdue := slices.DeleteFunc(slices.Clone(d.reads), func(x *diskIO) bool {
		if x.handed < 0 {
			return true
		}
		if x.ctx.(*reading).unwanted() {
			return now-x.handed < abortPatience
		}
		return !stuck || now-x.handed < patience
	})
	slices.SortStableFunc(overdue, func(x, y *diskIO) int { return cmp.Compare(x.started, y.started) })
	for _, x := range overdue {
		r := x.ctx.(*reading)
		d.forget(x)
		x.pool.space.Unpin(x.phys, x.sectors)
		m.Abandon(&x.io)
		x.ctx, x.done = nil, func(*diskIO) {}
		d.failures++
		r.status = block.Hardware
		r.release()
	}
	return len(overdue) > 0
}

// watch looks every second, while something fails or somebody waits for room or for an mdisk, for those who have waited too long.
func (a *Array) watch() {
	if a.watching {
		return
	}
	a.watching = true
	block.Call(a.exec, a.exec.Now()+retryTime, a.lookFn)
}

func (a *Array) look() {
	a.watching = false
	now, trouble, absent := a.exec.Now(), a.ckpt.since != 0, false
	if a.broken != "" { // nothing brings the log or the partitions room any more
		trouble = true
		for _, p := range a.Pools() {
			p.endWaiting(block.Hardware, now)
		}
		a.endLogWaiters(block.Hardware)
	}
	if since := a.ckpt.since; since != 0 {
		if now-since >= patience {
			a.checkpointIsLate()
			for _, p := range a.Pools() {
				p.endWaiters(block.NoSpace, now-patience)
			}
			a.endLogWaiters(block.NoSpace)
		}
		a.watch()
	}
	if since := a.flusher.FailingSince(); since != 0 {
		trouble = true
		a.watch()
		if now-since >= patience { // nothing can go to the back end, and the log cannot be cut
			for _, p := range a.Pools() {
				p.endWaiters(block.Hardware, now-patience)
			}
			a.endLogWaiters(block.Hardware)
		}
	}
	if a.wakes.waiters.N > 0 || a.readsOut > 0 || !a.settling.Empty() {
		a.watch()
	}
	for _, p := range a.pools {
		if p == nil {
			continue
		}
		for _, d := range p.mdisks {
			if d.lookAt(now) || d.failing.since != 0 {
				trouble = trouble || d.failing.since != 0
				a.watch()
			}
			if d.stuck(now) {
				trouble = true
				absent = true
				p.endWaiters(block.MediumWrite, now-patience)
			}
			if d.silent(now, abortPatience) && d.endReads(now) {
				trouble = true
			}
			// What is pinned for it may be all that its pool can have of the cache.
			if d.offline && now-d.away >= patience {
				trouble, absent = true, true
				p.endWaiters(block.Offline, now-patience)
			}
			if d.failing.since != 0 && now-d.failing.since >= patience {
				s := block.MediumWrite
				if errors.Is(d.failing.err, block.ErrFull) {
					s = block.NoSpace
				}
				absent = true
				p.endWaiters(s, now-patience)
			}
		}
	}
	if absent {
		a.endShared(now - patience)
	}
	if trouble { // else to look changes nothing, not even the order of events
		a.endStep()
	}
}

// endShared ends the commands that wait since a time for what pools share: it may be what others hold for an mdisk that
// does not take it. The hosts are told to try again.
func (a *Array) endShared(since int64) {
	for _, p := range a.Pools() {
		if o := p.part.waiting.head(); o != nil && o.lacks != 0 {
			p.endQueued(block.Resources, since)
		}
	}
}

// endLogWaiters ends the map edits that wait for room in the log.
func (a *Array) endLogWaiters(s block.Status) {
	for !a.wakes.log.Empty() {
		o := headOf(&a.wakes.log)
		o.unqueue()
		o.end(s)
	}
}

// endQueued ends the commands that wait since a time for room in the pool's partition.
func (p *Pool) endQueued(s block.Status, since int64) {
	endIdle(&p.part.waiting.fifo, since, s)
	for _, v := range p.a.Volumes() {
		if v.pool == p {
			endIdle(&v.waiting, since, s)
		}
	}
}

// endWaiting ends these, and those that wait since then for their budget.
func (p *Pool) endWaiting(s block.Status, since int64) {
	p.endQueued(s, since)
	p.part.braked.endBraked(since, s)
}

// endWaiters ends these, and those that wait for what they wrote to be on the back end: that stays in NVRAM, and goes
// there when it can.
func (p *Pool) endWaiters(s block.Status, since int64) {
	p.endWaiting(s, since)
	var overdue []*op // who is answered may end others
	for t := p.a.settling.Head(); t != nil; t = t.Next() {
		if o := opOf(t); o.v.pool == p && o.Since <= since {
			overdue = append(overdue, o)
		}
	}
	for _, o := range overdue {
		if o.In(&p.a.settling) && o.v.pool == p && o.Since <= since {
			o.answer(s)
		}
	}
}

// endIdle ends the ops of a queue that nothing has let go on since a time.
func endIdle(q *ticket.Queue, since int64, s block.Status) {
	var overdue []*op // who ends lets others begin, and may end others
	for t := q.Head(); t != nil; t = t.Next() {
		if t.Since != 0 && t.Since <= since {
			overdue = append(overdue, opOf(t))
		}
	}
	for _, o := range overdue {
		if !o.In(q) || o.Since == 0 || o.Since > since {
			continue
		}
		o.unqueue()
		o.stopWaiting()
		if o.unsettled > 0 { // the end of the op waits for that, its host does not
			o.status = s
			o.settle()
			o.answer(s)
		} else {
			o.end(s)
		}
	}
}

// Health describes what fails now, a line each; none: all works.
func (a *Array) Health() (lines []string) {
	for _, p := range a.Pools() {
		for _, d := range p.mdisks {
			if now := a.exec.Now(); d.stuck(now) {
				lines = append(lines, fmt.Sprintf("mdisk %s of pool %s: nothing was read or written for %d s; it is waited for", d.name, p.name, (now-d.progress)/1_000_000_000))
			}
			if f := d.failing; f.since != 0 {
				lines = append(lines, fmt.Sprintf("mdisk %s of pool %s: writing fails for %d s: %v; make room or mend the disk, it is tried again", d.name, p.name, (a.exec.Now()-f.since)/1_000_000_000, f.err))
			}
		}
	}
	if a.ckpt.since != 0 && a.exec.Now()-a.ckpt.since >= patience {
		lines = append(lines, "the checkpoint cannot be written; make room in the file system of the data folder")
	}
	if since := a.flusher.FailingSince(); since != 0 {
		lines = append(lines, fmt.Sprintf("flushing NVRAM fails for %d s, and nothing goes to the mdisks meanwhile; mend the disk of the data folder, it is tried again", (a.exec.Now()-since)/1_000_000_000))
	}
	return append(lines, a.troubles()...)
}

// A sync that failed may have lost what was written before it, and a later one says
// nothing of that: the kernel forgets a failed write. So all pages that waited for a sync of
// the mdisk are written again and synced, and nothing else goes to it meanwhile.

// redo is what has to be written again to an mdisk.
type redo struct {
	pages  []uint32
	todo   []redoPage // nil: all of pages
	again  []redoPage // what failed
	left   int
	failed error
}

type redoPage struct {
	page uint32
	mask uint8
}

// lose begins a redo of these pages and of all others that are written.
func (a *Array) lose(d *mdisk, pages []uint32) {
	d.redo = &redo{pages: pages}
	a.redos++
	a.redoSoon(d)
}

func (a *Array) redoSoon(d *mdisk) {
	wait := d.failed(d.failing.err)
	a.exec.At(a.exec.Now()+wait, func() {
		a.redoNow(d)
		a.endStep()
	})
}

func (a *Array) redoNow(d *mdisk) {
	c, r := a.cache, d.redo
	if d.removed { // with its pool, of which nothing was dirty: there was nothing to lose
		d.redo, a.redos = nil, a.redos-1
		return
	}
	if d.destages > 0 { // what is on its way has to be written again, too
		a.exec.At(a.exec.Now()+10_000_000, func() {
			a.redoNow(d)
			a.endStep()
		})
		return
	}
	kept := a.written[:0]
	for _, i := range a.written {
		if a.mdiskOf(i) == d {
			r.pages = append(r.pages, i)
		} else {
			kept = append(kept, i)
		}
	}
	a.written = kept
	if r.todo == nil {
		r.todo = a.redoAll(r.pages)
	}
	r.left, r.failed, r.again = 1, nil, nil
	for _, t := range r.todo {
		pg := &c.pages[t.page]
		for todo := uint(t.mask); todo != 0; {
			s := bits.TrailingZeros(todo)
			run := bits.TrailingZeros(^(todo >> s))
			todo &^= (1<<run - 1) << s
			x := a.getIO()
			_, x.io.Off, _ = d.pool.space.Locate(pg.key.Phys() + uint64(s))
			x.io.Write, x.io.N, x.reason = true, uint64(run)*block.SectorSize, block.ReasonDestage
			if a.payload {
				from := int(t.page)*pageSectors + s
				x.io.Vec = append(x.io.Vec, c.nv.Sectors(from, from+run))
				for j := s; j < s+run; j++ {
					x.io.Sums = append(x.io.Sums, c.nv.Descriptor(t.page).Sum(j))
				}
			}
			x.bytes[block.OriginRebuild] = uint32(x.io.N)
			x.done = func(x *diskIO) {
				if x.io.Err != nil {
					r.again = append(r.again, t)
				}
				a.redone(d, x.io.Err)
			}
			r.left++
			d.start(x)
		}
	}
	a.redone(d, nil)
}

// redoAll sorts out what each page has to write: what no newer one of its address has.
func (a *Array) redoAll(pages []uint32) []redoPage {
	c := a.cache
	todo := []redoPage{}
	slices.SortFunc(pages, func(x, y uint32) int {
		return cmp.Compare(c.nv.Descriptor(y).Seq(), c.nv.Descriptor(x).Seq())
	})
	covered := map[pageKey]uint8{}
	for _, i := range pages {
		pg := &c.pages[i]
		// Dropped sectors, too: a loss of power may undo the drop.
		mask := pg.mask
		if a.payload {
			mask = c.nv.Descriptor(i).Mask()
		}
		if left := mask &^ covered[pg.key]; left != 0 {
			todo = append(todo, redoPage{i, left})
		}
		covered[pg.key] |= mask
	}
	return todo
}

// redone books one write of a redo; behind the last comes the sync.
func (a *Array) redone(d *mdisk, err error) {
	r := d.redo
	if err != nil {
		r.failed = err
	}
	if r.left--; r.left > 0 {
		return
	}
	end := func(err error) {
		if err != nil {
			d.failing.err = err
			a.redoSoon(d)
			return
		}
		d.redo = nil
		a.redos--
		d.works()
		a.buryWritten(r.pages)
		a.needDestage(d.pool)
		a.endStep()
	}
	if r.failed != nil {
		r.todo = r.again
		end(r.failed)
		return
	}
	r.todo, d.unsynced = nil, false
	d.medium.Sync(end)
}

// mdiskOf returns the mdisk that a page goes to.
func (a *Array) mdiskOf(i uint32) *mdisk {
	k := a.cache.pages[i].key
	p := a.poolByID(k.Pool())
	md, _, _ := p.space.Locate(k.Phys())
	return p.mdisks[md]
}
