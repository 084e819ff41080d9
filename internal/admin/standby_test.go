package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
)

// TestStandbyIsShown: a process that stands by tells its state to who asks, and nothing else, and has systemd wait.
func TestStandbyIsShown(t *testing.T) {
	manager := newSystemd(t, "")
	cfg := parse(t, testConfig, filepath.Join(t.TempDir(), "d"))
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(cfg, Environment{Out: io.Discard, Log: slog.New(slog.DiscardHandler)})
	s := &standby{d: d, over: make(chan struct{})}
	see := s.begin(&folder{path: cfg.Data})
	manager.waits(fmt.Sprint("EXTEND_TIMEOUT_USEC=", standbyMore.Microseconds()))
	client := NewClient(cfg.Data)
	if _, err := client.Status(t.Context()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("before it has seen an owner: %v", err)
	}
	see(rados.Standby{Owner: "process 7 on a", Epoch: 3, Age: 1})
	manager.waits("STATUS=Standing by: the array is open in process 7 on a, epoch 3")
	see(rados.Standby{Owner: "process 8 on b", Epoch: 4, Age: 2_500_000_000})
	got, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o := got.Ownership; o == nil || *o != (OwnershipStatus{State: StateStandingBy, Owner: "process 8 on b", Epoch: 4, LeaseAge: 2.5}) {
		t.Errorf("it says %+v", o)
	}
	var text strings.Builder
	if WriteStatus(&text, got); !strings.Contains(text.String(), "standing by; owner process 8 on b, epoch 4, lease renewed 2.5 s ago") {
		t.Errorf("people read:\n%s", &text)
	}
	if _, err := client.Volumes(t.Context()); err == nil || !strings.Contains(err.Error(), "open in process 8 on b") {
		t.Errorf("its volumes: %v", err)
	}
	s.end()
	if _, err := client.Status(t.Context()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("when the wait is over: %v", err)
	}
}

// TestFencedWhileItStops: a daemon that loses its array while it stops does not wait for what can never end.
func TestFencedWhileItStops(t *testing.T) {
	r := start(t, parse(t, testConfig, filepath.Join(t.TempDir(), "d")))
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
	case <-time.After(20 * time.Second):
		t.Error("it does not end")
	}
	r.end = nil
	exec.Unlock()
}

// TestForsakeClosesTheKernelDoor: a daemon that has lost its array takes no command of the kernel any more, and does not
// wait for a front end that hangs.
func TestForsakeClosesTheKernelDoor(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	d := newDaemon(parse(t, testConfig, filepath.Join(t.TempDir(), "d")), Environment{Out: io.Discard, Log: slog.New(slog.DiscardHandler)})
	d.data = &folder{}
	ctx, cancel := context.WithCancel(context.Background())
	d.kernel = &kernelDoor{d: d, cancel: cancel, ended: make(chan error, 1)}
	begin := time.Now()
	d.forsake(block.ErrFenced)
	if ctx.Err() == nil {
		t.Error("the TCMU front end goes on")
	}
	if took := time.Since(begin); took > forsakePatience+10*time.Second {
		t.Errorf("it waited for %v", took)
	}
}
