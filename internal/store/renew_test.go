package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// copiesOf opens the meta store of a folder, and what is said meanwhile.
func copiesOf(t *testing.T, dir string, fs FS) (m *metaCopies, said *[]string) {
	t.Helper()
	said = new([]string)
	_, s := openFolder(t, dir, FilesOptions{FS: fs, Notice: func(line string) { *said = append(*said, line) }})
	meta, err := s.Meta()
	if err != nil {
		t.Fatal(err)
	}
	return meta.(*metaCopies), said
}

// all gives what a copy has.
func all(m *metaCopies, i int) func(func(key, value []byte) error) error {
	return func(fn func(key, value []byte) error) error { return m.copies[i].Load(nil, fn) }
}

// must have a value of a key in both copies.
func mustHave(t *testing.T, m *metaCopies, key, value string) {
	t.Helper()
	for i, c := range m.copies {
		if c == nil {
			t.Errorf("copy %d is left alone: %v", i, m.errs[i])
		} else if v, err := c.get([]byte(key)); err != nil || string(v) != value {
			t.Errorf("copy %d has %q of %s: %v", i, v, key, err)
		}
	}
}

// TestRebuildBehindALink: a copy of the metadata may be behind a symbolic link, as on another disk. It is rebuilt there.
func TestRebuildBehindALink(t *testing.T) {
	for i, name := range metaNames {
		dir, there := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
		if err := errors.Join(os.Mkdir(there, 0o700), os.Symlink(there, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
		m, _ := copiesOf(t, dir, nil)
		if err := m.CommitNow([]block.KV{{Key: []byte("g"), Value: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
		m.Choose(1 - i)
		m.Renew(i, errors.New("a test"), all(m, 1-i))
		if err := m.CommitNow([]block.KV{{Key: []byte("o"), Value: []byte("2")}}); err != nil {
			t.Fatal(err)
		}
		mustHave(t, m, "g", "1")
		mustHave(t, m, "o", "2")
		if to, err := os.Readlink(filepath.Join(dir, name)); err != nil || to != there {
			t.Errorf("%s is a link no more: %q, %v", name, to, err)
		}
		if _, err := os.Stat(filepath.Join(there, metaHead)); err != nil {
			t.Errorf("%s was rebuilt elsewhere: %v", name, err)
		}
		for _, d := range []string{dir, filepath.Dir(there)} {
			list, _ := filepath.Glob(filepath.Join(d, "*.*"))
			for _, path := range list {
				if filepath.Base(path) != "meta.copy" {
					t.Errorf("%s is left over", path)
				}
			}
		}
	}
}

// TestCopyIsWhereItsLinkLeads: a copy behind a symbolic link is where the kernel finds it, whatever the link looks like, and
// however the data folder was reached. It is rebuilt there.
func TestCopyIsWhereItsLinkLeads(t *testing.T) {
	for name, to := range map[string]string{
		"beside a linked data folder": "../copies/meta",
		"with a slash behind it":      "TOP/disk/copies/meta/",
		"up from another link":        "TOP/aside/../meta",
		"in a folder that is a link":  "TOP/aside",
		"of itself alone":             "TOP/disk/copies/meta/.",
		"to a link":                   "TOP/again",
		"to nothing yet":              "../copies/new/meta",
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			there := filepath.Join(top, "disk/copies/meta")
			if err := errors.Join(os.MkdirAll(there, 0o700), os.Mkdir(filepath.Join(top, "disk/data"), 0o700),
				os.Symlink("disk/data", filepath.Join(top, "data")), os.Symlink("disk/copies/other", filepath.Join(top, "aside")),
				os.Mkdir(filepath.Join(top, "disk/copies/other"), 0o700), os.Symlink("data/../copies/meta/", filepath.Join(top, "again")),
				os.Symlink(strings.ReplaceAll(to, "TOP", top), filepath.Join(top, "data/meta.copy"))); err != nil {
				t.Fatal(err)
			}
			switch name {
			case "in a folder that is a link":
				there = filepath.Join(top, "disk/copies/other")
			case "to nothing yet":
				there = filepath.Join(top, "disk/copies/new/meta")
			}
			m, _ := copiesOf(t, filepath.Join(top, "data"), nil)
			if err := m.CommitNow([]block.KV{{Key: []byte("g"), Value: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(there, metaHead)); err != nil {
				t.Fatalf("it is elsewhere: %v", err)
			}
			m.Renew(1, errors.New("a test"), all(m, 0))
			mustHave(t, m, "g", "1")
			if _, err := os.Stat(filepath.Join(there, metaHead)); err != nil {
				t.Errorf("it was rebuilt elsewhere: %v", err)
			}
		})
	}
}

// TestLinkThatLeadsToNothing: a copy whose link leads to nothing, as where a disk is not mounted, is created there. A line says so.
func TestLinkThatLeadsToNothing(t *testing.T) {
	dir, there := t.TempDir(), filepath.Join(t.TempDir(), "disk", "meta")
	if err := os.Symlink(there, filepath.Join(dir, "meta.copy")); err != nil {
		t.Fatal(err)
	}
	m, said := copiesOf(t, dir, nil)
	if list := strings.Join(*said, "; "); m.copies[1] == nil || len(*said) != 1 || !strings.Contains(list, there) {
		t.Errorf("it says %q", list)
	}
	if err := m.s.Close(); err != nil {
		t.Error(err)
	}
	if _, said = copiesOf(t, dir, nil); len(*said) > 0 {
		t.Errorf("the next start says %q", *said)
	}
}

// TestTwoCopiesInOneFolder: a copy that leads to the other one is refused, and a rebuild of it leaves that one as it is.
func TestTwoCopiesInOneFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("meta", filepath.Join(dir, "meta.copy")); err != nil {
		t.Fatal(err)
	}
	m, said := copiesOf(t, dir, nil)
	if err := m.CommitNow([]block.KV{{Key: []byte("g"), Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	if m.copies[1] != nil || !m.Behind() || !strings.Contains(m.errs[1].Error(), "link it to another one") {
		t.Errorf("the second copy is in the folder of the first: %v", m.errs[1])
	}
	m.Renew(1, errors.New("a test"), all(m, 0))
	if v, err := m.Get([]byte("g")); err != nil || string(v) != "1" || m.copies[1] != nil {
		t.Errorf("behind a rebuild the first copy has %q, %v; it said %q", v, err, *said)
	}
	if err := m.s.Close(); err != nil {
		t.Error(err)
	}
	m, _ = copiesOf(t, dir, nil)
	if v, err := m.Get([]byte("g")); err != nil || string(v) != "1" {
		t.Errorf("at the next start the first copy has %q, %v", v, err)
	}
}

// TestFoldersBesideCopiesStay: what somebody has put aside is not the store's.
func TestFoldersBesideCopiesStay(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for _, name := range metaNames {
		for _, suffix := range []string{".old", ".bak", "~"} {
			file := filepath.Join(dir, name+suffix, metaHead)
			files = append(files, file)
			if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	m, _ := copiesOf(t, dir, nil)
	for i := range metaNames {
		m.Renew(i, errors.New("a test"), all(m, 1-i))
	}
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// mountedFS is a file system in which a folder cannot get another name.
type mountedFS struct {
	FS
	at  string
	why error
}

func (f mountedFS) Rename(from, to string) error {
	if from == f.at {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: f.why}
	}
	return f.FS.Rename(from, to)
}

// TestRebuildThatFails: a copy that cannot be rebuilt keeps its files, whatever the reason: its source ends with an error, the
// new one cannot be written, or cannot take its place. One line says which copy, and why.
func TestRebuildThatFails(t *testing.T) {
	broken := errors.New("a block cannot be read")
	for name, c := range map[string]struct {
		fs     func(dir string) FS
		source func(fn func(key, value []byte) error) error
		want   string
	}{
		"source": {nil, func(fn func(key, value []byte) error) error {
			return errors.Join(fn([]byte("k"), make([]byte, 2*renewBytes)), broken)
		}, broken.Error()},
		"mount point": {func(dir string) FS { return mountedFS{OS, filepath.Join(dir, "meta.copy"), unix.EBUSY} }, func(fn func(key, value []byte) error) error {
			return fn([]byte("k"), []byte("v"))
		}, "symbolic link"},
		"layer of an image": {func(dir string) FS { return mountedFS{OS, filepath.Join(dir, "meta.copy"), unix.EXDEV} }, func(fn func(key, value []byte) error) error {
			return fn([]byte("k"), []byte("v"))
		}, "symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var fs FS
			if c.fs != nil {
				fs = c.fs(dir)
			}
			m, said := copiesOf(t, dir, fs)
			if err := m.CommitNow([]block.KV{{Key: []byte("old"), Value: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
			m.Renew(1, errors.New("a test"), c.source)
			if last := (*said)[len(*said)-1]; m.copies[1] != nil || !m.Behind() || !strings.Contains(last, c.want) || !strings.Contains(last, "meta.copy cannot be rebuilt") || strings.Contains(last, "\n") {
				t.Errorf("it says %q", last)
			}
			if list, _ := filepath.Glob(filepath.Join(dir, "meta*")); len(list) != len(metaNames) {
				t.Errorf("as long as it runs there is %q", list)
			}
			if err := m.s.Close(); err != nil {
				t.Error(err)
			}
			m, _ = copiesOf(t, dir, nil)
			mustHave(t, m, "old", "1")
			if list, _ := filepath.Glob(filepath.Join(dir, "meta*")); len(list) != len(metaNames) {
				t.Errorf("there is %q", list)
			}
		})
	}
}

// unlistedFS is a file system that cannot list a folder once.
type unlistedFS struct {
	FS
	at   string
	left *atomic.Int32
}

func (f unlistedFS) List(dir string) ([]string, error) {
	if dir == f.at && f.left.Add(-1) >= 0 {
		return nil, unix.EIO
	}
	return f.FS.List(dir)
}

// TestFolderThatCannotBeListed: of a copy that cannot be listed nobody knows whether it is whole. It is not opened as a new one.
func TestFolderThatCannotBeListed(t *testing.T) {
	dir := t.TempDir()
	m, _ := copiesOf(t, dir, nil)
	if err := m.CommitNow([]block.KV{{Key: []byte("k"), Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.s.Close(), os.Remove(filepath.Join(dir, "meta.copy", metaHead))); err != nil {
		t.Fatal(err)
	}
	once := new(atomic.Int32)
	once.Store(1)
	m, _ = copiesOf(t, dir, unlistedFS{OS, filepath.Join(dir, "meta.copy"), once})
	if once.Load() >= 1 || m.copies[1] != nil || !errors.Is(m.errs[1], unix.EIO) {
		t.Errorf("it is open: %v, %v", m.copies[1] != nil, m.errs[1])
	}
}

// TestFolderWithoutLocks: where a file system has no locks a start does not speak of another process.
func TestFolderWithoutLocks(t *testing.T) {
	defer func() { flock = unix.Flock }()
	exec := block.NewLive()
	defer exec.Stop()
	for _, why := range []error{unix.ENOLCK, unix.EOPNOTSUPP} {
		flock = func(int, int) error { return why }
		if _, err := OpenFiles(exec, t.TempDir(), FilesOptions{}); !errors.Is(err, why) || !strings.Contains(err.Error(), "cannot be locked") || strings.Contains(err.Error(), "in use") {
			t.Errorf("%v: it says %v", why, err)
		}
	}
	calls := 0
	flock = func(fd, how int) error {
		if calls++; calls == 1 {
			return unix.EINTR
		}
		return unix.Flock(fd, how)
	}
	s, err := OpenFiles(exec, t.TempDir(), FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// unmovedFS is a file system in which a folder does not get its name.
type unmovedFS struct {
	FS
	to string
}

func (f unmovedFS) Rename(from, to string) error {
	if to == f.to {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: unix.ENOSPC}
	}
	return f.FS.Rename(from, to)
}

// TestRebuildOfACopyWithoutItsName: a death between the two renames of a rebuild left a copy under other names, and it cannot get its
// own back. It may be the only one that has an entry: a rebuild that fails leaves one of these folders, whole.
func TestRebuildOfACopyWithoutItsName(t *testing.T) {
	for _, suffixes := range [][]string{{oldSuffix}, {oldSuffix, newSuffix}} {
		dir := t.TempDir()
		path := filepath.Join(dir, "meta.copy")
		m, _ := copiesOf(t, dir, nil)
		err := errors.Join(m.CommitNow([]block.KV{{Key: []byte("k"), Value: []byte("1")}}), m.s.Close())
		for _, suffix := range suffixes {
			err = errors.Join(err, os.CopyFS(path+suffix, os.DirFS(path)))
		}
		if err = errors.Join(err, os.RemoveAll(path)); err != nil {
			t.Fatal(err)
		}
		m, said := copiesOf(t, dir, unmovedFS{OS, path})
		if m.copies[1] != nil {
			t.Fatal("it is open")
		}
		m.Renew(1, errors.New("a test"), func(func(_, _ []byte) error) error { return errors.New("it cannot be read in the other copy") })
		if !m.Behind() {
			t.Errorf("it is rebuilt; it says %q", *said)
		}
		if err := m.s.Close(); err != nil {
			t.Error(err)
		}
		m, _ = copiesOf(t, dir, nil)
		mustHave(t, m, "k", "1")
		if list, _ := filepath.Glob(filepath.Join(dir, "meta*")); len(list) != len(metaNames) {
			t.Errorf("%q: there is %q", suffixes, list)
		}
		if err := m.s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCopyOfAnotherArrayIsNotReplaced: a copy that leads to a folder which another array has open is left alone, and so is that folder.
func TestCopyOfAnotherArrayIsNotReplaced(t *testing.T) {
	top := t.TempDir()
	one, two := filepath.Join(top, "one"), filepath.Join(top, "two")
	if err := errors.Join(os.Mkdir(one, 0o700), os.Mkdir(two, 0o700), os.Symlink("../one/meta.copy", filepath.Join(two, "meta.copy"))); err != nil {
		t.Fatal(err)
	}
	m, _ := copiesOf(t, one, nil)
	if err := m.CommitNow([]block.KV{{Key: []byte("k"), Value: []byte("of one")}}); err != nil {
		t.Fatal(err)
	}
	other, said := copiesOf(t, two, nil)
	if err := other.CommitNow([]block.KV{{Key: []byte("k"), Value: []byte("of two")}}); err != nil {
		t.Fatal(err)
	}
	other.Renew(1, errors.New("a test"), all(other, 0))
	if last := strings.Join(*said, "; "); other.copies[1] != nil || !other.Behind() || !strings.Contains(last, "in use") {
		t.Errorf("it says %q", last)
	}
	if err := errors.Join(other.s.Close(), m.s.Close()); err != nil {
		t.Error(err)
	}
	m, _ = copiesOf(t, one, nil)
	mustHave(t, m, "k", "of one")
}

// TestFileInPlaceOfACopy: what is no folder no other array has open. It is replaced.
func TestFileInPlaceOfACopy(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "meta.copy"), []byte("what a restore made of a link"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, said := copiesOf(t, dir, nil)
	if err := m.CommitNow([]block.KV{{Key: []byte("k"), Value: []byte("1")}}); err != nil || m.copies[1] != nil {
		t.Fatalf("it is open: %v, %v", m.copies[1] != nil, err)
	}
	if m.Renew(1, errors.New("a test"), all(m, 0)); m.Behind() {
		t.Errorf("it says %q", *said)
	}
	mustHave(t, m, "k", "1")
}
