package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Descriptors that an mdisk takes, one more where it is written past the page cache, and the part of
// the process's that all mdisks may take together:
// the rest is for connections and the meta store.
const (
	mdiskFiles = 2
	mdiskShare = 2 // one in so many
)

// openLimit is the number of files that the process may have open.
func openLimit() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1024 // what Linux gives at the least
	}
	return l.Cur
}

// FindMedium looks for the file of an mdisk. One without a byte has lost its size, which is durable before a pool is.
func (s *Files) FindMedium(name string) error {
	path := s.mdiskPath(name)
	info, err := s.fs.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("mdisk %s is missing: there is no file %s; mount the disk where it is, or restore it and %s from a copy", name, path, filepath.Base(s.sumPath(name)))
	case err != nil:
		return fmt.Errorf("mdisk %s cannot be found: %w", name, err)
	case info.Size() == 0:
		return fmt.Errorf("mdisk %s is missing: its file %s is empty; mount the disk where it is, or restore it and %s from a copy", name, path, filepath.Base(s.sumPath(name)))
	}
	return nil
}

// Vacant looks for files of an mdisk in the line in which such come and go. Those without a byte hold nothing.
func (s *Files) Vacant(name string, done func(error)) {
	s.call(&s.names, nil, func() error {
		for _, path := range []string{s.mdiskPath(name), s.sumPath(name)} {
			switch info, err := s.fs.Stat(path); {
			case err == nil && info.Size() > 0:
				return fmt.Errorf("mdisk %s: there is a file %s, and no mdisk of this array has it; mount the disk with the write cache and the metadata "+
					"that belong to it, or remove it", name, path)
			case err != nil && !errors.Is(err, os.ErrNotExist):
				return fmt.Errorf("mdisk %s cannot be looked for: %w", name, err)
			}
		}
		return nil
	}, done)
}

// MakeMedium makes the files of an mdisk in a line of their own: its syncs wait for the disk.
func (s *Files) MakeMedium(name string, size uint64, done func(error)) {
	if n := openLimit() / uint64(max(s.opt.Stores, 1)); uint64(len(s.media)+len(s.made)+1)*(mdiskFiles+1)*mdiskShare > n {
		done(fmt.Errorf("mdisk %s: an mdisk needs %d open files, and all mdisks may use half of the %d that this store may open; "+
			"use fewer and larger ones, or start the daemon with a higher limit (ulimit -n, LimitNOFILE)", name, mdiskFiles+1, n))
		return
	}
	if m := s.made[name]; m != nil && !s.closed {
		delete(s.made, name)
		_ = m.release() // nothing was written to it
	}
	var m *fileMedium
	s.call(&s.names, nil, func() error {
		err := s.removeFiles(name) // a crash left them: no pool has this name
		if err == nil {
			m, err = s.openMedium(name, size)
		}
		if err != nil {
			err = errors.Join(err, s.removeFiles(name))
		}
		return err
	}, func(err error) {
		if err == nil {
			s.made[name] = m
		}
		done(err)
	})
}

// RemoveMedium closes and deletes the files of an mdisk, in the same line: that waits for the disk. They are closed
// behind what is still done with them: the number of a descriptor must not become another file's under a
// read that nobody waits for.
func (s *Files) RemoveMedium(name string, done func(error)) {
	if s.closed {
		s.exec.Post(func() { done(ErrClosed) })
		return
	}
	m := s.made[name]
	delete(s.made, name)
	for i, o := range s.media {
		if o.name == name {
			m = o
			s.media = append(s.media[:i], s.media[i+1:]...)
			break
		}
	}
	if m != nil {
		m.gone = true
		m.cool()
	}
	s.call(&s.names, nil, func() error {
		err := s.removeFiles(name)
		if m != nil {
			err = errors.Join(err, m.release())
		}
		return err
	}, done)
}

// release ends one use of a medium; the last one closes its files.
func (m *fileMedium) release() error {
	if m.users.Add(-1) > 0 {
		return nil
	}
	return m.close()
}

// removeFiles deletes what there is of an mdisk's files. They are gone behind a loss of power, too: nobody knows them any
// more, so that nobody would remove what came back.
func (s *Files) removeFiles(name string) error {
	var err error
	removed := false
	for _, path := range []string{s.mdiskPath(name), s.sumPath(name), s.sumPath(name) + newSuffix} {
		if e := s.fs.Remove(path); e == nil {
			removed = true
		} else if !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if removed {
		err = errors.Join(err, syncFolder(s.fs, filepath.Join(s.dir, "mdisk")))
	}
	return err
}
