package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Folders of tests whose process is killed stay. So their names have the process's number, and a new process removes those whose
// process is gone. What processes of other PID namespaces leave in the same folder looks as if its process were gone: do not share
// a temporary folder with them.
const folderPrefix = "at-" // short: there are sockets below, whose paths have 107 bytes at most

// processDir makes a folder of this process in a parent, and removes those of processes that are gone.
func processDir(parent string) (dir string, err error) {
	removeDead(parent)
	return os.MkdirTemp(parent, fmt.Sprint(folderPrefix, os.Getpid(), "-"))
}

// removeDead removes the folders in a parent that processDir made for processes that are gone.
func removeDead(parent string) {
	list, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*"))
	for _, dir := range list {
		number, _, ok := strings.Cut(strings.TrimPrefix(filepath.Base(dir), folderPrefix), "-")
		if pid, err := strconv.Atoi(number); ok && err == nil && pid > 0 && gone(pid) {
			os.RemoveAll(dir) // of another user: it stays
		}
	}
}

// gone reports whether there is no process of a number.
func gone(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer p.Release()
	err = p.Signal(syscall.Signal(0))
	return err == os.ErrProcessDone || err == syscall.ESRCH
}

const memory = "/dev/shm"

var sweepMemory = sync.OnceFunc(func() { removeDead(memory) })

// MemoryDir returns a new folder in memory, which is removed after the test. The first call of a process removes those that killed
// processes have left. An error says that there is no such memory here.
func MemoryDir(t testing.TB) (dir string, err error) {
	t.Helper()
	sweepMemory()
	if dir, err = os.MkdirTemp(memory, fmt.Sprint(folderPrefix, os.Getpid(), "-")); err != nil {
		return "", err
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir, nil
}
