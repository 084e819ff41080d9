package link

import (
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestGoesOnInTime: a node that is told to go on before it holds what its hosts send goes on when it does.
func TestGoesOnInTime(t *testing.T) {
	r := newRig(t, unhurried)
	began, end := make(chan struct{}), make(chan struct{})
	r.mu.Lock()
	r.hold = func(_ time.Duration, done func(error)) {
		close(began)
		<-end
		done(nil) // and holds from now on
	}
	r.mu.Unlock()
	went := r.gone()
	if err := r.server.Pause(soon(t, 50*time.Millisecond), time.Second); err == nil {
		t.Fatal("the node has said nothing")
	}
	<-began
	r.poll("the word to go on", func() bool { return r.gone() > went })
	went = r.gone()
	close(end)
	for until := time.Now().Add(patience / 2); r.gone() == went; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the array stays, and hosts of the node wait")
		}
	}
}

// TestLeavesADial: a node that hears of the next owner while it goes to the former one does not stay there.
func TestLeavesADial(t *testing.T) {
	r := newRig(t, unhurried)
	former := r.address()
	exec := block.NewLive()
	t.Cleanup(exec.Stop)
	next, _ := scsitest.NewTarget(exec)
	r.epoch = 1
	r.own(next, unhurried) // the former one serves its links on
	asked := 0
	local := block.NewLive()
	t.Cleanup(local.Stop)
	var c *Client
	made := make(chan struct{})
	c, err := NewClient(ClientConfig{Self: Node{ID: 3, Name: "c", Ports: 1}, Targets: 1, Secret: []byte(testSecret), Exec: local, times: unhurried,
		Address: func() string {
			<-made
			if asked++; asked == 1 { // and as soon as it has said so it hears of the next
				c.Leave(r.address())
				return former
			}
			return r.address()
		}})
	if err != nil {
		t.Fatal(err)
	}
	close(made)
	t.Cleanup(c.Stop)
	r.poll("a link", func() bool {
		owner, _ := c.Owner()
		return owner.Linked
	})
	if owner, _ := c.Owner(); owner.Address != r.address() {
		t.Fatalf("it is linked to the former owner at %s, and the next one is at %s", owner.Address, r.address())
	}
}
