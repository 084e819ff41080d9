package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
	"github.com/arraysim/arraysim/internal/lun"
)

// secure makes this host the one that may write to the LUN, or has it fence the one that is lost, and chooses the witness: the
// host's registration at the LUN where there is one, which whoever takes over can read and who was fenced cannot
// raise; else a file. With peers, or a peer's flash, a host registers by default.
func (d *cacheDaemon) secure(opt *tier.Options) error {
	if err := d.chooseWitness(opt); err != nil {
		return err
	}
	w, err := withEarlier(opt.Witness, d.exec, d.f.socket, d.info().NAA, d.f.takeOver != 0)
	if err != nil {
		d.withdraw()
		return err
	}
	opt.Witness = w
	return nil
}

func (d *cacheDaemon) chooseWitness(opt *tier.Options) error {
	byDefault := d.f.key == 0
	if byDefault && (d.f.takeOver != 0 || len(d.f.peers)+len(d.lent) > 0 && d.remote != nil && d.f.witness == "") {
		d.f.key = defaultKey(d.f.initiator)
		if d.f.takeOver == 0 && !d.remote.HasReservations() {
			d.log.Warn("the LUN has no persistent reservations, so nothing tells a host that takes over whether its flash was left out; give all hosts one --witness on a file system that they share")
			d.f.key = 0
		}
	}
	d.releases = byDefault && d.f.key != 0
	if d.f.key != 0 {
		if err := d.reserve(opt); err != nil {
			d.withdraw()
			return err
		}
		d.log.Info("the LUN is for registered hosts alone; a host that takes over names this one by its key", "key", fmt.Sprintf("%#x", d.f.key))
	}
	naa := d.info().NAA
	if d.f.witness == "" && d.f.key != 0 {
		opt.Witness = &keyWitness{exec: d.exec, at: d.remote, naa: naa, takeOver: d.f.takeOver != 0}
		return nil
	}
	alone := d.f.witness == "" && d.remote != nil
	if d.f.witness == "" {
		folder, err := stateFolder()
		if err != nil {
			return err
		}
		d.f.witness = filepath.Join(folder, hex.EncodeToString(naa[:])+".witness")
	}
	w := &fileWitness{exec: d.exec, path: d.f.witness}
	if alone && d.remote.HasReservations() {
		opt.Witness = &aloneWitness{fileWitness: w, at: d.remote, naa: naa}
		return nil
	}
	if d.remote != nil && len(d.f.peers) > 0 {
		w.fenced = d.remote.Fenced
	}
	opt.Witness = w
	return nil
}

// units are the LUNs that this host may have reserved.
func (d *cacheDaemon) units() []*lun.Device {
	if d.remote == nil || d.f.key == 0 {
		return nil
	}
	return append([]*lun.Device{d.remote}, d.lent...)
}

// withdraw takes back what a start that failed has reserved: it must not keep the right host out.
func (d *cacheDaemon) withdraw() {
	for _, r := range d.units() {
		if err := r.Withdraw(); err != nil {
			d.log.Warn("the reservation of a start that failed stays", "lun", r.Name(), "error", err)
		}
	}
}

// release ends, behind a clean stop, a reservation that nobody asked for. The registration stays, for it says how new a flash
// must be. A LUN that does not answer keeps it: the next start goes on with it.
func (d *cacheDaemon) release() {
	if !d.releases || d.locked(d.disk.State).DirtySectors > 0 {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, r := range d.units() {
			if err := r.Release(); err != nil {
				d.log.Warn("the reservation stays", "lun", r.Name(), "error", err)
			}
		}
	}()
	select {
	case <-ended:
	case <-d.hurry:
	case <-time.After(closeTimeout):
	}
}

// defaultKey is the reservation key of a host that is given none: always the same for an initiator's name.
func defaultKey(initiator string) uint64 {
	sum := sha256.Sum256([]byte("arraysim reservation key\n" + initiator))
	return max(binary.BigEndian.Uint64(sum[:])&lun.MaxHostKey, 1)
}

// stateFolder returns the folder for what this host keeps from start to start, which does not depend on where a process
// is started. It is made if it is not there.
func stateFolder() (string, error) {
	folder, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":") // systemd.exec(5)
	home, _ := os.UserHomeDir()
	switch state := os.Getenv("XDG_STATE_HOME"); {
	case folder != "":
	case os.Geteuid() == 0:
		folder = "/var/lib/arraysim"
	case filepath.IsAbs(state):
		folder = filepath.Join(state, "arraysim")
	case filepath.IsAbs(home):
		folder = filepath.Join(home, ".local/state/arraysim")
	default:
		return "", errors.New("there is no place for the witness: neither STATE_DIRECTORY, XDG_STATE_HOME nor HOME is set; give a file by --witness")
	}
	folder = filepath.Join(folder, "hostcache")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("there is no place for the witness: %w; give a file by --witness", err)
	}
	return folder, nil
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
			err = errors.New("no registration at the LUN says how new the flash must be that takes over; if you know that this one was not left out, give a file by --witness")
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
