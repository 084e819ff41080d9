// Syncs of a file. Linux reports a failed write-back once for each open file, to whoever syncs
// first, and the next fdatasync ends well though the data is gone. So there is one fdatasync at a
// time: all who came before it began share it and its error. Who wrote without a sync of his own
// learns of the loss as of that of a LUN's volatile cache: the next flush fails, as does one that is
// under way, and listeners are told of a loss of power. A sync that fails may have lost what was
// written while it ran, too: nobody knows when the kernel took the data.

package lun

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// syncs are the syncs of one file. Any goroutine may call them; they wait for the disk.
type syncs struct {
	data func() error // fdatasync

	mu   sync.Mutex
	idle *sync.Cond // guarded by mu; one has ended

	// They are numbered from 1 on.
	begun, ended uint64 // guarded by mu
	failed       uint64 // guarded by mu: the last one that has failed, 0: none has
	why          error  // guarded by mu: the error of that
	owed         bool   // guarded by mu: no flush has failed for it yet
}

func (s *syncs) init(f *os.File) {
	s.data = func() error { return block.Again(func() error { return unix.Fdatasync(int(f.Fd())) }) }
	s.idle = sync.NewCond(&s.mu)
}

// sync makes what a request has written survive a loss of power. It fails if any sync fails after
// the one of number since, which was the last to fail when the request came.
func (s *syncs) sync(since uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wait(since)
}

// flush is sync for a client that relies on it for all that it has written. It fails also if an
// earlier sync has failed that no flush has told of.
func (s *syncs) flush(since uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.wait(since)
	if err == nil && s.owed {
		err = s.why
	}
	s.owed = false
	return err
}

// lastFailed returns the number of the last sync that has failed, 0 if none has.
func (s *syncs) lastFailed() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// wait waits until a sync that begins after the call has ended. It returns the error of the last
// sync that has failed after the one of number since. The caller holds mu, which is not held meanwhile.
func (s *syncs) wait(since uint64) error {
	own := s.begun + 1
	for s.ended < own {
		if s.begun > s.ended {
			s.idle.Wait()
			continue
		}
		s.begun++
		s.mu.Unlock()
		err := s.data()
		s.mu.Lock()
		if s.ended = s.begun; err != nil {
			s.failed, s.why, s.owed = s.ended, err, true
		}
		s.idle.Broadcast()
	}
	if s.failed > since {
		return s.why
	}
	return nil
}

// Notify implements block.Device.
func (d *fileDevice) Notify(fn func(block.Event)) {
	d.listen = append(d.listen, fn)
	d.tell()
}

// tell tells listeners of the syncs that have failed since it did last.
func (d *fileDevice) tell() {
	n := d.syncs.lastFailed()
	if n != d.revoked {
		d.revoked = n
		d.refs.touchRange(block.Range{Count: d.info.Sectors})
	}
	if n == d.told || len(d.listen) == 0 {
		return
	}
	d.told = n
	for _, fn := range d.listen {
		fn(block.Event{Kind: block.EventPowerLoss})
	}
}
