package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestPause: an owner that is about to leave waits for what a node has under way, and for the node's word that it holds the
// rest. Then the links end, and the next owner has the node go on. Nobody links meanwhile.
func TestPause(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	if p := r.server.Peers()[0]; !p.StandsBy {
		t.Errorf("the owner does not know that node %d stands by", p.ID)
	}
	went := r.gone()
	d := r.devs[scsitest.Thin]
	r.hang(d)
	write := h.start(scsitest.Command{CDB: scsitest.CDB(0x8A, 5, 1), Out: make([]byte, 512)})
	r.poll("the write at the device", func() bool {
		r.exec.Lock()
		defer r.exec.Unlock()
		return d.Seen[block.OpWrite] == 1
	})
	var asked time.Duration
	told := make(chan struct{})
	r.mu.Lock()
	r.hold = func(limit time.Duration, done func(error)) {
		asked = limit
		close(told)
		<-write.done // as a portal does, which waits for what hosts have under way
		done(nil)
	}
	r.mu.Unlock()
	paused := make(chan error, 1)
	go func() { paused <- r.server.Pause(soon(t, patience), 7*time.Second) }()
	<-told
	if asked != 7*time.Second {
		t.Errorf("the node is told of %v", asked)
	}
	local := block.NewLive()
	t.Cleanup(local.Stop)
	third, err := NewClient(ClientConfig{Self: Node{ID: 3, Name: "c", Ports: 1}, Targets: 1, Secret: []byte(testSecret), Exec: local, Address: r.address, times: unhurried})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(third.Stop)
	select {
	case err := <-paused:
		t.Fatalf("a command is under way, and the pause has ended with %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	r.exec.Lock()
	d.Hold = false
	d.Release(1)
	r.exec.Unlock()
	if err := <-paused; err != nil || !write.over() {
		t.Fatalf("the pause ends with %v", err)
	}
	if owner, _ := third.Owner(); owner.Linked || r.gone() != went {
		t.Errorf("a node has linked meanwhile, or was told to go on")
	}
	if !r.server.Shutdown(soon(t, patience)) {
		t.Error("the links do not end")
	}
	exec := block.NewLive()
	t.Cleanup(exec.Stop)
	next, _ := scsitest.NewTarget(exec)
	r.own(next, unhurried)
	r.poll("the word of the next owner", func() bool { return r.gone() > went })
}

// TestPauseGivenUp: where a node does not hold what its hosts send, or something does not end, the owner says of which node,
// and all go on.
func TestPauseGivenUp(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	for says, hold := range map[string]func(time.Duration, func(error)){
		"node 2 b: a host does not end":                   func(_ time.Duration, done func(error)) { done(errors.New("a host does not end")) },
		"node 2 b: commands of its hosts do not end":      func(time.Duration, func(error)) {},
		"node 2 b: commands that it has forwarded do not": nil,
	} {
		went := r.gone()
		r.mu.Lock()
		r.hold = hold
		r.mu.Unlock()
		var stuck *running
		d := r.devs[scsitest.Thin]
		if hold == nil { // a node that says so, and is wrong
			r.hang(d)
			stuck = h.start(scsitest.Command{CDB: scsitest.CDB(0x8A, 5, 1), Out: make([]byte, 512)})
			r.poll("the write at the device", func() bool {
				r.exec.Lock()
				defer r.exec.Unlock()
				return d.Seen[block.OpWrite] == 1
			})
		}
		var err error
		for wait := 100 * time.Millisecond; wait < patience; wait *= 2 { // a busy machine may take longer for the node's word
			err = r.server.Pause(soon(t, wait), time.Second)
			r.poll("the word to go on", func() bool { return r.gone() > went })
			if err == nil || strings.HasPrefix(err.Error(), says) {
				break
			}
			went = r.gone()
		}
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("it says %v, want %q", err, says)
		}
		if stuck != nil {
			r.exec.Lock()
			d.Hold = false
			d.Release(1)
			r.exec.Unlock()
			stuck.wait()
		}
		h.expect()
	}
	r.mu.Lock()
	r.hold = nil
	r.mu.Unlock()
	if err := r.server.Pause(soon(t, patience), time.Second); err != nil {
		t.Errorf("the next pause: %v", err)
	}
	r.server.Resume()
	r.relink()
}

// TestPauseBehindALink: a link that has ended is quiet when nothing that it has brought is carried out any more.
func TestPauseBehindALink(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	write := r.stuck(h)
	r.server.mu.Lock()
	l := r.server.links[2]
	r.server.mu.Unlock()
	r.cut()
	r.poll("the end of the link", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.dead
	})
	const says = "node 2 b: commands of its link, which has ended, do not end"
	if err := r.server.Pause(soon(t, 100*time.Millisecond), time.Second); err == nil || err.Error() != says {
		t.Errorf("a write is carried out, and the pause ends with %v, want %q", err, says)
	}
	paused := make(chan error, 1)
	go func() { paused <- r.server.Pause(soon(t, patience), time.Second) }()
	select {
	case err := <-paused:
		t.Fatalf("a write is at the device, and the pause has ended with %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	r.release(r.devs[scsitest.Thin])
	if err := <-paused; err != nil || !r.landed() {
		t.Errorf("the pause ends with %v, and the write has landed: %v", err, r.landed())
	}
	r.server.Resume()
	r.linked(true)
	write.wait()
}

// TestPauseIsBounded: an owner does not have hosts wait for longer than a node lets it, nor asks without an end. Those that are
// refused do not count when the others are answered.
func TestPauseIsBounded(t *testing.T) {
	type holding struct {
		limit time.Duration
		done  func(error)
	}
	holdings := make(chan holding, 2*maxPauses)
	o := newSlowOwner(t, func(cfg *ClientConfig) {
		cfg.Hold = func(limit time.Duration, done func(error)) { holdings <- holding{limit, done} } // and is never held
	})
	for range maxPauses {
		o.conn.Write(appendLong(nil, kindPause, 1<<32|0xFFFFFFFF))
	}
	var all []holding
	for range maxPauses {
		h := <-holdings
		if all = append(all, h); h.limit != maxPause {
			t.Fatalf("hosts are to wait for %v", h.limit)
		}
	}
	o.conn.Write(appendLong(nil, kindPause, 1<<32|1000))
	for _, err := o.conn.Read(make([]byte, 1<<10)); err == nil; {
		_, err = o.conn.Read(make([]byte, 1<<10))
	}
	if len(holdings) > 0 {
		t.Error("there is no end of pauses")
	}
	for _, h := range all {
		h.done(nil)
	}
	if n := o.c.pauses.Load(); n != 0 {
		t.Errorf("%d pauses count, and all were answered", n)
	}
}

// mutePeer is a connection by which a node has said who it is, and which takes what the owner says when it is told to, and fails.
type mutePeer struct {
	net.Conn
	hello io.Reader
	fails chan struct{}
}

func (p mutePeer) Read(b []byte) (int, error) { return p.hello.Read(b) }
func (p mutePeer) Write([]byte) (int, error) {
	<-p.fails
	return 0, net.ErrClosed
}

// TestWelcomeThatFails: a node that goes while it is welcomed is neither waited for nor shown as linked.
func TestWelcomeThatFails(t *testing.T) {
	limits := unhurried
	limits.away = 100 * time.Millisecond
	r := newRig(t, limits)
	r.client.Stop()
	links := func() int {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return len(r.server.links)
	}
	r.poll("the end of the link", func() bool { return links() == 0 })
	hello := greeting{Node: Node{ID: 2, Name: "b", Ports: 1}, process: newIncarnation()}
	raw, other := net.Pipe()
	defer other.Close()
	p := mutePeer{raw, bytes.NewReader(hello.append(nil, kindHello)), make(chan struct{})}
	met := make(chan error, 1)
	go func() {
		_, err := r.server.greet(p, raw)
		met <- err
	}()
	r.poll("the place of the link", func() bool { return links() == 1 })
	paused := make(chan error, 1)
	go func() { paused <- r.server.Pause(soon(t, patience/2), time.Second) }()
	time.Sleep(3 * limits.away) // for who hides the ports of the node
	close(p.fails)
	if err := <-met; err == nil {
		t.Fatal("a node is welcome that has gone")
	}
	if err := <-paused; err != nil {
		t.Errorf("a node that has gone is waited for: %v", err)
	}
	r.poll("the node's ports are hidden", func() bool { return r.access() == scsi.AccessUnavailable })
}

// TestLeavesAFormerOwner: a node whose owner was replaced, and cannot know, goes to the next one when it hears where that is.
func TestLeavesAFormerOwner(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	former := r.address()
	exec := block.NewLive()
	t.Cleanup(exec.Stop)
	next, _ := scsitest.NewTarget(exec)
	r.epoch = 1
	r.own(next, unhurried) // the former one serves its links on
	r.client.Leave(former)
	if owner, _ := r.client.Owner(); !owner.Linked || owner.Address != former {
		t.Fatalf("it has left %+v, which is where the owner is", owner)
	}
	r.client.Leave(r.address())
	r.poll("the link to the next owner", func() bool {
		owner, _ := r.client.Owner()
		return owner.Linked && owner.Address == r.address()
	})
	h.ready()
}
