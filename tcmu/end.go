package tcmu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Run answers events until ctx ends. Then it closes all devices: the kernel refuses new
// commands as BUSY meanwhile, those in progress end, and what comes later
// waits in the kernel for the next server, as long as the device's time-out allows.
// What does not end in time is named in the error, and left alone.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() {
		for {
			events, err := s.nl.receive()
			if err != nil {
				failed <- err
				return
			}
			for _, e := range events {
				s.dispatch(e)
			}
		}
	}()
	var err error
	block := func() error { return s.setParameters(func() error { return s.tree.param("block_netlink", "1") }) }
	select {
	case <-ctx.Done():
		err = block()
		// What was sent before that still wants its answer.
		err = errors.Join(err, s.nl.deadline(time.Now().Add(lastEvents)))
		if e := <-failed; !errors.Is(e, os.ErrDeadlineExceeded) {
			err = errors.Join(err, e)
		}
	case err = <-failed:
		err = errors.Join(fmt.Errorf("tcmu: receiving events: %w", err), block())
	}
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.calm, s.opt.CloseTimeout)
	defer cancel()
	if !within(ctx, s.work.Wait) {
		err = errors.Join(err, fmt.Errorf("tcmu: what the kernel asked for did not end in time: %s", s.unanswered()))
	}
	return errors.Join(err, s.closeAll())
}

// Hurry has Run wait for nothing that is in progress, neither now nor later: for a process that is about to end, which must
// not leave the kernel blocked. It returns at once. Run returns when its context has ended, too.
func (s *Server) Hurry() { s.hurry() }

// errParameters is the error of a write that does not end.
var errParameters = errors.New("tcmu: the parameters of the kernel's module cannot be written: that hangs in the kernel")

// setParameters calls fn, which writes parameters of the kernel's module, and waits for its end for as long as it may take. One
// such call comes behind the other: what the first one writes late must not undo what the last one wrote.
func (s *Server) setParameters(fn func() error) error {
	end := make(chan error, 1)
	go func() {
		s.parameters.Lock()
		defer s.parameters.Unlock()
		end <- fn()
	}()
	select {
	case err := <-end:
		return err
	case <-time.After(s.opt.grace):
		return errParameters
	}
}

// unanswered names the devices with requests of the kernel that are being dealt with.
func (s *Server) unanswered() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for minor := range s.busy {
		names = append(names, uioName(minor))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// within calls fn and waits for its end, or for ctx: what hangs in the kernel has no end. It reports whether fn has ended.
func within(ctx context.Context, fn func()) bool {
	end := make(chan struct{})
	go func() { fn(); close(end) }()
	select {
	case <-end:
		return true
	case <-ctx.Done():
		return false
	}
}

// lastEvents is how long the server listens after it has told the kernel to send
// no more: a sender that had passed the check is done by then.
const lastEvents = 100 * time.Millisecond

// closeAll ends all devices at once. A device, or the kernel, that does not answer in time is left alone and named in the
// error: its thread may hang in the kernel. Then the lock stays taken until this process ends.
func (s *Server) closeAll() error {
	err := s.endDevices()
	hang := errors.Is(err, errHangs)
	// A device that is made while there is no server does not wait for one.
	left := s.setParameters(func() error {
		return errors.Join(s.nl.unsubscribe(), s.tree.param("reset_netlink", "1"), s.nl.close(), s.tree.param("block_netlink", "0"))
	})
	if err = errors.Join(err, left); hang || errors.Is(left, errParameters) {
		return err
	}
	s.bus.close()
	s.lock.release()
	return err
}

// errHangs is in the error of endDevices where something of the devices goes on.
var errHangs = errors.New("tcmu: the lock stays taken until this process ends")

// endDevices ends all devices at once, and has none served that comes later.
func (s *Server) endDevices() error {
	ctx, cancel := context.WithTimeout(s.calm, s.opt.CloseTimeout)
	defer cancel()
	last, stop := context.WithTimeout(context.Background(), s.opt.CloseTimeout+s.opt.grace)
	defer stop()
	defer context.AfterFunc(s.calm, func() { time.AfterFunc(min(s.opt.grace, hurryGrace), stop) })()
	s.mu.Lock()
	s.over = true
	hang := len(s.busy) > 0 // a handler that is being opened has its device
	s.mu.Unlock()
	devices := s.Devices()
	ends := make([]chan error, len(devices))
	for n, d := range devices {
		ends[n] = make(chan error, 1)
		go func() { ends[n] <- s.leave(ctx, d) }()
	}
	var errs []error
	for n, d := range devices {
		select {
		case err := <-ends[n]:
			errs = append(errs, err)
		case <-last.Done():
			hang = true
			errs = append(errs, fmt.Errorf("tcmu: %s: its end hangs in the kernel", d))
		}
	}
	s.mu.Lock()
	clear(s.devices)
	s.mu.Unlock()
	moment, end := context.WithTimeout(context.Background(), lastEvents) // one that its device has waited for is not waited for again
	defer end()
	if !within(ctx, s.serving.Wait) && !within(moment, s.serving.Wait) { // errs names its device, unless it was repaired or removed meanwhile
		if hang = true; errors.Join(errs...) == nil {
			errs = append(errs, errors.New("tcmu: a handler is still at work"))
		}
	}
	if hang {
		errs = append(errs, s.unblockAll(), errHangs)
	}
	return errors.Join(errs...)
}

// block has the kernel refuse commands of a device as BUSY for a while, unless the server has ended.
func (s *Server) block(i Info) error {
	s.mu.Lock()
	s.blocked[i.Minor] = i
	s.mu.Unlock()
	err := s.tree.blockDev(i, true)
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over { // unblockAll may have come before
		return errors.Join(syscall.ESHUTDOWN, err, s.unblock(i))
	}
	return err
}

func (s *Server) unblock(i Info) error {
	err := s.tree.blockDev(i, false)
	s.mu.Lock()
	delete(s.blocked, i.Minor)
	s.mu.Unlock()
	return err
}

// unblockAll unblocks the devices whose handlers hang while they open or close: their commands wait for the next server.
func (s *Server) unblockAll() error {
	s.mu.Lock()
	left := slices.Collect(maps.Values(s.blocked))
	s.mu.Unlock()
	end := make(chan error, len(left))
	for _, i := range left {
		go func() { end <- s.unblock(i) }()
	}
	late := time.After(min(s.opt.grace, hurryGrace))
	var errs []error
	for range left {
		select {
		case err := <-end:
			errs = append(errs, err)
		case <-late:
			return errors.Join(append(errs, errors.New("tcmu: a device stays blocked: that hangs in the kernel"))...)
		}
	}
	return errors.Join(errs...)
}

// leave closes a device that stays in the kernel.
func (s *Server) leave(ctx context.Context, d *Device) error {
	err := s.tree.blockDev(d.Info(), true)
	if err == nil {
		err = d.drain(ctx)
	}
	return errors.Join(err, d.Close(ctx), s.tree.blockDev(d.Info(), false))
}
