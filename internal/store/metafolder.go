package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// metaHead is the file without which a folder is no copy, whatever else is in it.
const metaHead = "CURRENT"

// metaLock is the file that is locked as long as a copy is open.
const metaLock = "LOCK"

// oldSuffix is what the folder of a copy has behind its name when another one is about to take its place, or has. Such a folder is
// removed: ".old" and the like are names that people give to what they want to keep.
const oldSuffix = ".replaced"

// metaLink returns the name of a copy.
func (s *Files) metaLink(i int) string { return filepath.Join(s.dir, metaNames[i]) }

// metaPath returns the folder of a copy, which may be behind a symbolic link. Two copies in one would not be two.
func (s *Files) metaPath(i int) (string, error) {
	path, err := s.fs.Resolve(s.metaLink(i))
	if err != nil {
		return "", err
	}
	here, _ := s.fs.Stat(path)
	for j := range i {
		other, err := s.fs.Resolve(s.metaLink(j))
		if err != nil {
			continue
		}
		there, _ := s.fs.Stat(other)
		if other == path || here != nil && there != nil && os.SameFile(here, there) {
			return "", fmt.Errorf("it leads to the folder of %s; link it to another one", metaNames[j])
		}
	}
	return path, nil
}

// noteNew names copies whose links lead to nothing: they are created there, which may be in the mount point of a disk that is missing.
func (s *Files) noteNew() {
	for i := range metaNames {
		path, err := s.metaPath(i)
		if err != nil || path == s.metaLink(i) {
			continue
		}
		_, err = s.fs.Stat(path)
		_, was := s.fs.Stat(path + oldSuffix)
		if errors.Is(err, os.ErrNotExist) && errors.Is(was, os.ErrNotExist) {
			s.notice("%s leads to %s, which does not exist: a new copy of the checkpoints is created there; if its disk is not mounted, stop the array and mount it", s.metaLink(i), path)
		}
	}
}

// replaceMeta has the copy beside a folder, which is whole, durable and closed, take the place of what is there. Wherever this is
// interrupted finishMeta goes on: one of both is there, whole, at any moment, and the old one has its other name only when
// the new one is.
func (s *Files) replaceMeta(path string) error {
	old := path + oldSuffix
	switch err := s.fs.Rename(path, old); {
	case err == nil || errors.Is(err, os.ErrNotExist):
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV): // overlayfs renames no folder of a lower layer
		return fmt.Errorf("%w; %s is a mount point or a part of an image, and cannot be replaced: make the copy's name in the data folder a symbolic link to a folder that can", err, path)
	default:
		return err
	}
	if err := s.fs.Rename(path+newSuffix, path); err != nil {
		return errors.Join(err, s.fs.Rename(old, path))
	}
	if err := syncFolder(s.fs, filepath.Dir(path)); err != nil {
		return err
	}
	s.removeRest(old)
	return nil
}

// finishMeta ends what a death has left of replaceMeta, and removes what it has left of a copy that was being made.
func (s *Files) finishMeta(path string) error {
	var there [3]bool
	for i, suffix := range []string{"", newSuffix, oldSuffix} {
		switch _, err := s.fs.Stat(path + suffix); {
		case err == nil:
			there[i] = true
		case !errors.Is(err, os.ErrNotExist):
			return err
		}
	}
	here, made, old := there[0], there[1], there[2]
	if old && !here {
		from := path + oldSuffix
		if made {
			from = path + newSuffix
		}
		if err := s.fs.Rename(from, path); err != nil {
			return err
		}
		if err := syncFolder(s.fs, filepath.Dir(path)); err != nil {
			return err
		}
	}
	if made {
		s.removeRest(path + newSuffix)
	}
	if old {
		s.removeRest(path + oldSuffix)
	}
	return nil
}

// removeRest removes what is of no use any more, if it is there.
func (s *Files) removeRest(path string) {
	if err := s.fs.RemoveAll(path); err != nil {
		s.notice("the remains of a copy of the checkpoints in %s take room, and cannot be removed: %v", path, err)
	}
}

// checkMeta returns an error if a folder is the rest of a copy, or may be. Pebble would begin a new store there, and fall over
// what it finds of the old one.
func (s *Files) checkMeta(path string) error {
	names, err := s.fs.List(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	rest := ""
	for _, n := range names {
		switch ext := filepath.Ext(n); {
		case n == metaHead:
			return nil
		case ext == ".log" || ext == ".sst":
			rest = n
		}
	}
	if rest != "" {
		return fmt.Errorf("there is %s, but no file %s", rest, metaHead)
	}
	return nil
}
