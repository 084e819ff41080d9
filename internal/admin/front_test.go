package admin

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// frontRig is the portal of a process, and what carries out its commands at first.
type frontRig struct {
	*front
	t    *testing.T
	exec *block.Live
	dev  *scsitest.Device
	addr string
}

func newFrontRig(t *testing.T) *frontRig {
	t.Helper()
	r := &frontRig{t: t, exec: block.NewLive()}
	t.Cleanup(r.exec.Stop)
	target, devs := scsitest.NewTarget(r.exec)
	r.dev = devs[scsitest.Thin]
	p, err := iscsi.New(iscsi.Config{Targets: []iscsi.TargetConfig{{Name: DefaultConfig().Portal.Target, Target: target}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	r.front = &front{log: slog.New(slog.DiscardHandler), portal: p, ports: []net.Listener{l}}
	r.serve(1, func(error) {})
	t.Cleanup(r.end)
	return r
}

// next is another target that may carry commands out.
func (r *frontRig) next() []iscsi.Handler {
	exec := block.NewLive()
	r.t.Cleanup(exec.Stop)
	target, _ := scsitest.NewTarget(exec)
	return []iscsi.Handler{iscsi.ServedBy(target)}
}

// login logs a host in, whose unit attention conditions are cleared.
func (r *frontRig) login(number byte) *iscsi.Client {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(startTimeout))
	c, err := iscsi.NewClient(nc, iscsi.ClientConfig{Initiator: "iqn.2026-01.host:h", Target: DefaultConfig().Portal.Target, ISID: [6]byte{0x80, 0, 0, 0, 0, number}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	r.ready(c)
	return c
}

func (r *frontRig) ready(c *iscsi.Client) {
	r.t.Helper()
	for range 16 {
		res, err := c.Command(0, make([]byte, 6), nil, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		if res.Status == scsi.StatusGood {
			return
		}
	}
	r.t.Fatal("endless unit attentions")
}

// hang has a write of a host not end before letGo, or not even where it is aborted. It returns when that is at the device;
// the channel is closed when the host has its answer, and may go on.
func (r *frontRig) hang(c *iscsi.Client, forGood bool) <-chan struct{} {
	r.t.Helper()
	r.exec.Lock()
	if r.dev.Hold = !forGood; forGood {
		r.dev.Delay = int64(time.Hour)
	}
	r.exec.Unlock()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		c.Command(0, blockCDB(0x2A, 0, 1), make([]byte, 512), 0)
	}()
	for end := time.Now().Add(startTimeout); ; time.Sleep(time.Millisecond) {
		r.exec.Lock()
		n := r.dev.Seen[block.OpWrite]
		r.exec.Unlock()
		if n > 0 {
			return answered
		}
		if time.Now().After(end) {
			r.t.Fatal("the write does not come to the device")
		}
	}
}

// letGo ends what hangs.
func (r *frontRig) letGo() {
	r.exec.Lock()
	defer r.exec.Unlock()
	r.dev.Hold = false
	r.dev.Release(r.dev.Waiting())
}

// TestAdoptsWhatRemains: a session whose command does not end keeps the portal held for nobody else.
func TestAdoptsWhatRemains(t *testing.T) {
	r := newFrontRig(t)
	r.patience = 50 * time.Millisecond
	stuck, other := r.login(1), r.login(2)
	r.hang(stuck, true)
	r.adopt(r.next())
	if r.portal.OnHold() {
		t.Fatal("the portal stays held")
	}
	r.ready(other)
	if n := len(r.portal.Sessions()); n != 2 {
		t.Errorf("%d sessions are left, of which one ends with its command", n)
	}
}

// TestEndIsCutShort: who ends a portal at once waits for no session that takes its time to end.
func TestEndIsCutShort(t *testing.T) {
	r := newFrontRig(t)
	hurry := make(chan struct{})
	r.hurry, r.patience = hurry, time.Hour
	r.hang(r.login(1), true)
	ended := make(chan struct{})
	go func() { r.end(); close(ended) }()
	close(hurry)
	select {
	case <-ended:
	case <-time.After(startTimeout):
		t.Error("it waits for a session")
		r.patience = time.Millisecond // for who cleans up
	}
}

// TestLeavesBehindAHoldThatGivesUp: an owner has this node hold what its hosts send, and gives up just as the sessions leave.
func TestLeavesBehindAHoldThatGivesUp(t *testing.T) {
	r := newFrontRig(t)
	c := r.login(1)
	answered := r.hang(c, false)
	left := make(chan error, 1)
	go func() { left <- r.leave() }()
	time.Sleep(50 * time.Millisecond) // in which it begins, most likely
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.hold(ctx, time.Minute); err == nil {
		t.Error("a command is under way, and the portal is held")
	}
	r.letGo()
	if err := <-left; err != nil {
		t.Errorf("the sessions do not leave: %v", err)
	}
	<-answered
	r.adopt(r.next())
	r.ready(c)
}

// TestHoldsWhoIsLetIn: a node whose hosts are about to be let in, or adopted, says that they wait when they do.
func TestHoldsWhoIsLetIn(t *testing.T) {
	r := newFrontRig(t)
	f := &forwarding{front: r.front, in: make(chan struct{}), closing: make(chan struct{})}
	held := make(chan error, 1)
	f.hold(time.Minute, func(err error) { held <- err })
	select {
	case err := <-held:
		t.Fatalf("nobody is let in yet, and they wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	c := r.login(1)
	close(f.in)
	if err := <-held; err != nil || !r.portal.OnHold() {
		t.Fatalf("hosts go on: %v", err)
	}
	r.release()
	r.ready(c)
	f.in = make(chan struct{})
	close(f.closing)
	f.hold(time.Minute, func(err error) { held <- err })
	if err := <-held; err == nil {
		t.Error("a node that ends says that its hosts wait")
	}
}

// TestHoldOutlivesAFormerOne: the limit of a hold that was given up does not end the next one.
func TestHoldOutlivesAFormerOne(t *testing.T) {
	f := newFrontRig(t)
	p := f.portal
	if err := f.hold(t.Context(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	f.release() // the array stays
	if err := p.Hold(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if !p.OnHold() {
		t.Error("the limit of the hold before has ended this one")
	}
	p.Release()
}

// TestLimitThatComesLate: the limit of a hold that waits for its turn while the next hold has it does not end that one.
func TestLimitThatComesLate(t *testing.T) {
	f := newFrontRig(t)
	const limit = 50 * time.Millisecond
	for {
		if err := f.hold(t.Context(), limit); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		if f.portal.OnHold() {
			break
		}
		f.mu.Unlock() // the machine is busy
	}
	time.Sleep(2 * limit)
	f.timer = time.AfterFunc(time.Hour, func() {}) // what the next hold does at its end
	f.mu.Unlock()
	time.Sleep(limit)
	if !f.portal.OnHold() {
		t.Error("the limit of the hold before has ended this one")
	}
	f.release()
	if err := f.hold(t.Context(), time.Hour); err != nil || !f.portal.OnHold() {
		t.Errorf("a hold behind it: %v", err)
	}
	f.release()
}
