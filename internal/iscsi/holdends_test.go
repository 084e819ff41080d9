package iscsi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
)

// awhile is a time for what is not to succeed.
func awhile(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// letGo ends what is stuck.
func (r *rig) letGo() {
	r.withFake(func(f *fakeTarget) {
		f.hung = false
		for n := range f.nexuses {
			n.letGo()
		}
	})
}

// waiting returns how many goroutines wait in a select of a function.
func waiting(function string) (n int) {
	buf := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if head, _, _ := strings.Cut(g, "\n"); strings.Contains(head, "[select") && strings.Contains(g, function) {
			n++
		}
	}
	return n
}

// isUp tells whether a session's commands are carried out.
func isUp(t *testing.T, c *Client) {
	t.Helper()
	if res, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Fatal(res, err)
	}
}

// TestHeldByTwo: of two who hold the portal, the one that gives up releases it, and the other hears so and holds it again. A
// login that waited for the first goes on behind the second.
func TestHeldByTwo(t *testing.T) {
	r := newRig(t, nil)
	c, other := r.login(nil), r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 9 })
	hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
	c.Send(hdr, nil, nil)
	r.awaitStuck(1)
	ctx, giveUp := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- r.portal.Hold(ctx, false) }()
	if !poll(r.portal.OnHold) {
		t.Fatal("the portal is not held")
	}
	in := r.loginLater(func(cfg *ClientConfig) { cfg.ISID[5] = 17 })
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		second <- r.portal.Hold(ctx, false)
	}()
	if !poll(func() bool { return waiting("iscsi.(*Portal).Hold(") == 2 }) {
		t.Fatal("the second does not wait")
	}
	giveUp()
	if err := <-first; err == nil || errors.Is(err, ErrReleased) {
		t.Errorf("the first says %v", err)
	}
	if err := <-second; !errors.Is(err, ErrReleased) {
		t.Errorf("the second says %v", err)
	}
	isUp(t, in())
	if err := r.portal.Hold(awhile(t), true); err != nil {
		t.Fatal(err)
	}
	if err := r.portal.Detach(within(t)); err != nil {
		t.Fatal(err)
	}
	r.portal.Rehome([]Handler{r.handler()}, nil)
	isUp(t, other)
	r.portal.Release() // nobody holds it
	if err := r.portal.Detach(within(t)); !errors.Is(err, ErrReleased) {
		t.Errorf("a portal that is not held is detached: %v", err)
	}
}

// TestCutWithoutAnEnd: a session that is cut off, whose command does not end at what carries it out, keeps no others from moving.
// It can come back when the command has ended, and no sooner.
func TestCutWithoutAnEnd(t *testing.T) {
	r := newRig(t, nil)
	c, other := r.login(nil), r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 9 })
	r.withFake(func(f *fakeTarget) { f.hung = true })
	hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
	c.Send(hdr, nil, nil)
	r.awaitStuck(1)
	if err := r.portal.Hold(awhile(t), true); err != nil {
		t.Fatalf("a session that has ended is waited for: %v", err)
	}
	if err := r.portal.Detach(awhile(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Detach says %v, and a command is under way", err)
	}
	next := r.handler()
	r.portal.Rehome([]Handler{next}, nil)
	isUp(t, other)
	in := make(chan error, 1)
	go func() {
		c, err := r.tryLogin(nil)
		if err == nil {
			_, err = c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0)
		}
		in <- err
	}()
	select {
	case err := <-in:
		t.Fatalf("the initiator port logs in again beside its command: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	r.letGo()
	if err := <-in; err != nil {
		t.Fatal(err)
	}
}

// TestCutAtAnotherHome: sessions that are cut off where nothing could be detached end at what carried them out, and none of the
// next one's is left.
func TestCutAtAnotherHome(t *testing.T) {
	r := newRig(t, nil)
	r.login(nil)
	r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 9 })
	next := r.handler()
	r.portal.Rehome([]Handler{next}, nil) // a hold has given up
	if !poll(func() bool { return len(r.portal.Sessions()) == 0 }) {
		t.Fatal("a session does not end")
	}
	for _, f := range []*fakeTarget{r.target, next} {
		f.exec.Lock()
		if len(f.nexuses) != 0 {
			t.Error("a nexus is left open")
		}
		f.exec.Unlock()
	}
	isUp(t, r.login(nil))
}

// TestReinstatedWhileHeld: an initiator port that logs in again while the portal is held has given up its former session. What
// that has sent is not carried out any more, for its host may have written the same blocks by another path since.
func TestReinstatedWhileHeld(t *testing.T) {
	for _, detached := range []bool{false, true} {
		t.Run(fmt.Sprint("detached=", detached), func(t *testing.T) {
			r := newRig(t, nil)
			c, other := r.login(nil), r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 9 })
			if err := r.portal.Hold(within(t), false); err != nil {
				t.Fatal(err)
			}
			if detached {
				if err := r.portal.Detach(within(t)); err != nil {
					t.Fatal(err)
				}
			}
			hdr, _ := c.CommandHeader(0, cdb10(opTestUnitReady, 0, 0), 0, 0)
			c.Send(hdr, nil, nil)
			in := r.loginLater(nil)
			buf := make([]byte, 1<<20)
			if !poll(func() bool {
				return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "iscsi.(*conn).awaitOpened(")
			}) {
				t.Fatal("the login does not wait")
			}
			for end := time.Now().Add(20 * time.Second); len(r.portal.Sessions()) > 1 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if n := len(r.portal.Sessions()); n > 1 {
				t.Errorf("%d sessions are there until the portal goes on", n)
			}
			if detached {
				r.portal.Rehome([]Handler{r.target}, nil)
			}
			r.portal.Release()
			again := in()
			r.withFake(func(f *fakeTarget) {
				if f.submits != 0 {
					t.Errorf("%d commands of the former session are carried out", f.submits)
				}
			})
			isUp(t, again)
			isUp(t, other)
		})
	}
}

// TestOlderLoginWhileHeld: a login that comes late, by a connection that is older than the session that its initiator port has by
// now, does not end that one while the portal is held: it is refused behind the hold.
func TestOlderLoginWhileHeld(t *testing.T) {
	r := newRig(t, nil)
	older := r.dial()
	if !poll(func() bool {
		r.portal.mu.Lock()
		defer r.portal.mu.Unlock()
		return len(r.portal.conns) == 1
	}) {
		t.Fatal("a connection is not taken")
	}
	var port ClientConfig
	c := r.login(func(cfg *ClientConfig) { port = *cfg })
	if err := r.portal.Hold(within(t), false); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := NewClient(older, port)
		refused <- err
	}()
	buf := make([]byte, 1<<20)
	if !poll(func() bool {
		return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "iscsi.(*conn).awaitOpened(")
	}) {
		t.Fatal("the login does not wait")
	}
	time.Sleep(100 * time.Millisecond) // in which a session ends that is to end
	answered := make(chan error, 1)
	go func() {
		_, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0)
		answered <- err
	}()
	r.portal.Release()
	if err := <-answered; err != nil {
		t.Errorf("the younger session: %v", err)
	}
	if err := <-refused; err == nil {
		t.Error("the older login has a session")
	}
	isUp(t, c)
}

// TestPortalThatSlept: a portal that was stopped does not take its own sleep for the silence of hosts.
func TestPortalThatSlept(t *testing.T) {
	r := newRig(t, nil) // which pings nobody
	_, far := unreadPeer(t, r.portal, nil)
	r.isIn()
	const wait = 4 * time.Second
	now := time.Now()
	for _, row := range []struct {
		after, slept time.Duration
		ended        bool
	}{{0, 0, false}, {wait, 0, false}, {time.Minute, time.Minute - time.Second, false}, {wait, 0, true}} {
		now = now.Add(row.after)
		far.checkIdle(now, row.slept, wait, wait)
		if ended := far.abortedBy() != nil; ended != row.ended {
			t.Fatalf("after %v, of which it slept %v, ended=%v", row.after, row.slept, ended)
		}
	}
}

// isIn waits until a portal has done with a login: what that has sent is counted by then.
func (r *rig) isIn() {
	r.t.Helper()
	if !poll(func() bool { return strings.Contains(r.log.String(), "logged in") }) {
		r.t.Fatal("nobody is logged in")
	}
}

// rationed is a connection of which as many bytes are read as the test gives.
type rationed struct {
	net.Conn
	ration chan int
	left   int
}

func (c *rationed) Read(b []byte) (int, error) {
	for c.left == 0 {
		n, ok := <-c.ration
		if !ok {
			return c.Conn.Read(b)
		}
		c.left = n
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// TestSlowReaderWhileHeld: a host that reads its answers slowly finds the question whether it is there behind them. It stays
// while it goes on reading; one that reads nothing does not. The clock is the test's.
func TestSlowReaderWhileHeld(t *testing.T) {
	const wait, blocks, ration = 4 * time.Second, 16000, 2 * plainWrite
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprint("reads=", reads), func(t *testing.T) {
			r := newRig(t, nil)        // which pings nobody
			ours, theirs := net.Pipe() // it takes nothing that nobody reads
			r.portal.start(ours, 1)
			theirs.SetDeadline(time.Now().Add(patience))
			defer theirs.Close()
			host := &rationed{Conn: theirs, ration: make(chan int), left: 1 << 16} // for the login
			c, err := NewClient(host, ClientConfig{Initiator: testInitiator, Target: testTarget})
			if err != nil {
				t.Fatal(err)
			}
			r.isIn()
			host.left = 0
			far := r.onlyConn()
			hdr, _ := c.CommandHeader(0, cdb10(opRead10, 0, blocks), 0, blocks*fakeBlock)
			if err := c.Send(hdr, nil, nil); err != nil {
				t.Fatal(err)
			}
			r.eventually("the read", func(f *fakeTarget) bool { return f.submits == 1 })
			held := make(chan error, 1)
			go func() { held <- r.portal.Hold(within(t), false) }()
			type end struct {
				res *Result
				err error
			}
			read := make(chan end, 1)
			go func() {
				res, err := c.Await(bhs(hdr[:]).itt(), nil, blocks*fakeBlock)
				read <- end{res, err}
			}()
			now := time.Now()
			look := func() (ended bool) {
				now = now.Add(wait)
				far.checkIdle(now, 0, wait, wait)
				return far.abortedBy() != nil
			}
			for i := range 8 {
				before := far.count.tx.Load()
				host.ration <- ration
				if !poll(func() bool { return far.count.tx.Load() > before }) {
					t.Fatal("nothing more is sent")
				}
				if look() {
					t.Fatalf("the session of a host that reads ends at look %d", i)
				}
			}
			if reads {
				close(host.ration)
				if e := <-read; e.err != nil || len(e.res.Data) != blocks*fakeBlock {
					t.Fatalf("a host that reads slowly: %v", e.err)
				}
			} else {
				for range 3 {
					look()
				}
				close(host.ration)
				if !poll(func() bool { return len(r.portal.Sessions()) == 0 }) {
					t.Fatal("a host that reads nothing keeps its session")
				}
				<-read
			}
			if err := <-held; err != nil {
				t.Error(err)
			}
			r.portal.Release()
			if reads {
				isUp(t, c)
			}
		})
	}
}

// onlyConn is the portal's end of the one connection that there is.
func (r *rig) onlyConn() (only *conn) {
	r.t.Helper()
	r.portal.mu.Lock()
	defer r.portal.mu.Unlock()
	if len(r.portal.conns) != 1 {
		r.t.Fatalf("%d connections", len(r.portal.conns))
	}
	for only = range r.portal.conns {
	}
	return only
}

// TestSilentHostWhileHeld: a host whose commands wait has to be heard while the portal is held. One that is gone, though its
// connection is not, has nothing of it carried out later. Hosts that answer, and those that have nothing waiting, stay.
func TestSilentHostWhileHeld(t *testing.T) {
	r := newRig(t, func(cfg *Config) {
		cfg.Limits.PingInterval, cfg.Limits.PingTimeout, cfg.heldPing = patience, patience, 2*time.Second
	})
	silent, idle := r.login(nil), r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 9 })
	there, resets := r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 17 }), r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 33 })
	if err := r.portal.Hold(within(t), false); err != nil {
		t.Fatal(err)
	}
	hdr, _ := silent.CommandHeader(0, cdb10(opTestUnitReady, 0, 0), 0, 0)
	silent.Send(hdr, nil, nil)
	hdr = resets.NewHeader(opTaskMgmt|immediateBit, 0)
	hdr[offFlags] = flagFinal | byte(scsi.LogicalUnitReset)
	resets.Send(hdr, nil, nil)
	answered := make(chan error, 1)
	go func() {
		_, err := there.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0)
		answered <- err
	}()
	for end := time.Now().Add(20 * time.Second); len(r.portal.Sessions()) > 2 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(5 * time.Second) // in which the others are asked, too
	if n := len(r.portal.Sessions()); n != 2 {
		t.Errorf("%d sessions are there, of four of which two have a host that says nothing", n)
	}
	r.portal.Release()
	if err := <-answered; err != nil {
		t.Errorf("a host that answers: %v", err)
	}
	isUp(t, idle)
	r.withFake(func(f *fakeTarget) {
		if f.submits != 2 {
			t.Errorf("%d commands are carried out, want those of the two hosts that are there", f.submits)
		}
		if f.managed != 0 {
			t.Error("a reset is carried out for a host that says nothing")
		}
	})
}
