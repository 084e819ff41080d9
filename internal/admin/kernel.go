package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/arraysim/arraysim/handlers"
	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/tcmu"
)

// kernelDoor shows volumes to the kernel: it is what the handlers know of the daemon.
// A volume has one door at a time, so that there is one world of reservations.
type kernelDoor struct {
	d      *daemon
	server kernelServer
	cancel context.CancelFunc
	ended  chan struct{} // closed when err is there
	err    error
}

// kernelServer is a tcmu.Server; tests have another.
type kernelServer interface {
	Run(ctx context.Context) error
	Hurry()
	Devices() []*tcmu.Device
}

// openKernelDoor takes over the kernel's devices and serves those to come.
func (d *daemon) openKernelDoor() error {
	k := &kernelDoor{d: d}
	var subtypes handlers.Registry
	if err := subtypes.Add(handlers.NewArray(k, d.log)); err != nil {
		return err
	}
	server, err := tcmu.Start(tcmu.Options{Subtypes: subtypes.Subtypes(), Log: d.log, DBus: true, CloseTimeout: sessionTimeout, Hurry: d.env.Hurry})
	if err != nil {
		return fmt.Errorf("the TCMU front end (--tcmu) cannot be opened: %w", err)
	}
	k.serve(server)
	d.kernel = k
	return nil
}

// serve has a server answer the kernel until close or forsake.
func (k *kernelDoor) serve(server kernelServer) {
	ctx, cancel := context.WithCancel(context.Background())
	k.server, k.cancel, k.ended = server, cancel, make(chan struct{})
	go func() {
		defer close(k.ended)
		if k.err = server.Run(ctx); ctx.Err() == nil {
			k.d.fail(fmt.Errorf("the TCMU front end ended: %w", k.err))
		}
	}()
}

// close ends the service; the devices stay in the kernel.
func (k *kernelDoor) close() {
	if n := len(k.server.Devices()); n > 0 {
		k.d.log.Info("stopping: the kernel keeps its devices, and nobody answers their commands until the service runs again; "+
			"to stop it for good, remove targets and backstores first", "devices", n)
	}
	k.cancel()
	if <-k.ended; k.err != nil {
		k.d.log.Warn("the TCMU front end did not close cleanly", "error", k.err)
	}
}

// forsakePatience is for how long a daemon that ends at once waits for the TCMU front end to let go of its devices.
const forsakePatience = 2 * time.Second

// forsake ends the service of a daemon that has lost its array, or that ends at once: no command is taken any more, and the
// kernel is left as it ought to be. Those under way end with the array's error, or are left to the daemon that comes next.
func (k *kernelDoor) forsake() {
	k.cancel()
	k.server.Hurry()
	select {
	case <-k.ended:
	case <-time.After(forsakePatience):
		k.d.log.Warn("the TCMU front end did not close in time")
	}
}

// CheckVolume implements the handlers' host.
func (k *kernelDoor) CheckVolume(s handlers.VolumeSpec) error {
	g, err := k.group(s)
	if err != nil {
		return err
	}
	g.exec.Lock()
	defer g.exec.Unlock()
	_, err = k.find(g, s)
	return err
}

// group returns the I/O group of a specification: that of the volume, or of the pool when there is no volume.
func (k *kernelDoor) group(s handlers.VolumeSpec) (*ioGroup, error) {
	if g, found := k.d.holder(hasVolume(s.Volume)); found {
		return g, nil
	}
	g, found := k.d.holder(hasPool(s.Pool))
	if !found {
		var names []string
		for _, p := range k.d.listPools() {
			names = append(names, p.Name)
		}
		return nil, fmt.Errorf("pool %q does not exist; there are: %s", s.Pool, strings.Join(names, " "))
	}
	return g, nil
}

// find returns the volume of a specification, nil if it is to be made, or why it
// cannot be had. The group's executor is held.
func (k *kernelDoor) find(g *ioGroup, s handlers.VolumeSpec) (*array.Volume, error) {
	v := g.array.Volume(s.Volume)
	if v == nil {
		if g.array.Pool(s.Pool) == nil {
			return nil, fmt.Errorf("pool %q is gone", s.Pool)
		}
		if s.MustExist || s.Resumed {
			return nil, fmt.Errorf("volume %q does not exist", s.Volume)
		}
		return nil, nil
	}
	info := v.Info()
	if info.Pool != s.Pool {
		return nil, fmt.Errorf("volume %q is in pool %q; write %s/%s", s.Volume, info.Pool, info.Pool, s.Volume)
	}
	if s.Thick && info.Thin {
		return nil, fmt.Errorf("volume %q exists and is thin; leave provisioning=thick out", s.Volume)
	}
	if e := g.exports.list(v); len(e) > 0 {
		return nil, fmt.Errorf("volume %q is LUN %d of the iSCSI portal; run first: arraysim export remove %s", s.Volume, e[0].LUN, s.Volume)
	}
	u := g.exports.units[v.ID()]
	if u == nil {
		return nil, fmt.Errorf("volume %q is being deleted", s.Volume)
	}
	// The kernel has reservations of its own and passes no command of them on: this one would exclude all its initiators for good.
	if u.Reservation().Reserved() && !s.Resumed {
		return nil, fmt.Errorf("volume %q has a persistent reservation of an initiator of the iSCSI portal; export it again, "+
			"and release it from there (sg_persist)", s.Volume)
	}
	if by := g.exports.kernel[v.ID()]; by != "" {
		return nil, fmt.Errorf("volume %q is the kernel's device %s already", s.Volume, by)
	}
	return v, nil
}

var errMoving = errors.New("the array is about to move to another node")

// OpenVolume implements the handlers' host.
func (k *kernelDoor) OpenVolume(s handlers.VolumeSpec) (*scsi.Unit, block.Info, func(), error) {
	fail := func(err error) (*scsi.Unit, block.Info, func(), error) { return nil, block.Info{}, nil, err }
	d := k.d
	if !d.beginChange() {
		return fail(errors.New("the daemon is stopping"))
	}
	defer d.changes.Done()
	if !d.moves.allows(s.Resumed) {
		return fail(errMoving)
	}
	g, err := k.group(s)
	if err != nil {
		return fail(err)
	}
	g.exec.Lock()
	v, err := k.find(g, s)
	g.exec.Unlock()
	if err != nil {
		return fail(err)
	}
	if v == nil {
		spec := array.VolumeSpec{Name: s.Volume, Pool: s.Pool, Sectors: s.Size / block.SectorSize, BlockSize: s.BlockSize, Thin: !s.Thick}
		if g, v, err = d.createVolume(spec); err != nil {
			return fail(err)
		}
		if _, err := g.adopt(v, unitSpec{WriteProtect: s.WriteProtect}); err != nil {
			return fail(err)
		}
	}
	g.exec.Lock()
	defer g.exec.Unlock()
	// Others may have been quicker.
	if !d.moves.allows(s.Resumed) { // who moves has not seen this device
		return fail(errMoving)
	}
	if again, err := k.find(g, s); err != nil {
		return fail(err)
	} else if again != v {
		return fail(fmt.Errorf("volume %q is gone", s.Volume))
	}
	if spec := g.exports.spec(v); spec.WriteProtect != s.WriteProtect {
		spec.WriteProtect = s.WriteProtect
		g.exports.close(v)
		g.exports.open(v)
		g.exports.save(func(err error) {
			if err != nil {
				d.log.Error("the write protection of a volume cannot be saved", "volume", s.Volume, "error", err)
			}
		})
	}
	id := v.ID()
	g.exports.kernel[id] = s.Owner
	release := func() {
		g.exec.Lock()
		delete(g.exports.kernel, id)
		g.exec.Unlock()
	}
	return g.exports.units[id], v.Info(), release, nil
}

// ResizeVolume implements the handlers' host.
func (k *kernelDoor) ResizeVolume(volume string, bytes uint64) error {
	if !k.d.beginChange() {
		return errors.New("the daemon is stopping")
	}
	defer k.d.changes.Done()
	return k.d.resizeVolume(volume, Size(bytes), false)
}
