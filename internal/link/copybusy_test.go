package link

import (
	"net"
	"sync/atomic"
	"testing"
	"time"
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
