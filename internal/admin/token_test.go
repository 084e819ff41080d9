package admin

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTokenOnAFullDisk: a token that cannot be written leaves no file that the next start would take for one, and the next
// start that can write makes one.
func TestTokenOnAFullDisk(t *testing.T) {
	const folder = "ARRAYSIM_TEST_FULL_DISK"
	if dir := os.Getenv(folder); dir != "" { // in a process of its own, which may write no byte
		signal.Ignore(unix.SIGXFSZ)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{}); err != nil {
			t.Fatal(err)
		}
		if _, err := Token(dir); err == nil || !strings.Contains(err.Error(), "admin token: ") {
			t.Errorf("the token was written, with the error %v", err)
		}
		return
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestTokenOnAFullDisk$")
	child.Env = append(os.Environ(), folder+"="+dir)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("%s is left", list[0].Name())
	}
	token, err := Token(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Token(dir); again != token || err != nil {
		t.Errorf("the token changes: %v", err)
	}
	st, err := os.Stat(filepath.Join(dir, tokenName))
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}
