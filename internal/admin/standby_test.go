package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
)

// opens returns the opening of a daemon that has not begun, in a folder of its own.
func opens(t *testing.T) (*opening, *Client) {
	t.Helper()
	cfg := parse(t, testConfig, filepath.Join(t.TempDir(), "d"))
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	o := newOpening(newDaemon(cfg, Environment{Out: io.Discard, Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(o.end)
	return o, NewClient(cfg.Data)
}

// TestStandbyIsShown: a process that stands by tells its state to who asks, and nothing else, and has systemd wait.
func TestStandbyIsShown(t *testing.T) {
	manager := newSystemd(t, "")
	s, client := opens(t)
	see := s.begin(&folder{path: s.d.cfg.Data})
	manager.waits(fmt.Sprint("EXTEND_TIMEOUT_USEC=", openingMore.Microseconds()))
	status := func(want string) {
		t.Helper()
		got, err := client.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := json.Marshal(got.Ownership); string(b) != want {
			t.Errorf("it says %s, want %s", b, want)
		}
	}
	status(`{"state":"opening","owner":""}`)
	see(rados.Standby{Owner: "process 7 on a", Epoch: 0, Age: -1})
	status(`{"state":"standing by","owner":"process 7 on a","epoch":0}`)
	see(rados.Standby{Owner: "process 7 on a", Epoch: 3, Age: -1})
	manager.waits("STATUS=Standing by: the array is open in process 7 on a, epoch 3")
	status(`{"state":"standing by","owner":"process 7 on a","epoch":3}`)
	see(rados.Standby{Owner: "process 8 on b", Epoch: 4, Age: 2_500_000_000})
	status(`{"state":"standing by","owner":"process 8 on b","epoch":4,"lease_age_s":2.5}`)
	got, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if WriteStatus(&text, got); !strings.Contains(text.String(), "standing by; owner process 8 on b, epoch 4, lease renewed 2.5 s ago") {
		t.Errorf("people read:\n%s", &text)
	}
	if _, err := client.Volumes(t.Context()); err == nil || !strings.Contains(err.Error(), "open in process 8 on b") {
		t.Errorf("its volumes: %v", err)
	}
	see(rados.Standby{Taking: true, Epoch: 4, Age: -1})
	manager.waits("STATUS=Taking the array over")
	status(`{"state":"taking over","owner":"","epoch":4}`)
	see(rados.Standby{Epoch: 5, Age: -1, Trouble: "no answer", Since: 86_400_500_000_000})
	status(`{"state":"opening","owner":"","epoch":5,"trouble":"no answer","trouble_since":"1970-01-02T00:00:00Z"}`)
	if got, err = client.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	text.Reset()
	if WriteStatus(&text, got); !strings.Contains(text.String(), "no answer, since 1970-01-0") {
		t.Errorf("people read:\n%s", &text)
	}
	see(rados.Standby{Epoch: 5, Age: -1})
	status(`{"state":"opening","owner":"","epoch":5}`)
	see(rados.Standby{Owner: "process 8 on b\nREADY=1", Epoch: 4, Age: -1, Trouble: "x\nREADY=1\x1b"})
	for _, m := range manager.waits(`STATUS=Waiting for the cluster: x\u000aREADY=1\u001b`) {
		if slices.Contains(strings.Split(m, "\n"), "READY=1") {
			t.Errorf("who names its host so makes a standby ready: %q", m)
		}
	}
	s.end()
	if _, err := client.Status(t.Context()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("when the wait is over: %v", err)
	}
}

// TestCanceledAsksForNoTime: a process that is to end asks systemd for no more time, so that one that hangs is ended.
func TestCanceledAsksForNoTime(t *testing.T) {
	manager := newSystemd(t, "")
	o, _ := opens(t)
	canceled := make(chan struct{})
	o.canceled, o.every = canceled, 5*time.Millisecond
	see := o.begin(&folder{path: o.d.cfg.Data})
	manager.waits(fmt.Sprint("EXTEND_TIMEOUT_USEC=", openingMore.Microseconds()))
	close(canceled)
	o.telling.Lock() // what was under way is said
	for manager.hears(50*time.Millisecond) != "" {
	}
	o.telling.Unlock()
	see(rados.Standby{Trouble: "news", Age: -1})
	if m := manager.hears(100 * time.Millisecond); m != "" {
		t.Errorf("behind the signal it says %q", m)
	}
}

// TestOnlyCanceled: a start that was canceled and has failed, too, is one that has failed.
func TestOnlyCanceled(t *testing.T) {
	for _, row := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{rados.ErrCanceled, true},
		{fmt.Errorf("pool p: %w", fmt.Errorf("a: %w", rados.ErrCanceled)), true},
		{errors.Join(rados.ErrCanceled, fmt.Errorf("b: %w", rados.ErrCanceled)), true},
		{errors.Join(rados.ErrCanceled, io.EOF), false},
		{fmt.Errorf("%w; and %w", fmt.Errorf("a: %w", io.EOF), rados.ErrCanceled), false},
		{io.EOF, false},
	} {
		if got := onlyCanceled(row.err); got != row.want {
			t.Errorf("%v says no more than that it was canceled: %v", row.err, got)
		}
	}
}

// inPool is a store of an array in a pool as far as its ownership goes.
type inPool struct{ block.Store }

func (inPool) Ownership() rados.Ownership {
	return rados.Ownership{Epoch: 9, Age: 500e6, Serving: true}
}

// TestOpeningIsShown: a process that has the array and recovers it shows that, and has systemd wait, until it is ready.
func TestOpeningIsShown(t *testing.T) {
	manager := newSystemd(t, "")
	cfg := parse(t, testConfig, filepath.Join(t.TempDir(), "d"))
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	client, ready := NewClient(cfg.Data), make(chan bool, 1)
	r := startWith(t, cfg, func(d *daemon) {
		o := newOpening(d)
		d.opening, o.every = o, 5*time.Millisecond
		f := &folder{path: cfg.Data}
		o.begin(f)
		f.store = inPool{}
		o.has(f)
		extended := fmt.Sprint("EXTEND_TIMEOUT_USEC=", openingMore.Microseconds())
		manager.waits("STATUS=Recovering the array")
		manager.waits(extended)
		manager.waits(extended)
		got, err := client.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if w := got.Ownership; w == nil || w.State != StateOpening || w.Epoch == nil || *w.Epoch != 9 || w.LeaseAge == nil || *w.LeaseAge != 0.5 || !strings.Contains(w.Owner, "this node") {
			t.Errorf("it says %+v", w)
		}
		if _, err := client.Volumes(t.Context()); err == nil || !strings.Contains(err.Error(), "does not serve it yet") {
			t.Errorf("its volumes: %v", err)
		}
		go func() { // so that nobody waits for systemd
			for said := "-"; ; {
				if said = manager.hears(startTimeout); said == "" || strings.HasPrefix(said, "READY=1\n") {
					ready <- said != ""
					return
				}
			}
		}()
	})
	if !<-ready {
		t.Fatal("systemd does not hear that it is ready")
	}
	if m := manager.hears(100 * time.Millisecond); m != "" {
		t.Errorf("when it serves systemd hears %q", m)
	}
	if _, err := client.Volumes(t.Context()); err != nil {
		t.Errorf("when it serves: %v", err)
	}
	r.stop()
}

// TestSignsOfLifeOfAStandby: a process that has given its array away goes on to be ready to systemd, which hears of its life.
func TestSignsOfLifeOfAStandby(t *testing.T) {
	manager := newSystemd(t, "20000")
	o, _ := opens(t)
	o.loops.Go(o.signsOfLife)
	for range 3 {
		manager.waits("WATCHDOG=1")
	}
	o.end()
	for manager.hears(50*time.Millisecond) != "" { // what was under way
	}
	if m := manager.hears(100 * time.Millisecond); m != "" {
		t.Errorf("behind the wait it says %q", m)
	}
}

// TestConnectUntil: a start that waits for the monitors ends when it is canceled.
func TestConnectUntil(t *testing.T) {
	canceled, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	time.AfterFunc(20*time.Millisecond, func() { close(canceled) })
	if _, err := connectUntil(canceled, func() (rados.Cluster, error) { <-never; return nil, nil }); !errors.Is(err, rados.ErrCanceled) {
		t.Errorf("it ended with %v", err)
	}
	if _, err := connectUntil(nil, func() (rados.Cluster, error) { return nil, io.EOF }); err != io.EOF {
		t.Errorf("an error of the connection: %v", err)
	}
}

// TestFencedWhileItStops: a daemon that loses its array while it stops does not wait for what can never end.
func TestFencedWhileItStops(t *testing.T) {
	r := start(t, parse(t, testConfig, hurriedDir(t))) // what is left of it ends later
	exec := r.d.groups[0].exec
	exec.Lock() // nothing ends
	r.cancel()
	time.Sleep(50 * time.Millisecond)
	r.d.fail(fmt.Errorf("%w: by another", block.ErrFenced))
	select {
	case err := <-r.end:
		if !errors.Is(err, block.ErrFenced) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(startTimeout):
		t.Error("it does not end")
	}
	r.end = nil
	exec.Unlock()
}

// hangingKernel is a TCMU server that does not end.
type hangingKernel struct {
	busyKernel
	runs chan context.Context
}

func (k hangingKernel) Run(ctx context.Context) error {
	k.runs <- ctx
	select {}
}

// TestForsakeClosesTheKernelDoor: a daemon that has lost its array takes no command of the kernel any more, and does not
// wait for a front end that hangs.
func TestForsakeClosesTheKernelDoor(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	d := newDaemon(parse(t, testConfig, filepath.Join(t.TempDir(), "d")), Environment{Out: io.Discard, Log: slog.New(slog.DiscardHandler)})
	d.data = &folder{}
	hangs := hangingKernel{busyKernel{make(chan struct{})}, make(chan context.Context, 1)}
	d.kernel = &kernelDoor{d: d}
	d.kernel.serve(hangs)
	ctx := <-hangs.runs
	begin := time.Now()
	d.forsake(block.ErrFenced)
	if ctx.Err() == nil || !isClosed(hangs.hurried) {
		t.Error("the TCMU front end goes on")
	}
	if took := time.Since(begin); took > forsakePatience+10*time.Second {
		t.Errorf("it waited for %v", took)
	}
}

// troubled is a store whose cluster does not take something.
type troubled struct{ block.Store }

func (troubled) Ownership() rados.Ownership {
	return rados.Ownership{Epoch: 9, Age: -1, Serving: true, Trouble: "the object map m0.map is not written: injected", Since: 1e9}
}

// TestTroubleOfAnOwnerIsShown: what the cluster does not take of an array that is served is a fault of its status.
func TestTroubleOfAnOwnerIsShown(t *testing.T) {
	own := (&folder{store: troubled{}}).ownership()
	var text strings.Builder
	if WriteStatus(&text, Status{Ownership: own}); own.State != StateServing || own.TroubleSince == nil || own.TroubleSince.Unix() != 1 || !strings.Contains(text.String(), "m0.map is not written: injected") {
		t.Errorf("it says %+v, and people read:\n%s", own, &text)
	}
}
