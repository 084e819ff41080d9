package lun

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
)

// slowStart is a connection that takes its time to take a command in, and knows none that it is to
// abort before it has.
type slowStart struct {
	mu      sync.Mutex
	inside  chan struct{} // a command is being taken in
	abort   chan struct{} // somebody has asked for the abort of one; closed by the test
	started map[*iscsi.Command]bool
}

func (s *slowStart) Start(x *iscsi.Command) {
	close(s.inside)
	select {
	case <-s.abort:
	case <-time.After(50 * time.Millisecond): // whoever aborts waits for us
	}
	s.mu.Lock()
	s.started[x] = true
	s.mu.Unlock()
}

func (s *slowStart) Abort(x *iscsi.Command) {
	s.mu.Lock()
	known := s.started[x]
	s.mu.Unlock()
	if known {
		x.Lost = iscsi.ErrAborted
		go x.Done(x)
	}
}

func (s *slowStart) Drop(error) {}
func (s *slowStart) Close()     {}

// TestAbortBesideARedial: a command that waited for the session is being sent by the redial when it
// is withdrawn.
func TestAbortBesideARedial(t *testing.T) {
	in := &slowStart{inside: make(chan struct{}), abort: make(chan struct{}), started: map[*iscsi.Command]bool{}}
	s := &Session{in: in, times: Times{Command: time.Hour}}
	ended := make(chan error, 1)
	c := &Command{Done: func(c *Command) { ended <- c.Lost }}
	c.due = time.Now().Add(time.Hour)
	go s.start(c) // as redial does
	<-in.inside
	s.Cancel(c)
	close(in.abort)
	select {
	case err := <-ended:
		if !errors.Is(err, iscsi.ErrAborted) {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(within):
		t.Fatal("the abort is lost")
	}
}

// TestAbortsAndRedials: whenever a command is withdrawn, it ends, with sessions that come and go
// meanwhile.
func TestAbortsAndRedials(t *testing.T) {
	l := newLab(t)
	d := l.openThrough(newValve(t, l.addr), Times{Command: time.Hour})
	l.files[0].stuck.Store(true)
	s := d.t.(*Session)
	const rounds, each = 30, 16
	for round := range rounds {
		s.mu.Lock()
		in := s.in
		s.mu.Unlock()
		if in != nil {
			in.Drop(errOverdue)
		}
		var ended sync.WaitGroup
		reqs := make([]*block.Request, each)
		for i := range reqs {
			ended.Add(1)
			reqs[i] = &block.Request{Op: block.OpWrite, Range: block.Range{Start: uint64(i), Count: 1}, Data: [][]byte{fill(1, 1)}, Done: func(r *block.Request) {
				if r.Status != block.Cancelled {
					t.Errorf("a write that was withdrawn ends %v", r.Status)
				}
				ended.Done()
			}}
		}
		l.x.Lock()
		d.Submit(reqs)
		l.x.Unlock()
		time.Sleep(time.Duration(round) * 100 * time.Microsecond)
		for _, r := range reqs {
			l.x.Lock()
			d.Cancel(r)
			l.x.Unlock()
		}
		all := make(chan struct{})
		go func() { ended.Wait(); close(all) }()
		select {
		case <-all:
		case <-time.After(within):
			t.Fatal("an abort is lost")
		}
	}
}

// TestAbortThatIsNotAnswered: a target that answers pings and no task management costs no more than
// a command's time.
func TestAbortThatIsNotAnswered(t *testing.T) {
	s := &Session{in: &slowStart{inside: make(chan struct{}), abort: make(chan struct{}), started: map[*iscsi.Command]bool{}}, times: Times{Command: time.Minute}}
	c := &Command{Sync: true, Done: func(*Command) {}}
	s.Start(c)
	if c.bounded {
		t.Fatal("a flush is bounded")
	}
	s.Cancel(c)
	if left := time.Until(c.due); !c.bounded || left > time.Minute {
		t.Errorf("a flush that was withdrawn is bounded %v, %v left", c.bounded, left)
	}
}

// TestSilentSyncCostsNoMoreThanItsTime: the target answers pings and all but SYNCHRONIZE CACHE. Who
// has a time for that goes on, and who has none waits.
func TestSilentSyncCostsNoMoreThanItsTime(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	l := newLab(t)
	v := newValve(t, l.addr)
	bounded := hurried
	bounded.Sync = time.Second
	peer := l.openThrough(v, bounded)
	l.files[0].stuck.Store(true)
	begin := func(d *Device) (*block.Request, chan block.Status) {
		done := make(chan block.Status, 1)
		r := &block.Request{Op: block.OpFlush, Done: func(r *block.Request) { done <- r.Status }}
		l.x.Lock()
		d.Submit([]*block.Request{r})
		l.x.Unlock()
		return r, done
	}
	_, done := begin(peer)
	l.ends(done, block.Offline)
	peer.Close()
	// No pings: an answer that is late would end the session, and the flush with it, whose time is over by then.
	array := l.openThrough(v, Times{Login: within, Ping: time.Hour, Command: hurried.Command})
	r, done := begin(array)
	select {
	case s := <-done:
		t.Fatalf("without a time for it the flush ends %v", s)
	case <-time.After(2 * hurried.Command):
	}
	l.x.Lock()
	array.Cancel(r) // who asked for it need not wait
	l.x.Unlock()
	l.ends(done, block.Cancelled)
}
