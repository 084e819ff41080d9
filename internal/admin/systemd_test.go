package admin

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// systemd is a service manager as far as a service sees one: a socket that hears of its state.
type systemd struct {
	t *testing.T
	*net.UnixConn
}

func newSystemd(t *testing.T, watchdog string) *systemd {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // t.TempDir's names may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		os.RemoveAll(dir)
	})
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", watchdog)
	return &systemd{t, c}
}

// hears returns the next message, "" if none comes within a time.
func (s *systemd) hears(within time.Duration) string {
	s.t.Helper()
	b := make([]byte, 4096)
	if err := s.SetReadDeadline(time.Now().Add(within)); err != nil {
		s.t.Fatal(err)
	}
	n, err := s.Read(b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// waits returns all messages up to the first with a line, and fails where it does not come.
func (s *systemd) waits(line string) (all []string) {
	s.t.Helper()
	for {
		m := s.hears(startTimeout)
		all = append(all, m)
		if slices.Contains(strings.Split(m, "\n"), line) {
			return all
		}
		if m == "" {
			s.t.Fatalf("no %s in %q", line, all)
		}
	}
}

// The watchdog is told that all is well only while the executor answers: nothing else does, a timer
// neither.
func TestWatchdogNeedsTheExecutor(t *testing.T) {
	const every = 50 * time.Millisecond
	s := newSystemd(t, "100000")
	r := start(t, parse(t, testConfig, filepath.Join(t.TempDir(), "d")))
	s.waits("READY=1")
	s.waits("WATCHDOG=1")
	s.waits("WATCHDOG=1")

	r.d.groups[0].exec.Lock()
	for s.hears(every/2) != "" { // what it was told before
	}
	heard := 0 // one word may be on its way: it comes late where there is no processor for it
	for heard < 2 && s.hears(10*every) != "" {
		heard++
	}
	for end := time.Now().Add(startTimeout); !strings.Contains(r.out.String(), "executor does not answer") && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // it may have had no processor for its two looks
	}
	r.d.groups[0].exec.Unlock()
	if heard > 1 {
		t.Error("the executor hangs, and systemd hears that all is well, again and again")
	}
	s.waits("WATCHDOG=1") // it answers again
	if !strings.Contains(r.out.String(), "executor does not answer") {
		t.Errorf("nothing is said of it:\n%s", r.out)
	}
	r.stop()
	s.waits("STOPPING=1")
}

// Who starts the daemon hears how far it is.
func TestNotifications(t *testing.T) {
	s := newSystemd(t, "")
	r := start(t, parse(t, testConfig, filepath.Join(t.TempDir(), "d")))
	said := s.waits("READY=1")
	if !slices.Contains(said, "STATUS=Recovering the array") || !strings.Contains(said[len(said)-1], "STATUS=Serving iSCSI on 127.0.0.1:") {
		t.Errorf("up to its start it said %q", said)
	}
	if m := s.hears(200 * time.Millisecond); m != "" {
		t.Errorf("nobody asked for signs of life, and there is %q", m)
	}
	r.stop()
	if m := s.hears(startTimeout); !strings.HasPrefix(m, "STOPPING=1\n") {
		t.Errorf("at its stop it said %q", m)
	}
}
