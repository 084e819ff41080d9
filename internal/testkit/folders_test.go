package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

const dieIn = "ARRAYSIM_TESTKIT_DIE_IN"

// TestDies is a process that is killed while it has a folder; it runs for TestFoldersOfDeadProcesses alone.
func TestDies(t *testing.T) {
	parent := os.Getenv(dieIn)
	if parent == "" {
		t.Skip("only for TestFoldersOfDeadProcesses")
	}
	dir, err := processDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("left"), 0o600); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// TestFoldersOfDeadProcesses: a process removes what killed ones have left, and nothing else.
func TestFoldersOfDeadProcesses(t *testing.T) {
	parent := t.TempDir()
	c := exec.Command(os.Args[0], "-test.run=^TestDies$")
	c.Env = append(os.Environ(), dieIn+"="+parent)
	out, _ := c.CombinedOutput()
	if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("the process was not killed: %s", out)
	}
	left, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*", "f"))
	if len(left) != 1 {
		t.Fatalf("it has left %q: nothing is shown", left)
	}
	for _, other := range []string{"at-x-1", "at-", "at-0-1", "at-17", "other"} {
		if err := os.Mkdir(filepath.Join(parent, other), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mine, err := processDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := processDir(parent); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("it has removed its own: %v", err)
	}
	if _, err := os.Stat(left[0]); !os.IsNotExist(err) {
		t.Errorf("what a killed process has left is there: %v", err)
	}
	if list, _ := os.ReadDir(parent); len(list) != 5+2 {
		t.Errorf("there are %v", list)
	}
}
