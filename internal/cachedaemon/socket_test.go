package cachedaemon

import (
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
		if l, err := listenSocket(filepath.Join(dir, what)); err == nil || !strings.Contains(err.Error(), "is no socket") {
			t.Errorf("a %s: %v, %v", what, l, err)
		}
		removeSocket(filepath.Join(dir, what))
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
	removeSocket(path)
	if _, err := os.Lstat(path); err == nil {
		t.Error("it stays")
	}
}
