package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// fileWitness keeps a tier.Mark in a file of this host: it tells a flash device that was left out, or that a
// format gave up, from the one that was not. On a file system that other hosts see, it tells them, too. There is a
// lock file beside it.
type fileWitness struct {
	exec block.Executor
	path string
	// fenced fails when another host keeps this one from writing, which then must not store anything; nil: nobody does.
	fenced func() error
}

// Load implements tier.Witness. Without the file there is no mark.
func (w *fileWitness) Load(done func(tier.Mark, error)) {
	go func() {
		m, err := w.load()
		w.exec.Post(func() { done(m, err) })
	}()
}

func (w *fileWitness) load() (m tier.Mark, err error) {
	b, err := os.ReadFile(w.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case err == nil:
		if err = json.Unmarshal(b, &m); err != nil {
			err = fmt.Errorf("%s is damaged (%w); remove it when you know that --flash is the newest", w.path, err)
		}
	}
	return m, err
}

// Store implements tier.Witness: the file is replaced as a whole, and survives a loss of power. It does not go back: whoever
// has stored more goes on with the cache. Whether this host was fenced is asked last, since it may be
// fenced meanwhile, and then what it has stored allows it nothing.
func (w *fileWitness) Store(m tier.Mark, done func(error)) {
	go func() {
		err := w.replace(m)
		if err == nil && w.fenced != nil {
			err = w.fenced()
		}
		w.exec.Post(func() { done(err) })
	}()
}

// replace stores a mark unless there is a newer one.
func (w *fileWitness) replace(m tier.Mark) error {
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(w.path), "."+filepath.Base(w.path)+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("%s: %w", lock.Name(), err)
	}
	was, err := w.load()
	switch {
	case err != nil:
		return err
	case was.NAA != m.NAA && was.Generation > 0: // what it says of that LUN would be gone
		return fmt.Errorf("%s is the witness of LUN %x, and this cache is of LUN %x; give each LUN a --witness of its own, or remove the file if that LUN is not cached any more", w.path, was.NAA, m.NAA)
	case was.NAA == m.NAA && was != m && was.Generation >= m.Generation:
		return fmt.Errorf("%s has generation %d, and this cache %d: another host goes on with it", w.path, was.Generation, m.Generation)
	}
	return w.store(m)
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
	return syncFolder(filepath.Dir(w.path))
}

// earlierWitness is a witness in whose place an earlier version kept a file beside the socket. Where that says more, it counts,
// and is handed over: a start that went on without it would believe a flash that was left out before the upgrade.
type earlierWitness struct {
	tier.Witness
	exec block.Executor
	path string
	mark tier.Mark
	// keep leaves the file where it is: a host that takes over can store nothing before it has fenced the other one.
	keep bool
}

// withEarlier looks for such files.
func withEarlier(w tier.Witness, x block.Executor, socket string, naa [16]byte, keep bool) (tier.Witness, error) {
	socket, err := filepath.Abs(socket)
	if err != nil {
		return nil, err
	}
	var own os.FileInfo // of the file that is the witness, which may have other names
	switch f := w.(type) {
	case *fileWitness:
		own, _ = os.Stat(f.path)
	case *aloneWitness:
		own, _ = os.Stat(f.path)
	}
	for _, path := range []string{socket + "." + hex.EncodeToString(naa[:]) + ".witness", socket + ".witness"} {
		if is, err := os.Stat(path); err == nil && os.SameFile(own, is) {
			continue // given by --witness
		}
		m, err := (&fileWitness{path: path}).load()
		switch {
		case err != nil:
			return nil, err
		case m.NAA == naa && m.Generation > 0:
			w = &earlierWitness{w, x, path, m, keep}
		}
	}
	return w, nil
}

// Load implements tier.Witness.
func (w *earlierWitness) Load(done func(tier.Mark, error)) {
	w.Witness.Load(func(m tier.Mark, err error) {
		switch newer := m.NAA != w.mark.NAA || m.Generation < w.mark.Generation; {
		case err != nil:
			done(m, err)
		case newer && w.keep:
			done(w.over(m), nil)
		case newer:
			w.Store(w.mark, func(err error) {
				if err != nil {
					err = fmt.Errorf("%s of an earlier version cannot be handed over: %w", w.path, err)
				}
				w.retire(func() { done(w.over(m), err) }, err == nil)
			})
		default:
			same := m.Cache == w.mark.Cache || m.Cache == 0 || w.mark.Cache == 0 // else it may be that of a second cache of the LUN
			w.retire(func() { done(m, nil) }, same && !w.keep)
		}
	})
}

// over is what both say together.
func (w *earlierWitness) over(m tier.Mark) tier.Mark {
	both := w.mark
	both.Elsewhere = m.Elsewhere
	return both
}

// retire removes the file, which says no more than the other witness now, and then calls done.
func (w *earlierWitness) retire(done func(), remove bool) {
	go func() {
		if remove {
			if err := os.Remove(w.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				slog.Warn("the witness of an earlier version stays; it does no harm", "error", err)
			}
		}
		w.exec.Post(done)
	}()
}
