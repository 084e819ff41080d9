package tcmu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Link is the way to the kernel's side of one ring: a UIO device, or a fake one
// (see package tcmutest).
type Link interface {
	// Memory is the mapping: mailbox, command ring and data area.
	Memory() []byte
	// Wait returns when the kernel has announced entries since the last Wait, or
	// with an error when there will be none any more.
	Wait() error
	// Notify has the kernel look at the tail. It works in the caller's context and
	// copies the data of commands that read.
	Notify() error
	// Stop makes Wait return, now and ever.
	Stop() error
	// Close gives up the mapping. Nothing is called after it.
	Close() error
}

// Handler serves the commands of one device.
type Handler interface {
	// Serve gets commands that one look at the ring brought, in their order: a handful
	// at a time. It may complete them there and then, or later. The slice is valid until it
	// returns. The kernel is told of all completions at once, when Serve has returned.
	Serve(batch []*Command)
	// Close is called after the last command has ended, once.
	Close()
}

// TaskManager is a Handler that hears of task management.
type TaskManager interface {
	// Manage is called in the order of the ring: after Serve of all commands before it.
	Manage(TMR)
}

// TMR tells of task management that the kernel has carried out: the initiators
// do not wait for the commands any more, but the kernel waits for the handler to
// complete them, with whatever status.
type TMR struct {
	// Function is what was done, TMRAbortTask...
	Function uint8
	// IDs are the commands concerned, of those that have not been completed.
	IDs []uint16
}

// Functions of task management: TCMU_TMR_...
const (
	TMRAbortTask       = 1
	TMRAbortTaskSet    = 2
	TMRClearACA        = 3
	TMRClearTaskSet    = 4
	TMRLUNReset        = 5
	TMRTargetWarmReset = 6
	TMRTargetColdReset = 7
	TMRLUNResetPRO     = 128 // by PERSISTENT RESERVE OUT, PREEMPT AND ABORT
)

// Errors that end Device.Serve.
var (
	// ErrRing means that the ring holds what no kernel writes; nothing further can
	// be read from it.
	ErrRing = errors.New("tcmu: the ring is damaged")
	// ErrFault means that memory of a command was taken away before or while it was used, or that the
	// tail is not where it was left: somebody reset the ring under the handler.
	ErrFault = errors.New("tcmu: the data area was removed")
	// ErrStopped means that the device was closed.
	ErrStopped = errors.New("tcmu: the device is closed")
)

// Device is one unit of the kernel whose commands are served here. Hold, Flush and
// the methods of its commands may be called from any goroutine.
type Device struct {
	link       Link
	mem        []byte
	mb         *mailbox
	ring       []byte // the command ring in mem
	data       uint64 // where the data area begins in mem
	caps       uint16
	freeKept   func(id uint16) error
	attributes attributes

	cursor   uint32        // of the next entry; Serve's goroutine alone
	batch    []*Command    // the same
	alone    bool          // the same: there is one processor for all goroutines
	work     int           // the same: what was done since the clock was read, in bytes
	rested   time.Time     // the same: when others could run last
	notifier chan struct{} // wakes the goroutine that notifies in Serve's place

	mu    sync.Mutex
	info  Info     // guarded by mu
	slots slots    // guarded by mu: entries from the tail to cursor
	tail  uint32   // guarded by mu: where it was left. Only a reset of the ring moves it elsewhere
	lost  bool     // guarded by mu: the ring was reset, and nothing in it is this device's any more
	free  *Command // guarded by mu: by next
	live  *Command // guarded by mu: by next
	count int      // guarded by mu: live ones
	idle  chan struct{}

	serving chan struct{} // guarded by mu; closed when Serve has returned
	handler Handler       // guarded by mu

	held    atomic.Int32 // Hold calls without Flush
	dirty   atomic.Bool  // the tail moved since the last Notify began
	wakeups atomic.Int32 // Notify calls that are wanted
	stopped atomic.Bool
	failure atomic.Pointer[error] // of Notify or Guard
}

// Attach takes over a ring. Its commands wait until Serve is called.
func Attach(link Link, info Info) (*Device, error) {
	mem := link.Memory()
	mb, err := checkMailbox(mem)
	if err != nil {
		return nil, err
	}
	off, size := uint64(mb.cmdrOff), uint64(mb.cmdrSize)
	d := &Device{info: info, link: link, mem: mem, mb: mb, ring: mem[off : off+size], data: off + size, caps: mb.flags, cursor: mb.tail()}
	d.tail = d.cursor
	if uint64(d.cursor) >= size || d.cursor%entryAlign != 0 {
		return nil, ErrRing
	}
	if mb.flags&capOutOfOrder == 0 {
		return nil, errors.New("tcmu: the kernel accepts completions in order only; use Linux 4.0 or later")
	}
	d.attributes = configfs{"/", tree("/").folder(info)}
	if a, ok := link.(attributes); ok {
		d.attributes = a
	}
	if f, ok := link.(interface{ FreeKept(id uint16) error }); ok {
		d.freeKept = f.FreeKept
	}
	return d, nil
}

// Info returns what the device is now.
func (d *Device) Info() Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.info
}

// String names the device as the kernel does.
func (d *Device) String() string { return d.Info().String() }

// Serve gives the ring's commands to h until the device is closed, which it
// reports as ErrStopped, or something ends it. It keeps the thread that it is on.
func (d *Device) Serve(h Handler) error {
	if !d.begin(h) {
		h.Close()
		return ErrStopped
	}
	return d.serve()
}

// begin registers the handler of a serve that is about to come, so that a Close in
// between waits for it. It tells whether the device is not closed already.
func (d *Device) begin(h Handler) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.handler != nil {
		panic("tcmu: Serve is called twice")
	}
	if d.stopped.Load() {
		return false
	}
	d.handler, d.serving = h, make(chan struct{})
	return true
}

// processors is what this process may run on; tests change it.
var processors = runtime.NumCPU

func (d *Device) serve() (err error) {
	h := d.handler
	defer close(d.serving)
	defer d.startNotifier()()
	if d.alone = processors() == 1; !d.alone {
		// This goroutine spends its life in poll, with a thread of its own in any case. If it moved to another each
		// time that it lets others run, the kernel would move it among processors, away from what it has in their
		// caches. On a single processor that would only make each change of goroutine one of threads.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	debug.SetPanicOnFault(true)
	defer func() {
		if r := recover(); r != nil {
			if err = d.faulted(r); err == nil {
				panic(r)
			}
		}
	}()
	for {
		more, err := d.serveReady(h)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		if err := d.link.Wait(); err != nil {
			if d.stopped.Load() {
				return ErrStopped
			}
			return fmt.Errorf("tcmu: waiting for commands: %w", err)
		}
		if d.stopped.Load() {
			return ErrStopped
		}
	}
}

// restEvery is the time after which Serve's goroutine lets others run. The Go runtime takes the processor
// from one that has not done so for 10 ms, as it may at any system call, and then looks
// for more to take every 20 microseconds for a while: for ever, if this happens every 10 ms. In an
// emulated processor these looks took more time than the commands.
const restEvery = 4 * time.Millisecond

// rest lets others run when it is time, after commands with so many bytes. The clock, too, is a
// system call in some machines: it is read once for so much work as takes part of restEvery.
func (d *Device) rest(commands, bytes int) {
	if d.work += commands*commandBytes + bytes; d.work < portionBytes {
		return
	}
	d.work = 0
	if now := time.Now(); now.Sub(d.rested) > restEvery {
		runtime.Gosched()
		d.rested = now
	}
}

// faulted makes an error of a panic that was an access to memory of the mapping.
func (d *Device) faulted(r any) error {
	f, ok := r.(interface{ Addr() uintptr })
	if !ok {
		return nil
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(d.mem)))
	if f.Addr() < start || f.Addr()-start >= uintptr(len(d.mem)) {
		return nil
	}
	return ErrFault
}

// Guard runs fn, which reads or fills memory of commands, on any goroutine. If that memory was taken
// away it returns ErrFault, and Serve ends with the same error: fn has stopped halfway, and the
// command has to be completed nevertheless. Other panics pass. Without Guard a fault ends Serve if it
// happens on its goroutine, where a handler must hold no lock, and the process elsewhere.
func (d *Device) Guard(fn func()) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if r := recover(); r != nil {
			fault := d.faulted(r)
			if fault == nil {
				panic(r)
			}
			d.failure.Store(&fault)
			err = fault
		}
	}()
	fn()
	return nil
}

// startNotifier starts the goroutine that notifies in Serve's place. What it returns ends that,
// after all that was asked for.
func (d *Device) startNotifier() (stop func()) {
	d.notifier = make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range d.notifier {
			d.notify()
		}
	}()
	return func() {
		close(d.notifier)
		<-done
	}
}

// serveReady serves what is in the ring now and tells whether that was anything.
func (d *Device) serveReady(h Handler) (more bool, err error) {
	d.Hold()
	defer d.Flush()
	tmr, found, err := d.fetch()
	for rest := d.batch; len(rest) > 0; {
		n, bytes := d.portion(rest)
		h.Serve(rest[:n])
		switch rest = rest[n:]; {
		case len(rest) == 0 || !d.dirty.Load():
		case bytes < portionBytes || d.alone:
			d.notify()
		default:
			select {
			case d.notifier <- struct{}{}:
			default: // it has not looked yet
			}
		}
		d.rest(n, bytes)
	}
	clear(d.batch)
	d.batch = d.batch[:0]
	if tmr != nil {
		if m, ok := h.(TaskManager); ok {
			m.Manage(*tmr)
		}
	}
	if f := d.failure.Load(); err == nil && f != nil && !d.stopped.Load() {
		err = *f
	}
	return found, err
}

// What one look at the ring brought is served in portions of so many commands, or of so
// many bytes. While a portion is served, the kernel takes the completions of the one before, and
// initiators send more: with all at once the two sides would wait for each other in turns. On a
// single processor they take turns anyway, and each turn costs a change of context: portions are
// larger there.
const (
	portionCommands = 8
	portionBytes    = 256 << 10
	// commandBytes is what a command costs besides its data, in bytes.
	commandBytes = 16 << 10

	aloneCommands = 64
	aloneBytes    = 4 << 20
)

// portion returns how many of the commands are served next, and how much data they have.
func (d *Device) portion(batch []*Command) (n, bytes int) {
	commands, limit := portionCommands, portionBytes
	if d.alone {
		commands, limit = aloneCommands, aloneBytes
	}
	for ; n < len(batch) && n < commands && bytes < limit; n++ {
		bytes += batch[n].Len()
	}
	return n, bytes
}

// Hold puts off telling the kernel of completions until as many Flush calls have
// followed.
func (d *Device) Hold() { d.held.Add(1) }

// Flush ends a Hold.
func (d *Device) Flush() {
	if d.held.Add(-1) == 0 && d.dirty.Load() {
		d.notify()
	}
}

// notify has the kernel take the completions. While one goroutine is at it, the
// others only ask for another round.
func (d *Device) notify() {
	if d.wakeups.Add(1) != 1 {
		return
	}
	for {
		n := d.wakeups.Load()
		d.dirty.Store(false)
		if err := d.link.Notify(); err != nil && !d.stopped.Load() {
			failure := fmt.Errorf("tcmu: notifying the kernel of completions: %w", err)
			d.failure.Store(&failure)
		}
		if d.wakeups.CompareAndSwap(n, 0) {
			return
		}
	}
}

// Quiesce waits until no command is in progress, or for ctx.
func (d *Device) Quiesce(ctx context.Context) error {
	d.mu.Lock()
	if d.count == 0 {
		d.mu.Unlock()
		return nil
	}
	if d.idle == nil {
		d.idle = make(chan struct{})
	}
	idle, n := d.idle, d.count
	d.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("tcmu: %s: %d commands are still in progress", d, n)
	}
}

// Close ends Serve, waits until all commands in progress have ended, closes the
// handler, and gives up the mapping. When ctx ends first it returns with an error,
// and the rest happens in the background once the last command has ended.
func (d *Device) Close(ctx context.Context) error {
	if d.stopped.Swap(true) {
		return nil
	}
	err := d.link.Stop()
	if late := d.settle(ctx); late != nil {
		go func() {
			_ = d.settle(context.Background())
			_ = d.end()
		}()
		return errors.Join(err, late)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.end() }()
	select {
	case e := <-ended:
		return errors.Join(err, e)
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("tcmu: %s: the handler is not closed yet", d))
	}
}

// settle waits until Serve has returned and no command is in progress, or for ctx.
func (d *Device) settle(ctx context.Context) error {
	d.mu.Lock()
	serving := d.serving
	d.mu.Unlock()
	if serving != nil {
		select {
		case <-serving:
		case <-ctx.Done():
			return fmt.Errorf("tcmu: %s: the handler is still at work", d)
		}
	}
	return d.Quiesce(ctx)
}

func (d *Device) end() error {
	d.mu.Lock()
	h := d.handler
	d.mu.Unlock()
	if h != nil {
		h.Close()
	}
	return d.link.Close()
}

// served reports whether Serve goes on.
func (d *Device) served() bool {
	d.mu.Lock()
	serving := d.serving
	d.mu.Unlock()
	if serving == nil {
		return false
	}
	select {
	case <-serving:
		return false
	default:
		return true
	}
}

// drain waits until the kernel has had an answer to all that it put in the ring,
// while Serve goes on. Without that, there will be none.
func (d *Device) drain(ctx context.Context) error {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for d.mb.head() != d.mb.tail() && d.served() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("tcmu: %s: commands are still in progress", d)
		case <-t.C:
		}
	}
	return nil
}
