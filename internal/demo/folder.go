package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Folder is where an array of the demonstration's own has its socket, its token and its history.
type Folder struct {
	Path string

	made bool // by NewFolder, and so it goes as a whole
	once sync.Once
	err  error
}

// NewFolder takes a folder for an array: one that does not exist or is empty, or a temporary one for "".
func NewFolder(path string) (*Folder, error) {
	if path == "" {
		path, err := os.MkdirTemp("", "arraysim-demo-")
		return &Folder{Path: path, made: true}, err
	}
	f := &Folder{Path: path, made: true}
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, os.ErrExist) {
		f.made = false
		var list []os.DirEntry
		if list, err = os.ReadDir(path); err == nil && len(list) > 0 {
			err = errors.New("it is not empty; give --data another one, or --running for the array that serves it")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the folder %s cannot hold an array of the demonstration's own: %w", path, err)
	}
	return f, nil
}

// removals is how often a removal tries again: an array that nobody waits for may write meanwhile.
const removals = 10

// Remove removes what the array left, and the folder itself unless it was there before. It does so once,
// whoever calls it, and may be called by another goroutine than the array's.
func (f *Folder) Remove() error {
	f.once.Do(func() {
		for range removals {
			if f.err = f.remove(); f.err == nil {
				return
			}
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
