package cachedaemon

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSocketOfTheAPI: it takes the place of one that was left behind and of nothing else, and is this user's alone, whatever
// the umask is.
func TestSocketOfTheAPI(t *testing.T) {
	defer unix.Umask(unix.Umask(0))
	dir := t.TempDir()
	path := filepath.Join(dir, "sock")
	for _, what := range []string{"file", "folder", "link"} {
		switch other := filepath.Join(dir, what); what {
		case "file":
			if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		case "folder":
			if err := os.Mkdir(other, 0o700); err != nil {
				t.Fatal(err)
			}
		default:
			if err := os.Symlink(filepath.Join(dir, "file"), other); err != nil {
				t.Fatal(err)
			}
		}
		if l, err := listenSocket(filepath.Join(dir, what)); err == nil || !strings.Contains(err.Error(), "is not a socket") {
			t.Errorf("a %s: %v, %v", what, l, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "link")); err != nil || string(b) != "precious" {
		t.Errorf("the file is %q: %v", b, err)
	}
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	l, err := listenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v: %v", st.Mode(), err)
	}
	if _, err := listenSocket(path); err == nil || !strings.Contains(err.Error(), "another hostcache answers") {
		t.Errorf("a second one: %v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 4 {
		t.Errorf("the folder has %v: %v", list, err)
	}
	l.remove()
	if _, err := os.Lstat(path); err == nil {
		t.Error("it stays")
	}
}

// TestSocketsThatMayBeInUse: only a socket that refuses connections, or none, is taken for one that was left behind.
func TestSocketsThatMayBeInUse(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "datagrams")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: other, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy := filepath.Join(dir, "busy")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: busy}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	first, err := net.Dial("unix", busy) // nobody accepts it, and a second one finds no room
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, path := range []string{other, busy} {
		was, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := listenSocket(path); err == nil || !strings.Contains(err.Error(), "may be in use") {
			t.Errorf("%s: %v, %v", path, s, err)
		}
		if now, err := os.Lstat(path); err != nil || !os.SameFile(was, now) {
			t.Errorf("%s is another file now: %v", path, err)
		}
	}
}

// TestSocketsThatCannotBe: where there is no socket none is in use.
func TestSocketsThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "file", "sock"), filepath.Join(dir, strings.Repeat("s", 200))} {
		if s, err := listenSocket(path); err == nil || !strings.Contains(err.Error(), "cannot be created: ") {
			t.Errorf("%s: %v, %v", path, s, err)
		}
	}
}

// TestSocketOfTheNextDaemon: a daemon that ends late does not remove the socket of the one that has come meanwhile.
func TestSocketOfTheNextDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	first, err := listenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	next, err := listenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	first.remove()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the next daemon's socket is gone: %v", err)
	}
	nc.Close()
}
