package link

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
)

// TestManyFinds: an array that looks for very many units has an executor look for a few at a time, and has an answer to each
// question.
func TestManyFinds(t *testing.T) {
	const finds = 50
	r := newCopyRig(t)
	p := r.thief()
	var link *lendLink
	calls := func() int {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		for l := range r.server.lends {
			l.mu.Lock()
			n := l.calls
			l.mu.Unlock()
			if n > 0 {
				link = l
				return n
			}
		}
		return 0
	}
	var all []byte
	for i := range finds { // of an initiator that is not there
		all = append(all, r.wants(uint32(i), uint64(1+i*copyWants), copyWants)...)
	}
	r.src.exec.Lock()
	p.send(all)
	r.poll("the first question", func() bool { return calls() > 0 })
	most := 0
	for range 200 {
		most = max(most, calls())
		time.Sleep(time.Millisecond)
	}
	if most > 2 || len(link.from[0].places) > copyPosts {
		t.Errorf("%d questions for %d units each wait for the executor", most, copyWants)
	}
	r.src.exec.Unlock()
	for n := 0; n < finds; {
		k, _, err := readMessage(p.c, make([]byte, maxBody))
		if err != nil {
			t.Fatal(err)
		}
		if k == kindFound {
			n++
		}
	}
	p.c.Close()
	r.src.free()
}

// TestBusyArray: an array that sends without a pause leaves the executor to others between its messages.
func TestBusyArray(t *testing.T) {
	r := newCopyRig(t)
	a, b := net.Pipe()
	defer b.Close()
	defer a.Close()
	l := newLendLink(r.server, r.server.lendings[0], a, a, nil)
	const messages, work = 40000, 50 * time.Microsecond
	var begun, over atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range messages {
			l.post(l.from[0], 1, func() {
				begun.Store(true)
				for end := time.Now().Add(work); time.Now().Before(end); {
				}
			})
		}
		over.Store(true)
	}()
	r.poll("the first message", begun.Load)
	r.src.exec.Lock()
	if over.Load() {
		t.Errorf("the executor was held for all %d messages", messages)
	}
	r.src.exec.Unlock()
	l.kill(errHeld)
	<-ended
}

// TestHeldBesideABusyGroup: an I/O group that takes no messages ends the link, though there always is something to be sent that
// another group has read.
func TestHeldBesideABusyGroup(t *testing.T) {
	limits := unhurried
	limits.held = 100 * time.Millisecond
	busy, held := newSide(t, 1), newSide(t, 3)
	s, err := NewServer(ServerConfig{Self: Node{ID: 1, Name: "a", Ports: 1}, Targets: []*scsi.Target{busy.target, held.target}, Secret: []byte(testSecret), Array: "source",
		Copies: []CopySecret{{Name: "b", Secret: []byte(copySecret)}}, times: limits})
	if err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	defer here.Close()
	l := newLendLink(s, s.lendings[0], here, here, nil)
	l.calls = 1 // something is asked
	fill := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for len(l.out) < 4 {
			l.put(make([]byte, 64<<10), nil)
		}
	}
	held.exec.Lock()
	defer held.exec.Unlock()
	fill()
	over := make(chan error, 1)
	go func() { over <- l.write() }()
	go func() {
		b := make([]byte, 64<<10)
		for { // nothing is read before there is more
			fill()
			if _, err := there.Read(b); err != nil {
				return
			}
		}
	}()
	select {
	case err = <-over:
	case <-time.After(20 * time.Second):
		err = errors.New("not at all")
	}
	if err != errHeld {
		t.Errorf("the link ends with %v, want %v", err, errHeld)
	}
	there.Close()
}
