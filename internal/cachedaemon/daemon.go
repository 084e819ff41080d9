package cachedaemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
	"github.com/arraysim/arraysim/internal/lun"
	"github.com/arraysim/arraysim/internal/scsi"
)

// daemon is one cached LUN and its doors.
type daemon struct {
	cfg   Config
	out   io.Writer
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
	noted    []*lun.Device // whose losses of power the note is of
	opening  bool          // one of them is being opened, or could not be
	histo    histoObserver
	socket   *apiSocket
	closers  []func()
}

func (d *daemon) run(ctx context.Context) (err error) {
	opened := make(chan error, 1)
	go func() { opened <- d.open() }()
	err, over := d.started(ctx, opened)
	if !over { // what it has opened it may use yet
		return err
	}
	defer d.letGo()
	if err != nil {
		return err
	}
	st := d.locked(d.disk.State)
	rec := d.disk.Recovery()
	d.log.Info("the cache is open", "lun", d.info().Name, "policy", st.Requested.String(), "effective", st.Effective.String(),
		"recovered_dirty_sectors", rec.DirtySectors, "warm_blocks", rec.CleanBlocks, "damaged_sectors", rec.Damaged)
	for _, line := range rec.GivenUp {
		d.log.Warn("the format has given up the previous contents", "what", line)
	}
	for _, line := range st.LeftAlone {
		d.log.Warn("a peer is left alone, and has no copy", "peer", line)
	}
	if rec.Damaged > 0 {
		d.log.Error("dirty data on the flash does not match its checksums; reads of it fail until it is written", "sectors", rec.Damaged)
	}

	target := scsi.NewTarget(scsi.Options{Name: d.cfg.Target, Vendor: "ARRAYSIM", Product: "hostcache", Revision: "0001", Exec: d.exec})
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
	fmt.Fprintf(d.out, "ready: %s, socket %s\n", door, d.cfg.Socket)
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	control.Close()
	d.socket.remove()
	if cerr := closeDoor(); err == nil {
		err = cerr
	}
	return errors.Join(err, d.stop())
}

// giveBack ends a cache that was opened and cannot be served. What is dirty stays on the flash, and
// then the LUN stays reserved for this host.
func (d *daemon) giveBack() {
	if d.locked(d.disk.State).DirtySectors > 0 {
		return
	}
	if err := d.stop(); err != nil {
		d.log.Warn("the cache does not close", "error", err)
	}
}

// locked calls fn with the executor held.
func (d *daemon) locked(fn func() tier.State) tier.State {
	d.exec.Lock()
	defer d.exec.Unlock()
	return fn()
}

// info describes the LUN below.
func (d *daemon) info() block.Info {
	d.exec.Lock()
	defer d.exec.Unlock()
	return d.below.Info()
}
