package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Folder is where an array of the demonstration's own has its socket, its token and its history.
type Folder struct {
	Path string

	made bool     // by NewFolder, and so it goes as a whole
	lock *os.File // the folder itself: it is another demonstration's until Remove
	once sync.Once
	err  error
}

// NewFolder takes a folder for an array: one that does not exist or is empty, or a temporary one for "".
func NewFolder(path string) (*Folder, error) {
	if path == "" {
		path, err := os.MkdirTemp("", "arraysim-demo-")
		return &Folder{Path: path, made: true}, err
	}
	f := &Folder{Path: path}
	err := f.create()
	if errors.Is(err, os.ErrExist) {
		err = f.claim(path)
	}
	if err != nil {
		return nil, fmt.Errorf("the folder %s cannot hold an array of the demonstration's own: %w", path, err)
	}
	return f, nil
}

// create makes the folder, and leaves nothing if it cannot. It has the folder's lock before the folder its name, so that no
// other demonstration takes for an old one what will be removed.
func (f *Folder) create() error {
	if _, err := os.Lstat(f.Path); err == nil {
		return os.ErrExist
	}
	tmp, err := os.MkdirTemp(filepath.Dir(f.Path), ".arraysim-demo-")
	if err != nil {
		return err
	}
	if err = f.claim(tmp); err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, f.Path, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // as on NFS
			err = unix.Rename(tmp, f.Path)
		}
		if err != nil {
			err = errors.Join(&os.PathError{Op: "mkdir", Path: f.Path, Err: err}, f.lock.Close())
		}
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	f.made = true
	return nil
}

// claim locks the folder and looks whether it is empty. Two demonstrations may come at the same time: the one that finds it
// locked must not remove what the other one has there.
func (f *Folder) claim(path string) (err error) {
	if f.lock, err = os.Open(path); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.lock.Close()
		}
	}()
	if err := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errors.New("another demonstration runs in it; give --data another one, or --running for the array that serves it")
		}
		return err
	}
	list, err := os.ReadDir(path)
	if err == nil && len(list) > 0 {
		err = errors.New("it is not empty; give --data another one, or --running for the array that serves it")
	}
	return err
}

// removals is how often a removal tries again: an array that nobody waits for may write meanwhile.
const removals = 10

// Remove removes what the array left, and the folder itself unless it was there before. It does so once,
// whoever calls it, and may be called by another goroutine than the array's.
func (f *Folder) Remove() error {
	f.once.Do(func() {
		for range removals {
			if f.err = f.remove(); f.err == nil {
				break
			}
		}
		if f.lock != nil {
			f.lock.Close()
		}
	})
	return f.err
}

func (f *Folder) remove() error {
	if f.made {
		return os.RemoveAll(f.Path)
	}
	list, err := os.ReadDir(f.Path)
	for _, e := range list {
		err = errors.Join(err, os.RemoveAll(filepath.Join(f.Path, e.Name())))
	}
	return err
}
