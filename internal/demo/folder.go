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
	f := &Folder{Path: filepath.Clean(path)}
	err := f.create()
	if errors.Is(err, os.ErrExist) {
		err = f.claim(f.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("the folder %s cannot contain the demonstration's array: %w", path, err)
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
		if err = renameNoReplace(tmp, f.Path); err != nil {
			err = errors.Join(&os.PathError{Op: "mkdir", Path: f.Path, Err: err}, f.lock.Close())
		}
	}
	if err != nil {
		err = errors.Join(err, os.Remove(tmp))
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // as on NFS
			return f.createInPlace()
		}
		return err
	}
	f.made = true
	return nil
}

// renameNoReplace renames a folder, never over another one. Tests put in its place what a file system without such a rename
// does.
var renameNoReplace = func(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}

// createInPlace makes the folder under its own name, where there is no rename that leaves an existing one alone. Another
// demonstration may lock it first and has it then; it takes it for one that was there before.
func (f *Folder) createInPlace() error {
	if err := os.Mkdir(f.Path, 0o700); err != nil {
		return err
	}
	if err := f.claim(f.Path); err != nil {
		if !errors.Is(err, errTaken) {
			err = errors.Join(err, os.Remove(f.Path))
		}
		return err
	}
	f.made = true
	return nil
}

// errTaken is what claim returns of a folder that another demonstration has locked.
var errTaken = errors.New("another demonstration runs in it; give --data another one, or --running for the array that serves it")

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
			err = errTaken
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
