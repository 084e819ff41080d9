package scsi_test

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// ejector is a rig with a removable unit whose device keeps requests.
type ejector struct {
	*rig
	d *scsitest.Device
}

func newEjector(t *testing.T) *ejector {
	r := newRig(t)
	return &ejector{r, r.devs[scsitest.Removable]}
}

// send submits a command to the removable unit.
func (e *ejector) send(n *scsi.Nexus, cdb []byte) *scsi.Task {
	var out []byte
	if cdb[0] == 0x2A {
		out = make([]byte, 512)
	}
	t := e.start(n, scsitest.Removable, cdb, out)
	e.exec.RunUntil(e.exec.Now() + 1_000_000)
	return t
}

func (e *ejector) release(n int) {
	e.d.Release(min(n, e.d.Waiting()))
	e.exec.RunUntil(e.exec.Now() + 1_000_000)
}

// ends checks how a command ends that goes to no device, or to one that is not held.
func (e *ejector) ends(what string, n *scsi.Nexus, cdb []byte, want int) {
	e.Helper()
	e.wants(what, code(e.send(n, cdb)), want)
}

var (
	eject, load        = []byte{0x1B, 0, 0, 0, 2, 0}, []byte{0x1B, 0, 0, 0, 3, 0}
	stopUnit           = []byte{0x1B, 0, 0, 0, 0, 0}
	startUnit          = []byte{0x1B, 0, 0, 0, 1, 0}
	prevent, allow     = []byte{0x1E, 0, 0, 0, 1, 0}, []byte{0x1E, 0, 0, 0, 0, 0}
	notPresent, ejects = 0x02023A00, 0x02020407
)

// TestEjectFlushes: what was acknowledged is on the medium before it is out (SBC-4, START STOP UNIT). From
// the command on, nothing else is acknowledged that would not be.
func TestEjectFlushes(t *testing.T) {
	e := newEjector(t)
	e.d.Hold = true
	write := e.send(e.b, write1)
	k := e.send(e.a, eject)
	if n := e.d.Waiting(); n != 1 || code(k) != -1 {
		t.Fatalf("%d requests are with the device, the command is at %08x: it does not wait for the WRITE", n, code(k))
	}
	for _, cdb := range [][]byte{tur, write1, read1, eject, load, startUnit, stopUnit, {0x04, 0, 0, 0, 0, 0}} {
		e.ends("meanwhile", e.b, cdb, ejects)
	}
	e.release(1)
	e.wants("the WRITE", code(write), 0)
	if n := e.d.Waiting(); n != 1 || code(k) != -1 {
		t.Fatalf("%d requests are with the device, the command is at %08x: it does not flush", n, code(k))
	}
	e.ends("a WRITE during the flush", e.b, write1, ejects)
	e.release(1)
	e.wants("the command", code(k), 0)
	if e.d.Seen[block.OpFlush] != 1 {
		t.Errorf("%d flushes", e.d.Seen[block.OpFlush])
	}
	e.ends("then", e.b, write1, notPresent)
	e.ends("once more", e.a, eject, 0)
	e.ends("load", e.a, load, 0)
	e.ends("to the others", e.b, tur, 0x02062800)
	e.ends("to itself", e.a, tur, 0)
}

// TestEjectThatFails: with a flush that fails, or a host that has prevented it meanwhile, the medium stays.
func TestEjectThatFails(t *testing.T) {
	e := newEjector(t)
	e.d.Fault = func(r *block.Request) block.Status {
		if r.Op == block.OpFlush {
			return block.Hardware
		}
		return block.OK
	}
	e.ends("a flush that fails", e.a, eject, 0x02044400)
	e.ends("then", e.b, tur, 0)
	e.ends("a stop whose flush fails", e.a, stopUnit, 0x02044400)
	e.d.Fault, e.d.Hold = nil, true
	k := e.send(e.a, eject)
	e.ends("PREVENT", e.b, prevent, 0)
	e.release(1)
	e.wants("prevented during the flush", code(k), 0x02055302)
	e.ends("then", e.a, tur, 0)
	e.ends("ALLOW", e.b, allow, 0)
	e.ends("NO_FLUSH=1", e.a, []byte{0x1B, 0, 0, 0, 6, 0}, 0)
	e.ends("then", e.a, tur, notPresent)
	if e.d.Waiting() != 0 {
		t.Error("NO_FLUSH=1 flushes")
	}
}

// TestEjectThatIsAborted: the medium stays, whether commands are waited for or the flush.
func TestEjectThatIsAborted(t *testing.T) {
	for _, flushing := range []bool{false, true} {
		e := newEjector(t)
		e.d.Hold = true
		if !flushing {
			e.send(e.b, write1)
		}
		k := &scsi.Task{LUN: scsitest.Removable << 48, Tag: 7, CDB: eject, Bufs: heap{}, Done: func(t *scsi.Task) { t.Ctx = true }}
		e.a.Submit([]*scsi.Task{k})
		e.exec.Run()
		e.ends("meanwhile", e.b, tur, ejects)
		e.a.Manage(scsi.AbortTask, scsitest.Removable<<48, 7, func(scsi.TMFResponse) {})
		e.exec.Run()
		if !k.Aborted {
			t.Fatalf("flushing %v: it is not aborted", flushing)
		}
		e.ends("then", e.b, tur, 0)
		e.d.Hold = false
		if e.release(e.d.Waiting()); e.d.Waiting() != 0 {
			t.Errorf("flushing %v: it flushes after its end", flushing)
		}
		e.ends("then", e.b, write1, 0)
		e.ends("again", e.a, eject, 0)
		e.ends("and now", e.a, tur, notPresent)
	}
}

// TestStopFlushes: a unit that is stopped stays ready, but its cache is flushed, unless NO_FLUSH is 1.
func TestStopFlushes(t *testing.T) {
	e := newEjector(t)
	for i, cdb := range [][]byte{stopUnit, {0x1B, 0, 0, 0, 4, 0}, startUnit, {0x1B, 0, 0, 0, 0x30, 0}, {0x1B, 1, 0, 0, 0, 0}} {
		before := e.d.Seen[block.OpFlush]
		e.ends("START STOP UNIT", e.a, cdb, 0)
		e.ends("then", e.b, tur, 0)
		if got, want := e.d.Seen[block.OpFlush]-before, []int{1, 0, 0, 0, 1}[i]; got != want {
			t.Errorf("% x: %d flushes, want %d", cdb, got, want)
		}
	}
}

// TestEjectEndsCopies: the step of a copy that uses the unit is over before the flush.
func TestEjectEndsCopies(t *testing.T) {
	e := newEjector(t)
	s := &scsitest.Session{TB: t, Initiator: &direct{t, e.exec, e.a}}
	list := scsitest.CopyList(1, 0, [][]byte{s.NAA6(scsitest.Thin, 512), s.NAA6(scsitest.Removable, 512)},
		[][]byte{scsitest.Segment02(0, 1, 8, 0, 0, false)})
	e.d.Hold, e.d.Deaf = true, true
	c := e.start(e.a, scsitest.Thin, scsitest.CopyCDB(list), list)
	e.exec.RunUntil(e.exec.Now() + 1_000_000)
	k := e.send(e.b, eject)
	if n := e.d.Waiting(); n != 1 || e.d.Seen[block.OpFlush] != 0 || code(k) != -1 {
		t.Fatalf("%d requests are with the device, %d flushes, the command is at %08x", n, e.d.Seen[block.OpFlush], code(k))
	}
	e.release(1)
	if code(c) == -1 || e.d.Seen[block.OpFlush] != 1 {
		t.Errorf("the copy is at %08x, %d flushes", code(c), e.d.Seen[block.OpFlush])
	}
	e.release(1)
	e.wants("the command", code(k), 0)
}
