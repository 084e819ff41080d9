// Package admin runs an array as a daemon and talks to one: the configuration
// file, the order of start and stop, the exports, the HTTP interface on the
// folder's admin.sock and its client, and what the command line prints.
package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/history"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/link"
	"github.com/arraysim/arraysim/internal/profile"
)

// Environment is what a daemon has around it.
type Environment struct {
	Out io.Writer // what people read: the ready line and what to try next
	// Command is how this program was called, for what to try next; empty is arraysim.
	Command string
	Log     *slog.Logger
	// Hurry ends a stop that is under way: dirty data stays in NVRAM.
	Hurry <-chan struct{}
}

// blobCounters is the name under which the array keeps the host layer's counters.
const blobCounters = "scsi.counters"

const (
	saveInterval    = 10 * time.Second
	sessionTimeout  = 10 * time.Second // for the commands under way when the daemon stops
	productName     = "ARRAYSIM"
	productRevision = "0001"
)

// daemon is an array, its doors, and what keeps them going.
type daemon struct {
	cfg  *Config
	env  Environment
	log  *slog.Logger
	data *folder

	profile  *profile.Profile    // nil: none
	chap     *iscsi.CHAP         // loaded by preflight; nil asks for none
	groups   []*ioGroup          // from open on; at least one
	first    *block.Live         // the executor of the first group, also before that is open
	naming   sync.Mutex          // guards names; no executor is taken with it held
	names    map[string]*ioGroup // what is being made, by kind and name
	changing sync.Mutex          // held, before keeping, over a change of all groups
	portal   *iscsi.Portal
	links    *link.Server // nil: there are no other nodes
	peers    []*link.CopyClient
	forward  *forwarding // while another node has the array, and until this one lets hosts in; nil: never
	front    atomic.Pointer[front]
	kernel   *kernelDoor   // nil without --tcmu
	moves    moves         // to other nodes
	follows  bool          // this process had the array before, and has given it to another node
	shown    string        // which array it was then; "": none
	connects radosConnects // nil: librados; for tests

	passed                  passedSockets
	ending                  *ending
	starting                atomic.Pointer[StartStatus] // nil: nothing is known of the start
	opened                  atomic.Bool                 // groups has all that there are
	endWatchdog             func()                      // set when the daemon is ready
	unheard                 sync.Once
	opening                 *opening // nil: of a store that is no pool
	lines                   *lines   // of such a store; nil: there is none
	portalAddr, metricsAddr net.Addr
	portAddrs               []net.Addr // by relative target port identifier, from firstPort
	admin, metrics          *http.Server
	closing                 chan struct{} // closed when the stop begins
	close                   sync.Once     // of closing
	failed                  chan error    // a door that ended by itself
	background              sync.WaitGroup

	api     http.Handler
	audit   *auditLog
	events  events
	history *history.History

	findings *findings

	changeMu sync.Mutex
	stopping bool           // guarded by changeMu: no further changes begin
	changes  sync.WaitGroup // changes under way
}

// Serve runs an array until ctx ends, then stops it: sessions are closed, dirty
// data is destaged, counters are saved.
func Serve(ctx context.Context, cfg *Config, env Environment) error {
	return newDaemon(cfg, env).serve(ctx)
}

func newDaemon(cfg *Config, env Environment) *daemon {
	return &daemon{cfg: cfg, env: env, log: env.Log, ending: newEnding(), closing: make(chan struct{}), failed: make(chan error, 3), names: map[string]*ioGroup{}, moves: moves{leave: make(chan struct{}), limit: moveLimit}}
}

// work is all that the daemon does; see run.
func (d *daemon) work(ctx context.Context) (err error) {
	moved := false
	defer d.leavePeers()
	if !d.follows {
		err = d.preflight()
	}
	if err == nil && d.cfg.Node != nil && d.cfg.Node.Forward != "" {
		return d.forwardOnly(ctx)
	}
	defer func() { d.lines.end() }()
	defer func() {
		switch {
		case moved: // its sessions are its successor's
		case errors.Is(err, block.ErrFenced), d.hurried():
			d.front.Load().cut()
		default:
			d.front.Load().endNaming(d.waitsFor)
		}
		d.endForward()
		if !moved {
			d.endNext()
		}
	}()
	if err == nil {
		d.notify("STATUS=Recovering the array")
		err = d.open(ctx)
	}
	if err == nil {
		err = d.listen()
	}
	d.opening.end()
	if err == nil {
		err = d.data.opened()
	}
	ready := err == nil
	if ready {
		d.greet()
		d.endWatchdog = d.startWatchdog()
		d.notifyReady()
		select {
		case <-ctx.Done():
		case <-d.moves.leave:
			moved = true
		case err = <-d.failed:
			if errors.Is(err, block.ErrFenced) {
				d.forsake(err)
				return err
			}
			d.log.Error("a listener ended", "error", err)
		}
	}
	switch {
	case len(d.groups) > 0:
		ended := d.stop(ready)
		moved = moved && ended == nil && err == nil && !d.hurried()
		if errors.Is(ended, block.ErrFenced) { // others have the array: there is nothing to bring into order
			d.forsake(ended)
			return ended
		}
		err = errors.Join(err, ended)
	case d.data != nil && d.data.store != nil: // nobody else must find it locked, such as another node
		d.ending.begin() // the stop's limits are this one's, too
		d.ending.at("closing the store of a start that failed")
		d.first.Stop()
		err = errors.Join(err, d.data.close())
	}
	if d.data != nil {
		d.data.removeSocket()
	}
	if moved {
		return errMoved
	}
	if !ready && onlyCanceled(err) {
		d.log.Info("stopped before it took the array")
		return nil
	}
	return err
}

// open recovers the array, group by group, and makes units of its volumes.
func (d *daemon) open(ctx context.Context) error {
	notice := func(line string) { d.log.Warn(line) }
	exec := block.NewLive()
	d.first = exec
	d.data = &folder{path: d.cfg.Data, kind: d.cfg.Store, memory: d.cfg.Store == storeMemory}
	n, err := d.data.countGroups(d.cfg)
	switch {
	case err != nil:
		return err
	case d.cfg.Store == storeRados:
		d.data, err = d.openRados(ctx, exec)
	default:
		err = d.data.open(exec, d.cfg.AIO, n, notice)
	}
	if err != nil {
		return err
	}
	for i := range n {
		data := d.data
		if i > 0 {
			exec = block.NewLive()
			d.notify(fmt.Sprint("STATUS=Recovering I/O group ", i))
			if data, err = d.openPart(i, n, exec, notice); err != nil {
				exec.Stop()
				return err
			}
		}
		g, err := d.openGroup(ctx, data, exec)
		switch {
		case g != nil:
			d.groups = append(d.groups, g)
		case i > 0: // that of the first one is known
			exec.Stop()
			err = errors.Join(err, data.close())
		}
		if err != nil {
			return err
		}
	}
	d.joinCopies()
	if err := d.linkPeers(); err != nil {
		return err
	}
	d.sameNames()
	if err := d.configure(); err != nil {
		return err
	}
	for _, g := range d.groups {
		g.show()
	}
	d.opened.Store(true)
	return nil
}

// openPart opens the folder of a further I/O group, one of n.
func (d *daemon) openPart(number, n int, exec *block.Live, notice func(line string)) (*folder, error) {
	id, err := d.data.name()
	if err != nil {
		return nil, err
	}
	f, err := d.data.part(number, id)
	if err == nil {
		err = f.open(exec, d.cfg.AIO, n, notice)
	}
	return &f, err
}

func (d *daemon) serveHTTP(name string, l net.Listener, h http.Handler) *http.Server {
	s := &http.Server{Handler: promptly(h, answerTime), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelWarn)}
	if b, ok := l.(*boundedListener); ok {
		s.ConnState = b.note
	}
	d.background.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			d.fail(fmt.Errorf("the %s endpoint ended: %w", name, err))
		}
	})
	return s
}

func (d *daemon) fail(err error) {
	select {
	case d.failed <- err:
	default:
	}
}

// rootCause strips what the net package says twice.
func rootCause(err error) error {
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		return sys.Err
	}
	return err
}

func loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// await calls fn on an executor and waits for its callback.
func await(x block.Executor, fn func(done func(error))) error {
	end := make(chan error, 1)
	x.Lock()
	fn(func(err error) { end <- err })
	x.Unlock()
	return <-end
}

// keepCounters saves the host layer's counters from time to time; the array keeps
// its own.
func (d *daemon) keepCounters() {
	t := time.NewTicker(saveInterval)
	defer t.Stop()
	for {
		select {
		case <-d.closing:
			return
		case <-t.C:
		}
		if err := d.saveCounters(); err != nil {
			d.log.Error("the host counters cannot be saved", "error", err)
		}
	}
}

// beginChange tells whether a change of objects may begin; d.changes.Done ends it.
func (d *daemon) beginChange() bool {
	d.changeMu.Lock()
	defer d.changeMu.Unlock()
	if !d.stopping {
		d.changes.Add(1)
	}
	return !d.stopping
}

// until returns a context that ends with ctx, and when stop is closed.
func until(ctx context.Context, stop <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (d *daemon) saveCounters() (err error) {
	for _, g := range d.groups {
		err = errors.Join(err, g.saveCounters())
	}
	return err
}

// dirty returns the bytes that no group has destaged yet.
func (d *daemon) dirty() (n Size) {
	for _, g := range d.groups {
		n += g.dirty()
	}
	return n
}

// stop ends the daemon in good order, or one that was never ready, which has
// nothing to destage. Hurry cuts it short at any point.
func (d *daemon) stop(ready bool) error {
	if d.moves.heir() == nil {
		d.notify("STOPPING=1", "STATUS=Closing sessions")
	}
	d.beginStop()
	end := make(chan error, 1)
	go func() { end <- d.windDown(ready) }()
	for {
		select {
		case err := <-end:
			return err
		case err := <-d.failed:
			if errors.Is(err, block.ErrFenced) {
				return err
			}
			d.log.Error("a listener ended", "error", err)
		case <-d.env.Hurry:
			left := "unknown: an executor is held"
			if dirty, ok := soon(d.dirty); ok {
				left = dirty.Human()
			}
			d.log.Warn("stopped at once", "dirty", left, "where", "in NVRAM; the next start finds it")
			if d.kernel != nil { // a process that just ended would leave the kernel blocked
				d.kernel.forsake()
			}
			return nil
		}
	}
}

// beginStop says that the daemon stops: nothing begins any more.
func (d *daemon) beginStop() {
	d.ending.begin()
	d.close.Do(func() { close(d.closing) })
	d.changeMu.Lock()
	d.stopping = true
	d.changeMu.Unlock()
}

// forsake ends a daemon whose array has a new owner: there is nothing that it could bring into order. Sessions are cut off,
// so that hosts look for another path. It waits for nothing.
func (d *daemon) forsake(why error) {
	d.log.Error("the array has a new owner; this process no longer serves it, and ends", "error", why)
	d.notify("STOPPING=1", "STATUS=The array has a new owner")
	d.beginStop()
	if d.kernel != nil {
		d.kernel.forsake()
	}
	if d.portal != nil {
		d.front.Load().cut()
		if d.links != nil {
			d.links.Cut()
		}
	}
	for _, s := range []*http.Server{d.admin, d.metrics} {
		if s != nil {
			s.Close()
		}
	}
	d.data.removeSocket()
}

// endForward ends what forwards to another node, if anything does.
func (d *daemon) endForward() {
	if d.forward != nil {
		d.forward.end()
	}
}

// unguessable fills b with random bytes.
func unguessable(b []byte) { _, _ = rand.Read(b) } // crypto/rand.Read never fails

// hurried reports whether whoever stops the daemon does not wait for dirty data.
func (d *daemon) hurried() bool {
	select {
	case <-d.env.Hurry:
		return true
	default:
		return false
	}
}

func (d *daemon) windDown(ready bool) error {
	at := d.ending.at
	if d.kernel != nil {
		at("closing the TCMU front end")
		d.log.Info("stopping: closing the TCMU front end", "devices", len(d.kernel.server.Devices()))
		d.kernel.close()
	}
	if d.portal != nil {
		at("closing sessions")
		if heir := d.moves.heir(); heir != nil {
			d.log.Info("the array moves", "node", heir.Name, "id", heir.ID, "sessions", len(d.portal.Sessions()))
			if err := d.front.Load().leave(); err != nil {
				d.log.Warn("sessions did not end their commands in progress", "error", err)
			}
			d.standBehind()
		} else {
			d.log.Info("stopping: closing sessions", "sessions", len(d.portal.Sessions()))
			d.front.Load().endNaming(d.waitsFor)
		}
		if d.links != nil {
			ctx, cancel := context.WithTimeout(context.Background(), sessionTimeout)
			if !d.links.Shutdown(ctx) {
				d.log.Warn("commands that other nodes forwarded did not end in time; the stop continues")
			}
			cancel()
		}
	}
	at("ending the links to other arrays")
	d.leavePeers()
	at("ending changes")
	for _, g := range d.groups {
		g.withdraw()
	}
	d.data.stopWaiting()
	d.changes.Wait()
	for _, g := range d.groups {
		g.revoke()
	}
	if ready && !d.hurried() && d.moves.heir() == nil { // the log of an array that moves is the next owner's, too
		d.drain()
	}
	at("ending the page, the API and what records")
	for _, s := range []*http.Server{d.admin, d.metrics} {
		if s != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			if s.Shutdown(ctx) != nil {
				s.Close()
			}
			cancel()
		}
	}
	d.background.Wait()
	var err error
	at("saving counters")
	if ready {
		err = d.saveCounters()
	}
	if d.audit != nil {
		err = errors.Join(err, d.audit.close())
	}
	err = errors.Join(err, d.stopArrays())
	left := d.dirty()
	at("closing the stores")
	if ready {
		d.endWatchdog()
	}
	if heir := d.moves.heir(); heir != nil && err == nil {
		d.data.handTo(fmt.Sprint(heir.ID))
	}
	for _, g := range slices.Backward(d.groups) { // the first one's folder is locked until all others are closed
		err = errors.Join(err, g.close())
		at("closing the stores")
	}
	switch {
	case err == nil && left > 0 && d.moves.heir() == nil:
		d.log.Info("stopped", "left", left.Human(), "where", "in NVRAM; the next start finds it")
	case err == nil:
		d.log.Info("stopped")
	}
	return err
}

// beside has something done in all groups at once, since none waits for another's mdisks, and waits until all have ended.
func (d *daemon) beside(fn func(g *ioGroup) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(d.groups))
	for i, g := range d.groups {
		all.Go(func() { errs[i] = fn(g) })
	}
	all.Wait()
	return errors.Join(errs...)
}
