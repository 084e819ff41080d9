package link

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestSpeechless: who has a secret, of nodes or of arrays, and does not say who it is keeps no stop waiting.
func TestSpeechless(t *testing.T) {
	r := newCopyRig(t)
	r.tap.mu.Lock()
	to := r.tap.to
	r.tap.mu.Unlock()
	for _, c := range []struct{ secret, name string }{{testSecret, ""}, {copySecret, copySecretName([]byte(copySecret))}} {
		conf, err := identity([]byte(c.secret))
		if err != nil {
			t.Fatal(err)
		}
		conf.ServerName = c.name
		conn, err := tls.Dial("tcp", to, conf)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		time.Sleep(50 * time.Millisecond) // for the other end of the handshake
	}
	began := time.Now()
	if !r.server.Shutdown(context.Background()) {
		t.Error("the server has not ended")
	}
	if took := time.Since(began); took > handshakeTime*4/5 { // who waits for them waits until their time is over
		t.Errorf("the end of the server took %v", took)
	}
	late, other := net.Pipe() // it was accepted before that
	defer other.Close()
	r.server.meet(late)
	if late.SetDeadline(time.Now()) == nil {
		t.Error("a connection that came at the end goes on")
	}
}

// TestFewerPorts: a node that links again with fewer target ports than it had is not shown with those that it has no more.
func TestFewerPorts(t *testing.T) {
	r := newRig(t, unhurried)
	const id = 3
	link := func(ports int) net.Conn {
		t.Helper()
		p := r.meets(t, greeting{Node: Node{ID: id, Name: "c", Ports: ports}, process: newIncarnation()})
		p.send(appendEmpty(nil, kindReady))
		return p.c
	}
	shown := func(port int) scsi.AccessState {
		r.exec.Lock()
		defer r.exec.Unlock()
		for _, g := range r.target.Groups() {
			if int(g.ID) == int(FirstPort(id))+port {
				return g.State
			}
		}
		return scsi.AccessUnavailable
	}
	c := link(2)
	r.poll("both ports", func() bool { return shown(0) == scsi.AccessNonOptimized && shown(1) == scsi.AccessNonOptimized })
	c.Close()
	r.poll("the end of the link", func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return r.server.links[id] == nil
	})
	c = link(1)
	r.poll("one port alone", func() bool { return shown(0) == scsi.AccessNonOptimized && shown(1) == scsi.AccessUnavailable })
	c.Close()
	r.poll("the end of the link", func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return r.server.links[id] == nil
	})
	link(2)
	r.poll("both ports again", func() bool { return shown(0) == scsi.AccessNonOptimized && shown(1) == scsi.AccessNonOptimized })
}

// TestOneWaits: of the connections of a node that wait for the end of its former link the last one
// alone is there, and has the link when that has ended.
func TestOneWaits(t *testing.T) {
	r := newRig(t, unhurried)
	r.stuck(r.login(hostName).ready())
	hello := greeting{Node: Node{ID: 2, Name: "b", Ports: 1}, process: r.client.process}
	r.client.Stop()
	waits := func(p *peer) {
		t.Helper()
		if k, _, err := readMessage(p.c, make([]byte, maxBody)); err != nil || k != kindBusy {
			t.Fatalf("a message of kind %d, %v, want that the owner is busy", k, err)
		}
	}
	last := r.greets(t, hello)
	waits(last)
	for n := range 50 {
		before := last
		last = r.greets(t, hello)
		waits(last)
		before.c.SetReadDeadline(time.Now().Add(admitTime / 2))
		for buf := make([]byte, maxBody); ; {
			k, _, err := readMessage(before.c, buf)
			if ne, ok := err.(net.Error); ok && ne.Timeout() || err == nil && k != kindBusy {
				t.Fatalf("connection %d waits beside the next one: kind %d, %v", n, k, err)
			}
			if err != nil {
				break
			}
		}
	}
	other := r.greets(t, greeting{Node: hello.Node, process: newIncarnation()})
	if k, _, err := readMessage(other.c, make([]byte, maxBody)); k != kindRefusal {
		t.Errorf("another process: kind %d, %v, want a refusal", k, err)
	}
	r.release(r.devs[scsitest.Thin])
	for buf := make([]byte, maxBody); ; {
		k, _, err := readMessage(last.c, buf)
		if k == kindWelcome {
			return
		}
		if err != nil || k != kindBusy {
			t.Fatalf("the last connection: kind %d, %v", k, err)
		}
	}
}

// TestHiddenBesideAStuckCommand: the ports of a node that is not linked any more are unavailable
// also while a command that its link has brought does not end.
func TestHiddenBesideAStuckCommand(t *testing.T) {
	limits := unhurried
	limits.away = time.Millisecond
	r := newRig(t, limits)
	write := r.stuck(r.login(hostName).ready())
	r.cut()
	r.poll("the state of the port", func() bool { return r.access() == scsi.AccessUnavailable })
	if p := r.server.Peers()[0]; p.Linked || p.Sessions != 0 || p.Address != "" {
		t.Errorf("the node is linked: %+v", p)
	}
	var s metrics.Snapshot
	s.Take(0, &sync.Mutex{}, r.server)
	s.Each(func(f *metrics.Family, labels []string, up float64, _ *metrics.Histogram) {
		if f == metrics.LinkUp && up != 0 {
			t.Errorf("%s of %v is %v", f.Name, labels, up)
		}
	})
	if write.over() {
		t.Error("the write has ended, and is at the device")
	}
	r.release(r.devs[scsitest.Thin])
	write.wait()
	r.linked(true)
}
