package scsi_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// maskRig is a target of one unit, which hosts a and b have at LUN 0, each by a map of its own.
type maskRig struct {
	*rig
	d     *scsitest.Device
	u     *scsi.Unit
	delay int64
}

func newMaskRig(t *testing.T) *maskRig {
	m := &maskRig{rig: &rig{TB: t, exec: &block.Virtual{}}}
	m.tg = scsi.NewTarget(scsi.Options{Exec: m.exec, Delay: func(*scsi.Task) int64 { return m.delay }})
	m.d = scsitest.NewDevice(m.exec, scsitest.Ready(1, 2048, 512, true))
	m.u = m.tg.AddUnit(m.d, scsi.UnitOptions{})
	m.show(initiatorA)
	m.show(initiatorB)
	m.a, m.b = m.login(initiatorA), m.login(initiatorB)
	m.log = nil
	return m
}

func (m *maskRig) show(name string) {
	if err := m.tg.Map(name, 0, m.u); err != nil {
		m.Fatal(err)
	}
}

// mask takes the LUN away from a host; the log tells when what it sent has ended.
func (m *maskRig) mask(name string) {
	before := len(m.log)
	m.tg.Remap(func() { m.tg.Unmap(name, 0) }, func() { m.log = append(m.log, "unmapped") })
	if len(m.log) != before {
		m.Fatal("something ended inside Remap")
	}
}

// write is a WRITE of one block of this byte to LBA 0.
func (m *maskRig) write(name string, b byte) *scsi.Task {
	t := m.task(name, 0, write1)
	t.DataOut = [][]byte{bytes.Repeat([]byte{b}, 512)}
	return t
}

// holds checks what block 0 has.
func (m *maskRig) holds(want byte) {
	m.Helper()
	if got := m.d.Data[0]; got != want {
		m.Errorf("the block has %02x, want %02x", got, want)
	}
}

func (m *maskRig) wrote(want int) {
	m.Helper()
	if got := m.d.Seen[block.OpWrite]; got != want {
		m.Errorf("%d WRITEs reached the device, want %d", got, want)
	}
}

// TestUnmappedCommandsEnd: when a host loses a LUN, what waits at the device is withdrawn, what that has begun ends as it would have,
// and nothing else of it begins; what another host has sent goes on.
func TestUnmappedCommandsEnd(t *testing.T) {
	m := newMaskRig(t)
	m.d.Hold = true
	m.submit(m.a, attr(m.write("o", 1), scsi.AttrOrdered), m.write("s1", 2), attr(m.write("s2", 3), scsi.AttrOrdered))
	m.submit(m.b, m.write("other", 4), attr(m.write("later", 5), scsi.AttrOrdered))
	m.mask(initiatorA)
	m.ended("o 5/25/00", "s1 5/25/00", "s2 5/25/00", "unmapped")
	m.wrote(2)
	m.d.Release(1)
	m.ended("other")
	m.holds(4)
	m.d.Release(1)
	m.ended("later")
	m.holds(5)

	m.show(initiatorA)
	m.submit(m.a, m.task("tur", 0, tur), m.task("tur", 0, tur), m.task("tur", 0, tur))
	m.ended("tur 6/29/00", "tur 6/3f/0e", "tur")
	m.d.Deaf = true
	m.submit(m.a, attr(m.write("o", 6), scsi.AttrOrdered), m.write("s", 7))
	m.mask(initiatorA)
	m.ended("s 5/25/00")
	m.d.Release(1)
	m.ended("o", "unmapped")
	m.holds(6)
	m.wrote(4)
}

// TestUnmappedCommandsInTheFrontEnd: what the front end is still at when its LUN goes does not begin when that is over, though the
// LUN is there again.
func TestUnmappedCommandsInTheFrontEnd(t *testing.T) {
	m := newMaskRig(t)
	m.delay = 5e6
	m.submit(m.a, m.write("w", 1))
	m.submit(m.b, m.write("other", 2))
	m.mask(initiatorA)
	m.show(initiatorA)
	m.exec.RunUntil(m.exec.Now() + 4e6)
	if len(m.log) != 0 {
		t.Fatalf("%q before the delay is over", m.log)
	}
	m.ended("w 5/25/00", "unmapped", "other")
	m.wrote(1)
	m.holds(2)
}

// TestUnmappedCommandOfManySteps: a VERIFY ends with the piece that the device has begun.
func TestUnmappedCommandOfManySteps(t *testing.T) {
	m := newMaskRig(t)
	m.d.Hold, m.d.Deaf = true, true
	m.submit(m.a, m.task("verify", 0, scsitest.CDB(0x8F, 0, 2048)))
	m.mask(initiatorA)
	m.ended()
	m.d.Release(1)
	m.ended("verify 5/25/00", "unmapped")
	if n := m.d.Seen[block.OpRead]; n != 1 {
		t.Errorf("%d pieces reached the device, want 1", n)
	}
}

// TestNoStaleWriteBehindUnmapping: a WRITE that runs on when its LUN has gone, or is there anew, is known to the task management functions
// of its nexus, and to its end: whatever a host does before it writes newer data, the older ones are not written over that.
func TestNoStaleWriteBehindUnmapping(t *testing.T) {
	tmf := func(fn scsi.TMF) func(m *maskRig) { return func(m *maskRig) { m.manage(m.a, fn, 0, 7) } }
	for _, c := range []struct {
		name   string
		end    func(m *maskRig)
		gone   string // its answer while there is no unit at the LUN,
		anew   string // and when it is there again
		aborts bool
	}{
		{"ABORT TASK", tmf(scsi.AbortTask), "tmf 0", "tmf 0", true},
		{"ABORT TASK of another", func(m *maskRig) { m.manage(m.a, scsi.AbortTask, 0, 8) }, "tmf 2", "tmf 1", false},
		{"ABORT TASK of another host", func(m *maskRig) { m.manage(m.b, scsi.AbortTask, 0, 7) }, "tmf 1", "tmf 1", false},
		{"ABORT TASK at another LUN", func(m *maskRig) { m.manage(m.a, scsi.AbortTask, 1, 7) }, "tmf 2", "tmf 2", false},
		{"ABORT TASK SET", tmf(scsi.AbortTaskSet), "tmf 0", "tmf 0", true},
		{"CLEAR TASK SET", tmf(scsi.ClearTaskSet), "tmf 2", "tmf 0", true},
		{"LOGICAL UNIT RESET", tmf(scsi.LogicalUnitReset), "tmf 2", "tmf 0", true},
		{"TARGET WARM RESET", tmf(scsi.TargetWarmReset), "tmf 0", "tmf 0", true},
		{"logout", func(m *maskRig) { m.a.Close(func() { m.log = append(m.log, "closed") }) }, "closed", "closed", true},
	} {
		for _, anew := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/anew=%v", c.name, anew), func(t *testing.T) {
				m := newMaskRig(t)
				m.d.Hold, m.d.Deaf = true, true
				m.submit(m.a, tagged(m.write("old", 1), 7))
				m.tg.Unmap(initiatorA, 0)
				answer := c.gone
				if anew {
					m.show(initiatorA)
					answer = c.anew
				}
				c.end(m)
				if !c.aborts {
					m.ended(answer)
					m.d.Release(1)
					m.ended("old")
					return
				}
				m.ended()
				m.d.Release(1)
				m.ended("old aborted", answer)
				if !anew {
					m.show(initiatorA)
				}
				m.d.Hold = false
				m.a = m.login(initiatorA)
				m.log = nil
				m.submit(m.a, m.write("new", 2))
				m.ended("new")
				m.holds(2)
			})
		}
	}
}

// TestRemapIsOneChange: who sees a unit at a LUN before and after a change of several steps keeps its commands, and what the unit keeps
// for it.
func TestRemapIsOneChange(t *testing.T) {
	r, units := newPair(t)
	r.log, r.devs[0].Hold = nil, true
	r.submit(r.a, r.task("read", 0, read1))
	r.tg.Remap(func() {
		for i, lun := range []uint16{3, 0} { // a map of its own, which begins empty: LUN 0 comes back last
			if err := r.tg.Map(initiatorA, lun, units[1-i]); err != nil {
				t.Fatal(err)
			}
		}
	}, func() { r.log = append(r.log, "unmapped") })
	r.ended("unmapped")
	r.devs[0].Release(1)
	r.ended("read")
	r.submit(r.a, r.task("tur", 0, tur), r.task("tur", 0, tur), r.task("tur", 2, tur), r.task("tur", 3, tur))
	r.ended("tur 6/3f/0e", "tur", "tur 5/25/00", "tur 6/29/00")
}

// TestUnmappedCopies: a copy to whose command's LUN a host has lost the way ends like its commands; one whose source or destination it
// has lost says that this cannot be reached, and one by a token of what it sees no longer that it knows no such token.
func TestUnmappedCopies(t *testing.T) {
	for _, c := range []struct {
		name  string
		lun   uint16
		deaf  bool
		start func(r *rig) *scsi.Task
		want  int
	}{
		{"of the command, by a third", scsitest.Large, false, func(r *rig) *scsi.Task { return r.copyAcross(scsitest.Large, 0) }, 0x02052500},
		{"of the command, by a third, in the midst", scsitest.Large, true, func(r *rig) *scsi.Task { return r.copyAcross(scsitest.Large, 0) }, 0x02052500},
		{"of the destination", toLUN, false, func(r *rig) *scsi.Task { return r.copyAcross(fromLUN, 0) }, 0x020A0D02},
		{"of the destination, in the midst", toLUN, true, func(r *rig) *scsi.Task { return r.copyAcross(fromLUN, 0) }, 0x020A0D02},
		{"of the source", fromLUN, true, func(r *rig) *scsi.Task { return r.copyAcross(toLUN, 0) }, 0x020A0D02},
		{"of a token's unit", fromLUN, true, func(r *rig) *scsi.Task { return r.writeToken(r.token, 0) }, 0x02052304},
		{"of a token's destination", toLUN, false, func(r *rig) *scsi.Task { return r.writeToken(r.token, 0) }, 0x02052500},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFenceRig(t)
			to := f.devs[toLUN]
			to.Hold, to.Deaf = true, c.deaf
			task := c.start(f.rig)
			f.exec.RunUntil(f.exec.Now() + second)
			f.log = nil
			f.tg.Remap(func() { f.tg.Unmap("", c.lun) }, func() { f.answered = true })
			f.exec.RunUntil(f.exec.Now() + second)
			if f.answered == c.deaf {
				t.Errorf("answered while the device works: %v", f.answered)
			}
			to.Release(to.Waiting())
			f.exec.RunUntil(f.exec.Now() + second)
			f.wants("the command", code(task), c.want)
			if !f.answered || to.Seen[block.OpPlace] != 1 || to.Waiting() != 0 {
				t.Errorf("answered: %v; %d places reached the destination, want 1", f.answered, to.Seen[block.OpPlace])
			}
			f.tg.RevokeTokens()
			f.refs("at the end", 0)
		})
	}
}

// TestUnmappingWaitsForWhatIsLeft: the end of an export also waits for what the host had begun before its session ended, or before
// the LUN went and came back: it may land until then.
func TestUnmappingWaitsForWhatIsLeft(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(m *maskRig)
	}{
		{"of a session that has ended", func(m *maskRig) { m.a.Close(func() {}) }},
		{"of a LUN that has been away", func(m *maskRig) {
			m.tg.Unmap(initiatorA, 0)
			m.show(initiatorA)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMaskRig(t)
			m.TB = t
			m.d.Hold, m.d.Deaf = true, true
			m.submit(m.a, m.write("w", 1))
			c.before(m)
			m.exec.RunUntil(m.exec.Now() + 1e6)
			ended := false
			m.tg.Remap(func() { m.tg.Unmap(initiatorA, 0) }, func() { ended = true })
			m.exec.RunUntil(m.exec.Now() + 1e6)
			if ended {
				t.Error("the end of the export did not wait")
			}
			m.d.Release(1)
			m.exec.RunUntil(m.exec.Now() + 1e6)
			if !ended {
				t.Error("the end of the export still waits")
			}
			m.holds(1)
			ended = false
			m.show(initiatorA)
			m.submit(m.b, m.write("other", 2)) // of a host that keeps the unit
			m.tg.Remap(func() { m.tg.Unmap(initiatorA, 0) }, func() { ended = true })
			m.exec.RunUntil(m.exec.Now() + 1e6)
			if !ended {
				t.Error("the end of the export waits for another host")
			}
		})
	}
}

// TestRemovedUnitOfAToken: a copy by a token whose unit is removed says that the token is revoked; it does not say, of a unit that is
// there, that this is not.
func TestRemovedUnitOfAToken(t *testing.T) {
	for lun, want := range map[uint64]int{fromLUN: 0x02052306, toLUN: 0x02052500} {
		f := newFenceRig(t)
		f.devs[toLUN].Hold = true
		task := f.writeToken(f.token, 0)
		f.exec.RunUntil(f.exec.Now() + second)
		f.tg.RemoveUnit(f.a.ITLs()[lun].Unit())
		f.exec.RunUntil(f.exec.Now() + second)
		f.wants(fmt.Sprintf("the removal of LUN %d", lun), code(task), want)
		f.tg.RevokeTokens()
		f.refs("at the end", 0)
	}
}
