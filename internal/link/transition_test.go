package link

import (
	"bytes"
	"maps"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// ask asks for the device identification, in so many bytes.
func ask(h *host, length int) scsitest.Result {
	return h.Do(scsitest.Command{CDB: []byte{0x12, 1, 0x83, 0, byte(length), 0}, In: length})
}

// TestHalfAnAnswer: of an answer that the host did not want all of, a node without an owner does not pretend that it is whole.
func TestHalfAnAnswer(t *testing.T) {
	r := newRig(t, unhurried)
	h, whole := r.login(hostName).ready(), r.login(hostName+"2").ready()
	head, all := ask(h, 4), ask(whole, 255)
	ask(whole, 4)
	exact := r.login(hostName + "3").ready()
	ask(exact, len(all.In))
	r.leave()
	if got := ask(h, 4); got.Status != scsi.StatusGood || !bytes.Equal(got.In, head.In) {
		t.Errorf("what was asked before: %02x %x, want %x", got.Status, got.In, head.In)
	}
	if c := code(ask(h, 255)); c != 0x02040A {
		t.Errorf("more than was asked before: %06x, want 02040A", c)
	}
	for _, length := range []int{4, len(all.In), 255} {
		if got := ask(whole, length); got.Status != scsi.StatusGood || !bytes.Equal(got.In, all.In[:min(length, len(all.In))]) {
			t.Errorf("%d bytes of a whole answer: %02x %x, want %x", length, got.Status, got.In, all.In)
		}
	}
	if got := ask(exact, len(all.In)); got.Status != scsi.StatusGood || !bytes.Equal(got.In, all.In) {
		t.Errorf("just what was asked before: %02x %x, want %x", got.Status, got.In, all.In)
	}
}

// TestLoginWithoutAnOwner: a host that logs in again at the same port while there is no owner finds the units that it knows. Other
// hosts and other ports do not, and the next owner answers for itself.
func TestLoginWithoutAnOwner(t *testing.T) {
	r := newRig(t, unhurried)
	h, stays := r.login(hostName).ready(), r.login(hostName+"2").ready()
	want := ask(h, 255)
	ask(stays, 255)
	r.leave()
	h.Close()
	for range 3 {
		again := r.login(hostName)
		if got := ask(again, 255); got.Status != scsi.StatusGood || !bytes.Equal(got.In, want.In) {
			t.Fatalf("a host that has logged in again: %02x %x, want %x", got.Status, got.In, want.In)
		}
		again.Close()
	}
	if beside := r.login(hostName + "2"); ask(beside, 255).Status != scsi.StatusGood {
		t.Error("a second session of a host does not know what the first does")
	}
	if c := code(ask(r.login(hostName+"3"), 255)); c != 0x02040A {
		t.Errorf("another host: %06x, want 02040A", c)
	}
	r.local.Lock()
	other := &host{t: t, exec: r.local, n: r.client.Target(0).OpenNexus(hostName, hostName+",i,0x00023d000001", FirstPort(2)+1)}
	r.local.Unlock()
	if c := code(ask(other, 255)); c != 0x02040A {
		t.Errorf("by another port: %06x, want 02040A", c)
	}
	other.Close() // the node has no such port
	r.target, r.devs = scsitest.NewTarget(r.exec)
	r.own(r.target, unhurried)
	r.linked(true)
	r.local.Lock()
	defer r.local.Unlock()
	if kept := r.client.kept.All(); kept != 0 || r.client.bequests != nil {
		t.Errorf("behind the link to the next owner %d answers are kept", kept)
	}
}

// TestAnswersLeaveRoom: an initiator that has asked very much before the owner is lost does not keep the answers of others from
// being kept. What all have together is bounded, and none of it is left when they have gone.
func TestAnswersLeaveRoom(t *testing.T) {
	o := newSlowOwner(t)
	c := o.c
	c.exec.Lock()
	defer c.exec.Unlock()
	answered := func(n *nexus, lun uint64) {
		n.note(&scsi.Task{CDB: []byte{0x12, 1, 0x83, 0, 255, 0}, LUN: lun, InTotal: 4, DataIn: [][]byte{{0, 0x83, 0, 0}}})
	}
	open := func(who string) *nexus { return c.Target(0).OpenNexus(who, who+",i,0x1", FirstPort(2)).(*nexus) }
	greedy, other := open(hostName), open(hostName+"x")
	for lun := range uint64(2 * maxQuestions) {
		answered(greedy, lun)
	}
	answered(other, 0)
	if n := len(greedy.known); n > maxQuestions/2 || len(other.known) != 1 {
		t.Errorf("of one initiator %d answers of %d are kept, and of another one %d of 1", n, maxQuestions, len(other.known))
	}
	c.up = false
	again := open(hostName) // a second session of it, while nobody is linked
	if own := len(greedy.known) + len(again.known); own > maxQuestions/2 {
		t.Errorf("of one initiator %d answers are kept for two sessions, of %d in all", own, maxQuestions)
	}
	for _, n := range []*nexus{greedy, other, again} {
		n.Close(func() {})
	}
	c.up = true
	c.forgetBequests()
	if left := maps.Collect(c.kept.Each()); c.kept.All() != 0 || len(left) != 0 {
		t.Errorf("all have gone, and %d answers are kept, %v", c.kept.All(), left)
	}
}
