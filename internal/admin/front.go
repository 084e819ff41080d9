package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
)

// front is the portal of a process, whoever carries out what comes by it: this process, or another node. Its sessions stay
// while the array comes to this node, or leaves it.
type front struct {
	log    *slog.Logger
	portal *iscsi.Portal
	ports  []net.Listener // by portal group, from the first
	loops  sync.WaitGroup

	// patience is how long what is under way may take to end where it has to; zero: adoptTime, and then sessionTimeout.
	patience time.Duration
	hurry    <-chan struct{} // closed when nobody waits for it any more

	severed atomic.Bool // sessions did not end in time: nobody waits for them any more

	mu     sync.Mutex
	serves bool        // guarded by mu: hosts are let in
	fail   func(error) // guarded by mu: hears that a listener has ended
	taken  bool        // guarded by mu: nobody ends the hold but who adopts
	timer  *time.Timer // guarded by mu: ends a hold
	until  time.Time   // guarded by mu: when
}

// adoptTime is how long what comes by a portal may take to end when the portal goes to another role, where nobody carries
// commands out any more. Sessions that take longer are cut off.
const adoptTime = 5 * time.Second

// openFront opens the portal, unless it is open. Nobody is let in yet.
func (d *daemon) openFront(handlers []iscsi.Handler) (*front, error) {
	if f := d.front.Load(); f != nil {
		return f, nil
	}
	p := d.cfg.Portal
	var targets []iscsi.TargetConfig
	for i, h := range handlers {
		targets = append(targets, iscsi.TargetConfig{Name: groupTarget(p.Target, i), Alias: "arraysim", Handler: h, AllowedInitiators: p.Allow, CHAP: d.chap})
	}
	f := &front{log: d.log, hurry: d.env.Hurry}
	var err error
	if f.portal, err = iscsi.New(iscsi.Config{Targets: targets, Log: d.log, DiscoveryCHAP: d.chap,
		Limits: iscsi.Limits{MaxConnections: p.Connections, MaxSessions: p.Sessions, Memory: int(p.Memory)}}); err != nil {
		return nil, err
	}
	for _, door := range d.portalDoors() {
		l, err := door.listen()
		if err != nil {
			f.closePorts()
			return nil, err
		}
		f.ports = append(f.ports, l)
		if !loopback(l.Addr()) && p.CHAP == nil {
			d.log.Warn("the iSCSI portal is open to other machines without a password; set portal.chap", "listen", l.Addr().String())
		}
	}
	return f, nil
}

func (f *front) closePorts() {
	for _, l := range f.ports {
		l.Close()
	}
}

// serve lets hosts in, unless they are. fail hears from now on that a listener has ended.
func (f *front) serve(firstPort int, fail func(error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
	if f.serves {
		return
	}
	f.serves = true
	var loops []func() error
	for i, l := range f.ports { // all of them before a host asks for them
		loops = append(loops, f.portal.AddPort(l, uint16(firstPort+i)))
	}
	for _, serve := range loops {
		f.loops.Go(func() {
			if err := serve(); err != nil && !errors.Is(err, iscsi.ErrClosed) {
				f.mu.Lock()
				fail := f.fail
				f.mu.Unlock()
				fail(fmt.Errorf("the iSCSI portal ended: %w", err))
			}
		})
	}
}

// hold has what hosts send wait for so long at most, and returns when nothing of them is under way any more.
func (f *front) hold(ctx context.Context, limit time.Duration) error {
	until := time.Now().Add(limit)
	if err := f.portal.Hold(ctx, false); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.portal.OnHold() {
		return errors.New("an earlier hold of the hosts has ended, and this one with it; try again")
	}
	if f.timer != nil {
		f.timer.Stop()
	}
	var t *time.Timer
	t = time.AfterFunc(time.Until(until), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.timer == t { // else it has waited for mu, and there is a later hold
			f.endHold()
		}
	})
	f.until, f.timer = until, t
	return nil
}

// release ends a hold, unless somebody is about to have the sessions, who ends it then.
func (f *front) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endHold()
}

// endHold is release. Preconditions: mu is held.
func (f *front) endHold() {
	if f.timer != nil { // it is not to end a later hold
		f.timer.Stop()
		f.timer = nil
	}
	if !f.taken {
		f.portal.Release()
	}
}

// heldUntil is when a hold ends at the latest.
func (f *front) heldUntil() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until
}

// waiting reports whether hosts wait for an array that moves.
func (f *front) waiting() bool { return f != nil && f.portal.OnHold() }

// leave ends what is under way of all sessions, and closes their nexuses. The sessions stay, and wait for adopt; a session whose
// commands do not end is cut off. The limit of a hold is not heeded any more: where it is to be, somebody adopts them in time. An
// error of it says that something may be with what has carried commands out so far, or that sessions are still its.
func (f *front) leave() error {
	f.mu.Lock()
	f.taken = true
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil // one that has fired and comes late finds nothing of its own
	}
	f.mu.Unlock()
	err := iscsi.ErrReleased
	for errors.Is(err, iscsi.ErrReleased) { // by a hold from before, which has given up: nobody begins one any more
		if err = f.within(adoptTime, func(ctx context.Context) error { return f.portal.Hold(ctx, true) }); err == nil {
			err = f.within(sessionTimeout, f.portal.Detach)
		}
	}
	return err
}

// within gives fn a time.
func (f *front) within(limit time.Duration, fn func(context.Context) error) error {
	if f.patience > 0 {
		limit = f.patience
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return fn(ctx)
}

// adopt has the commands of all sessions carried out by others from now on, and lets the portal go on. Those that are under way
// end before. Sessions that cannot leave what has carried out their commands so far are cut off: hosts log in again.
func (f *front) adopt(handlers []iscsi.Handler) {
	if err := f.leave(); err != nil {
		f.log.Warn("commands of sessions do not end at their former owner", "error", err)
	}
	f.portal.Rehome(handlers, func(n iscsi.Nexus) {
		if m, ok := n.(*scsi.Nexus); ok { // its port had another state before
			m.AccessChanged()
		}
	})
	f.mu.Lock()
	f.taken = false
	f.mu.Unlock()
}

// end closes sessions and portal. It may be called several times.
func (f *front) end() { f.endNaming(f.busy) }

// endNaming is end that names what sessions wait for that do not end in time.
func (f *front) endNaming(waitsFor func() []string) {
	if f == nil || f.severed.Load() {
		return
	}
	err := f.within(sessionTimeout, func(ctx context.Context) error {
		ctx, cancel := until(ctx, f.hurry)
		defer cancel()
		return f.portal.Shutdown(ctx)
	})
	if err != nil && !f.severed.Swap(true) {
		f.log.Warn("sessions did not end in time and were cut off", "waits_for", strings.Join(waitsFor(), "; "))
	}
	f.closePorts() // those that were never served
	f.loops.Wait()
}

// cut ends all sessions at once.
func (f *front) cut() {
	if f == nil {
		return
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	f.portal.Shutdown(now)
	f.closePorts()
}

// targets are the handlers of the array that this process has.
func (d *daemon) targets() (out []iscsi.Handler) {
	for _, g := range d.groups {
		out = append(out, iscsi.ServedBy(g.target))
	}
	return out
}
