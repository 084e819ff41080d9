package store

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// lockedFS is awayFS that locks folders as the machine's does.
type lockedFS struct{ *awayFS }

func (lockedFS) Lock(path string) (io.Closer, error) { return lockFolder(OS, filepath.Dir(path)) }

// TestCloseNamesWhatHangs: a disk does not answer, or the array holds its executor. Close ends in time and says so, however
// little time it has, and nobody else can open the folder until the disk has answered.
func TestCloseNamesWhatHangs(t *testing.T) {
	for _, row := range []struct{ what, want string }{{"a disk", "mdisk slow "}, {"the executor", "holds its executor"}} {
		t.Run(row.what, func(t *testing.T) {
			exec, others, dir := block.NewLive(), block.NewLive(), t.TempDir()
			defer others.Stop()
			fs := &awayFS{FS: OS}
			s, err := OpenFiles(exec, dir, FilesOptions{FS: lockedFS{fs}, NoRing: true, CloseTime: 1})
			if err != nil {
				t.Fatal(err)
			}
			m, err := s.Medium("slow", 1<<20)
			if err == nil {
				_, err = s.Medium("quick", 1<<20)
			}
			if err != nil {
				t.Fatal(err)
			}
			fs.hold = make(chan struct{})
			exec.Lock()
			if row.what == "a disk" {
				m.Submit([]*block.IO{{Write: true, N: 4096, Vec: [][]byte{make([]byte, 4096)}, Done: func(*block.IO) {}}})
				exec.Unlock()
			}
			end := make(chan error, 1)
			go func() { end <- s.Close() }()
			select {
			case err := <-end:
				if !errors.Is(err, ErrNotClosed) || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "quick") {
					t.Errorf("it ends with %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it does not end")
			}
			if o, err := OpenFiles(others, dir, FilesOptions{NoRing: true}); err == nil {
				o.Close()
				t.Error("the folder is open to others while its disk has a write")
			}
			if close(fs.hold); row.what != "a disk" {
				exec.Unlock()
			}
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				o, err := OpenFiles(others, dir, FilesOptions{NoRing: true})
				if err == nil {
					o.Close()
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the folder stays locked: %v", err)
				}
			}
			exec.Stop()
		})
	}
}
