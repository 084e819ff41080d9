package cachedaemon

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/lun"
	"github.com/arraysim/arraysim/internal/store"
)

// What a LUN is to the cache.
const (
	backendRole = "backend"
	flashRole   = "flash"
)

func (d *daemon) open() (err error) {
	policy, err := tier.ParsePolicy(d.cfg.Policy)
	if err != nil {
		return err
	}
	if d.cfg.Initiator == "" {
		if d.cfg.Initiator, err = ownInitiatorName(); err != nil {
			return err
		}
	}
	if d.cfg.PeerTimeout < time.Second {
		return fmt.Errorf("--peer-timeout %v is too short; give 1s or more", d.cfg.PeerTimeout)
	}
	if d.cfg.FlashSync != "always" && d.cfg.FlashSync != "flush" {
		return fmt.Errorf("--flash-sync is %q; it is always or flush", d.cfg.FlashSync)
	}
	opt := tier.Options{Exec: d.exec, BlockSectors: int(d.cfg.BlockSize >> block.SectorShift), Eviction: d.cfg.Eviction,
		PowerSafe: d.cfg.FlashSync == "always", Format: d.cfg.Format, Policy: policy, Destager: tier.NewDestager(d.cfg.DestageSlots),
		Observer: &d.histo, WatchNanos: max(int64(d.cfg.Watch), 0),
		Throttle: tier.Throttle{Area: d.cfg.Area, Threshold: d.cfg.Threshold}}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	opt.ID, opt.Boot = binary.LittleEndian.Uint64(id[:])|1, store.Boot()
	if opt.Flash, err = d.medium("--flash", d.cfg.Flash, d.cfg.FlashSize); err != nil {
		return fmt.Errorf("flash %w", err)
	}
	for _, p := range d.cfg.Peers {
		name, where, ok := strings.Cut(p, "=")
		if !ok || iscsi.IsAddress(name) {
			// What was given may have a secret, so it is not shown.
			return errors.New("a --peer has no name; write NAME=iscsi://host/iqn/lun")
		}
		name, domain, _ := strings.Cut(name, "@")
		m, err := d.medium("peer "+name, where, 0)
		if err != nil {
			return fmt.Errorf("peer %s: %w", name, err)
		}
		opt.Peers = append(opt.Peers, tier.Peer{Name: name, Domain: domain, Medium: m})
	}
	defer func() { d.endNote(err) }()
	if err := d.openBackend(&opt); err != nil {
		return err
	}
	if err := d.secure(&opt); err != nil {
		return err
	}
	type opened struct {
		disk *tier.Disk
		err  error
	}
	ch := make(chan opened, 1)
	d.exec.Lock()
	tier.Open(opt, func(x *tier.Disk, err error) { ch <- opened{x, err} })
	d.exec.Unlock()
	o := <-ch
	d.disk = o.disk
	if o.err != nil {
		d.withdraw()
	}
	return o.err
}

// device opens a LUN or a file.
func (d *daemon) device(name, role string) (block.Device, error) {
	if !iscsi.IsAddress(name) {
		path, err := filepath.Abs(name) // by which the flash knows it
		if err != nil {
			return nil, err
		}
		f, err := lun.OpenFile(d.exec, path, 0)
		if err != nil {
			return nil, err
		}
		d.closers = append(d.closers, func() { f.Close() })
		return f.Device(path, block.SectorSize), nil
	}
	a, err := iscsi.LoadAddress(name)
	if err != nil {
		return nil, err
	}
	// A session's owner is the same at the next start, from whatever directory, and with whatever secret.
	flash := iscsi.WithoutSecret(d.cfg.Flash)
	if !iscsi.IsAddress(flash) {
		if flash, err = filepath.Abs(flash); err != nil {
			return nil, err
		}
	}
	noted := role == backendRole || role == flashRole && name == d.cfg.Flash
	if noted && d.note.path == "" {
		d.noteStart(d.cfg.Initiator + "\n" + flash + "\n" + iscsi.WithoutSecret(d.cfg.Backend))
	}
	d.opening = d.opening || noted
	s, err := lun.Dial(a, d.cfg.Initiator, role+" "+flash, sessionTimes(role, d.cfg.PeerTimeout))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Portal, err)
	}
	d.closers = append(d.closers, s.Close)
	u, err := lun.Open(d.exec, s, a.Target+"/"+strconv.FormatUint(a.LUN>>48&0x3fff, 10))
	if err != nil {
		return nil, err
	}
	if noted {
		d.noted, d.opening = append(d.noted, u), false
		if d.note.found {
			d.exec.Lock()
			u.AssumePowerLoss()
			d.exec.Unlock()
		}
	}
	return u, nil
}

// sessionTimes are those of a session for a role. A peer must not keep a flush longer than a write;
// an array may take as long as it needs to empty its cache, for there is nobody to go on with.
func sessionTimes(role string, peerTimeout time.Duration) lun.Times {
	if role != flashRole {
		return lun.Times{}
	}
	return lun.Times{Command: peerTimeout, Sync: peerTimeout, Ping: peerTimeout / 5, Pong: peerTimeout / 5}
}

func (d *daemon) medium(role, name string, size uint64) (block.Medium, error) {
	if iscsi.IsAddress(name) {
		dev, err := d.device(name, flashRole)
		if err != nil {
			return nil, err
		}
		if r, ok := dev.(*lun.Device); ok {
			if err := d.claim(role, r); err != nil {
				return nil, err
			}
			d.lent = append(d.lent, r)
		}
		d.exec.Lock()
		defer d.exec.Unlock()
		return tier.OnDevice(dev), nil
	}
	f, err := lun.OpenFile(d.exec, name, size)
	if err != nil {
		return nil, err
	}
	d.closers = append(d.closers, func() { f.Close() })
	return f, nil
}
