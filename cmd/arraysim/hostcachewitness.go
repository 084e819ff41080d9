package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// fileWitness keeps a tier.Mark in a file of this host: it tells a flash device that was left out, or that a
// format gave up, from the one that was not. Other hosts do not see it; they have their reservations.
type fileWitness struct {
	exec block.Executor
	path string
}

// Load implements tier.Witness. Without the file there is no mark.
func (w *fileWitness) Load(done func(tier.Mark, error)) {
	go func() {
		var m tier.Mark
		b, err := os.ReadFile(w.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		case err == nil:
			if err = json.Unmarshal(b, &m); err != nil {
				err = fmt.Errorf("%s is damaged (%w); remove it when you know that --flash is the newest", w.path, err)
			}
		}
		w.exec.Post(func() { done(m, err) })
	}()
}

// Store implements tier.Witness: the file is replaced as a whole, and survives a loss of power.
func (w *fileWitness) Store(m tier.Mark, done func(error)) {
	go func() {
		err := w.store(m)
		w.exec.Post(func() { done(err) })
	}()
}

func (w *fileWitness) store(m tier.Mark) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(w.path), filepath.Base(w.path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), w.path)
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	dir, err := os.Open(filepath.Dir(w.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
