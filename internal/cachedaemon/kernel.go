package cachedaemon

import (
	"context"
	"fmt"
	"sync"
	"syscall"

	"github.com/arraysim/arraysim/handlers"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/tcmu"
)

// kernelDoor shows the cached LUN to the kernel. It stands in the place of the portal:
// one world of reservations.
type kernelDoor struct {
	d      *daemon
	unit   *scsi.Unit
	server *tcmu.Server
	cancel context.CancelFunc

	mu    sync.Mutex
	owner string // guarded by mu: the device that has the LUN
}

// openKernelDoor takes over the kernel's devices of the subtype and serves those to come.
// The channel hears when the door closes by itself.
func (d *daemon) openKernelDoor(unit *scsi.Unit) (*kernelDoor, <-chan error, error) {
	k := &kernelDoor{d: d, unit: unit}
	var subtypes handlers.Registry
	if err := subtypes.Add(handlers.NewHostCache(k, d.log)); err != nil {
		return nil, nil, err
	}
	server, err := tcmu.Start(tcmu.Options{Subtypes: subtypes.Subtypes(), Log: d.log, DBus: true, CloseTimeout: closeTimeout, Hurry: d.hurry})
	if err != nil {
		return nil, nil, fmt.Errorf("the TCMU front end (--tcmu) cannot be opened: %w; a host can have only one server of it: stop tcmu-runner or `arraysim serve --tcmu`", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.server, k.cancel = server, cancel
	ended := make(chan error, 1)
	go func() {
		ended <- server.Run(ctx)
		close(ended)
	}()
	return k, ended, nil
}

// CheckVolume implements the handlers' host.
func (k *kernelDoor) CheckVolume(s handlers.VolumeSpec) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.check(s)
}

func (k *kernelDoor) check(s handlers.VolumeSpec) error {
	switch {
	case s.Volume != "0":
		return fmt.Errorf("this cache serves LUN 0 only, not %s", s.Volume)
	case k.owner != "":
		return fmt.Errorf("LUN 0 is the kernel's device %s already", k.owner)
	}
	return nil
}

// OpenVolume implements the handlers' host.
func (k *kernelDoor) OpenVolume(s handlers.VolumeSpec) (*scsi.Unit, block.Info, func(), error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.check(s); err != nil {
		return nil, block.Info{}, nil, err
	}
	k.owner = s.Owner
	release := func() {
		k.mu.Lock()
		k.owner = ""
		k.mu.Unlock()
	}
	e := k.d.exec
	e.Lock()
	defer e.Unlock()
	return k.unit, k.d.disk.Info(), release, nil
}

// ResizeVolume implements the handlers' host: the LUN has the size that the array gives it.
func (k *kernelDoor) ResizeVolume(_ string, bytes uint64) error {
	k.d.exec.Lock()
	have := k.d.disk.Info().Sectors << block.SectorShift
	k.d.exec.Unlock()
	if bytes == have {
		return nil
	}
	return fmt.Errorf("the LUN has %d bytes at the array; resize it there first: %w", have, syscall.EINVAL)
}
