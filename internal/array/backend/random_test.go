package backend

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// scrub begins a step of a few runs.
func (m *model) scrub() {
	ended := false
	s := NewScrubber(m.rnd.IntN(2) == 0, ScrubHooks{
		Failed: func(*Op) {},
		Mended: func(*Op) {},
		Ended:  func(*Op) { m.checks-- },
		Idle: func() {
			if ended {
				m.fatalf("a step of a scrub ends twice")
			}
			ended = true
			m.scrubs--
		},
	})
	m.scrubs++
	s.Begin()
	for range m.rnd.IntN(4) {
		d := m.disks[m.rnd.IntN(len(m.disks))]
		page := m.rnd.Uint64N(modelPages)
		m.checks++
		s.Check(d.Mdisk, page*layout.PageBytes, make([]byte, layout.PageBytes), page*layout.PageSectors)
	}
	s.End()
}

// setOffline takes an mdisk away or gives it back.
func (m *model) setOffline(d *modelDisk, away bool) {
	if d.Offline() == away {
		return
	}
	d.SetOffline(away)
	for parked := d.parked; !away && len(parked) > 0; parked = parked[1:] {
		d.parked = d.parked[1:]
		m.send(parked[0])
	}
}

func (m *model) act() {
	d := m.disks[m.rnd.IntN(len(m.disks))]
	switch m.rnd.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6:
		m.write(d)
	case 7, 8, 9, 10, 11:
		m.startRead(d)
	case 12, 13, 14:
		m.sync()
	case 15:
		m.scrub()
	case 16:
		d.m.silent = m.faulty && m.rnd.IntN(2) == 0
	case 17:
		d.m.answer()
	case 18:
		m.setOffline(d, m.faulty && m.rnd.IntN(4) == 0)
	case 19:
		if m.rnd.IntN(4) == 0 {
			m.clock.RunUntil(m.clock.Now() + m.rnd.Int64N(Patience))
		}
	}
	m.step()
	m.clock.RunUntil(m.clock.Now() + m.rnd.Int64N(50_000_000))
	m.check()
}

// check compares what is counted with what is there.
func (m *model) check() {
	m.checkLimits()
	waited := 0
	for _, d := range m.disks {
		waited += len(d.Mdisk.reads)
		for i, x := range d.Mdisk.reads {
			if x.place != i || !x.waited || x.Ctx.(*modelRead).ended {
				m.fatalf("mdisk %s: read %d of its list has place %d", d.Name(), i, x.place)
			}
		}
		if d.out > d.depth || d.out < 0 {
			m.fatalf("mdisk %s: %d operations are out of %d", d.Name(), d.out, d.depth)
		}
	}
	if waited != m.b.WaitedFor() {
		m.fatalf("%d reads are counted, %d are there", m.b.WaitedFor(), waited)
	}
	seen := map[*Op]bool{}
	for x := m.b.free; x != nil; x = x.next {
		if seen[x] {
			m.fatalf("an operation is free twice")
		}
		seen[x] = true
	}
}

// settle ends all faults and lets everything go on to its end.
func (m *model) settle() {
	m.faulty = false
	for _, d := range m.disks {
		m.setOffline(d, false)
		d.m.answer()
	}
	m.step()
	m.clock.Run()
	m.sync()
	m.clock.Run()
	m.check()
	for _, d := range m.disks {
		if len(d.busy)+len(d.written)+len(d.redo)+len(d.parked)+d.depth+d.out > 0 || d.Redoing() || m.scrubs+m.checks > 0 {
			m.fatalf("mdisk %s: %d writes, %d written, %d in a redo, %d operations are left, %d scrubs", d.Name(), len(d.busy), len(d.written), len(d.redo), d.depth, m.scrubs)
		}
		for s, want := range d.newest {
			if got, ok := versionOf(d.m.durable[s*block.SectorSize:]); !ok || got != want {
				m.fatalf("mdisk %s, sector %d: version %d is durable, not %d", d.Name(), s, got, want)
			}
		}
		for dir, write := range []bool{false, true} {
			for o := range block.NumOrigins {
				for why := range block.NumReasons {
					want := d.moved[[3]int{dir, int(o), int(why)}]
					if _, got := d.Moved(write, o, why); got != want {
						m.fatalf("mdisk %s, write %v, %v, %v: %d bytes are counted, %d were moved", d.Name(), write, o, why, got, want)
					}
				}
			}
		}
	}
	for _, q := range m.reads {
		if !q.ended || q.gone && !bytes.Equal(q.buf, bytes.Repeat([]byte{0xaa}, len(q.buf))) {
			m.fatalf("a read at %d never ended, or moved data after it was given up: %v", q.first, q.ended)
		}
	}
}

func TestRandomUse(t *testing.T) {
	seed := testkit.Seed(t)
	var abandoned, redone, rewrites, failed, gaveUp int
	for round := range 60 {
		m := newModel(t, seed, round)
		for range 300 {
			m.act()
		}
		m.settle()
		abandoned, redone, rewrites = abandoned+m.abandoned, redone+m.redone, rewrites+m.rewrites
		failed, gaveUp = failed+m.failedWrites, gaveUp+m.gaveUp
	}
	t.Logf("%d reads were abandoned, %d redos took %d attempts, %d writes failed, waiters ended %d times", abandoned, redone, rewrites, failed, gaveUp)
	if min(abandoned, redone, failed, gaveUp) == 0 || rewrites <= redone {
		t.Errorf("-seed %d: something of this never happened", seed)
	}
}
