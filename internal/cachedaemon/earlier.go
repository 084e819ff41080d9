package cachedaemon

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

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
			continue // given with --witness
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
					err = fmt.Errorf("%s of an earlier version cannot be transferred: %w", w.path, err)
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
				slog.Warn("the witness of an earlier version remains; it is harmless", "error", err)
			}
		}
		w.exec.Post(done)
	}()
}
