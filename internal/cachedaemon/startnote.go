package cachedaemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/arraysim/arraysim/internal/hostcache/tier"
	"github.com/arraysim/arraysim/internal/lun"
)

// What a LUN says of a loss of power it says once, to the start of a cache as well, which may fail behind
// that. So the LUN is opened when all else is there, and from its first command until the cache has what it
// said a note lies in a folder of this host: a start that finds one of an earlier start takes it that the
// LUN has lost power. So does a LUN that is the cache's own flash, from its first command on: what was not
// flushed there may be gone.

// startNote is the note of a start under way. The zero value is none.
type startNote struct {
	path  string
	found bool // an earlier start has left one
}

// openBackend opens the LUN that is cached, and says in the options what it is.
func (d *daemon) openBackend(opt *tier.Options) (err error) {
	if d.below, err = d.device(d.cfg.Backend, backendRole); err != nil {
		return fmt.Errorf("backend %w", err)
	}
	opt.Below = d.below
	if d.remote, _ = d.below.(*lun.Device); d.remote == nil {
		opt.LocalBelow = true
		return nil
	}
	if err := d.claim("--backend", d.remote); err != nil {
		return fmt.Errorf("backend %w", err)
	}
	return nil
}

// claim notes what a LUN is to the cache. One that is something to it already, as by another portal, is refused: a peer's flash that
// is the cached LUN would be written over it, and one that is two peers would count as two copies.
func (d *daemon) claim(role string, u *lun.Device) error {
	d.exec.Lock()
	naa := u.Info().NAA
	d.exec.Unlock()
	if was := d.roles[naa]; was != "" && naa != [16]byte{} {
		return fmt.Errorf("%s is also the LUN of %s; give each its own LUN", u.Name(), was)
	}
	if d.roles == nil {
		d.roles = map[[16]byte]string{}
	}
	d.roles[naa] = role
	return nil
}

// begin writes the note of a start of a cache, which is known by its session with the LUN.
func (n *startNote) begin(folder, session string) error {
	sum := sha256.Sum256([]byte(session))
	path := filepath.Join(folder, hex.EncodeToString(sum[:8])+".start")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if n.found = errors.Is(err, fs.ErrExist); n.found {
		n.path = path
		return nil
	}
	if err != nil {
		return err
	}
	n.path = path
	return errors.Join(f.Close(), syncFolder(folder))
}

// end removes the note, unless the start has heard of a loss of power and the cache may not have
// kept it.
func (n *startNote) end(opened, heard bool) error {
	if n.path == "" || !opened && (heard || n.found) {
		return nil
	}
	return errors.Join(os.Remove(n.path), syncFolder(filepath.Dir(n.path)))
}

// noteStart begins the note of this daemon. Without a place for it there is none.
func (d *daemon) noteStart(session string) {
	folder, err := filepath.Dir(d.cfg.Witness), error(nil)
	if d.cfg.Witness == "" {
		folder, err = stateFolder()
	}
	if err == nil {
		err = d.note.begin(folder, session)
	}
	if err != nil {
		d.log.Warn("if this start fails, the next one will not know that the LUN reported a loss of power", "error", err)
	}
}

// endNote ends it; err is what the start ended with.
func (d *daemon) endNote(err error) {
	heard := d.opening // what was said to a session that could not be opened, nobody knows
	d.exec.Lock()
	for _, u := range d.noted {
		heard = heard || u.HeardPowerLoss()
	}
	d.exec.Unlock()
	if err := d.note.end(err == nil, heard); err != nil {
		d.log.Warn("the next start will assume that the LUN has lost power", "error", err)
	}
}

// syncFolder makes what was created or removed in a folder survive a loss of power.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
