package handlers

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// release sends the first n requests that the first volume holds to what is below it.
func (h *stuckHost) release(n int) {
	h.exec.Lock()
	defer h.exec.Unlock()
	h.opened[0].release(n)
}

func (s *stuck) release(n int) {
	held := s.held[:n]
	s.held = slices.Clone(s.held[n:])
	s.Device.Submit(held)
}

// dSense is D_SENSE in byte 2 of the control mode page.
const dSense = 0x04

// TestResetBehindCommands: where the kernel may report GOOD for a command that it gave up, the command is carried out, and the unit is
// reset before the last of them is answered. The commands that came later go on: the kernel may give them up, too, at any time.
func TestResetBehindCommands(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	for name, fabrics := range map[string]func() ([]string, error){
		"tcm_loop":     func() ([]string, error) { return []string{"loopback"}, nil },
		"nobody knows": func() ([]string, error) { return nil, errors.New("configfs is not mounted") },
		"no answer": func() ([]string, error) {
			<-never
			return nil, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &stuckHost{testHost: newHost(t)}
			l := mustOpen(t, NewArray(h, nil), "gold/x", tcmutest.Options{OtherFabrics: fabrics})
			control := []byte{0x1A, 8, 0x0A, 0, 16, 0}
			page := bytes.Clone(l.do(control, nil, 16))
			clear(page[:4])
			page[6] ^= dSense
			l.do([]byte{0x15, 0x10, 0, 0, 16, 0}, page, 0)
			want := bytes.Repeat([]byte{0xA5}, 4096)
			w := l.send(cdb10(0x2A, 0, 8), want, 0)
			r := l.send(cdb10(0x28, 8, 8), nil, 4096)
			h.await(t, 2)
			if err := l.Manage(tcmu.TMRLUNReset, w.ID(), r.ID()); err != nil {
				t.Fatal(err)
			}
			late := l.send(cdb10(0x2A, 16, 8), want, 0)
			h.await(t, 3)
			if err := l.Manage(tcmu.TMRLUNReset, late.ID()); err != nil {
				t.Fatal(err)
			}
			l.do(testUnitReady, nil, 0) // both resets have been taken in
			if now := l.do(control, nil, 16); now[6]&dSense != page[6]&dSense {
				t.Error("the unit was reset before the commands ended")
			}
			if err := l.Manage(tcmu.TMRLUNReset); err != nil { // it gives up nothing, and need not wait
				t.Fatal(err)
			}
			if now := l.do(control, nil, 16); now[6]&dSense == page[6]&dSense {
				t.Error("a reset waits for commands that an earlier one gave up")
			}
			l.do([]byte{0x15, 0x10, 0, 0, 16, 0}, page, 0)
			for _, c := range []*tcmutest.Call{w, r, late} {
				select {
				case <-c.Done():
					t.Fatalf("a command ended with status %#x before the array had carried it out", c.Wait().Status)
				default:
				}
			}
			h.release(2)
			if got := w.Wait(); got.Status != scsi.StatusGood {
				t.Errorf("the write: status %#x", got.Status)
			}
			if got := r.Wait(); got.Status != scsi.StatusGood || !bytes.Equal(got.Data, make([]byte, 4096)) {
				t.Errorf("the read: status %#x, %d bytes", got.Status, len(got.Data))
			}
			if now := l.do(control, nil, 16); now[6]&dSense == page[6]&dSense {
				t.Error("the commands were answered before the unit was reset")
			}
			l.do([]byte{0x15, 0x10, 0, 0, 16, 0}, page, 0)
			h.release(1)
			if got := late.Wait(); got.Status != scsi.StatusGood {
				t.Errorf("a command behind the reset: status %#x", got.Status)
			}
			if now := l.do(control, nil, 16); now[6]&dSense == page[6]&dSense {
				t.Error("the command behind the first reset was answered before the second")
			}
			check := l.send(cdb10(0x28, 16, 8), nil, 4096)
			h.await(t, 1)
			h.release(1)
			if got := check.Wait(); !bytes.Equal(got.Data, want) {
				t.Error("what the last command wrote is not there")
			}
			l.close()
		})
	}
}

// TestResetBehindFlush: a write is carried out when its data is flushed, where the kernel's write cache is off.
func TestResetBehindFlush(t *testing.T) {
	h := &stuckHost{testHost: newHost(t)}
	a := NewArray(h, nil)
	l := mustOpen(t, a, "gold/x", tcmutest.Options{OtherFabrics: func() ([]string, error) { return []string{"loopback"}, nil }})
	off := false
	if err := a.domainsOf("gold")[0].units[0].Reconfigure(tcmu.Change{WriteCache: &off}); err != nil {
		t.Fatal(err)
	}
	w := l.send([]byte{0x0A, 0, 0, 0, 1, 0}, make([]byte, 512), 0) // WRITE(6), which has no FUA
	h.await(t, 1)
	h.release(1)
	h.await(t, 1) // the flush
	if err := l.Manage(tcmu.TMRLUNReset, w.ID()); err != nil {
		t.Fatal(err)
	}
	l.do(testUnitReady, nil, 0) // the reset has been taken in
	h.exec.Lock()
	op := h.opened[0].held[0].Op
	h.exec.Unlock()
	if op != block.OpFlush {
		t.Errorf("the write is followed by %v", op)
	}
	h.release(1)
	if got := w.Wait(); got.Status != scsi.StatusGood {
		t.Errorf("the write: status %#x", got.Status)
	}
	h.exec.Lock()
	u := a.domainsOf("gold")[0].units[0]
	if !slices.Equal(u.running, []int{0}) || u.oldest != 1 {
		t.Errorf("commands in progress: %v from generation %d on", u.running, u.oldest)
	}
	h.exec.Unlock()
	l.close()
}

// TestLateAnswer: what configfs had to say when an earlier reset asked is no answer to a later one.
func TestLateAnswer(t *testing.T) {
	defer func(d time.Duration) { fabricsWait = d }(fabricsWait)
	fabricsWait = time.Minute
	h := &stuckHost{testHost: newHost(t)}
	a := NewArray(h, nil)
	late := make(chan bool, 1)
	late <- true // of a time when iSCSI alone had the device
	l := mustOpen(t, a, "gold/x", tcmutest.Options{OtherFabrics: func() ([]string, error) { return []string{"loopback"}, nil }})
	a.domainsOf("gold")[0].units[0].asked = late // Serve has nothing to do yet
	w := l.send(cdb10(0x2A, 0, 8), make([]byte, 4096), 0)
	h.await(t, 1)
	if err := l.Manage(tcmu.TMRLUNReset, w.ID()); err != nil {
		t.Fatal(err)
	}
	l.do(testUnitReady, nil, 0)
	h.await(t, 1) // it has not been withdrawn
	h.release(1)
	if got := w.Wait(); got.Status != scsi.StatusGood {
		t.Errorf("the write: status %#x", got.Status)
	}
	l.close()
}

// TestCopiesBehindAReset: a copy that came behind a reset, and that a later one gave up, is carried out, too.
func TestCopiesBehindAReset(t *testing.T) {
	h := &stuckHost{testHost: newHost(t)}
	l := mustOpen(t, NewArray(h, nil), "gold/x", tcmutest.Options{OtherFabrics: func() ([]string, error) { return []string{"loopback"}, nil }})
	name := l.naa()
	w := l.send(cdb10(0x2A, 0, 8), make([]byte, 4096), 0)
	h.await(t, 1)
	if err := l.Manage(tcmu.TMRLUNReset, w.ID()); err != nil {
		t.Fatal(err)
	}
	cdb, list := copyList(name, name, 0, 64, 8)
	c := l.send(cdb, list, 0)
	h.await(t, 2)
	if err := l.Manage(tcmu.TMRLUNReset, c.ID()); err != nil {
		t.Fatal(err)
	}
	l.do(testUnitReady, nil, 0)
	h.release(1)
	if got := w.Wait(); got.Status != scsi.StatusGood {
		t.Errorf("the write: status %#x", got.Status)
	}
	for done := false; !done; { // a copy is several requests
		h.exec.Lock()
		h.opened[0].release(len(h.opened[0].held))
		h.exec.Unlock()
		select {
		case <-c.Done():
			done = true
		case <-time.After(time.Millisecond):
		}
	}
	if got := c.Wait(); got.Status != scsi.StatusGood {
		t.Errorf("the copy: status %#x, sense % x", got.Status, got.Sense[:18])
	}
	l.close()
}
