package sim

import (
	"bytes"
	"testing"
)

// TestTortureOfBadPages is TestTorture on arrays of which nearly all leaves of maps are absent, and where half of what goes wrong is
// that pages of these are damaged, fail to be read, or do not come for longer than hosts wait.
func TestTortureOfBadPages(t *testing.T) {
	n := *tortureSeeds
	if n > 1 {
		n = min((n+9)/10, 200)
	}
	switch {
	case testing.Short():
		n = min(n, 8)
	case raceEnabled:
		n = min(n, 20)
	}
	all := runTorture(t, n, func(seed uint64) *torture {
		m := newTorture(seed)
		m.opt.MapBytes, m.pagesOften = max(1, m.opt.MapBytes), true
		return m
	})
	lost, failed := all.of[lostPages], all.of[failedPages]
	if t.Logf("%d seeds, of them with pages that do not come %d, with pages that fail %d", all.seeds, lost, failed); all.seeds >= 50 && (lost < 5 || failed < 5) {
		t.Error("the test shows too little")
	}
}

// badPages is what becomes of reads of pages of maps.
type badPages struct {
	of     uint64 // so many of 4 are bad
	hang   uint64 // of these, so many of 4 do not come; of the others some are damaged, and some fail
	held   []func()
	failed int
}

// read answers a read of a page, or keeps the answer.
func (b *badPages) read(s *tortureStore, value []byte, err error, done func([]byte, error)) {
	if b.of > 0 && s.rng.N(4) < b.of {
		s.lastBad = s.exec.Now()
		switch {
		case s.rng.N(4) < b.hang:
			b.held = append(b.held, func() { s.later(func() { done(value, err) }) })
			return
		case s.rng.N(2) == 0 && len(value) > 0:
			value = bytes.Clone(value)
			value[s.rng.N(uint64(len(value)))] ^= 1
		default:
			value, err = nil, errTorture
		}
		b.failed++
	}
	s.later(func() { done(value, err) })
}

// come has those come that did not.
func (b *badPages) come(s *tortureStore) {
	held := b.held
	b.held = nil
	for _, answer := range held {
		answer()
	}
	s.lastBad = s.exec.Now()
}

// losesPages has pages of maps be bad for a while: commands that need one end with an error, in time, and all others go on. Behind a
// page of the garbage that cannot be read its space stays taken until the next start, so that one comes.
func (m *torture) losesPages() {
	if m.opt.MapBytes == 0 {
		m.powerCut()
		return
	}
	b := &m.store.pages
	b.of, b.hang, b.failed = 1+m.rng.N(4), m.rng.N(5), 0
	m.note("%d of 4 pages of maps are bad, of these %d of 4 do not come", b.of, b.hang)
	for range 1 + m.rng.N(20) {
		m.step()
		switch m.rng.N(12) {
		case 0:
			m.exec.RunUntil(m.exec.Now() + int64(m.rng.N(40e9)))
		case 1:
			b.come(m.store)
		case 2:
			lun := int(m.rng.N(uint64(len(m.vols))))
			m.wide(m.vols[lun], lun)
		}
		if len(b.held) > 0 {
			m.saw(lostPages)
		}
	}
	if m.rng.N(2) == 0 {
		m.within(outageBound, func() bool { return m.tasks == 0 }, "commands to end while pages of maps are bad")
	}
	if m.bad == "" && m.rng.N(6) == 0 {
		m.stopAndStart()
		return
	}
	m.note("pages of maps can be read")
	b.of = 0
	b.come(m.store)
	if b.failed > 0 {
		m.saw(failedPages)
		m.powerCut()
	}
}
