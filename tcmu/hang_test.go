package tcmu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// stuck is a subtype whose handlers do not return.
type stuck struct {
	testSubtype
	got, free chan struct{}
}

func (stuck) Name() string                    { return "stuck" }
func (h stuck) Open(*Device) (Handler, error) { return h, nil }
func (stuck) Close()                          {}
func (h stuck) Serve([]*Command) {
	close(h.got)
	<-h.free
}

// hangs makes a file whose writers hang in the kernel until the test ends.
func (w *world) hangs(path string) {
	w.t.Helper()
	full := filepath.Join(string(w.root), path)
	if err := os.Remove(full); err != nil {
		w.t.Fatal(err)
	}
	if err := syscall.Mkfifo(full, 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if f, err := os.OpenFile(full, os.O_RDWR, 0); err == nil {
			time.Sleep(10 * time.Millisecond)
			f.Close()
		}
	})
}

// TestEndThatHangs: a server ends in time and names what hangs, whether that is a handler or a thread in the kernel.
func TestEndThatHangs(t *testing.T) {
	for _, row := range []struct {
		what, file, want string
		grace            time.Duration
	}{
		{"a handler", "", "tcm-user/0/a: the handler is still at work", patience},
		{"a device in the kernel", "/action/block_dev", "tcm-user/0/a: its end hangs in the kernel", 200 * time.Millisecond},
		{"the kernel's module", "reset_netlink", "parameters of the kernel's module", 200 * time.Millisecond},
	} {
		t.Run(row.what, func(t *testing.T) {
			w := newWorld(t)
			sub := stuck{testSubtype{w}, make(chan struct{}), make(chan struct{})}
			t.Cleanup(func() { close(sub.free) })
			w.device(1, "a/stuck/x")
			k := tcmutest.New(tcmutest.Options{})
			s, err := start(Options{Subtypes: []Subtype{sub}, CloseTimeout: 50 * time.Millisecond, grace: row.grace}, w.root, w, func(uint32) (Link, error) { return k, nil })
			if err != nil {
				t.Fatal(err)
			}
			switch row.file {
			case "":
				if _, err := k.Send(make([]byte, 6), nil, 0); err != nil {
					t.Fatal(err)
				}
				<-sub.got
			case "reset_netlink":
				w.hangs("sys/module/target_core_user/parameters/reset_netlink")
			default:
				w.hangs(w.folder("a/stuck/x") + row.file)
			}
			end := make(chan error, 1)
			go func() { end <- s.closeAll() }()
			select {
			case err := <-end:
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Errorf("it ends with %v, and does not say %q", err, row.want)
				}
			case <-time.After(patience):
				t.Fatal("it does not end")
			}
		})
	}
}

// opener is a subtype whose handlers of a configuration "slow" open when they are let.
type opener struct {
	testSubtype
	got, free chan struct{}
}

func newOpener(w *world) opener {
	o := opener{testSubtype{w}, make(chan struct{}), make(chan struct{})}
	w.t.Cleanup(o.let)
	return o
}

func (o opener) let() {
	select {
	case <-o.free:
	default:
		close(o.free)
	}
}

func (o opener) Open(d *Device) (Handler, error) {
	if d.Info().Config == "slow" {
		close(o.got)
		<-o.free
	}
	return o.testSubtype.Open(d)
}

// comes waits for something that has to come.
func comes[T any](t *testing.T, what string, ch <-chan T) (x T) {
	t.Helper()
	select {
	case x = <-ch:
	case <-time.After(patience):
		t.Fatalf("%s does not come", what)
	}
	return x
}

// unblocked says that a kernel is left as it ought to be.
func (w *world) unblocked() {
	w.t.Helper()
	if v := w.value("sys/module/target_core_user/parameters/block_netlink"); v != "0" {
		w.t.Errorf("the kernel is left with block_netlink=%s", v)
	}
}

// TestEndBesideAnOpening: a handler that does not open, as one that needs an executor that is held, keeps neither the server from its
// end nor the kernel blocked. When it opens nevertheless, it is closed: nobody would ever end it.
func TestEndBesideAnOpening(t *testing.T) {
	w := newWorld(t)
	sub := newOpener(w)
	s, err := start(Options{Subtypes: []Subtype{sub}, CloseTimeout: 50 * time.Millisecond, grace: patience}, w.root, w, w.open)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- s.Run(ctx) }()
	e := w.device(1, "lun/test/slow")
	e.cmd = cmdAdded
	w.events <- e
	comes(t, "the opening", sub.got)
	cancel()
	if err := comes(t, "the end", end); err == nil || !strings.Contains(err.Error(), "did not end in time: uio1") || !errors.Is(err, errHangs) {
		t.Errorf("it ends with %v", err)
	}
	w.unblocked()
	sub.let()
	if got := w.answer(); got != fmt.Sprintf("1 of 101: %d", -int(syscall.ESHUTDOWN)) {
		t.Errorf("answered %s", got)
	}
	comes(t, "the end of the mapping", w.links[1].gone)
	if len(s.Devices()) > 0 || !slices.Contains(w.notes(), "close lun") {
		t.Errorf("devices %v; diary %q", s.Devices(), w.notes())
	}
}

// TestStartBesideAnOpening: a device that is taken over and does not open holds up no other, and does not leave the kernel blocked.
func TestStartBesideAnOpening(t *testing.T) {
	w := newWorld(t)
	sub := newOpener(w)
	w.device(1, "a/test/slow")
	w.device(2, "b/test/good")
	started := make(chan *Server, 1)
	go func() {
		s, err := start(Options{Subtypes: []Subtype{sub}, CloseTimeout: 50 * time.Millisecond, grace: patience}, w.root, w, w.open)
		if err != nil {
			t.Error(err)
		}
		started <- s
	}()
	comes(t, "the opening", sub.got)
	s := comes(t, "the start", started)
	w.unblocked()
	for end := time.Now().Add(patience); len(s.Devices()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the other device is not served")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- s.Run(ctx) }()
	sub.let()
	gone := w.device(1, "a/test/slow") // whose removal comes behind its opening
	if got := w.tell(cmdRemoved, gone, Change{}); got != "2 of 101: 0" {
		t.Error(got)
	}
	if n := w.notes(); !slices.Contains(n, "close a") {
		t.Errorf("diary %q", n)
	}
	cancel()
	comes(t, "the end", end)
}

// TestStartThatIsHurried: a start that is to end at once waits for no device, and does not leave the kernel blocked.
func TestStartThatIsHurried(t *testing.T) {
	w := newWorld(t)
	sub := newOpener(w)
	w.device(1, "a/test/slow")
	hurry := make(chan struct{})
	started := make(chan *Server, 1)
	go func() {
		s, err := start(Options{Subtypes: []Subtype{sub}, CloseTimeout: time.Hour, Hurry: hurry, grace: patience}, w.root, w, w.open)
		if err != nil {
			t.Error(err)
		}
		started <- s
	}()
	comes(t, "the opening", sub.got)
	close(hurry)
	s := comes(t, "the start", started)
	w.unblocked()
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- s.Run(ctx) }()
	cancel()
	s.Hurry()
	comes(t, "the end", end)
	w.unblocked()
	if v := w.value(w.folder("a") + "/action/block_dev"); v != "0" {
		t.Errorf("the device that does not open is left with block_dev=%s", v)
	}
}

// TestHurry: a server that is to end at once waits for no command, and leaves the kernel and the device as they ought to be.
func TestHurry(t *testing.T) {
	w := newWorld(t)
	s, err := start(Options{Subtypes: []Subtype{testSubtype{w}}, CloseTimeout: time.Hour}, w.root, w, w.open)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- s.Run(ctx) }()
	e := w.device(1, "lun/test/stuck")
	w.links[1].send()
	t.Cleanup(func() { close(w.release) })
	if got := w.tell(cmdAdded, e, Change{}); got != "1 of 101: 0" {
		t.Fatal(got)
	}
	for end := time.Now().Add(patience); !slices.Contains(w.notes(), "stuck in lun"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the command does not come")
		}
	}
	cancel()
	s.Hurry()
	if err := comes(t, "the end", end); !errors.Is(err, errHangs) {
		t.Errorf("it ends with %v", err)
	}
	w.unblocked()
	if v := w.value(w.folder("lun") + "/action/block_dev"); v != "0" {
		t.Errorf("the device is left with block_dev=%s", v)
	}
}

// TestEndBesideABlockThatHangs: what the module does not take holds up no end.
func TestEndBesideABlockThatHangs(t *testing.T) {
	w := newWorld(t)
	s, err := start(Options{Subtypes: []Subtype{testSubtype{w}}, grace: 50 * time.Millisecond}, w.root, w, w.open)
	if err != nil {
		t.Fatal(err)
	}
	w.hangs("sys/module/target_core_user/parameters/block_netlink")
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- s.Run(ctx) }()
	cancel()
	if err := comes(t, "the end", end); !errors.Is(err, errParameters) {
		t.Errorf("it ends with %v", err)
	}
}

// breaker is a subtype that takes the kernel's parameter away.
type breaker struct{ testSubtype }

func (b breaker) Open(d *Device) (Handler, error) {
	full := filepath.Join(string(b.w.root), "sys/module/target_core_user/parameters/block_netlink")
	if err := errors.Join(os.Remove(full), os.Mkdir(full, 0o700)); err != nil {
		return nil, err
	}
	return b.testSubtype.Open(d)
}

// TestStartFailsBehindADevice: a start that fails lets go of the devices that it has taken over.
func TestStartFailsBehindADevice(t *testing.T) {
	w := newWorld(t)
	w.device(1, "lun/test/good")
	if _, err := start(Options{Subtypes: []Subtype{breaker{testSubtype{w}}}}, w.root, w, w.open); err == nil || !strings.Contains(err.Error(), "unblocking") {
		t.Fatalf("it starts with %v", err)
	}
	comes(t, "the end of the mapping", w.links[1].gone)
	if n := w.notes(); !slices.Contains(n, "close lun") {
		t.Errorf("diary %q", n)
	}
}

// TestStartFailsBesideAnOpening: a start that fails while a handler still opens says that its lock stays taken: the handler has its device.
func TestStartFailsBesideAnOpening(t *testing.T) {
	w := newWorld(t)
	sub := newOpener(w)
	w.device(1, "a/test/slow")
	failed, hurry := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := start(Options{Subtypes: []Subtype{sub}, CloseTimeout: patience, Hurry: hurry, grace: patience}, w.root, w, w.open)
		failed <- err
	}()
	comes(t, "the opening", sub.got)
	full := filepath.Join(string(w.root), "sys/module/target_core_user/parameters/block_netlink")
	if err := errors.Join(os.Remove(full), os.Mkdir(full, 0o700)); err != nil {
		t.Fatal(err)
	}
	close(hurry)
	if err := comes(t, "the end of the start", failed); err == nil || !strings.Contains(err.Error(), "unblocking") || !errors.Is(err, errHangs) {
		t.Errorf("it starts with %v", err)
	}
	sub.let()
	comes(t, "the end of the mapping", w.links[1].gone)
}
