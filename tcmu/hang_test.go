package tcmu

import (
	"os"
	"path/filepath"
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
	for _, row := range []struct{ what, file, want string }{
		{"a handler", "", "tcm-user/0/a: the handler is still at work"},
		{"a device in the kernel", "/action/block_dev", "tcm-user/0/a: its end hangs in the kernel"},
		{"the kernel's module", "reset_netlink", "parameters of the kernel's module"},
	} {
		t.Run(row.what, func(t *testing.T) {
			w := newWorld(t)
			sub := stuck{testSubtype{w}, make(chan struct{}), make(chan struct{})}
			t.Cleanup(func() { close(sub.free) })
			w.device(1, "a/stuck/x")
			k := tcmutest.New(tcmutest.Options{})
			s, err := start(Options{Subtypes: []Subtype{sub}, CloseTimeout: 50 * time.Millisecond, grace: 200 * time.Millisecond}, w.root, w, func(uint32) (Link, error) { return k, nil })
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
