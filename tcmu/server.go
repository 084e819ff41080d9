package tcmu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Options describe a Server.
type Options struct {
	Subtypes []Subtype
	Log      *slog.Logger // none when nil
	// DBus serves the names on the system bus by which targetcli finds subtypes.
	DBus bool
	// CloseTimeout bounds how long the end of a device waits for commands in
	// progress, and how long Start waits for the devices that it takes over; 0 means
	// 30 seconds, after which initiators have given up too.
	CloseTimeout time.Duration
	// Hurry, once closed, has Start wait no longer for the devices that it takes over. It
	// leaves the kernel as it ought to be. For Run there is [Server.Hurry].
	Hurry <-chan struct{}

	grace time.Duration // defaultGrace; tests have less
}

// Server answers the kernel: it opens, changes and closes the devices of its
// subtypes, and refuses all others. The kernel takes the first answer that anybody
// gives, so a machine can have one server only, and no tcmu-runner beside it.
type Server struct {
	opt  Options
	log  *slog.Logger
	tree tree
	nl   messenger
	link func(minor uint32) (Link, error)
	bus  *bus
	lock *lockFile

	calm  context.Context // ends when nobody waits any more for what is in progress
	hurry context.CancelFunc

	parameters sync.Mutex // held while the parameters of the kernel's module are written

	mu      sync.Mutex
	ending  bool                     // guarded by mu: nothing new is begun
	over    bool                     // guarded by mu: no device is served from now on
	repairs map[uint32]*repairs      // guarded by mu; by minor
	devices map[uint32]*Device       // guarded by mu; by minor
	blocked map[uint32]Info          // guarded by mu; by minor: while the device is taken over, or its ring is repaired
	busy    map[uint32]chan struct{} // guarded by mu; by minor: closed when the last event of it is dealt with
	work    sync.WaitGroup           // events
	serving sync.WaitGroup           // rings
}

const (
	defaultCloseTimeout = 30 * time.Second
	// defaultGrace is how much longer than CloseTimeout the server waits for a device, whose own end is to be heard.
	defaultGrace = 5 * time.Second
	// hurryGrace takes its place behind Hurry.
	hurryGrace = time.Second
)

// Start takes over the devices that exist and begins to answer the kernel. It needs
// root, and fails when tcmu-runner or another server runs.
func Start(opt Options) (*Server, error) {
	lock, err := takeLock(lockPath)
	if err != nil {
		return nil, err
	}
	var bus *bus
	if opt.DBus {
		if bus, err = dialBus(opt.Subtypes); err != nil {
			lock.release()
			return nil, err
		}
	}
	nl, err := dialKernel()
	if err != nil {
		bus.close()
		lock.release()
		return nil, err
	}
	s, err := start(opt, "/", nl, tree("/").openUIO)
	if err != nil {
		err = errors.Join(err, nl.unsubscribe(), nl.close())
		bus.close()
		if !errors.Is(err, errHangs) {
			lock.release()
		}
		return nil, err
	}
	s.bus, s.lock = bus, lock
	// Only now: whoever sees the name may make devices at once.
	if err := bus.own(); err != nil {
		return nil, errors.Join(err, s.closeAll())
	}
	return s, nil
}

func start(opt Options, root tree, nl messenger, link func(uint32) (Link, error)) (*Server, error) {
	s := &Server{opt: opt, log: opt.Log, tree: root, nl: nl, link: link,
		repairs: map[uint32]*repairs{}, devices: map[uint32]*Device{}, blocked: map[uint32]Info{}, busy: map[uint32]chan struct{}{}}
	s.calm, s.hurry = context.WithCancel(context.Background())
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.opt.CloseTimeout == 0 {
		s.opt.CloseTimeout = defaultCloseTimeout
	}
	if s.opt.grace == 0 {
		s.opt.grace = defaultGrace
	}
	for i, st := range opt.Subtypes {
		if err := checkSubtype(st.Name()); err != nil {
			return nil, err
		}
		for _, other := range opt.Subtypes[:i] {
			if other.Name() == st.Name() {
				return nil, fmt.Errorf("tcmu: subtype %q appears twice", st.Name())
			}
		}
	}
	// Whoever wrote to a device's enable file waits in the kernel, uninterruptibly, for
	// an answer. Those that a process before us left without one are let go first;
	// and while the kernel is blocked it refuses changes instead of waiting, so that
	// none is lost between the look at what is there and the first event.
	if err := s.tree.param("block_netlink", "1"); err != nil {
		return nil, fmt.Errorf("tcmu: blocking netlink: %w", err)
	}
	unblock := func() error { return s.tree.param("block_netlink", "0") }
	if err := s.tree.param("reset_netlink", "1"); err != nil {
		return nil, errors.Join(fmt.Errorf("tcmu: resetting netlink: %w", err), unblock())
	}
	if err := nl.subscribe(); err != nil {
		return nil, errors.Join(err, unblock())
	}
	present, err := s.tree.present()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tcmu: looking for devices: %w", err), unblock())
	}
	s.resumeAll(present)
	if err := unblock(); err != nil {
		return nil, errors.Join(fmt.Errorf("tcmu: unblocking netlink: %w", err), s.endDevices())
	}
	return s, nil
}

// resumeAll takes over the devices of the subtypes. One that is bad must not keep the others from their initiators, nor one
// that does not open the kernel from its answers: that one goes on by itself, and what the kernel asks of it comes behind.
func (s *Server) resumeAll(present []Info) {
	var ends []<-chan struct{}
	for _, i := range present {
		st := s.subtype(i.Subtype)
		if st == nil {
			continue
		}
		ends = append(ends, s.inOrder(i.Minor, func() {
			if err := s.resume(i, st); err != nil {
				s.log.Error("a device cannot be served", "device", i.String(), "config", i.Subtype+"/"+i.Config, "error", err)
			}
		}))
	}
	ctx, cancel := context.WithTimeout(s.calm, s.opt.CloseTimeout)
	defer cancel()
	for _, end := range ends {
		select {
		case <-end:
			continue
		case <-s.opt.Hurry:
		case <-ctx.Done():
		}
		s.log.Error("devices are not served yet: their handlers do not open", "devices", s.unanswered())
		return
	}
}

// checkSubtype keeps to what D-Bus allows, and away from the names of tcmu-runner,
// which compares only the beginning.
func checkSubtype(name string) error {
	if name == "" {
		return errors.New("tcmu: a subtype has no name")
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' {
			return fmt.Errorf("tcmu: subtype %q has characters other than letters, digits and _", name)
		}
	}
	return nil
}

func (s *Server) subtype(name string) Subtype {
	for _, st := range s.opt.Subtypes {
		if st.Name() == name {
			return st
		}
	}
	return nil
}

// Devices lists the devices that are served, by minor number.
func (s *Server) Devices() []*Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*Device
	for _, d := range s.devices {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b *Device) int { return int(a.Info().Minor) - int(b.Info().Minor) })
	return list
}

// dispatch deals with an event in the background. Events of one device keep their
// order; a device that is slow to open holds up no other.
func (s *Server) dispatch(e event) {
	// Devices of other subtypes are answered too: nobody else does, and the
	// process that made one would wait for ever.
	i, _ := parseName(e.name)
	st := s.subtype(i.Subtype)
	i.Minor = e.minor
	s.inOrder(e.minor, func() {
		var err error
		switch e.cmd {
		case cmdAdded:
			err = s.add(i, st)
		case cmdRemoved:
			err = s.remove(i)
		case cmdReconfig:
			err = s.reconfigure(i, e.change)
		}
		attrs := []any{"device", i.String(), "config", i.Subtype + "/" + i.Config}
		if err != nil {
			s.log.Error("the kernel's request failed", append(attrs, "request", verbs[e.cmd], "error", err)...)
		} else {
			s.log.Info(verbs[e.cmd], attrs...)
		}
		// With nl_reply_supported=-1 nobody waits, and the answer is ENOENT or ENODEV.
		if err := s.nl.reply(e, errno(err)); err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ENODEV) {
			s.log.Error("the kernel did not take the answer", append(attrs, "request", verbs[e.cmd], "error", err)...)
		}
	})
}

// inOrder does work of a device in the background, after all that was begun before
// for the same device. done is closed when nobody is at work for that any more; it is nil where the
// server ends, and nothing is done.
func (s *Server) inOrder(minor uint32, work func()) (done <-chan struct{}) {
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		return nil
	}
	before, end := s.busy[minor], make(chan struct{})
	s.busy[minor] = end
	s.work.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.work.Done()
		if before != nil {
			<-before
		}
		work()
		s.mu.Lock()
		if s.busy[minor] == end {
			delete(s.busy, minor)
		}
		s.mu.Unlock()
		close(end)
	}()
	return end
}

var verbs = map[uint8]string{cmdAdded: "device added", cmdRemoved: "device removed", cmdReconfig: "device changed"}

func (s *Server) device(minor uint32) *Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.devices[minor]
}

// add opens a new device.
func (s *Server) add(i Info, st Subtype) error {
	if st == nil {
		return fmt.Errorf("nobody serves the subtype %q: %w", i.Subtype, syscall.ENOENT)
	}
	if d := s.device(i.Minor); d != nil {
		if d.served() && d.String() == i.String() {
			return fmt.Errorf("%s is served already: %w", uioName(i.Minor), syscall.EEXIST)
		}
		// The kernel gives a number to one device at a time: the end of the one before was not heard.
		if err := s.remove(d.Info()); err != nil {
			return err
		}
	}
	if err := s.tree.complement(&i); err != nil {
		return err
	}
	link, err := s.link(i.Minor)
	if err != nil {
		return err
	}
	return s.attach(link, i, st)
}

// attach opens the handler of a device and starts to serve it.
func (s *Server) attach(link Link, i Info, st Subtype) error {
	d, err := Attach(link, i)
	if err != nil {
		return errors.Join(err, link.Close())
	}
	d.attributes = configfs{s.tree, s.tree.folder(i)}
	d.freeKept = func(id uint16) error { return d.SetAttribute("action/free_kept_buf", fmt.Sprint(id)) }
	h, err := st.Open(d)
	if err != nil {
		return errors.Join(err, link.Close())
	}
	if err := s.tree.complement(&i); err == nil { // Open may have set attributes
		d.mu.Lock() // a device that is open may be named by another one
		d.info = i
		d.mu.Unlock()
	}
	if _, ok := h.(TaskManager); ok && d.caps&capTMR != 0 {
		if err := d.SetAttribute("attrib/tmr_notification", "1"); err != nil {
			s.log.Warn("the kernel will not report task management", "device", d.String(), "error", err)
		}
	}
	s.mu.Lock()
	if s.over { // it took its time to open
		s.mu.Unlock()
		h.Close()
		return errors.Join(fmt.Errorf("tcmu: %s: the server has ended: %w", d, syscall.ESHUTDOWN), link.Close())
	}
	d.begin(h)
	s.devices[i.Minor] = d
	s.serving.Go(func() { s.serve(d, i, st) })
	s.mu.Unlock()
	return nil
}

// serve serves a device until that ends.
func (s *Server) serve(d *Device, i Info, st Subtype) {
	err := d.serve()
	if errors.Is(err, ErrStopped) {
		return
	}
	s.log.Error("a device's ring cannot be served", "device", d.String(), "error", err)
	if errors.Is(err, ErrRing) || errors.Is(err, ErrFault) {
		s.inOrder(i.Minor, func() { s.repair(d, st) })
		return
	}
	// The kernel has nothing more to say of it: it is gone, and whether that is heard is not certain. What it
	// has, such as a volume, is for the next one.
	s.inOrder(i.Minor, func() {
		if s.device(i.Minor) == d {
			_ = s.remove(i)
		}
	})
}

// maxRepairs is how often the ring of one device is reset, with less than repairMemory between two of them. What damages it
// more often than that does not stop.
const (
	maxRepairs   = 3
	repairMemory = 10 * time.Minute
)

// repairs are the resets of a ring.
type repairs struct {
	count int
	last  time.Time
}

// another counts one more, and returns how many there were of late.
func (r *repairs) another(now time.Time) int {
	if now.Sub(r.last) >= repairMemory {
		r.count = 0
	}
	r.count, r.last = r.count+1, now
	return r.count
}

// repair takes a device over anew, as another process would after a crash: its ring
// is reset, and initiators send again what was in it.
func (s *Server) repair(d *Device, st Subtype) {
	i := d.Info()
	s.mu.Lock()
	current := s.devices[i.Minor] == d
	if s.repairs[i.Minor] == nil {
		s.repairs[i.Minor] = &repairs{}
	}
	n := s.repairs[i.Minor].another(time.Now())
	if current && n <= maxRepairs {
		delete(s.devices, i.Minor)
	}
	s.mu.Unlock()
	if !current {
		return // it was removed meanwhile
	}
	if n > maxRepairs {
		s.log.Error("a device is no longer served: its ring was damaged repeatedly; remove it, or restart this process", "device", i.String())
		return
	}
	if err := s.restart(d, i, st); err != nil {
		s.log.Error("a device is not served; remove it, or restart this process", "device", i.String(), "error", err)
	}
}

func (s *Server) restart(d *Device, i Info, st Subtype) error {
	blocked := s.block(i)
	ctx, cancel := context.WithTimeout(s.calm, s.opt.CloseTimeout)
	defer cancel()
	closed := d.Close(ctx) // in any case: nobody else knows of it any more
	switch {
	case blocked != nil:
		return errors.Join(fmt.Errorf("blocking the device: %w", blocked), closed)
	case closed != nil:
		return errors.Join(closed, s.unblock(i))
	}
	return s.resume(i, st)
}

// resume takes over a device that another process served. Commands that it had not
// answered go back to the initiators, which send them again.
func (s *Server) resume(i Info, st Subtype) (err error) {
	i.Resumed = true
	if err := s.tree.complement(&i); err != nil {
		return err
	}
	if err := s.block(i); err != nil {
		return fmt.Errorf("blocking the device: %w", err)
	}
	defer func() {
		if e := s.unblock(i); e != nil {
			err = errors.Join(err, fmt.Errorf("unblocking the device: %w", e))
		}
	}()
	link, err := s.link(i.Minor)
	if err != nil {
		return err
	}
	// Only when the device is ours, which the open above says, may its ring be reset.
	if err := s.tree.resetRing(i); err != nil {
		return errors.Join(fmt.Errorf("resetting the ring: %w", err), link.Close())
	}
	if err := s.attach(link, i, st); err != nil {
		return err
	}
	s.log.Info("device taken over", "device", i.String(), "config", i.Subtype+"/"+i.Config)
	return nil
}

// remove closes a device that the kernel removes. Nothing uses it any more.
func (s *Server) remove(i Info) error {
	s.mu.Lock()
	d := s.devices[i.Minor]
	delete(s.devices, i.Minor)
	delete(s.repairs, i.Minor)
	s.mu.Unlock()
	if d == nil {
		return nil // it could not be opened; then it may go
	}
	ctx, cancel := context.WithTimeout(s.calm, s.opt.CloseTimeout)
	defer cancel()
	if err := d.Close(ctx); err != nil {
		s.log.Warn("a device was not closed cleanly", "device", i.String(), "error", err)
	}
	return nil
}

func (s *Server) reconfigure(i Info, c Change) error {
	d := s.device(i.Minor)
	if d == nil {
		return syscall.ENODEV
	}
	now := d.Info()
	if c.Config != nil {
		subtype, config := cutConfig(*c.Config)
		if subtype != now.Subtype {
			return fmt.Errorf("a device of subtype %q cannot become one of %q: %w", now.Subtype, subtype, syscall.EINVAL)
		}
		c.Config = &config
	}
	if c.apply(now) == now {
		return nil
	}
	d.mu.Lock()
	h := d.handler
	d.mu.Unlock()
	r, ok := h.(Reconfigurer)
	if !ok {
		return fmt.Errorf("%s: %s: %w", now, c, syscall.EOPNOTSUPP)
	}
	if err := r.Reconfigure(c); err != nil {
		return err
	}
	d.mu.Lock()
	d.info = c.apply(d.info)
	d.mu.Unlock()
	return nil
}
