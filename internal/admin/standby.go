package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
)

// A process that opens an array in a pool may wait for long: for another one that has it, for the cluster, for its recovery.
// Until it serves there is nothing of it but its state: for systemd, which would end a start that takes too long, and on the
// admin socket, where GET /api/v1/status answers, and nothing else.

// How often systemd hears of such a process, and for how long it is asked to wait then.
const (
	openingEvery = 10 * time.Second
	openingMore  = 60 * time.Second
)

// opening is the state of a process that opens an array in a pool. Who calls see and has waits for nobody: those who hear of
// news, systemd and the links to other nodes, do so from goroutines of their own.
type opening struct {
	d     *daemon
	data  *folder
	every time.Duration
	alone bool // nobody else can have the array: see showStart
	// canceled: the process is to end; systemd is asked for no more time, and ends it where it does not.
	canceled <-chan struct{}

	telling sync.Mutex // one says something at a time
	told    string     // to systemd; guarded by telling

	following sync.Mutex // held while the links to other nodes are made
	mute      bool       // that it cannot forward was said; guarded by following

	mu    sync.Mutex
	seen  rados.Standby // guarded by mu
	store *folder       // whose array this process has; nil: it has none yet; guarded by mu
	http  *http.Server  // nil: it is not shown; guarded by mu

	news, owners chan struct{} // there is something for systemd, and for the links
	over         chan struct{}
	close        sync.Once // of over
	loops        sync.WaitGroup
}

func newOpening(d *daemon) *opening {
	return &opening{d: d, every: openingEvery, seen: rados.Standby{Epoch: -1, Age: -1}, news: make(chan struct{}, 1), owners: make(chan struct{}, 1),
		over: make(chan struct{})}
}

// openRados opens an array in a pool, and shows what it waits for until it serves.
func (d *daemon) openRados(ctx context.Context, exec block.Executor) (*folder, error) {
	d.opening, d.lines = newOpening(d), newLines(d.log)
	d.opening.canceled = ctx.Done()
	if d.follows {
		if err := d.opening.standBehind(); err != nil {
			return nil, err
		}
	}
	f, err := openRados(exec, d.cfg, radosHooks{notice: d.lines.say, lost: d.fail, canceled: ctx.Done(), begins: d.opening.begin, eager: d.eager, connect: d.connects})
	if err == nil {
		d.opening.has(f)
		d.opening.following.Lock() // a link that is being made is there, and no other one is made behind it
		defer d.opening.following.Unlock()
		if d.forward != nil {
			d.forward.client.Stop() // nobody carries out any more what was on its way: the former owner is fenced
		}
	}
	return f, err
}

// standBehind has the sessions of a process that has given its array away wait for the next owner, before anything is known of that.
func (o *opening) standBehind() (err error) {
	if o.d.forward == nil {
		if o.d.forward, err = o.d.newForwarding(); err != nil {
			return err
		}
	}
	if err = o.d.forward.listenMetrics(); err == nil {
		o.loops.Go(o.signsOfLife)
	}
	return err
}

// signsOfLife keep systemd's watchdog from ending a service that is ready, though this process stands by.
func (o *opening) signsOfLife() {
	limit, err := sd.SdWatchdogEnabled(false)
	if err != nil || limit == 0 {
		return
	}
	t := time.NewTicker(limit / 2)
	defer t.Stop()
	for {
		o.d.notify("WATCHDOG=1")
		select {
		case <-t.C:
		case <-o.over:
			return
		}
	}
}

// eager reports whether hosts of this node wait for an array that moves.
func (d *daemon) eager() bool { return d.front.Load().waiting() }

// begin shows the state from now on, and returns who hears of what the process waits for. The folder is locked.
func (o *opening) begin(f *folder) func(rados.Standby) {
	o.serve(f)
	o.loops.Go(o.tellNews)
	o.loops.Go(func() {
		for {
			select {
			case <-o.over:
				return
			case <-o.owners:
				o.forward()
			}
		}
	})
	return o.see
}

// serve shows the state on the admin socket of a folder.
func (o *opening) serve(f *folder) {
	o.data = f
	l, err := f.listen()
	if err != nil {
		o.d.log.Warn("nobody can ask this process for its state before it serves", "error", err)
		return
	}
	o.mu.Lock()
	o.http = o.d.serveHTTP("admin", l, o)
	o.mu.Unlock()
}

// tellNews tells systemd what changes, and every now and then that the process goes on.
func (o *opening) tellNews() {
	t := time.NewTicker(o.every)
	defer t.Stop()
	for again := true; ; {
		o.tell(again)
		select {
		case <-o.over:
			return
		case <-o.canceled:
			return
		case <-t.C:
			again = true
		case <-o.news:
			again = false
		}
	}
}

// see is told what the process waits for. It is called by the thread that renews the lease, too.
func (o *opening) see(seen rados.Standby) {
	o.mu.Lock()
	o.seen = seen
	o.mu.Unlock()
	poke(o.news)
	poke(o.owners)
}

// has is told that the process has the array of a folder, which it recovers now.
func (o *opening) has(f *folder) {
	o.mu.Lock()
	o.store, o.seen = f, rados.Standby{Epoch: -1, Age: -1}
	o.mu.Unlock()
	poke(o.news)
}

// forward has the commands of this node's hosts carried to the owner, unless this process has the array.
func (o *opening) forward() {
	o.following.Lock()
	defer o.following.Unlock()
	o.mu.Lock()
	seen, has := o.seen, o.store != nil
	o.mu.Unlock()
	d := o.d
	if d.cfg.Node == nil || seen.Link == "" || has {
		return
	}
	if d.forward == nil {
		f, err := d.newForwarding()
		if err != nil {
			if !o.mute {
				d.log.Error("this node stands by, and cannot forward", "error", err)
			}
			o.mute = true
			return
		}
		o.mu.Lock()
		d.forward = f
		o.mu.Unlock()
	}
	d.forward.follow(seen.Link)
}

// tell asks systemd to wait for longer, again or where there is something new, unless the wait is over: a process that
// serves, or ends, says so by itself.
func (o *opening) tell(again bool) {
	o.telling.Lock()
	defer o.telling.Unlock()
	if isClosed(o.over) || isClosed(o.canceled) {
		return
	}
	o.mu.Lock()
	text := "Opening the array in the pool"
	switch {
	case o.seen.Trouble != "":
		text = "Waiting for the cluster: " + o.seen.Trouble
	case o.store != nil:
		text = "Recovering the array"
	case o.seen.Taking:
		text = "Taking the array over"
	case o.seen.Owner != "":
		text = fmt.Sprintf("Standing by: the array is open in %s, epoch %s", o.seen.Owner, epochText(known(o.seen.Epoch)))
	}
	o.mu.Unlock()
	if !again && text == o.told {
		return
	}
	o.told = text
	o.d.notify(fmt.Sprint("EXTEND_TIMEOUT_USEC=", openingMore.Microseconds()), "STATUS="+text)
}

// hide closes the admin socket, which is to be the array's.
func (o *opening) hide() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.http != nil {
		o.http.Close()
		o.data.removeSocket()
		o.http = nil
	}
}

// end says that the wait is over, whatever its end.
func (o *opening) end() {
	if o == nil {
		return
	}
	o.hide()
	o.telling.Lock() // nothing is said behind this
	o.close.Do(func() { close(o.over) })
	o.telling.Unlock()
	o.loops.Wait()
}

// status describes the array's ownership.
func (o *opening) status() *OwnershipStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &OwnershipStatus{State: StateOpening, Epoch: known(o.seen.Epoch)}
	switch {
	case o.store != nil:
		if own := o.store.ownership(); own != nil {
			s = own
			s.State = StateOpening
		}
	case o.seen.Taking:
		s.State = StateTakingOver
	case o.seen.Owner != "":
		s = &OwnershipStatus{State: StateStandingBy, Owner: o.seen.Owner, Epoch: known(o.seen.Epoch), LeaseAge: leaseAge(o.seen.Age)}
	}
	s.troubled(o.seen.Trouble, o.seen.Since)
	return s
}

// ServeHTTP answers with the state.
func (o *opening) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	own := o.status()
	if o.alone {
		own = nil
	}
	o.mu.Lock()
	forward := o.d.forward
	o.mu.Unlock()
	if r.Method != http.MethodGet || r.URL.Path != apiPath+"/status" {
		why := "this process is opening the array, and does not serve it yet; ask again"
		if own != nil && own.State == StateStandingBy {
			why = "this process stands by: the array is open in " + own.Owner + "; ask that one"
		}
		writeProblem(w, http.StatusServiceUnavailable, why)
		return
	}
	c := o.d.cfg
	w.Header().Set("Content-Type", "application/json")
	status := &Status{Version: Version(), PID: os.Getpid(), Data: c.Data, Store: c.Store, Portal: listenNone, Target: c.Portal.Target,
		Targets: []string{}, Mirrored: true, Ownership: own, Start: o.d.starting.Load()}
	if forward != nil {
		status.Portal, status.Targets, status.Nodes = forward.portalName(), []string{c.Portal.Target}, forward.nodes()
	}
	_ = json.NewEncoder(w).Encode(status) // an error here means that the client has gone
}
