package admin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// rings returns how many io_uring instances the process has open.
func rings(t *testing.T) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink(fd); strings.Contains(to, "io_uring") {
			n++
		}
	}
	return n
}

// TestAIO: the configuration chooses what waits for the disks.
func TestAIO(t *testing.T) {
	var fs unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		t.Skip("the folder of tests is in memory, where nothing waits:", err)
	}
	exec := block.NewLive()
	defer exec.Stop()
	has := map[string]bool{}
	for _, aio := range []string{aioAuto, aioThreads, aioRing, aioDirect} {
		before := rings(t)
		f, err := openFolder(exec, t.TempDir(), storeFiles, aio, nil)
		if err != nil {
			if aio != aioRing && aio != aioDirect || has[aioAuto] {
				t.Errorf("aio %s: %v", aio, err)
			}
			continue
		}
		has[aio] = rings(t) > before
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}
	if has[aioThreads] || has[aioRing] != has[aioAuto] || has[aioDirect] != has[aioAuto] {
		t.Errorf("there is a ring: %v", has)
	}
}
