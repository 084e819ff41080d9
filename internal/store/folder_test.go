package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/vfs"
	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// noted is a file system that notes which folders are synced, and cannot sync some.
type noted struct {
	FS
	fails  map[string]error
	mu     sync.Mutex
	synced []string // guarded by mu
}

type notedDir struct {
	vfs.File
	n    *noted
	name string
}

func (d notedDir) Sync() error {
	d.n.mu.Lock()
	d.n.synced = append(d.n.synced, d.name)
	d.n.mu.Unlock()
	if err := d.n.fails[d.name]; err != nil {
		return err
	}
	return d.File.Sync()
}

func (n *noted) OpenDir(name string) (vfs.File, error) {
	f, err := n.FS.OpenDir(name)
	return notedDir{f, n, name}, err
}

// TestMakeFolder: the names of all folders that were made are synced, and that of one that is there.
func TestMakeFolder(t *testing.T) {
	top := t.TempDir()
	fs := &noted{FS: OS}
	a, c := filepath.Join(top, "a"), filepath.Join(top, "a", "b", "c")
	for i, want := range [][]string{{filepath.Dir(c), a, top}, {filepath.Dir(c)}} {
		fs.synced = nil
		if err := makeFolder(fs, c, true); err != nil || !slices.Equal(fs.synced, want) {
			t.Errorf("time %d: synced are %q, want %q: %v", i+1, fs.synced, want, err)
		}
	}
	if err := makeFolder(OS, "/proc/nowhere", true); err == nil {
		t.Error("a folder was made where none can be")
	}
}

// TestFoldersThatCannotBeSynced: what lies above the data folder is not ours, and may be of a kind that
// cannot be synced; a name in the data folder that cannot be made durable is an error.
func TestFoldersThatCannotBeSynced(t *testing.T) {
	exec := block.NewLive()
	defer exec.Stop()
	for _, errno := range []error{unix.EINVAL, unix.EACCES, unix.EROFS, unix.EIO} {
		top := t.TempDir()
		above, data := filepath.Join(top, "above"), filepath.Join(top, "above", "data")
		meta := func(fails string) error {
			s, err := OpenFiles(exec, data, FilesOptions{FS: &noted{FS: OS, fails: map[string]error{fails: errno}}})
			if err == nil {
				_, err = s.Meta()
				err = errors.Join(err, s.Close())
			}
			return err
		}
		for _, folder := range []string{top, above} {
			os.RemoveAll(above)
			if err := meta(folder); (err == nil) != (errno != unix.EIO) {
				t.Errorf("%v of %s, which is not ours, has the store open with %v", errno, folder, err)
			}
		}
		for range 2 { // it is new, or there already
			if err := meta(data); !errors.Is(err, errno) {
				t.Errorf("%v of the data folder has the store open with %v", errno, err)
			}
		}
	}
}

// openRegion opens the NVRAM of a data folder, changes or expects its first bytes, and closes it.
func openRegion(t *testing.T, fs FS, dir, before, after string) {
	t.Helper()
	exec := block.NewLive()
	defer exec.Stop()
	s, err := OpenFiles(exec, dir, FilesOptions{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	r, fresh, err := s.Region("nvram", block.RegionLayout{State: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if b := r.Memory().State; fresh != (before == "") || !strings.HasPrefix(string(b), before) {
		t.Errorf("it is new: %v, and has %q, not %q", fresh, b[:10], before)
	} else {
		copy(b, after)
	}
	if err := errors.Join(r.FlushNow(), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestRestOfNVRAM: what a crash left of an NVRAM that was being made takes room as large as that; the next
// start removes it, whether it makes one or has one.
func TestRestOfNVRAM(t *testing.T) {
	dir := t.TempDir()
	rest := filepath.Join(dir, "nvram.new")
	for _, before := range []string{"", "kept"} {
		if err := os.WriteFile(rest, []byte("a rest"), 0o600); err != nil {
			t.Fatal(err)
		}
		openRegion(t, OS, dir, before, "kept")
		if _, err := os.Stat(rest); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("with NVRAM %q it is there still: %v", before, err)
		}
	}
}

// TestLinkedNVRAM: the NVRAM may lie on another disk, behind symbolic links. It is made there, whether they
// lead to an empty file or to none, and the folder that has its name is synced, as it is by each start; the links stay.
func TestLinkedNVRAM(t *testing.T) {
	for _, empty := range []bool{false, true} {
		dir, other := t.TempDir(), t.TempDir()
		link, second, real := filepath.Join(dir, "nvram"), filepath.Join(other, "second"), filepath.Join(other, "deep", "real")
		err := errors.Join(os.Mkdir(filepath.Dir(real), 0o700), os.Symlink(second, link), os.Symlink("deep/real", second))
		if empty {
			err = errors.Join(err, os.WriteFile(real, nil, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, before := range []string{"", "kept", "kept"} {
			rest := real + ".new"
			if err := os.WriteFile(rest, []byte("a rest"), 0o600); err != nil {
				t.Fatal(err)
			}
			fs := &noted{FS: OS}
			openRegion(t, fs, dir, before, "kept")
			if !slices.Contains(fs.synced, filepath.Dir(real)) {
				t.Errorf("synced are %q, not %q", fs.synced, filepath.Dir(real))
			}
			if to, err := os.Readlink(link); err != nil || to != second {
				t.Errorf("the link leads to %q: %v", to, err)
			}
			if b, err := os.ReadFile(real); err != nil || !strings.HasPrefix(string(b), "kept") {
				t.Errorf("the file has %d bytes, %v", len(b), err)
			}
			if _, err := os.Stat(rest); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a rest is there still: %v", err)
			}
		}
	}
}

// TestNVRAMThatIsNone: a link that leads to itself or to a device is refused.
func TestNVRAMThatIsNone(t *testing.T) {
	exec := block.NewLive()
	defer exec.Stop()
	for _, to := range []string{"nvram", "/dev/null", "."} {
		dir := t.TempDir()
		if err := os.Symlink(to, filepath.Join(dir, "nvram")); err != nil {
			t.Fatal(err)
		}
		s, err := OpenFiles(exec, dir, FilesOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Region("nvram", block.RegionLayout{State: 4096}); err == nil {
			t.Errorf("a link to %s is taken", to)
		}
		s.Close()
	}
}
