package tier

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
)

// Open makes a cached device and calls done on the executor when it has read what is
// on the flash. The disk must not be used before.
func Open(opt Options, done func(*Disk, error)) {
	d, err := newDisk(opt)
	if err != nil {
		opt.Exec.Post(func() { done(nil, err) })
		return
	}
	d.opening = true
	end := func(err error) {
		if err != nil {
			d.closed = true
			done(nil, fmt.Errorf("hostcache: %s: %w", d.info.Name, err))
			return
		}
		d.opening = false
		d.watchGeneration(func() {
			d.review()
			d.watch()
			begin := func() {
				d.remember(func() {
					done(d, nil)
					d.pump()
				})
			}
			if d.effective != Off {
				begin()
				return
			}
			d.empty(begin) // it may be warm from a time when it was on
			d.pump()
		})
	}
	begin := func(err error) {
		switch {
		case err != nil:
			end(err)
		case d.j.on:
			d.openJournal(end)
		default:
			d.openVolatile(end)
		}
	}
	if !opt.TakeOver || opt.Fence == nil {
		begin(nil)
		return
	}
	d.precheck(func(err error) {
		if err != nil {
			end(err)
			return
		}
		opt.Fence(begin)
	})
}

// precheck refuses a take-over before anybody is fenced if it would be refused afterwards: generations only grow.
func (d *Disk) precheck(done func(error)) {
	if !d.j.on || d.opt.Format {
		done(nil)
		return
	}
	d.readLabels(func(mark Mark, err error) {
		if err == nil {
			err = d.judge(mark)
		}
		done(err)
	})
}

// openVolatile begins empty, if the flash has no journal that would be written over.
func (d *Disk) openVolatile(done func(error)) {
	d.recovery.Fresh = true
	end := func(err error) {
		if err == nil {
			d.listen()
		}
		done(err)
	}
	if d.opt.Format {
		d.wipe(end)
		return
	}
	m := d.local()
	m.readLabel(func() {
		if m.found != labelNone {
			end(fmt.Errorf("the flash device has a journal, which a volatile cache would overwrite; %s", giveUp))
			return
		}
		end(nil)
	})
}

// wipe makes the labels on the flash unreadable.
func (d *Disk) wipe(done func(error)) {
	o := &op{d: d, mode: freeMode, marker: true, pending: 1}
	o.step = func(*op) {
		if o.flash {
			done(errLost)
			return
		}
		done(nil)
	}
	for i := range uint64(2) {
		d.local().write(o, i*labelCopy, [][]byte{make([]byte, block.SectorSize)})
	}
	o.less()
	d.pump()
}

// openJournal reads the labels of all that it is given, decides which flash is the newest, and goes on with
// what that has.
//
// Where another member has a copy of what is dirty, everything is destaged before anything is served. Until
// then that copy is as good as this one, so that the death of this flash loses nothing; afterwards
// it is left out, and joins anew.
func (d *Disk) openJournal(done func(error)) {
	d.readLabels(func(mark Mark, err error) {
		if err != nil {
			done(err)
			return
		}
		m := d.local()
		if d.opt.Format {
			if err := d.judgeFormat(); err != nil {
				done(err)
				return
			}
			d.noteGivenUp()
			d.format(mark, done)
			return
		}
		if err := d.judge(mark); err != nil {
			done(err)
			return
		}
		if m.found == labelNone {
			d.fresh(mark, done)
			return
		}
		d.cache, d.marks.generation = m.label.cache, m.label.generation
		d.recoverJournal(func(err error) {
			if err != nil {
				done(err)
				return
			}
			d.resume(mark, done)
		})
	})
}

func (d *Disk) readLabels(done func(Mark, error)) {
	pending := len(d.members)
	var mark Mark
	read := func() {
		if pending--; pending > 0 {
			return
		}
		if err := d.fit(); err != nil {
			done(mark, err)
			return
		}
		if d.opt.Witness == nil {
			done(mark, nil)
			return
		}
		d.opt.Witness.Load(func(m Mark, err error) {
			if err != nil {
				err = fmt.Errorf("it cannot be determined which flash is the newest: %w", err)
			}
			if m.NAA != d.info.NAA {
				m = Mark{}
			}
			done(m, err)
			d.pump()
		})
	}
	for _, m := range d.members {
		m.readLabel(read)
	}
}

// format begins a new cache on the flash and on all peers: nothing of the old one is left that could be
// taken for the newest.
func (d *Disk) format(mark Mark, done func(error)) {
	o := &op{d: d, mode: freeMode, marker: true, pending: 1}
	d.cache = d.newID()
	for _, m := range d.members[1:] {
		l := d.newLabel(m, 0)
		l.state = labelVoid
		m.writeLabel(o, l)
	}
	o.step = func(*op) {
		for _, m := range d.members[1:] {
			if m.state == memberLost {
				done(fmt.Errorf("peer %s does not take a new label, and may have a copy of the data that a format gives up; repair it, or leave it out", m.peer.Name))
				return
			}
		}
		d.fresh(mark, done)
	}
	o.less()
	d.pump()
}

// fresh begins with an empty journal. The old label is void first, or its journal would be half written
// over when it still counts.
func (d *Disk) fresh(mark Mark, done func(error)) {
	d.recovery.Fresh = true
	d.cache = d.newID()
	if d.marks.generation = d.highest(mark); d.marks.generation > 0 {
		d.marks.generation += generationStep
	}
	d.j.where = 1
	begin := func(err error) {
		if err != nil {
			done(err)
			return
		}
		d.start(func(err error) {
			if err != nil {
				done(err)
				return
			}
			d.serve(done)
		})
	}
	if d.local().found == labelNone && !d.opt.Format {
		begin(nil)
		return
	}
	d.wipe(begin)
}

// start writes a snapshot of this opening, and then the label that makes it count: what older ones
// say about frames that are used from now on must not.
func (d *Disk) start(done func(error)) {
	m := d.local()
	copies := max(int(m.label.copies), 1)
	if d.cache != m.label.cache {
		copies = 1
	}
	d.incarnation = d.newID()
	d.j.firstEpoch = d.j.epoch + 1
	d.j.renew()
	o := &op{d: d, mode: freeMode, marker: true}
	// then runs a step when what begin started has ended, unless the flash failed.
	then := func(begin func(), step func()) {
		o.pending = 1
		o.step = func(*op) {
			if o.flash || m.state != memberPresent {
				done(errLost)
				return
			}
			step()
		}
		begin()
		o.less()
	}
	then(func() { d.j.await(o) }, func() {
		then(func() { d.syncAll(o) }, func() {
			then(func() { m.writeLabel(o, d.newLabel(m, copies)) }, func() { done(nil) })
		})
	})
	d.pump()
}

// resume goes on with what was recovered.
func (d *Disk) resume(mark Mark, done func(error)) {
	if d.local().label.flushed && d.clean() {
		d.volatile.flushed, d.sealed = d.volatile.ended, sealOn // by whoever closed it
	}
	alternates := d.alternates()
	better := d.alternate()
	if better != nil && d.recovery.Damaged > 0 {
		done(fmt.Errorf("%d sectors on the flash device are damaged, and peer %s has them; take over from that, or start without it to give them up", d.recovery.Damaged, better.peer.Name))
		return
	}
	// What is dirty may have been flushed by an earlier process: it must not get volatile below. Nor may what is written
	// in the place of something that was flushed, and is damaged.
	d.barriers = !d.clean() || len(d.damaged) > 0 || d.enduring()
	d.start(func(err error) {
		if err != nil {
			done(err)
			return
		}
		d.listen()
		if !alternates && (mark.Generation >= d.marks.generation || d.opt.Witness == nil) {
			d.leaveAlone()
			done(nil) // there is nobody to be left out
			return
		}
		if !alternates || d.clean() {
			d.serve(done)
			return
		}
		ended := false
		if better != nil {
			d.unreadAtOpen = func() {
				if !ended {
					ended = true
					d.stopDestaging(func() {
						done(fmt.Errorf("sectors on the flash device cannot be read, and peer %s has them; take over from that, or start without it to give them up", better.peer.Name))
					})
				}
			}
		}
		o := &op{d: d, mode: freeMode}
		var wait func(*op)
		wait = func(*op) {
			if ended {
				return
			}
			ended = d.clean() || d.local().state != memberPresent
			switch {
			case d.clean():
				d.serve(done)
			case d.local().state != memberPresent:
				done(errLost)
			default:
				d.waiters = append(d.waiters, waiter{clean: true, fn: func() { wait(o) }})
			}
		}
		wait(o)
		d.review()
		d.pump()
	})
}

// serve marks those that are not members as left out.
func (d *Disk) serve(done func(error)) {
	if d.recovery.Fresh {
		d.listen()
	}
	o := &op{d: d, mode: freeMode}
	o.step = func(*op) {
		switch {
		case d.local().state != memberPresent:
			done(errLost)
		case o.unmarked:
			done(fmt.Errorf("it cannot be recorded that this flash is the newest: %w", d.marks.refusal))
		default:
			d.leaveAlone()
			done(nil)
		}
	}
	if d.opt.TakeOver {
		d.marks.generation += generationStep
	}
	d.marks.due = true
	d.awaitMarks(o)
	d.pump()
}

// alternate returns a peer that has all that is dirty here, as of its label; nil if there is none, or if this
// is such a peer's flash.
func (d *Disk) alternate() *member {
	l := &d.local().label
	for _, m := range d.members[1:] {
		if !d.opt.TakeOver && m.found == labelOurs && m.label.state == labelMember && m.label.cache == l.cache && m.label.generation == l.generation {
			return m
		}
	}
	return nil
}

// stopDestaging ends a disk that cannot be opened: nothing of it must be on its way below any more.
func (d *Disk) stopDestaging(done func()) {
	d.closed, d.turn.pausedTo = true, 1<<63-1
	if d.turn.inflight == 0 {
		done()
		return
	}
	d.exec.At(d.exec.Now()+1_000_000, func() { d.stopDestaging(done) })
}
