package sim

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// trouble is one thing that goes wrong, or is changed.
func (m *torture) trouble() {
	pools := m.arr.Pools()
	p := pools[m.rng.N(uint64(len(pools)))]
	disk := p.Stats().Mdisks[m.rng.N(2)].Name
	key := p.Name() + "." + disk
	if m.pagesOften && m.rng.N(2) == 0 {
		m.losesPages()
		return
	}
	switch m.rng.N(34) {
	case 0, 1:
		tag, lun := m.tag-m.rng.N(min(m.tag, 8)), uint64(m.rng.N(uint64(len(m.vols))))
		m.note("abort tag %d on LUN %d", tag, lun)
		for _, n := range m.nexus {
			m.manage(n, scsi.AbortTask, lun, tag)
		}
	case 2:
		lun := m.rng.N(uint64(len(m.vols)))
		m.note("reset LUN %d", lun)
		m.manage(m.nexus[0], scsi.LogicalUnitReset, lun, 0)
	case 3:
		ok := m.rng.N(2) == 0
		m.note("mirrored: %v", ok)
		m.arr.SetMirrored(ok)
	case 4, 5:
		factor := int64(1+m.rng.N(30)) * 1000
		m.note("%s takes %d times as long", key, factor/1000)
		m.timed.Slow(key, factor)
	case 6, 7, 8:
		m.down[key] = !m.down[key]
		m.note("%s offline: %v", key, m.down[key])
		if err := p.SetMdiskOffline(disk, m.down[key]); err != nil {
			m.fail("%s: %v", key, err)
		}
	case 9:
		m.note("another policy")
		if err := m.arr.SetPolicy(m.policy()); err != nil {
			m.fail("policy: %v", err)
		}
	case 10:
		mode := array.WriteMode(m.rng.N(3))
		m.note("pool %s write mode %d", p.Name(), mode)
		p.SetWriteMode(mode)
	case 11, 12:
		m.poolsChange()
	case 13, 14:
		m.churn()
	case 15, 16:
		m.resize()
	case 17:
		m.outage()
	case 18:
		m.crowdLog()
	case 19:
		m.losesMeta()
	case 20:
		m.failsOnce()
	case 21, 22:
		m.checkpoint()
	case 23:
		m.heldCopy()
	case 24, 25:
		if !m.armed() {
			m.note("from now on NVRAM can be lost")
			m.store.arm()
			m.cutIn = 1 + int(m.rng.N(12))
		}
	case 26:
		m.stopAndStart()
	case 27, 28, 29:
		m.shakyMeta()
	case 31:
		m.losesPages()
	case 32, 33:
		m.doubtUnderWay()
	default:
		m.powerCut()
	}
}

func (m *torture) manage(n *scsi.Nexus, fn scsi.TMF, lun, tag uint64) {
	m.tasks++
	era := m.era
	n.Manage(fn, lun<<48, tag, func(scsi.TMFResponse) {
		if era == m.era {
			m.tasks--
		}
	})
}

// armed reports whether a power cut now takes what is not flushed.
func (m *torture) armed() bool { return m.store.stable != nil }

// powerCut kills the array: another one recovers from what it left.
func (m *torture) powerCut() {
	if m.bad != "" {
		return
	}
	if m.armed() {
		m.saw(lossyCut)
	}
	for _, c := range m.store.queue {
		if c.pages() {
			m.saw(cutCheckpoint)
		}
	}
	m.note("power cut, NVRAM is lost: %v", m.armed())
	m.era++
	m.tasks, m.copies, m.cutIn, m.asked = 0, 0, 0, 0
	m.tokens, m.held = [3]*tortureToken{}, false
	m.down = map[string]bool{}
	for _, v := range m.vols {
		m.died(v)
	}
	exec := &block.Virtual{Late: m.exec.Late}
	exec.RunUntil(m.exec.Now())
	m.exec, m.store = exec, m.store.reopen(exec)
	if m.open() {
		m.findObjects()
		m.login()
		m.check()
	}
}

// stopAndStart stops the array when its commands have ended, whatever fails meanwhile, and starts another one, perhaps
// behind a loss of NVRAM. That takes nothing of what an array has acknowledged which stopped without an error.
func (m *torture) stopAndStart() {
	fails := m.rng.N(4) // 1: flushes, 2: commits
	m.note("the array is to stop; flushes fail: %v, commits fail: %v", fails == 1, fails == 2)
	m.store.flushBad, m.store.metaBad = fails == 1, fails == 2
	if m.rng.N(2) == 0 {
		m.step()
	}
	m.within(outageBound, func() bool { return m.tasks == 0 }, "the tasks to end before a stop")
	if m.bad != "" {
		return
	}
	m.revoke()
	if !m.armed() && m.rng.N(2) == 0 {
		m.store.arm()
	}
	ended, asked, answered := false, m.rng.N(3) == 0, false
	var err error
	m.arr.Stop(func(e error) {
		if ended, err = true, e; asked && !answered {
			m.fail("the array has stopped, and a change has no answer")
		}
	})
	if asked {
		m.arr.SetBlob("late", []byte("x"), func(error) { answered = true })
	}
	m.within(outageBound, func() bool { return ended }, "the array to stop")
	m.note("it has stopped: %v", err)
	switch {
	case m.bad != "":
		return
	case err == nil:
		m.saw(stopped)
		for _, v := range m.vols {
			for k := range v.units {
				v.units[k].was = nil
			}
		}
	case fails == 0 || fails == 3:
		m.fail("nothing fails, and the array stops with %v", err)
	default:
		m.saw(failedStop)
	}
	m.store.flushBad = false
	m.powerCut()
}

// repair ends all trouble.
func (m *torture) repair() {
	if m.bad != "" {
		return
	}
	m.note("repair")
	m.arr.SetMirrored(true)
	for _, p := range m.arr.Pools() {
		for _, d := range p.Stats().Mdisks {
			m.timed.Slow(p.Name()+"."+d.Name, 1000)
			if err := p.SetMdiskOffline(d.Name, false); err != nil {
				m.fail("repair: %v", err)
			}
		}
	}
}

// outageBound is how long commands may take while NVRAM cannot be flushed: one command may wait several times.
const outageBound = 200e9

// outage has flushes of NVRAM fail for a while. All commands end all the same.
func (m *torture) outage() {
	m.note("flushes of NVRAM fail")
	m.store.flushBad = true
	for range 1 + m.rng.N(30) {
		m.step()
	}
	if m.tasks > 0 {
		m.saw(flushOutage)
	}
	if m.bad == "" && m.rng.N(2) == 0 {
		m.resizeTwice()
	}
	if m.rng.N(2) == 0 {
		m.within(outageBound, func() bool { return m.tasks == 0 }, "commands to end while flushes fail")
	} else {
		m.exec.RunUntil(m.exec.Now() + int64(m.rng.N(5e9)))
	}
	m.note("flushes of NVRAM succeed")
	m.store.flushBad = false
}

// heldCopy has a token hold what a thick volume has given up, in a pool whose other space is all reserved, and places it
// in a thin volume: what is promised to the thick one has to stay.
func (m *torture) heldCopy() {
	lun := int(m.rng.N(uint64(len(m.vols))))
	v := m.vols[lun]
	if !m.odx || v.unit == nil || v.thin {
		return
	}
	m.note("a token is to hold the last space of %s", v.pool)
	first := m.rng.N(uint64(len(v.units))) &^ 15 // whole windows
	n := v.together(first, 64)
	idle := func() bool { return m.tasks == 0 }
	m.until(idle, "the tasks to end")
	do := func(fn func(v *tortureVolume, lun int, first, n uint64)) {
		if m.bad == "" && !v.busy(first, n) {
			v.take(first, n)
			fn(v, lun, first, n)
			m.until(idle, "the tasks to end")
		}
	}
	do(m.write)
	if m.bad == "" {
		m.fill(v.pool)
	}
	k := m.tokens
	do(m.populate)
	do(func(v *tortureVolume, lun int, first, n uint64) {
		m.change(v, first, n, 0)
		cdb := cdb16(0x93, v.lba(first), n)
		cdb[1] = 1 // NDOB
		m.task(lun, cdb, nil, 0, m.finish(v, first, n, "zero"))
	})
	for lun, w := range m.vols {
		if w.pool != v.pool || !w.thin || w.unit == nil || m.bad != "" || w.busy(0, w.together(0, n)) {
			continue
		}
		for i := range m.tokens {
			if m.tokens[i] != k[i] {
				m.saw(heldInFull)
				to := w.together(0, n)
				w.take(0, to)
				m.placeToken(m.tokens[i], w, lun, 0, to)
				m.until(idle, "the tasks to end")
				m.revoke()
				m.checkSpace()
				return
			}
		}
	}
}

// revoke ends all tokens: nothing is held any more.
func (m *torture) revoke() {
	m.target.RevokeTokens()
	m.tokens, m.held = [3]*tortureToken{}, false
	m.exec.RunUntil(m.exec.Now() + 1e6)
}

// crowdLog sends map edits of which one needs half of a small log, before and behind it some that leave it no room, and
// then nothing: each ends.
func (m *torture) crowdLog() {
	m.note("the log gets crowded")
	about := 40 + m.rng.N(24)
	for _, units := range []uint64{about, about, 128, about, about} {
		for range 8 {
			v, lun, first, n, ok := m.free(1)
			if !ok {
				continue
			}
			v.release(first, n)
			if n = v.together(first, units); n == units && v.thin && !v.busy(first, n) {
				v.take(first, n)
				m.unmapBy(v, lun, first, n, 1, 0, "unmap")
				m.saw(logWaiters)
				break
			}
		}
	}
	m.within(outageBound, func() bool { return m.tasks == 0 }, "those who wait for the log")
}

// checkpoint fills half of a small log, so that a checkpoint begins, and changes maps while that is written, in
// many batches where they are small; the power may go between two of them.
func (m *torture) checkpoint() {
	if m.opt.LogBytes == 0 {
		return
	}
	m.note("a checkpoint has to come")
	before := m.store.commits
	for range 4 {
		if v, lun, first, n, ok := m.free(128); ok && v.thin {
			m.unmapBy(v, lun, first, n, 1, 0, "unmap")
		} else if ok {
			v.release(first, n)
		}
	}
	for end := before + 1 + int(m.rng.N(16)); m.bad == "" && m.store.commits < end && m.rng.N(80) > 0; {
		if m.command(); m.rng.N(4) == 0 {
			lun := int(m.rng.N(uint64(len(m.vols))))
			m.wide(m.vols[lun], lun)
		}
		m.exec.RunUntil(m.exec.Now() + int64(m.rng.N(3e6)))
	}
	if m.store.commits > before+3 {
		m.saw(smallBatches)
	}
	if m.rng.N(2) == 0 {
		return
	}
	for range 100 { // the next batch may be on its way
		if slices.ContainsFunc(m.store.queue, metaCommit.pages) {
			break
		}
		m.exec.RunUntil(m.exec.Now() + 50e3)
	}
	m.powerCut()
}

// losesMeta has nothing be committed any more, whatever is tried, until the next start.
func (m *torture) losesMeta() {
	m.note("nothing can be committed any more")
	m.store.metaBad = true
	for range 1 + m.rng.N(2) {
		m.tryToChange()
		for range m.rng.N(15) {
			m.step()
		}
	}
	m.powerCut()
}

// failsOnce has one change of the objects fail. All others of them go on.
func (m *torture) failsOnce() {
	m.note("the next change of the objects fails")
	m.store.failObjects = true
	m.tryToChange()
	m.until(func() bool { return m.asked == 0 }, "a change of which the first batch fails")
	m.store.failObjects = false
}

// tryToChange changes the objects when that cannot be committed.
func (m *torture) tryToChange() {
	switch m.rng.N(6) {
	case 4, 5:
		m.shakyPool("x0")
	case 0:
		m.churn()
	case 1:
		m.deletePool()
	case 2:
		m.failToCreate()
	case 3:
		m.resize()
	}
}
