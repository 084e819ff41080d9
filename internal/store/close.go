package store

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// closeTime is how long Close waits for disks where the options do not say.
const closeTime = time.Minute

// ErrNotClosed is the error of a Close that did not wait for a disk any longer.
var ErrNotClosed = errors.New("the store was not closed")

// Close refuses what comes from now on and what has not begun, waits for the rest, and then closes what
// was opened and unlocks the folder. Where a disk does not answer for CloseTime it returns ErrNotClosed with the name
// of what hangs, and the folder stays locked: what that disk has must not meet what the next process writes. Should
// the disk answer, the rest happens in the background. Preconditions: the executor is not held.
func (s *Files) Close() error {
	if s.opt.Later != nil { // nothing waits for a disk
		return s.close()
	}
	limit := s.opt.CloseTime
	if limit == 0 {
		limit = closeTime
	}
	s.closes.CompareAndSwap(nil, new("the array, which holds its executor")) // whom it waits for first
	end := make(chan error, 1)
	go func() { end <- s.close() }()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case err := <-end:
		return err
	case <-t.C:
		return fmt.Errorf("%w: no answer for %v from %s (in %s)", ErrNotClosed, limit, strings.Join(s.hanging(), ", "), s.dir)
	}
}

// at notes what Close is at.
func (s *Files) at(what string) { s.closes.Store(&what) }

func (s *Files) close() error {
	s.exec.Lock()
	was := s.closed
	s.closed = true
	if !was && s.groups > 0 {
		s.groupsEnd = make(chan struct{})
	}
	s.exec.Unlock()
	if was {
		return ErrClosed
	}
	s.at("transfers in progress")
	s.closing.Store(true)
	for s.groupsEnd != nil && !ended(s.groupsEnd) { // the executor's own goroutine may have ended
		s.settle()
		runtime.Gosched()
	}
	var err error
	if s.ring != nil {
		err = s.ring.close()
	}
	s.pool.close()
	if s.meta != nil {
		err = errors.Join(err, s.meta.close(func(i int) { s.at(metaName(i)) }))
	}
	s.settle() // whoever waited hears of the end while NVRAM is there: they may count in it
	s.exec.Lock()
	media := s.media
	for _, m := range s.made {
		media = append(media, m)
	}
	s.media, s.made = nil, nil
	s.exec.Unlock()
	for _, m := range media {
		s.at("mdisk " + m.name)
		err = errors.Join(err, m.release())
	}
	if s.region != nil {
		s.at("NVRAM")
		err = errors.Join(err, s.region.m.Unmap())
	}
	s.at("the lock of the folder")
	return errors.Join(err, s.lock.Close())
}

// hanging returns the names of what has not answered.
func (s *Files) hanging() []string {
	names := s.pool.busy()
	if s.ring != nil {
		names = append(names, s.ring.busy()...)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 0 {
		names = []string{*s.closes.Load()}
	}
	return names
}

// metaName names a copy of the meta store.
func metaName(i int) string { return fmt.Sprintf("copy %d of the meta store", i+1) }

func ended(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-time.After(time.Millisecond):
		return false
	}
}

// settle has the executor do what was posted, and what that posts.
func (s *Files) settle() {
	s.exec.Lock()
	defer s.exec.Unlock()
}
