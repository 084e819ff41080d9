package cachedaemon

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// dirtied is a cache in front of a LUN that does not answer writes any more, with a dirty block.
func dirtied(t *testing.T) *daemon {
	t.Helper()
	d, s, _ := serveCacheOf(t, 0, tier.Policy{Mode: tier.WriteBack})
	d.below = s
	s.stuck.Store(true)
	dirty(t, d, 0)
	return d
}

// dirty writes a block.
func dirty(t *testing.T, d *daemon, at uint64) {
	t.Helper()
	done := make(chan block.Status, 1)
	d.exec.Lock()
	d.disk.Submit([]*block.Request{{Op: block.OpWrite, Range: block.Range{Start: at, Count: 8}, Data: [][]byte{make([]byte, 4096)},
		Done: func(r *block.Request) { done <- r.Status }}})
	d.exec.Unlock()
	if s := <-done; s != block.OK {
		t.Fatalf("a write ends %v", s)
	}
}

// looked waits for the end of a cache that does not end, and looks at it so often, or until nobody waits any more.
func (d *daemon) looked() (look func(n int) (ended bool), err func() error) {
	looks, end := make(chan time.Time), make(chan error, 1)
	go func() { end <- d.closed(make(chan error), looks) }()
	return func(n int) bool {
		for range n {
			select {
			case looks <- time.Time{}:
			case err := <-end:
				end <- err
				return true
			}
		}
		return false
	}, func() error { return <-end }
}

// TestStopBesideASilentLUN: a stop waits for a LUN that takes no writes as long as it may be without progress, and then says which LUN
// that is and what stays on the flash.
func TestStopBesideASilentLUN(t *testing.T) {
	d := dirtied(t)
	look, end := d.looked()
	if look(silentLooks - 1) {
		t.Fatalf("it does not wait: %v", end())
	}
	dirty(t, d, 8) // what changes is progress
	if look(silentLooks - 1) {
		t.Fatalf("it does not wait behind progress: %v", end())
	}
	look(silentLooks)
	err := end()
	if !errors.Is(err, errHangs) || !strings.Contains(err.Error(), d.info().Name) || !strings.Contains(err.Error(), fmt.Sprint(2*4096, " bytes of dirty data stay on the flash")) {
		t.Errorf("it ends with %v", err)
	}
}

// TestStopBesideALateAnswer: an executor that is late at the last looks, as on a busy machine, is not said to have been held all the
// time: it has answered before.
func TestStopBesideALateAnswer(t *testing.T) {
	d := dirtied(t)
	look, end := d.looked()
	if look(silentLooks) {
		t.Fatalf("it does not wait: %v", end())
	}
	d.exec.Lock()
	if look(1) {
		t.Fatalf("it does not wait for an answer that is late: %v", end())
	}
	d.exec.Unlock()
	look(heldLooks)
	err := end()
	if !errors.Is(err, errHangs) || strings.Contains(err.Error(), "executor is held") || !strings.Contains(err.Error(), fmt.Sprint(4096, " bytes of dirty data stay on the flash")) {
		t.Errorf("it ends with %v", err)
	}
}

// TestSecondSignalBesideASilentLUN: it ends the stop, and what is dirty stays on the flash.
func TestSecondSignalBesideASilentLUN(t *testing.T) {
	d := dirtied(t)
	hurry := make(chan struct{})
	d.hurry = hurry
	_, end := d.looked()
	close(hurry)
	if err := end(); err != nil {
		t.Error(err)
	}
	if n := d.locked(d.disk.State).DirtySectors; n != 8 {
		t.Errorf("%d sectors are dirty", n)
	}
}

// TestStopBesideAHeldExecutor: a stop ends although somebody holds the executor for ever, at a second signal at once, and without
// one when it has waited as long as it may.
func TestStopBesideAHeldExecutor(t *testing.T) {
	d := dirtied(t)
	hurry := make(chan struct{})
	d.hurry = hurry
	d.exec.Lock()
	defer d.exec.Unlock()
	before := runtime.NumGoroutine()
	look, end := d.looked()
	look(silentLooks + 3)
	if err := end(); !errors.Is(err, errHangs) || !strings.Contains(err.Error(), "executor is held") {
		t.Errorf("it ends with %v", err)
	}
	if n := runtime.NumGoroutine() - before; n > silentLooks/2 {
		t.Errorf("%d goroutines wait for the executor", n)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.stop() }()
	close(hurry)
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for the executor")
	}
}

// TestStartThatIsStopped: a first signal lets a start come to its end, a second one ends it.
func TestStartThatIsStopped(t *testing.T) {
	hurry := make(chan struct{})
	d := &daemon{hurry: hurry}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	opened := make(chan error, 1)
	opened <- errHangs
	if err, ended := d.started(ctx, opened); !ended || !errors.Is(err, errHangs) {
		t.Errorf("%v, %v", err, ended)
	}
	close(hurry)
	if err, ended := d.started(ctx, opened); ended || err == nil {
		t.Errorf("%v, %v", err, ended)
	}
}

// TestSecondSignalBesideAFileThatHangs: what does not close holds up no end.
func TestSecondSignalBesideAFileThatHangs(t *testing.T) {
	d, _, _ := serveCache(t, 0)
	hurry, hangs := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	d.hurry = hurry
	d.closers = []func(){func() { <-hangs }}
	close(hurry)
	ended := make(chan struct{})
	go func() { d.letGo(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it waits for a file")
	}
	ctx, cancel := d.unhurried(time.Hour)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Error("it waits for hosts")
	}
}
