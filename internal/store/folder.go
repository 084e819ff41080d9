package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// syncFolder makes the names in a folder survive power loss.
func syncFolder(fs FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// syncOthers is syncFolder for a folder that is not ours: where it cannot be synced, that is so.
func syncOthers(fs FS, dir string) error {
	err := syncFolder(fs, dir)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// follow returns a path in which no part is a symbolic link but perhaps the last one, and which ends with a name. As in the kernel, ".."
// behind a link leads up from where that leads. What is not there is left as it is.
func follow(path string) string {
	path = strings.TrimRight(path, "/")
	up, name := filepath.Split(path)
	switch {
	case path == "":
		return "/"
	case up == "":
		return path
	case name == ".":
		return follow(up)
	case name == "..":
		up, name = path, ""
	}
	at, err := filepath.EvalSymlinks(up)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrNotExist) && name != "":
		at = follow(up)
	default: // whoever uses it gets the error
		return filepath.Clean(path)
	}
	return filepath.Join(at, name)
}

// newSuffix is what a file has behind its name while it is made.
const newSuffix = ".new"

// makeFolder makes a folder, and those above it, whose names then survive power loss. Where the folder
// is there, its own name is made to survive all the same: who made it may have died before. above: it is
// the data folder, and of folders above that, which are not ours, or which cannot be synced, it asks
// nothing.
func makeFolder(fs FS, dir string, above bool) error {
	last := dir // whose name has to survive: this one, and those below it
	for {
		up := filepath.Dir(last)
		if _, err := fs.Stat(up); err == nil || up == last {
			break
		}
		last = up
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	sync := syncFolder
	if above {
		sync = syncOthers
	}
	for at := dir; ; at = filepath.Dir(at) {
		err := sync(fs, filepath.Dir(at))
		if err != nil || at == last {
			return err
		}
	}
}

// removeOld removes what a crash has left of a file that was being made, if there is anything.
func (s *Files) removeOld(path string) error {
	err := s.fs.Remove(path)
	if err != nil {
		if _, serr := s.fs.Stat(path); serr != nil {
			return nil
		}
	}
	return err
}

// named gives a file that is whole its name, once it is sure to survive power loss. What a sync has
// failed to write never gets it: later ones would take that for written.
func (s *Files) named(f DataFile, tmp, path string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := s.fs.Rename(tmp, path); err != nil {
		return err
	}
	return syncFolder(s.fs, filepath.Dir(path))
}
