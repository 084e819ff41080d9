package cachedaemon

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
)

// closeTimeout bounds how long the end of a door waits for commands in progress.
const closeTimeout = 10 * time.Second

// hurryPatience is how long a second signal waits for the TCMU front end to let go of its device.
const hurryPatience = 2 * time.Second

// openDoors opens the portal, or the kernel's door. It returns the door's name, a channel that hears
// when it closes by itself, and what closes it.
func (d *daemon) openDoors(target *scsi.Target, u *scsi.Unit) (name string, ended <-chan error, closeDoor func() error, err error) {
	if d.cfg.TCMU {
		k, ended, err := d.openKernelDoor(u)
		if err != nil {
			return "", nil, nil, err
		}
		return "the kernel's /backstores/user:hostcache", ended, func() error {
			k.cancel()
			select {
			case err := <-ended:
				return err
			case <-d.hurry:
			}
			k.server.Hurry() // a process that just ended would leave the kernel blocked
			select {
			case err := <-ended:
				return err
			case <-time.After(hurryPatience):
				return errors.New("the TCMU front end did not close in time")
			}
		}, nil
	}
	d.exec.Lock()
	err = target.Map("", 0, u)
	d.exec.Unlock()
	if err != nil {
		return "", nil, nil, err
	}
	portal, err := iscsi.New(iscsi.Config{Targets: []iscsi.TargetConfig{{Name: d.cfg.Target, Alias: "arraysim hostcache", Target: target}}, Log: d.log})
	if err != nil {
		return "", nil, nil, err
	}
	l, err := net.Listen("tcp", d.cfg.Listen)
	if err != nil {
		return "", nil, nil, fmt.Errorf("the iSCSI portal cannot listen on %s: %w; choose another address with --listen", d.cfg.Listen, err)
	}
	served := make(chan error, 1)
	go func() { served <- portal.Serve(l) }()
	return fmt.Sprintf("iscsi://%s/%s/0", l.Addr(), d.cfg.Target), served, func() error {
		stop, cancel := d.unhurried(closeTimeout)
		defer cancel()
		if err := portal.Shutdown(stop); err != nil && stop.Err() == nil {
			return err
		}
		return nil
	}, nil
}
