package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestFolderIsGone: somebody removes the folders of the metadata under a running array. Commits end with an error, and the process
// goes on.
func TestFolderIsGone(t *testing.T) {
	dir := t.TempDir()
	_, s := openFolder(t, dir, FilesOptions{})
	m, err := s.Meta()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range metaNames {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	// Until the log is full, all goes to files that are still open.
	for i := range 100 {
		if err = m.CommitNow([]block.KV{{Key: []byte{'x', byte(i)}, Value: make([]byte, 1<<20)}}); err != nil {
			break
		}
	}
	if err == nil {
		t.Error("100 MiB were committed to folders that are gone")
	}
}
