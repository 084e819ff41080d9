package block

import (
	"sync"
	"testing"
	"time"
)

// TestSend: who holds an executor sends to another one and never enters it; what is sent comes in order; a letter is
// opened or withdrawn, and not both.
func TestSend(t *testing.T) {
	a, b := NewLive(), NewLive()
	defer a.Stop()
	defer b.Stop()
	const n = 2000
	var all sync.WaitGroup
	var got []int // guarded by b
	end := make(chan struct{})
	each := func(from, to *Live, fn func(i int)) {
		all.Go(func() {
			for i := range n {
				from.Lock()
				Send(to, func() { fn(i) })
				from.Unlock()
			}
		})
	}
	each(b, a, func(int) {})
	each(a, b, func(i int) {
		if got = append(got, i); i == n-1 {
			close(end)
		}
	})
	all.Wait()
	<-end
	b.Lock()
	for i, v := range got {
		if i != v {
			t.Errorf("message %d came as number %d", v, i)
			break
		}
	}
	var ran, late bool // guarded by b
	a.Lock()
	Send(b, func() { ran = true }) // b is held by this goroutine: to enter it would hang, to run fn now would set it
	if ran {
		t.Error("a message was carried out by its sender")
	}
	var kept, withdrawn Letter
	kept.Send(b, func() {}, nil)
	withdrawn.Send(b, func() { t.Error("a withdrawn letter was opened") }, func() { late = true })
	if !withdrawn.Withdraw() || kept.Opened() {
		t.Error("a letter was opened too early")
	}
	a.Unlock()
	b.Unlock()
	for end := time.Now().Add(time.Minute); !kept.Opened() && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	b.Lock()
	defer b.Unlock()
	if !ran || !late || !kept.Opened() || kept.Withdraw() {
		t.Errorf("ran %v, late %v, opened %v", ran, late, kept.Opened())
	}
}
