package cachedaemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
		return fmt.Errorf("%s is the witness of LUN %x, but this cache is of LUN %x; give each LUN its own --witness, or remove the file if that LUN is no longer cached", w.path, was.NAA, m.NAA)
	case was.NAA == m.NAA && was != m && was.Generation >= m.Generation:
		return fmt.Errorf("%s has generation %d, and this cache %d: another host has taken over", w.path, was.Generation, m.Generation)
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

// generationKeeper is a LUN whose registrations carry the generation; see lun.Device.
type generationKeeper interface {
	Generation() (uint64, error)
	SetGeneration(n uint64) error
}

// keyWitness is a tier.Witness at the LUN itself: the generation is in the key that this host has registered there.
type keyWitness struct {
	exec     block.Executor
	at       generationKeeper
	naa      [16]byte
	takeOver bool // what was registered before must be there
}

// Load implements tier.Witness.
func (w *keyWitness) Load(done func(tier.Mark, error)) {
	go func() {
		n, err := w.at.Generation()
		if err == nil && n == 0 && w.takeOver {
			err = errors.New("no registration at the LUN says how new the flash must be that takes over; if you know that this one was not left out, give a file with --witness")
		}
		w.exec.Post(func() { done(tier.Mark{NAA: w.naa, Generation: n}, err) })
	}()
}

// aloneWitness is a file of this host for a LUN at which it has registered nothing. It may have had
// peers before, or been fenced, so registrations that are there count for what the file does not
// follow.
type aloneWitness struct {
	*fileWitness
	at  generationKeeper
	naa [16]byte
}

// Load implements tier.Witness.
func (w *aloneWitness) Load(done func(tier.Mark, error)) {
	go func() {
		m, err := w.load()
		if m.NAA != w.naa {
			m = tier.Mark{NAA: w.naa}
		}
		n, kerr := w.at.Generation()
		m.Elsewhere = n
		w.exec.Post(func() { done(m, errors.Join(err, kerr)) })
	}()
}

// Store implements tier.Witness.
func (w *keyWitness) Store(m tier.Mark, done func(error)) {
	go func() {
		err := w.at.SetGeneration(m.Generation)
		w.exec.Post(func() { done(err) })
	}()
}
