package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble"
	"golang.org/x/sys/unix"
)

// A copy of the meta store that is damaged, or lacks batches, is made anew at a start. It may be the only one that has an entry, or
// the other one may turn out to be unreadable halfway. So the new one is made beside it, and takes its place when it is whole.

// renewBytes is what a copy that is made anew gets at a time.
const renewBytes = 1 << 20

// Renew makes copy i anew, or leaves it alone: a disk that fails is no reason not to start.
func (m *metaCopies) Renew(i int, why error, entries func(fn func(key, value []byte) error) error) {
	err := m.renew(i, why, entries)
	if err == nil {
		return
	}
	if c := m.copies[i]; c != nil {
		_ = c.close() // it is not used any more, and says nothing new
	}
	m.copies[i], m.errs[i] = nil, err
	m.s.notice("%v; the array continues with the other copy, and retries at its next start", err)
}

// renew makes copy i anew. Until the new one is whole the old one can be read.
func (m *metaCopies) renew(i int, why error, entries func(fn func(key, value []byte) error) error) error {
	fail := func(err error) error {
		return fmt.Errorf("the checkpoints in %s cannot be rebuilt: %w", m.s.metaLink(i), err)
	}
	path, err := m.s.metaPath(i)
	if err != nil {
		return fail(err)
	}
	was := m.copies[i]
	if was == nil { // so it is not ours; whoever has it open would go on in files that are removed
		switch l, err := m.s.fs.Lock(filepath.Join(path, metaLock)); {
		case err == nil:
			if err := l.Close(); err != nil {
				return fail(err)
			}
		case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR): // what is no folder nobody has open
			return fail(fmt.Errorf("%s is in use, perhaps by another array, or cannot be locked: %w", path, err))
		}
	}
	fresh := was != nil && was.empty()
	if !fresh {
		m.s.notice("the checkpoints in %s are rebuilt from their other copy: %v", path, why)
	}
	// The copy may have no other name than one of those that are used here, see finishMeta. And the name that says that a new one is
	// whole must not be there before it is.
	if err := m.s.finishMeta(path); err != nil {
		return fail(err)
	}
	if err := m.s.fs.RemoveAll(path + oldSuffix); err != nil {
		return fail(err)
	}
	if err := m.s.makeMeta(path+newSuffix, entries); err != nil {
		m.s.removeRest(path + newSuffix)
		return fail(err)
	}
	if was != nil {
		m.copies[i] = nil
		if err := was.close(); err != nil && was.fs.failure() == nil && !fresh {
			m.s.notice("closing %s: %v", path, err)
		}
	}
	if err := m.s.replaceMeta(path); err != nil {
		if _, serr := m.s.fs.Stat(path); serr == nil { // else the new one may be all that there is
			m.s.removeRest(path + newSuffix)
		}
		return fail(err)
	}
	c, err := m.s.openMeta(i)
	if err != nil {
		return fail(err)
	}
	m.copies[i], m.errs[i] = c, nil
	if !fresh {
		m.s.renewed++
	}
	return nil
}

// makeMeta makes a copy in a folder, whole, durable and closed.
func (s *Files) makeMeta(path string, entries func(fn func(key, value []byte) error) error) error {
	if err := s.fs.RemoveAll(path); err != nil {
		return err
	}
	c, err := s.openStore(path)
	if err != nil {
		return err
	}
	defer c.p.hurry()()
	b := c.db.NewBatch()
	commit := func() error {
		err := b.Commit(pebble.NoSync)
		return errors.Join(err, b.Close(), c.fs.failure())
	}
	err = entries(func(k, v []byte) error {
		if err := b.Set(k, v, nil); err != nil || b.Len() < renewBytes {
			return err
		}
		err := commit()
		b = c.db.NewBatch()
		return err
	})
	if err == nil {
		err = commit()
	}
	if err == nil {
		err = c.db.Flush()
	}
	closed := c.close()
	if f := c.fs.failure(); f != nil { // what came behind it did not reach the disk, whatever it says
		return f
	}
	if err = errors.Join(err, closed); err != nil {
		return err
	}
	return syncFolder(s.fs, path)
}
