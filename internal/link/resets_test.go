package link

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
)

// TestResetsAreBounded: a node that resets its target again and again, and reads nothing, has the
// owner keep one word about it for each of its sessions, and one answer for each function.
func TestResetsAreBounded(t *testing.T) {
	const nexuses, resets = 64, 50
	p := newPipePeer(t)
	for id := range uint32(nexuses) {
		o := opening{nexus: id, port: FirstPort(2), initiator: hostName, name: fmt.Sprintf("%s,i,0x%012x", hostName, id)}
		p.send(o.append(nil))
	}
	p.send(appendEmpty(nil, kindReady))
	// The owner is in the middle of a write, which lasts until more is read.
	first := make([]byte, 1)
	if _, err := io.ReadFull(p.conn, first); err != nil {
		t.Fatal(err)
	}
	for call := range uint32(resets) {
		m := management{nexus: 0, call: call, fn: byte(scsi.TargetColdReset), stamp: p.s.clock.now()}
		p.send(m.append(nil))
	}
	r := &rig{t: t}
	r.poll("the answers to all resets", func() bool { return p.queued(kindManaged) == resets })
	p.exec.Lock() // what follows on the last answer is queued as well
	if n := p.queued(kindReset); n != nexuses {
		t.Errorf("%d words wait for the node about the end of %d sessions", n, nexuses)
	}
	p.exec.Unlock()
	// It hears of each session's end, and of a next one.
	if _, _, err := readMessage(io.MultiReader(bytes.NewReader(first), p.conn), p.buf); err != nil {
		t.Fatal(err)
	}
	hears := func(answers int) {
		t.Helper()
		for left := nexuses + answers; left > 0; left-- {
			if k, _ := p.next(); k != kindReset && k != kindManaged {
				t.Fatalf("a message of kind %d", k)
			}
		}
	}
	hears(resets)
	p.send((&management{call: resets, fn: byte(scsi.TargetColdReset), stamp: p.s.clock.now()}).append(nil))
	hears(1)
}

// queued is how many messages of a kind wait for the node.
func (p *pipePeer) queued(k kind) (n int) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	for _, it := range p.l.queue {
		if it.kind == k {
			n++
		}
	}
	return n
}
