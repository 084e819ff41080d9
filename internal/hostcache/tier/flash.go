package tier

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// member is a flash device that has the dirty data: the host's own, or a peer's. A
// peer's is a copy of the host's own, at the same offsets, of all that a peer needs
// to take over: the journal, and the data of writes that were acknowledged from flash.
type member struct {
	d      *Disk
	medium block.Medium
	peer   *Peer // nil: the host's own
	state  memberState
	label  label
	found  labelFound
	alone  string // why it is left alone, if it is
	asked  bool   // its label was read since it was last not wanted

	syncing bool
	due     []*part // wait for the sync after the present one
	riding  []*part // wait for the present one
	// writes counts those that have ended; synced is how many of them survive power loss.
	writes, synced uint64
}

// memberState is what a member has, and what it gets.
type memberState uint8

const (
	memberSpare    memberState = iota // on offer
	memberWanted                      // is to join with the next snapshot
	memberJoining                     // gets every write, and the snapshot that makes its copy whole
	memberWhole                       // joins as well, has the whole snapshot, and waits for its label
	memberLabelled                    // joins as well, and its label says, or may say already, that it is present
	memberPresent                     // has all that it should have, and gets every write
	memberFailing                     // takes no write; what is dirty is nowhere else, and is read here
	memberLost                        // neither read nor written
	memberAsked                       // is on offer, and its label is being read
)

// written tells whether the member gets every write.
func (m *member) written() bool { return m.state == memberPresent || m.joins() }

// joins tells whether the member gets every write and is no copy yet.
func (m *member) joins() bool {
	return m.state == memberJoining || m.state == memberWhole || m.state == memberLabelled
}

// write puts data at a byte offset of the flash; the op hears of it.
func (m *member) write(o *op, off uint64, vec [][]byte) {
	p := m.d.newPart(o)
	p.vec = append(p.vec, vec...)
	m.submit(p, true, off)
}

func (m *member) read(o *op, off uint64, vec [][]byte) {
	m.readRange(o, off, vec, block.Range{}, false)
}

// readRange reads sectors of the device; dirty ones are on other members, too.
func (m *member) readRange(o *op, off uint64, vec [][]byte, r block.Range, dirty bool) {
	p := m.d.newPart(o)
	p.vec = append(p.vec, vec...)
	p.at, p.dirty = r, dirty
	m.submit(p, false, off)
}

func (m *member) submit(p *part, write bool, off uint64) {
	p.m, p.onFlash, p.write, p.off = m, true, write, off
	p.o.onFlash++
	m.send(p)
}

func (m *member) send(p *part) {
	p.began = m.d.exec.Now()
	p.io = block.IO{Write: p.write, Off: p.off, Vec: p.vec, N: uint64(block.VecLen(p.vec)), Ctx: p, Done: flashDone}
	if m.state == memberLost || p.write && m.state == memberFailing {
		p.io.Err = errLost
		m.d.exec.Post(func() { flashDone(&p.io) })
		return
	}
	ios := [1]*block.IO{&p.io}
	m.medium.Submit(ios[:])
}

// flashDone is Done of every transfer of a medium.
func flashDone(io *block.IO) {
	p := io.Ctx.(*part)
	m := p.m
	d := m.d
	if io.Err != nil && m.again(p) {
		return
	}
	if io.Err == nil && p.write {
		m.writes++
		if d.opt.PowerSafe {
			m.due = append(m.due, p)
			m.sync()
			return
		}
	}
	m.finish(p, io.Err)
	d.pump()
}

// A write that fails is tried again after 1, 10 and 100 ms: one error says nothing of the device.
const (
	writeTries   = 3
	firstBackoff = 1_000_000
)

// longTry is the time after which a write that fails is not tried again: its device has waited for somebody who does not answer,
// and would do so once more.
const longTry = 1_000_000_000

// again tries a transfer that failed once more: a read at once, and then on the other members that have it.
func (m *member) again(p *part) bool {
	d := m.d
	if p.write {
		if p.tries >= writeTries || d.exec.Now()-p.began >= longTry || !m.written() && m.state != memberSpare && m.state != memberWanted {
			return false
		}
		wait := int64(firstBackoff)
		for range p.tries {
			wait *= 10
		}
		p.tries++
		d.exec.At(d.exec.Now()+wait, func() { m.send(p) })
		return true
	}
	if p.o.cancelled {
		return false
	}
	if p.tries++; p.tries == 1 && m.state != memberLost {
		m.send(p)
		return true
	}
	if !p.dirty {
		return false
	}
	past := false
	for _, x := range d.members {
		if past && x.state == memberPresent {
			p.m, p.tries = x, 0
			x.send(p)
			return true
		}
		past = past || x == m
	}
	return false
}

// sync makes what was written survive power loss; writes that end while a sync is
// under way share the next one.
func (m *member) sync() {
	if m.syncing || len(m.due) == 0 {
		return
	}
	m.syncing = true
	at := m.writes
	m.riding, m.due = m.due, m.riding[:0]
	end := func(err error) {
		m.syncing = false
		if err == nil {
			m.synced = max(m.synced, at)
		} else {
			// What was written while it ran may be what it has lost, and the next one would not be told.
			m.riding = append(m.riding, m.due...)
			clear(m.due)
			m.due = m.due[:0]
		}
		for i, p := range m.riding {
			m.riding[i] = nil
			p.write = true
			m.finish(p, err)
		}
		m.sync()
		m.d.pump()
	}
	if m.state == memberLost {
		// It may be one that does not answer, and they have waited for the one before already.
		m.d.exec.Post(func() { end(errLost) })
		return
	}
	m.medium.Sync(end)
}

// syncFor is a sync for an op that asks for it.
func (m *member) syncFor(o *op) {
	p := m.d.newPart(o)
	p.m, p.onFlash = m, true
	o.onFlash++
	m.due = append(m.due, p)
	m.sync()
}

// syncAll makes all that has been written to the members so far survive power loss. It tells whether there is
// anything to wait for.
func (d *Disk) syncAll(o *op) (some bool) {
	for _, m := range d.members {
		if m.written() && m.synced < m.writes {
			m.syncFor(o)
			some = true
		}
	}
	return some
}

// sync runs a step of an op when all that has been written to the members so far survives power loss.
func (d *Disk) sync(o *op, step func(*op)) {
	o.step = step
	o.pending = 1
	d.syncAll(o)
	o.less()
}

func (m *member) finish(p *part, err error) {
	o, d := p.o, m.d
	write := p.write
	o.onFlash--
	if err != nil {
		if m.peer == nil || !write {
			o.flash = true
			d.window.errors.flash++
		}
		if !write {
			o.unread = append(o.unread, p.at)
		}
	}
	d.freePart(p)
	if err != nil && write {
		d.giveUp(m)
		if (d.marks.due || d.marks.busy) && !o.marker {
			// What this op acknowledges, the one that was left out has not.
			d.marks.waiting = append(d.marks.waiting, o)
			d.release(o)
			d.mark()
			return
		}
	}
	o.less()
}

// local is the host's own flash.
func (d *Disk) local() *member { return d.members[0] }

// source is the member that dirty data is read from, nil if none has it any more.
func (d *Disk) source() *member {
	for _, m := range d.members {
		if m.state == memberPresent || m.state == memberFailing {
			return m
		}
	}
	return nil
}

// recording tells whether a member takes the journal's records.
func (d *Disk) recording() bool { return slices.ContainsFunc(d.members, (*member).written) }

// giveUp goes on without a flash device that takes no writes. The others say that it was left out before
// anything more is acknowledged. The last one is read until it has nothing dirty any more.
func (d *Disk) giveUp(m *member) {
	was := m.state
	switch was {
	case memberFailing, memberLost:
		return
	}
	m.state = memberLost
	switch {
	case was == memberPresent && d.source() == nil:
		m.state = memberFailing
		d.marks.owed, d.marks.unstored = d.j.on, false
	case was == memberPresent || was == memberLabelled: // its label may say that it has all that the others have
		d.marks.due, d.marks.unstored = true, false
	}
	d.without(m)
}

// without follows the loss of a member.
func (d *Disk) without(m *member) {
	if m.peer == nil {
		d.stats.FlashLost++
		d.dropClean()
	} else {
		d.stats.PeersLost++
	}
	if d.marks.due && !d.opening {
		d.mark()
	}
	if d.marks.owed && d.clean() {
		d.settleOwed()
	}
	d.review()
	d.tell(block.EventHealth)
}

// settleOwed has the last member marked: there is nothing to be had from it any more.
func (d *Disk) settleOwed() {
	if d.marks.owed {
		d.marks.owed, d.marks.due = false, true
		d.mark()
	}
}

// lose goes on without a flash device, whatever it has.
func (d *Disk) lose(m *member) {
	if m.state == memberLost {
		return
	}
	was := m.state
	m.state = memberLost
	if was == memberPresent || was == memberFailing || was == memberLabelled {
		d.marks.due, d.marks.unstored = d.j.on, false
		if d.source() == nil {
			// What was dirty is nowhere any more. It must not be read as what it was before.
			d.loseDirty()
		}
	}
	d.without(m)
}

// loseDirty makes the dirty sectors unreadable until they are written again.
func (d *Disk) loseDirty() {
	d.eachDirty(block.Range{Count: d.info.Sectors}, func(r block.Range) bool {
		d.damage(r)
		return true
	})
	d.dropAll()
}

// damage makes sectors unreadable until they are written again, at later starts too.
func (d *Disk) damage(r block.Range) {
	d.damaged.add(r)
	d.stats.LostSectors += r.Count
	d.j.ranged(recDamaged, r)
}

// flashOffset returns where a sector of a frame is on flash, in bytes.
func (d *Disk) flashOffset(frame uint32, sector int) uint64 {
	return d.dataStart + (uint64(frame)*uint64(d.per)+uint64(sector))<<block.SectorShift
}

// Slice returns n bytes of a medium from off on as a medium: several disks share a
// flash device by slices of it.
func Slice(m block.Medium, off, n uint64) block.Medium { return slice{m, off, n} }

type slice struct {
	block.Medium
	off, n uint64
}

func (s slice) Size() uint64 { return s.n }

func (s slice) Submit(ios []*block.IO) {
	for _, io := range ios {
		io.Off += s.off
	}
	s.Medium.Submit(ios)
}
