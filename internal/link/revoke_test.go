package link

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// What becomes of a command of which a part has been sent when its host gives it up.

// stalled starts a write of all of the unit, which waits in the middle of its data: the sluice holds
// the word that the owner has read what came so far.
func (r *rig) stalled(h *host, between *sluice) (write *running, out []byte) {
	r.t.Helper()
	r.server.mu.Lock()
	l := r.server.links[2]
	r.server.mu.Unlock()
	out = make([]byte, 1<<20)
	for i := range out {
		out[i] = byte(i * 7 >> 3)
	}
	between.set(true)
	write = h.start(scsitest.Command{CDB: scsitest.CDB(0x8A, 0, len(out)/512), Out: out})
	r.poll("the write, as far as credits go", func() bool { return l.taken.Load() > creditBytes/2 })
	return write, out
}

// content compares what the unit has.
func (r *rig) content(want []byte) bool {
	r.exec.Lock()
	defer r.exec.Unlock()
	return bytes.Equal(r.devs[scsitest.Thin].Data[:len(want)], want)
}

// TestWriteOfAnEndedSession: what a host has written by another path since its session ended stays,
// also if the owner had read half of an older write of that session by then.
func TestWriteOfAnEndedSession(t *testing.T) {
	r := newRig(t, unhurried)
	between := r.sluice(unhurried)
	h := r.login(hostName).ready()
	write, out := r.stalled(h, between)
	closed := make(chan struct{})
	h.exec.Lock()
	h.n.Close(func() { close(closed) })
	h.exec.Unlock()
	newer := bytes.Repeat([]byte{0xBB}, len(out))
	there := r.direct(hostName).ready()
	if res := there.Do(scsitest.Command{CDB: scsitest.CDB(0x8A, 0, len(out)/512), Out: newer}); res.Status != scsi.StatusGood {
		t.Fatalf("the newer write ends with %02x, sense %x", res.Status, res.Sense)
	}
	between.set(false)
	<-closed
	if res := write.wait(); res.Status != scsi.StatusBusy {
		t.Errorf("the write of the session that has ended ends with %02x, want BUSY", res.Status)
	}
	if !r.content(newer) {
		t.Error("the write of the session that has ended lands on a newer one")
	}
}

// TestAbortOfAHalfSentWrite: an aborted write of which the owner has half is not executed, and the
// session continues.
func TestAbortOfAHalfSentWrite(t *testing.T) {
	r := newRig(t, unhurried)
	between := r.sluice(unhurried)
	h := r.login(hostName).ready()
	write, out := r.stalled(h, between)
	answer := h.ask(scsi.AbortTask, 0)
	between.set(false)
	if res := write.wait(); res.Status != scsi.StatusBusy {
		t.Errorf("the write ends with %02x, want BUSY", res.Status)
	}
	if res := heard(t, answer); res != scsi.TMFNoTask {
		t.Errorf("ABORT TASK: %d, want that there is no such task any more", res)
	}
	if !r.content(make([]byte, len(out))) {
		t.Error("the write is executed")
	}
	if res := h.Do(scsitest.Command{CDB: scsitest.CDB(0x8A, 0, len(out)/512), Out: out}); res.Status != scsi.StatusGood || !r.content(out) {
		t.Errorf("the next write ends with %02x, sense %x", res.Status, res.Sense)
	}
}
