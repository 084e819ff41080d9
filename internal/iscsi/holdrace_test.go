package iscsi

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
)

// TestLoginBehindAHold: the end of a hold leaves connections alone that are about to log in.
func TestLoginBehindAHold(t *testing.T) {
	r := newRig(t, nil)
	r.login(nil)
	nc := r.dial()
	for range 20 {
		if err := r.portal.Hold(within(t), false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
		r.portal.Release()
		time.Sleep(2 * time.Millisecond)
	}
	if _, err := NewClient(nc, ClientConfig{Initiator: testInitiator, Target: testTarget, ISID: [6]byte{0x80, 0, 0, 9}}); err != nil {
		t.Fatalf("a connection that was there before cannot log in: %v", err)
	}
}

// TestManageBehindARelease: a task management function stays behind the commands before it where the portal is released between
// the two.
func TestManageBehindARelease(t *testing.T) {
	n := 4000
	if testing.Short() {
		n = 400
	}
	r := newRig(t, nil)
	c := r.login(nil)
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for g := new(hold); !over.Load(); {
			for range 1000 {
				r.portal.holding.Store(g)
				r.portal.holding.Store(nil)
			}
			r.portal.mu.Lock()
			for _, s := range r.portal.sessions {
				s.conn.kick()
			}
			r.portal.mu.Unlock()
			runtime.Gosched() // where there is one processor the others have it now
		}
	}()
	defer func() { over.Store(true); <-ended }()
	for i := range n {
		command, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
		reset := c.NewHeader(opTaskMgmt|immediateBit, 0)
		bhs(reset[:])[offFlags] = flagFinal | byte(scsi.LogicalUnitReset)
		b := appendPDU(nil, bhs(command[:]), nil, nil, false, false)
		if _, err := c.nc.Write(appendPDU(b, bhs(reset[:]), nil, nil, false, false)); err != nil {
			t.Fatal(err)
		}
		if pdu, err := c.Receive(); err != nil || pdu.Header[0]&0x3f != opTaskMgmtResp {
			t.Fatalf("the reset is not answered: %v", err)
		}
		if stuck := r.stuck(); stuck > 0 {
			r.withFake(func(f *fakeTarget) {
				for n := range f.nexuses {
					n.letGo()
				}
			})
			t.Fatalf("round %d: the unit was reset, and %d commands from before that are carried out", i, stuck)
		}
	}
}

// TestWaitingLogins: of the logins that wait for the end of a hold those that make room for others end at once, and of those of
// one initiator port the youngest has the session.
func TestWaitingLogins(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Limits.MaxConnections, cfg.Limits.LoginTimeout = 4, patience })
	if err := r.portal.Hold(within(t), false); err != nil {
		t.Fatal(err)
	}
	type end struct {
		c   *Client
		err error
	}
	var ends []chan end
	for i := range 8 {
		ch, nc := make(chan end, 1), r.dial()
		ends = append(ends, ch)
		go func() {
			c, err := NewClient(nc, ClientConfig{Initiator: testInitiator, Target: testTarget, ISID: [6]byte{0x80, 0, 0, 1}})
			ch <- end{c, err}
		}()
		if i >= 4 {
			select {
			case e := <-ends[i-4]:
				if e.err == nil {
					t.Fatalf("login %d succeeds while the portal is held", i-4)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("login %d has made room for another one, and its connection is open", i-4)
			}
		}
		buf := make([]byte, 1<<20)
		waiting := func() bool {
			return strings.Count(string(buf[:runtime.Stack(buf, true)]), "iscsi.(*conn).awaitOpened(") == min(i+1, 4)
		}
		if !poll(waiting) {
			t.Fatalf("login %d does not wait", i)
		}
	}
	r.portal.Release()
	last := <-ends[7]
	if last.err != nil {
		t.Fatalf("the last login: %v", last.err)
	}
	for _, ch := range ends[4:7] {
		<-ch // it had the session before, or none at all
	}
	if res, err := last.c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Fatalf("an older login has ended the last one: %v", err)
	}
}

// TestDetachAwaitsHold: nexuses are closed only when nothing is under way, also where Hold still waits for that, and Detach
// returns only when those of sessions that have ended are gone, too.
func TestDetachAwaitsHold(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(nil)
	hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
	c.Send(hdr, nil, nil)
	r.awaitStuck(1)
	held, detached := make(chan error, 1), make(chan error, 1)
	go func() { held <- r.portal.Hold(within(t), false) }()
	if !poll(r.portal.OnHold) {
		t.Fatal("the portal is not held")
	}
	go func() { detached <- r.portal.Detach(within(t)) }()
	select {
	case err := <-detached:
		t.Fatalf("a command is under way, and the nexuses are closed: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	r.withFake(func(f *fakeTarget) {
		for n := range f.nexuses {
			n.letGo()
		}
	})
	if res, err := c.Await(bhs(hdr[:]).itt(), nil, 0); err != nil || res.Status != 0 {
		t.Fatalf("the command that was under way: %+v, %v", res, err)
	}
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	if err := <-detached; err != nil {
		t.Fatal(err)
	}
	r.portal.Rehome([]Handler{r.handler()}, nil)
	if res, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Fatal(res, err)
	}
}

// deaf is a connection whose reader nobody can call to look, while it is deaf.
type deaf struct {
	net.Conn
	on    atomic.Bool
	asked atomic.Int32 // how often somebody has called meanwhile
}

func (d *deaf) SetReadDeadline(t time.Time) error {
	if d.on.Load() {
		d.asked.Add(1)
		return nil
	}
	return d.Conn.SetReadDeadline(t)
}

// over logs a host in whose connection has these two ends.
func (r *rig) over(ours, theirs net.Conn) *Client {
	r.t.Helper()
	r.portal.start(ours, 1)
	theirs.SetDeadline(time.Now().Add(patience))
	r.t.Cleanup(func() { theirs.Close() })
	c, err := NewClient(theirs, ClientConfig{Initiator: testInitiator, Target: testTarget})
	if err != nil {
		r.t.Fatal(err)
	}
	r.isIn()
	return c
}

// TestIdleReaderIsSpared: a session that has no commands does not end because its reader had no processor while the time for
// those of others was over.
func TestIdleReaderIsSpared(t *testing.T) {
	r := newRig(t, nil)
	ours, theirs := net.Pipe()
	link := &deaf{Conn: ours}
	c := r.over(link, theirs)
	link.on.Store(true)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	held := make(chan error, 1)
	go func() { held <- r.portal.Hold(now, true) }()
	if !poll(func() bool { return link.asked.Load() >= 3 }) { // the first time may be before the hold's is over
		t.Error("nobody looks at a session that is held")
	}
	link.on.Store(false)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	r.portal.Release()
	isUp(t, c)
}

// gated is a connection whose reader has what it reads when the test says so.
type gated struct {
	net.Conn
	shut    atomic.Bool
	waiting chan struct{} // closed where something was read that waits
	open    chan struct{}
}

func (g *gated) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if n > 0 && g.shut.Swap(false) {
		close(g.waiting)
		<-g.open
	}
	return n, err
}

// TestEndedBeforeARelease: nothing of a session is carried out that was ended in a hold, also where its reader is at work when the
// hold is over: neither a command that waits, nor a function behind it, nor one alone.
func TestEndedBeforeARelease(t *testing.T) {
	for _, waits := range []bool{true, false} {
		t.Run(fmt.Sprint("waits=", waits), func(t *testing.T) {
			r := newRig(t, nil)
			ours, theirs := net.Pipe()
			gate := &gated{Conn: ours, waiting: make(chan struct{}), open: make(chan struct{})}
			c := r.over(gate, theirs)
			if err := r.portal.Hold(within(t), false); err != nil {
				t.Fatal(err)
			}
			far := r.onlyConn()
			if waits {
				hdr, _ := c.CommandHeader(0, cdb10(opTestUnitReady, 0, 0), 0, 0)
				if err := c.Send(hdr, nil, nil); err != nil {
					t.Fatal(err)
				}
				if !poll(func() bool { return far.inflight.Load() == 1 }) {
					t.Fatal("the command does not come")
				}
			}
			gate.shut.Store(true)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				reset := c.NewHeader(opTaskMgmt|immediateBit, 0)
				reset[offFlags] = flagFinal | byte(scsi.LogicalUnitReset)
				c.Send(reset, nil, nil)
			}()
			<-gate.waiting
			r.portal.Rehome([]Handler{r.handler()}, nil) // a hold has given up: the session ends
			close(gate.open)
			if !poll(func() bool { return len(r.portal.Sessions()) == 0 }) {
				t.Fatal("the session does not end")
			}
			<-sent
			r.withFake(func(f *fakeTarget) {
				if f.submits != 0 || f.managed != 0 {
					t.Errorf("%d commands and %d functions of a session that has ended are carried out", f.submits, f.managed)
				}
			})
		})
	}
}
