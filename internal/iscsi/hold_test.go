package iscsi

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/testkit"
)

// within is the time that a test gives what is to succeed.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// handler is a fake with an executor of its own, and the memory of another one.
func (r *rig) handler() *fakeTarget {
	exec := block.NewLive()
	r.t.Cleanup(exec.Stop)
	f := newFake(exec, 0)
	f.mem = r.target.mem
	return f
}

// TestSessionsMove: hosts write and read by sessions whose commands are carried out by one handler after the other. No command
// fails, none is with a handler while the portal is held, and no session ends but those that hosts end: they log out, or break
// off, or log in again beside a session with a command under way.
func TestSessionsMove(t *testing.T) {
	const hosts, each = 6, 64 // blocks of a host
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 5))
	r := newRig(t, nil)
	homes := []*fakeTarget{r.target, r.handler()}
	var seen [2]atomic.Int64
	for i, f := range homes {
		f.exec.Lock()
		f.seen = func(*scsi.Task) { seen[i].Add(1) }
		f.exec.Unlock()
	}
	var stop atomic.Bool
	var all sync.WaitGroup
	var done, logins atomic.Int64
	for h := range hosts {
		port := func(cfg *ClientConfig) { cfg.ISID[5] = byte(h + 1) }
		c := r.login(port)
		logins.Add(1)
		own := rand.New(rand.NewPCG(seed, uint64(h)))
		all.Go(func() {
			for !stop.Load() {
				if k := own.IntN(64); k < 3 {
					old := c
					switch k {
					case 0:
						if err := c.Logout(); err != nil {
							t.Errorf("host %d: logout: %v", h, err)
							return
						}
					case 1:
						c.Close()
					case 2:
						hdr, _ := c.CommandHeader(0, cdb10(opTestUnitReady, 0, 0), 0, 0)
						c.Send(hdr, nil, nil)
					}
					var err error
					if c, err = r.tryLogin(port); err != nil {
						t.Errorf("host %d: login: %v", h, err)
						return
					}
					logins.Add(1)
					old.Close()
				}
				at, n := h*each+own.IntN(each/2), 1+own.IntN(each/2)
				data := pattern(n*fakeBlock, own.IntN(256))
				if own.IntN(8) == 0 {
					if a, err := c.Manage(scsi.LogicalUnitReset, 0, 0, 0); err != nil || a != scsi.TMFComplete {
						t.Errorf("host %d: LOGICAL UNIT RESET: %v, %v", h, a, err)
						return
					}
				}
				if res, err := c.Command(0, cdb10(opWrite10, at, n), data, 0); err != nil || res.Status != 0 {
					t.Errorf("host %d: WRITE: %+v, %v", h, res, err)
					return
				}
				if res, err := c.Command(0, cdb10(opRead10, at, n), nil, len(data)); err != nil || res.Status != 0 || !bytes.Equal(res.Data, data) {
					t.Errorf("host %d: READ: %v", h, err)
					return
				}
				done.Add(1)
			}
		})
	}
	for round := range rounds {
		time.Sleep(time.Duration(rnd.IntN(4_000_000)))
		if err := r.portal.Hold(within(t), false); err != nil {
			t.Fatal(err)
		}
		before := seen[0].Load() + seen[1].Load()
		if rnd.IntN(4) == 0 { // given up
			time.Sleep(time.Duration(rnd.IntN(2_000_000)))
			if now := seen[0].Load() + seen[1].Load(); now != before {
				t.Fatalf("round %d: %d commands are carried out while the portal is held", round, now-before)
			}
			r.portal.Release()
			continue
		}
		if err := r.portal.Detach(within(t)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rnd.IntN(4_000_000)))
		if now := seen[0].Load() + seen[1].Load(); now != before {
			t.Fatalf("round %d: %d commands are carried out while the portal is held", round, now-before)
		}
		for _, f := range homes {
			f.exec.Lock()
			if len(f.nexuses) != 0 {
				t.Fatalf("round %d: a nexus is open", round)
			}
			f.exec.Unlock()
		}
		opened := 0
		r.portal.Rehome([]Handler{homes[(round+1)%2]}, func(Nexus) { opened++ })
		if opened > hosts { // those of hosts that log in come later
			t.Fatalf("round %d: %d nexuses are opened, for %d hosts", round, opened, hosts)
		}
	}
	stop.Store(true)
	all.Wait()
	if seen[0].Load() == 0 || seen[1].Load() == 0 || done.Load() < int64(rounds) {
		t.Errorf("the test does not get there: %d and %d commands, %d writes", seen[0].Load(), seen[1].Load(), done.Load())
	}
	if n := strings.Count(r.log.String(), "logged in"); n != int(logins.Load()) {
		t.Errorf("%d logins, want %d", n, logins.Load())
	}
	t.Logf("%d writes that were read back, %d logins", done.Load(), logins.Load())
}

// TestHeldOrder: what waits goes on in the order in which it came, pings are answered meanwhile, and a login waits.
func TestHeldOrder(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(nil)
	if err := r.portal.Hold(within(t), false); err != nil {
		t.Fatal(err)
	}
	send := func(op byte) {
		hdr, _ := c.CommandHeader(0, cdb10(op, 0, 0), 0, 0)
		c.Send(hdr, nil, nil)
	}
	send(opStuck)
	reset := c.NewHeader(opTaskMgmt|immediateBit, 0)
	bhs(reset[:])[offFlags] = flagFinal | byte(scsi.LogicalUnitReset)
	c.Send(reset, nil, nil)
	send(opStuck)
	nop := c.NewHeader(opNopOut|immediateBit, 0)
	bhs(nop[:]).put32(offTTT, noTag)
	c.Send(nop, nil, nil)
	if pdu, err := c.Receive(); err != nil || pdu.Header[0]&0x3f != opNopIn {
		t.Fatalf("a ping while the portal is held: %v", err)
	}
	in := r.loginLater(func(cfg *ClientConfig) { cfg.ISID[5] = 9 })
	time.Sleep(20 * time.Millisecond)
	r.withFake(func(f *fakeTarget) {
		if f.submits != 0 || f.opened != 1 {
			t.Errorf("%d submissions and %d nexuses while the portal is held", f.submits, f.opened)
		}
	})
	r.portal.Release()
	if pdu, err := c.Receive(); err != nil || pdu.Header[0]&0x3f != opTaskMgmtResp {
		t.Fatalf("the reset is not answered: %v", err)
	}
	r.awaitStuck(1) // the second: the first was there when the reset came
	r.withFake(func(f *fakeTarget) {
		for n := range f.nexuses {
			n.letGo()
		}
	})
	in()
}

// TestHoldGivesUp: a command that does not end keeps the portal from being held, or its session goes.
func TestHoldGivesUp(t *testing.T) {
	r := newRig(t, nil)
	c, other := r.login(nil), r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 9 })
	hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
	c.Send(hdr, nil, nil)
	r.awaitStuck(1)
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if err := r.portal.Hold(soon(), false); err == nil || !strings.Contains(err.Error(), testInitiator) || r.portal.OnHold() {
		t.Fatalf("it says %v", err)
	}
	if res, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Fatal(res, err)
	}
	if err := r.portal.Hold(soon(), true); err != nil {
		t.Fatal(err)
	}
	if n := len(r.portal.Sessions()); n != 1 {
		t.Errorf("%d sessions are left", n)
	}
	r.portal.Release()
	if res, err := other.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Fatal(res, err)
	}
}

// TestEndsWhileHeld: connections end and the portal is shut down while commands wait, with nexuses and without.
func TestEndsWhileHeld(t *testing.T) {
	for _, detached := range []bool{false, true} {
		r := newRig(t, nil)
		c, stays := r.login(nil), r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 9 })
		if err := r.portal.Hold(within(t), false); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Client{c, stays} {
			send := func() {
				hdr, _ := c.CommandHeader(0, cdb10(opTestUnitReady, 0, 0), 0, 0)
				c.Send(hdr, nil, nil)
			}
			send()
			reset := c.NewHeader(opTaskMgmt|immediateBit, 0)
			bhs(reset[:])[offFlags] = flagFinal | byte(scsi.LogicalUnitReset)
			c.Send(reset, nil, nil)
			send()
		}
		if detached {
			if err := r.portal.Detach(within(t)); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		if !poll(func() bool { return len(r.portal.Sessions()) == 1 }) {
			t.Fatal("the session does not end")
		}
		if err := r.portal.Shutdown(within(t)); err != nil {
			t.Fatal(err)
		}
		r.withFake(func(f *fakeTarget) {
			if f.submits != 0 || len(f.nexuses) != 0 {
				t.Errorf("%d submissions, %d nexuses are open", f.submits, len(f.nexuses))
			}
		})
	}
}
