package cachedaemon

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

	"github.com/arraysim/arraysim/internal/hostcache/tier"
	"github.com/arraysim/arraysim/internal/lun"
)

// secure makes this host the one that may write to the LUN, or has it fence the one that is lost, and chooses the witness: the
// host's registration at the LUN where there is one, which whoever takes over can read and who was fenced cannot
// raise; else a file. With peers, or a peer's flash, a host registers by default.
func (d *daemon) secure(opt *tier.Options) error {
	if err := d.chooseWitness(opt); err != nil {
		return err
	}
	w, err := withEarlier(opt.Witness, d.exec, d.cfg.Socket, d.info().NAA, d.cfg.TakeOver != 0)
	if err != nil {
		d.withdraw()
		return err
	}
	opt.Witness = w
	return nil
}

func (d *daemon) chooseWitness(opt *tier.Options) error {
	byDefault := d.cfg.Key == 0
	if byDefault && (d.cfg.TakeOver != 0 || len(d.cfg.Peers)+len(d.lent) > 0 && d.remote != nil && d.cfg.Witness == "") {
		d.cfg.Key = defaultKey(d.cfg.Initiator)
		if d.cfg.TakeOver == 0 && !d.remote.HasReservations() {
			d.log.Warn("the LUN has no persistent reservations, so a host that takes over cannot know whether its flash was left out; give all hosts one --witness on a shared file system")
			d.cfg.Key = 0
		}
	}
	d.releases = byDefault && d.cfg.Key != 0
	if d.cfg.Key != 0 {
		if err := d.reserve(opt); err != nil {
			d.withdraw()
			return err
		}
		d.log.Info("only registered hosts can use the LUN; a host that takes over names this one by its key", "key", fmt.Sprintf("%#x", d.cfg.Key))
	}
	naa := d.info().NAA
	if d.cfg.Witness == "" && d.cfg.Key != 0 {
		opt.Witness = &keyWitness{exec: d.exec, at: d.remote, naa: naa, takeOver: d.cfg.TakeOver != 0}
		return nil
	}
	alone := d.cfg.Witness == "" && d.remote != nil
	if d.cfg.Witness == "" {
		folder, err := stateFolder()
		if err != nil {
			return err
		}
		d.cfg.Witness = filepath.Join(folder, hex.EncodeToString(naa[:])+".witness")
	}
	w := &fileWitness{exec: d.exec, path: d.cfg.Witness}
	if alone && d.remote.HasReservations() {
		opt.Witness = &aloneWitness{fileWitness: w, at: d.remote, naa: naa}
		return nil
	}
	if d.remote != nil && len(d.cfg.Peers) > 0 {
		w.fenced = d.remote.Fenced
	}
	opt.Witness = w
	return nil
}

// reserve makes this host the one that may write, or fences the one that is lost.
func (d *daemon) reserve(opt *tier.Options) error {
	if d.remote == nil {
		return errors.New("--key and --take-over need an iSCSI backend: a file has no reservations")
	}
	all := append([]*lun.Device{d.remote}, d.lent...)
	if d.cfg.TakeOver == 0 {
		for _, r := range all {
			if !r.HasReservations() {
				return fmt.Errorf("%s has no persistent reservations, so this host could not be fenced; give a LUN that has them, or use a --witness file and no --key", r.Name())
			}
			if err := r.Reserve(d.cfg.Key); err != nil {
				hint := "if a peer took over, start without this flash's dirty data (--format) when the peer is done"
				if errors.Is(err, lun.ErrOwnSession) {
					hint = fmt.Sprintf("give --flash and --backend as before, or, if no other arraysim of this host serves it, --take-over %#x and another --key", d.cfg.Key)
				}
				return fmt.Errorf("%s cannot be reserved: %w; %s", r.Name(), err, hint)
			}
		}
		return nil
	}
	opt.TakeOver = true
	opt.Fence = func(done func(error)) {
		go func() {
			var err error
			for _, r := range all {
				err = errors.Join(err, r.Fence(d.cfg.Key, d.cfg.TakeOver))
			}
			d.exec.Post(func() { done(err) })
		}()
	}
	return nil
}

// units are the LUNs that this host may have reserved.
func (d *daemon) units() []*lun.Device {
	if d.remote == nil || d.cfg.Key == 0 {
		return nil
	}
	return append([]*lun.Device{d.remote}, d.lent...)
}

// withdraw takes back what a start that failed has reserved: it must not keep the right host out.
func (d *daemon) withdraw() {
	for _, r := range d.units() {
		if err := r.Withdraw(); err != nil {
			d.log.Warn("the reservation of a failed start remains", "lun", r.Name(), "error", err)
		}
	}
}

// release ends, behind a clean stop, a reservation that nobody asked for. The registration stays, for it says how new a flash
// must be. A LUN that does not answer keeps it: the next start goes on with it.
func (d *daemon) release() {
	if !d.releases || d.locked(d.disk.State).DirtySectors > 0 {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, r := range d.units() {
			if err := r.Release(); err != nil {
				d.log.Warn("the reservation remains", "lun", r.Name(), "error", err)
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
		return "", errors.New("there is no place for the witness: neither STATE_DIRECTORY, XDG_STATE_HOME nor HOME is set; give a file with --witness")
	}
	folder = filepath.Join(folder, "hostcache")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("there is no place for the witness: %w; give a file with --witness", err)
	}
	return folder, nil
}
