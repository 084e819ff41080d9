package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
)

// A standby has no array, and so none of what shows one. All that there is of it is its state: for systemd, which
// would end a start that takes too long, and on the admin socket, where GET /api/v1/status answers, and nothing else.

// How often systemd hears of a standby, and for how long it is asked to wait then.
const (
	standbyEvery = 10 * time.Second
	standbyMore  = 60 * time.Second
)

// standby is the state of a process that opens an array which another one may have.
type standby struct {
	d    *daemon
	data *folder

	mu     sync.Mutex
	seen   rados.Standby // guarded by mu
	waits  bool          // it has seen an owner; guarded by mu
	mute   bool          // that it cannot forward was said; of who calls see
	http   *http.Server  // nil: it is not shown; guarded by mu
	over   chan struct{}
	ticker sync.WaitGroup
}

// openRados opens an array in a pool, and shows what it waits for until it has it.
func (d *daemon) openRados(ctx context.Context, exec block.Executor, notice func(line string)) (*folder, error) {
	s := &standby{d: d, over: make(chan struct{})}
	f, err := openRados(exec, d.cfg, radosHooks{notice: notice, lost: d.fail, cancel: func() bool { return ctx.Err() != nil },
		stands: s.begin})
	s.end()
	if err == nil && d.forward != nil {
		d.forward.client.Stop() // nobody carries out any more what was on its way: the former owner is fenced
	}
	return f, err
}

// begin has systemd wait from now on, and returns who hears of the array's owner.
func (s *standby) begin(f *folder) func(rados.Standby) {
	s.data = f
	s.ticker.Go(func() {
		t := time.NewTicker(standbyEvery)
		defer t.Stop()
		for {
			s.tell()
			select {
			case <-s.over:
				return
			case <-t.C:
			}
		}
	})
	return s.see
}

// see is told what the process waits for.
func (s *standby) see(seen rados.Standby) {
	s.mu.Lock()
	first := !s.waits
	s.seen, s.waits = seen, true
	s.mu.Unlock()
	s.forward(seen)
	if !first {
		return
	}
	s.tell()
	l, err := s.data.listen()
	if err != nil {
		s.d.log.Warn("nobody can ask this process for its state while it stands by", "error", err)
		return
	}
	s.mu.Lock()
	s.http = s.d.serveHTTP("admin", l, s)
	s.mu.Unlock()
}

// forward has the commands of this node's hosts carried to the owner.
func (s *standby) forward(seen rados.Standby) {
	d := s.d
	if d.cfg.Node == nil || seen.Link == "" {
		return
	}
	if d.forward == nil {
		f, err := d.newForwarding()
		if err != nil {
			if !s.mute {
				d.log.Error("this node stands by, and cannot forward", "error", err)
			}
			s.mute = true
			return
		}
		s.mu.Lock()
		d.forward = f
		s.mu.Unlock()
	}
	d.forward.follow(seen.Link)
}

// tell asks systemd to wait for longer.
func (s *standby) tell() {
	s.mu.Lock()
	text := "STATUS=Opening the array in the pool"
	if s.waits {
		text = fmt.Sprintf("STATUS=Standing by: the array is open in %s, epoch %d", s.seen.Owner, s.seen.Epoch)
	}
	if s.seen.Trouble != "" {
		text = "STATUS=Standing by; the cluster cannot be asked: " + s.seen.Trouble
	}
	s.mu.Unlock()
	s.d.notify(fmt.Sprint("EXTEND_TIMEOUT_USEC=", standbyMore.Microseconds()), text)
}

// end says that the wait is over: the socket goes, and with it who asks.
func (s *standby) end() {
	close(s.over)
	s.ticker.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http != nil {
		s.http.Close()
		s.data.removeSocket()
	}
}

// ServeHTTP answers with the state.
func (s *standby) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	seen, forward := s.seen, s.d.forward
	s.mu.Unlock()
	if r.Method != http.MethodGet || r.URL.Path != apiPath+"/status" {
		writeProblem(w, http.StatusServiceUnavailable, "this process stands by: the array is open in "+seen.Owner+"; ask that one")
		return
	}
	c := s.d.cfg
	w.Header().Set("Content-Type", "application/json")
	status := &Status{Version: Version(), PID: os.Getpid(), Data: c.Data, Store: c.Store, Portal: listenNone, Target: c.Portal.Target,
		Targets: []string{}, Mirrored: true, Ownership: &OwnershipStatus{State: StateStandingBy, Owner: seen.Owner, Epoch: seen.Epoch,
			LeaseAge: float64(seen.Age) / 1e9, Trouble: seen.Trouble}}
	if forward != nil {
		status.Portal, status.Targets, status.Nodes = forward.portalName(), []string{c.Portal.Target}, forward.nodes()
	}
	_ = json.NewEncoder(w).Encode(status) // an error here means that the client has gone
}
