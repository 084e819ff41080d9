package lun

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
)

// valve is a connection's way to a portal that can be shut: then nothing passes and nothing is refused, as with a machine that was
// stopped or that the network does not reach any more.
type valve struct {
	l    net.Listener
	to   string
	mu   sync.Mutex
	cond *sync.Cond
	shut bool
}

func newValve(t *testing.T, to string) *valve {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{l: l, to: to}
	v.cond = sync.NewCond(&v.mu)
	t.Cleanup(func() { l.Close(); v.set(false) })
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			go v.pass(a, b)
			go v.pass(b, a)
		}
	}()
	return v
}

func (v *valve) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		v.mu.Lock()
		for v.shut {
			v.cond.Wait()
		}
		v.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (v *valve) set(shut bool) {
	v.mu.Lock()
	v.shut = shut
	v.cond.Broadcast()
	v.mu.Unlock()
}

// hurried are the times of a session that gives up soon.
var hurried = Times{Login: within, Ping: 100 * time.Millisecond, Pong: 200 * time.Millisecond, Command: time.Second}

// within says that something has to end before the default times would end it; the machine may be busy.
const within = 20 * time.Second

// openThrough opens the LUN by a session of its own: one that has been closed may be about to log in again, and would take the
// place of a session of the same owner.
func (l *lab) openThrough(v *valve, times Times) *Device {
	l.t.Helper()
	a, err := iscsi.ParseAddress("iscsi://" + v.l.Addr().String() + "/" + testTarget + "/0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.through++
	s, err := Dial(a, "iqn.2026-01.io.arraysim:hurried", fmt.Sprint(l.t.Name(), l.through), times)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(s.Close)
	d, err := Open(l.x, s, "lun0")
	for end := time.Now().Add(within); err != nil && time.Now().Before(end); {
		d, err = Open(l.x, s, "lun0") // its commands have these times, too
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

// begin starts a write and returns what it ends with.
func (l *lab) begin(d *Device, b byte) (*block.Request, chan block.Status) {
	done := make(chan block.Status, 1)
	r := &block.Request{Op: block.OpWrite, Range: block.Range{Count: 1}, Data: [][]byte{fill(b, 1)}, Done: func(r *block.Request) { done <- r.Status }}
	l.x.Lock()
	d.Submit([]*block.Request{r})
	l.x.Unlock()
	return r, done
}

func (l *lab) ends(done chan block.Status, want block.Status) {
	l.t.Helper()
	select {
	case s := <-done:
		if s != want {
			l.t.Errorf("it ends %v, not %v", s, want)
		}
	case <-time.After(within):
		l.t.Fatalf("after %v it has not ended", within)
	}
}

func TestLoginToASilentTargetEnds(t *testing.T) {
	l := newLab(t)
	v := newValve(t, l.addr)
	v.set(true)
	a, err := iscsi.ParseAddress("iscsi://" + v.l.Addr().String() + "/" + testTarget + "/0")
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := Dial(a, "iqn.2026-01.io.arraysim:hurried", t.Name(), Times{Login: 300 * time.Millisecond})
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil {
			t.Error("a target that says nothing lets us in")
		}
	case <-time.After(within):
		t.Fatalf("after %v the login has not ended", within)
	}
}

// TestSilentTargetCostsNoMoreThanItsTime: a command to a target that was stopped ends when its time is over, and the session
// is there again when the target is.
func TestSilentTargetCostsNoMoreThanItsTime(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	l := newLab(t)
	v := newValve(t, l.addr)
	d := l.openThrough(v, hurried)
	for n := range byte(2) {
		v.set(true)
		_, done := l.begin(d, 10+n)
		l.ends(done, block.Offline)
		_, done = l.begin(d, 20+n) // while there is no session
		l.ends(done, block.Offline)
		v.set(false)
		for deadline := time.Now().Add(within); ; {
			_, done := l.begin(d, 30+n)
			if s := <-done; s == block.OK && l.wantIfRead(d, 0, fill(30+n, 1)) == block.OK {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the session does not come back")
			}
		}
	}
}

// TestQuietTargetIsNotTakenForASilentOne: it answers pings.
func TestQuietTargetIsNotTakenForASilentOne(t *testing.T) {
	l := newLab(t)
	v := newValve(t, l.addr)
	d := l.openThrough(v, Times{Ping: 10 * time.Millisecond, Pong: 5 * time.Second})
	s := d.t.(*Session)
	session := func() any {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.in
	}
	first := session()
	l.files[0].delay.Store(int64(300 * time.Millisecond))
	_, done := l.begin(d, 1)
	l.ends(done, block.OK)
	if session() != first {
		t.Error("the session was lost")
	}
}

// TestTargetThatNeverAnswersACommand: it answers pings, and nothing else.
func TestTargetThatNeverAnswersACommand(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	l := newLab(t)
	d := l.openThrough(newValve(t, l.addr), hurried)
	l.files[0].delay.Store(int64(time.Hour))
	_, done := l.begin(d, 1)
	l.ends(done, block.Offline)
}

func TestCommandsAreWithdrawn(t *testing.T) {
	l := newLab(t)
	v := newValve(t, l.addr)
	d := l.openThrough(v, Times{Ping: 100 * time.Millisecond, Pong: 200 * time.Millisecond, Command: time.Hour})
	cancel := func(r *block.Request) {
		l.x.Lock()
		d.Cancel(r)
		l.x.Unlock()
	}
	l.files[0].stuck.Store(true)
	r, done := l.begin(d, 1)
	for kept := 0; kept == 0; time.Sleep(time.Millisecond) {
		l.x.Lock()
		kept = len(l.files[0].kept)
		l.x.Unlock()
	}
	cancel(r) // the target has it
	l.ends(done, block.Cancelled)
	l.files[0].stuck.Store(false)
	v.set(true)
	r, done = l.begin(d, 2) // nobody knows who has it
	cancel(r)
	l.ends(done, block.Cancelled)
	for s := d.t.(*Session); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		gone := s.in == nil
		s.mu.Unlock()
		if gone {
			break
		}
	}
	r, done = l.begin(d, 3) // it waits for a session
	cancel(r)
	l.ends(done, block.Cancelled)
	v.set(false)
	if s := l.write(d, 4); s != block.OK {
		t.Errorf("afterwards a write ends %v", s)
	}
}
