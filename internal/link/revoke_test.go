package link

import (
	"bytes"
	"io"
	"testing"
	"time"

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

// TestEndsPassCommandsOfOthers: the end of a session, and of a command, waits for no command of
// another session that the writer has not begun: each of those would say that the node lives, and so
// keep fresh at the owner what the host has given up.
func TestEndsPassCommandsOfOthers(t *testing.T) {
	for _, row := range []struct {
		name string
		each int
	}{{"between two commands", 7 * pieceLen}, {"inside of one", 9 * pieceLen}} {
		t.Run(row.name, func(t *testing.T) {
			o := newSlowOwner(t)
			o.conn.SetReadDeadline(time.Now().Add(patience / 4)) // what waits for credits waits for good
			o.c.exec.Lock()
			other := o.c.Target(0).OpenNexus(hostName+"x", hostName+"x,i,0x1", FirstPort(2))
			for range 2 {
				other.Submit([]*scsi.Task{{CDB: scsitest.CDB(0x8A, 0, row.each/512), DataOut: [][]byte{make([]byte, row.each)}, Done: func(*scsi.Task) {}}})
			}
			o.c.exec.Unlock()
			buf := make([]byte, maxBody)
			next := func() (kind, int) {
				t.Helper()
				for {
					k, body, err := readMessage(o.conn, buf)
					if err != nil {
						t.Fatal(err)
					}
					if k != kindPing && k != kindOpen && k != kindReady {
						return k, headLen + len(body)
					}
				}
			}
			skip := func(n int) {
				t.Helper()
				if _, err := io.CopyN(io.Discard, o.conn, int64(n)); err != nil {
					t.Fatal(err)
				}
			}
			k, head := next()
			if k != kindCommand {
				t.Fatalf("a message of kind %d instead of a command", k)
			}
			skip(7 * pieceLen) // as far as credits go
			o.c.exec.Lock()
			o.n.Manage(scsi.AbortTask, 0, 1, func(scsi.TMFResponse) {})
			o.n.Close(func() {})
			o.c.exec.Unlock()
			if row.each > 7*pieceLen {
				o.conn.Write(appendLong(nil, kindCredit, uint64(head+7*pieceLen)))
			}
			skip(row.each - 7*pieceLen + stampLen)
			for _, want := range []kind{kindManage, kindClose} {
				if k, _ := next(); k != want {
					t.Fatalf("a message of kind %d instead of kind %d", k, want)
				}
			}
		})
	}
}
