package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/lun"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/store"
)

// cachedLUN are what a cached LUN is made of.
type cachedLUN struct {
	backend, flash       string
	flashSize, blockSize admin.Size
	policy, eviction     string
	area                 admin.Size
	threshold            int64
	slots                int
	peers                []string
	flashSync            string
	format               bool
	listen, target       string
	initiator, socket    string
	peerTimeout          time.Duration
	key                  uint64
	takeOver             uint64
	watch                time.Duration
	witness              string
	tcmu                 bool
	debug                bool
}

// What a LUN is to the cache.
const (
	backendRole = "backend"
	flashRole   = "flash"
)

const defaultSocket = "hostcache.sock"

func (a *app) hostcacheServe() *cobra.Command {
	f := cachedLUN{}
	c := &cobra.Command{
		Use: "serve", Short: "Serve a LUN through a cache on flash",
		Long: `serve puts a cache in front of a LUN and offers the result on an iSCSI portal, with
the identity of the LUN below. COPY, WRITE SAME, UNMAP and COMPARE AND WRITE are
passed through; the array carries them out, and the cache follows.

With --tcmu the LUN becomes a disk of this host: targetcli makes a backstore of
/backstores/user:hostcache with cfgstring=0 and the LUN's size, and tcm_loop shows it.

The backend is iscsi://host[:port]/iqn/lun, or a local file or block device. The
flash is a file or block device. What is dirty on it survives the process;
the next start with the same flash finds it and goes on.

A peer is a LUN of another arraysim that is at least as big as the flash. When
this host is lost, start serve on the peer's side with that LUN as --flash and
--take-over KEY, the lost host's --key: it is fenced by PERSISTENT RESERVE, and
what it had acknowledged is destaged.`,
		Example: "  arraysim hostcache serve --backend iscsi://127.0.0.1/iqn.2026-01.io.arraysim:array/0 --flash /var/tmp/flash --flash-size 1GiB --policy write_back\n  arraysim hostcache policy stats",
		Args:    cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if f.debug {
				level = slog.LevelDebug
			}
			ctx, hurry := signals()
			return (&cacheDaemon{f: f, out: cmd.OutOrStdout(), hurry: hurry,
				log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))}).run(ctx)
		}),
	}
	fl := c.Flags()
	fl.StringVar(&f.backend, "backend", "", "the LUN: iscsi://[user%secret@]host[:port]/iqn/lun, a file or a block device")
	fl.StringVar(&f.flash, "flash", "", "the flash: a file, a block device, or iscsi://... with --take-over")
	fl.Var(&f.flashSize, "flash-size", "make the flash file with this size, such as 4GiB")
	fl.StringVar(&f.policy, "policy", "write_through", "off, write_through, write_back, write_back+PEERS or write_back+PEERS+EXTERNAL")
	f.blockSize = 4 << 10
	fl.Var(&f.blockSize, "block-size", "4KiB to 1MiB")
	fl.StringVar(&f.eviction, "eviction", "s3-fifo", "policy of the index; auto chooses on line")
	fl.Var(&f.area, "area", "most dirty data (default: 7/8 of the cache)")
	fl.Int64Var(&f.threshold, "threshold", 700, "thousandths of the area above which writes are slowed down")
	fl.IntVar(&f.slots, "destage-slots", tier.DefaultDestageSlots, "destages at one time")
	fl.StringArrayVar(&f.peers, "peer", nil, "a peer's flash: NAME=iscsi://..., or NAME@DOMAIN=iscsi://... in another fault domain; again for each")
	fl.StringVar(&f.flashSync, "flash-sync", "always", `"always" waits for the flash's own cache before an acknowledgement, "flush" only on a flush or FUA`)
	fl.DurationVar(&f.watch, "watch", time.Second, "how often an arraysim is asked what other hosts have changed on the LUN (0: never)")
	fl.StringVar(&f.witness, "witness", "", "file that says which flash is the newest (default: the reservation key at the LUN if there is one, else a file of this host, by LUN)")
	fl.BoolVar(&f.format, "format", false, "give up what is on the flash")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:3261", "address of the iSCSI portal (port 0: any that is free)")
	fl.BoolVar(&f.tcmu, "tcmu", false, "serve the kernel instead of the portal, as tcmu-runner does (root; targetcli makes the disk, /backstores/user:hostcache)")
	fl.StringVar(&f.target, "target", "iqn.2026-01.io.arraysim:hostcache", "name of the iSCSI target")
	fl.StringVar(&f.initiator, "initiator", "", "initiator name towards backend and peers (default: iqn.2026-01.io.arraysim:hostcache. and what tells this machine from others)")
	fl.DurationVar(&f.peerTimeout, "peer-timeout", 10*time.Second, "how long a write waits for a peer that does not answer; then the cache goes on without it")
	fl.StringVar(&f.socket, "socket", defaultSocket, "where 'arraysim hostcache policy' finds this daemon")
	fl.Uint64Var(&f.key, "key", 0, "reservation key of this host, 1 to 0xffffff: reserves the LUN for registrants, so that the host can be fenced (0: none, and with --peer one made of the initiator name)")
	fl.Uint64Var(&f.takeOver, "take-over", 0, "reservation key of a lost host whose dirty data --flash has")
	fl.BoolVar(&f.debug, "debug", false, "log more")
	for _, name := range []string{"backend", "flash"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	return c
}

// cacheDaemon is one cached LUN and its doors.
type cacheDaemon struct {
	f     cachedLUN
	out   interface{ Write([]byte) (int, error) }
	log   *slog.Logger
	hurry <-chan struct{}

	exec   *block.Live
	below  block.Device
	remote *lun.Device   // below, if it is one
	lent   []*lun.Device // flash of peers, or of a host whose peer we are
	roles  map[[16]byte]string
	// releases: a clean stop ends the reservation.
	releases bool
	disk     *tier.Disk
	note     startNote
	histo    histoObserver
	closers  []func()
}

func (d *cacheDaemon) run(ctx context.Context) (err error) {
	d.exec = block.NewLive()
	defer func() {
		for i := len(d.closers) - 1; i >= 0; i-- {
			d.closers[i]()
		}
	}()
	if err := d.open(); err != nil {
		return err
	}
	st := d.locked(d.disk.State)
	rec := d.disk.Recovery()
	d.log.Info("the cache is open", "lun", d.info().Name, "policy", st.Requested.String(), "effective", st.Effective.String(),
		"recovered_dirty_sectors", rec.DirtySectors, "warm_blocks", rec.CleanBlocks, "damaged_sectors", rec.Damaged)
	for _, line := range rec.GivenUp {
		d.log.Warn("the format has given up what was there", "what", line)
	}
	for _, line := range st.LeftAlone {
		d.log.Warn("a peer is left alone, and has no copy", "peer", line)
	}
	if rec.Damaged > 0 {
		d.log.Error("dirty data on the flash does not match its checksums; reads of it fail until it is written", "sectors", rec.Damaged)
	}

	target := scsi.NewTarget(scsi.Options{Name: d.f.target, Vendor: "ARRAYSIM", Product: "hostcache", Revision: "0001", Exec: d.exec})
	d.exec.Lock()
	u := target.AddUnit(d.disk, scsi.UnitOptions{})
	d.exec.Unlock()
	door, ended, closeDoor, err := d.openDoors(target, u)
	if err != nil {
		d.giveBack()
		return err
	}
	control, err := d.control()
	if err != nil {
		closeDoor()
		d.giveBack()
		return err
	}
	fmt.Fprintf(d.out, "ready: %s, socket %s\n", door, d.f.socket)
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	control.Close()
	os.Remove(d.f.socket)
	if cerr := closeDoor(); err == nil {
		err = cerr
	}
	d.stop()
	return err
}

// closeTimeout bounds how long the end of a door waits for commands in progress.
const closeTimeout = 10 * time.Second

// openDoors opens the portal, or the kernel's door. It returns the door's name, a channel that hears
// when it closes by itself, and what closes it.
func (d *cacheDaemon) openDoors(target *scsi.Target, u *scsi.Unit) (name string, ended <-chan error, closeDoor func() error, err error) {
	if d.f.tcmu {
		k, ended, err := d.openKernelDoor(u)
		if err != nil {
			return "", nil, nil, err
		}
		return "the kernel's /backstores/user:hostcache", ended, func() error {
			k.cancel()
			return <-ended
		}, nil
	}
	d.exec.Lock()
	err = target.Map("", 0, u)
	d.exec.Unlock()
	if err != nil {
		return "", nil, nil, err
	}
	portal, err := iscsi.New(iscsi.Config{Targets: []iscsi.TargetConfig{{Name: d.f.target, Alias: "arraysim hostcache", Target: target}}, Log: d.log})
	if err != nil {
		return "", nil, nil, err
	}
	l, err := net.Listen("tcp", d.f.listen)
	if err != nil {
		return "", nil, nil, fmt.Errorf("the iSCSI portal cannot listen on %s: %w; choose another address by --listen", d.f.listen, err)
	}
	served := make(chan error, 1)
	go func() { served <- portal.Serve(l) }()
	return fmt.Sprintf("iscsi://%s/%s/0", l.Addr(), d.f.target), served, func() error {
		stop, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := portal.Shutdown(stop); !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return nil
	}, nil
}

// stop destages what is dirty; a second signal leaves it on flash.
func (d *cacheDaemon) stop() {
	done := make(chan struct{})
	st := d.locked(d.disk.State)
	if st.DirtySectors > 0 {
		d.log.Info("destaging", "bytes", st.DirtySectors<<block.SectorShift, "estimate", time.Duration(st.TimeToDestage))
	}
	d.exec.Lock()
	d.disk.Close(false, func() { close(done) })
	d.exec.Unlock()
	select {
	case <-done:
		d.release()
	case <-d.hurry:
		d.log.Warn("dirty data stays on the flash; the next start with it goes on")
	}
}

// giveBack ends a cache that was opened and cannot be served. What is dirty stays on the flash, and
// then the LUN stays reserved for this host.
func (d *cacheDaemon) giveBack() {
	if d.locked(d.disk.State).DirtySectors == 0 {
		d.stop()
	}
}

// locked calls fn with the executor held.
func (d *cacheDaemon) locked(fn func() tier.State) tier.State {
	d.exec.Lock()
	defer d.exec.Unlock()
	return fn()
}

// info describes the LUN below.
func (d *cacheDaemon) info() block.Info {
	d.exec.Lock()
	defer d.exec.Unlock()
	return d.below.Info()
}

func (d *cacheDaemon) open() (err error) {
	policy, err := tier.ParsePolicy(d.f.policy)
	if err != nil {
		return err
	}
	if d.f.initiator == "" {
		if d.f.initiator, err = ownInitiatorName(); err != nil {
			return err
		}
	}
	if d.f.peerTimeout < time.Second {
		return fmt.Errorf("--peer-timeout %v is too short; give 1s or more", d.f.peerTimeout)
	}
	if d.f.flashSync != "always" && d.f.flashSync != "flush" {
		return fmt.Errorf("--flash-sync is %q; it is always or flush", d.f.flashSync)
	}
	opt := tier.Options{Exec: d.exec, BlockSectors: int(d.f.blockSize >> block.SectorShift), Eviction: d.f.eviction,
		PowerSafe: d.f.flashSync == "always", Format: d.f.format, Policy: policy, Destager: tier.NewDestager(d.f.slots),
		Observer: &d.histo, WatchNanos: max(int64(d.f.watch), 0),
		Throttle: tier.Throttle{Area: uint64(d.f.area), Threshold: d.f.threshold}}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	opt.ID, opt.Boot = binary.LittleEndian.Uint64(id[:])|1, store.Boot()
	if opt.Flash, err = d.medium("--flash", d.f.flash, uint64(d.f.flashSize)); err != nil {
		return fmt.Errorf("flash %w", err)
	}
	for _, p := range d.f.peers {
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
	if err := d.openBackend(); err != nil {
		return err
	}
	opt.Below = d.below
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

// reserve makes this host the one that may write, or fences the one that is lost.
func (d *cacheDaemon) reserve(opt *tier.Options) error {
	if d.remote == nil {
		return errors.New("--key and --take-over need an iSCSI backend: a file has no reservations")
	}
	all := append([]*lun.Device{d.remote}, d.lent...)
	if d.f.takeOver == 0 {
		for _, r := range all {
			if !r.HasReservations() {
				return fmt.Errorf("%s has no persistent reservations, so this host could not be fenced; give a LUN that has, or do without by a --witness file and no --key", r.Name())
			}
			if err := r.Reserve(d.f.key); err != nil {
				hint := "if a peer took over, start without this flash's dirty data (--format) when the peer is done"
				if errors.Is(err, lun.ErrOwnSession) {
					hint = fmt.Sprintf("give --flash and --backend as before, or, if no other arraysim of this host serves it, --take-over %#x and another --key", d.f.key)
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
				err = errors.Join(err, r.Fence(d.f.key, d.f.takeOver))
			}
			d.exec.Post(func() { done(err) })
		}()
	}
	return nil
}

// device opens a LUN or a file.
func (d *cacheDaemon) device(name, role string) (block.Device, error) {
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
	a, err := iscsi.ParseAddress(name)
	if err != nil {
		return nil, err
	}
	// A session's owner is the same at the next start, from whatever directory.
	flash := d.f.flash
	if !iscsi.IsAddress(flash) {
		if flash, err = filepath.Abs(flash); err != nil {
			return nil, err
		}
	}
	s, err := lun.Dial(a, d.f.initiator, role+" "+flash, sessionTimes(role, d.f.peerTimeout))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Portal, err)
	}
	d.closers = append(d.closers, s.Close)
	if role == backendRole {
		d.noteStart(d.f.initiator + "\n" + flash + "\n" + name)
	}
	return lun.Open(d.exec, s, a.Target+"/"+strconv.FormatUint(a.LUN>>48&0x3fff, 10))
}

// sessionTimes are those of a session for a role. A peer must not keep a flush longer than a write;
// an array may take as long as it needs to empty its cache, for there is nobody to go on with.
func sessionTimes(role string, peerTimeout time.Duration) lun.Times {
	if role != flashRole {
		return lun.Times{}
	}
	return lun.Times{Command: peerTimeout, Sync: peerTimeout, Ping: peerTimeout / 5, Pong: peerTimeout / 5}
}

func (d *cacheDaemon) medium(role, name string, size uint64) (block.Medium, error) {
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
