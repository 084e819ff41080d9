package link

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

const testSecret = "0123456789abcdef0123456789abcdef"

// patience is how long a test waits before it calls a thing missing: a busy machine is no failure.
const patience = 2 * time.Minute

// unhurried are times that nothing meets by chance: what a test is about it shortens.
var unhurried = times{ping: 20 * time.Millisecond, silent: patience, fresh: patience, hold: patience, away: patience, retry: 5 * time.Millisecond}

// rig is an owner and a node that forwards to it.
type rig struct {
	t      testing.TB
	exec   *block.Live // the owner's
	target *scsi.Target
	devs   []*scsitest.Device
	server *Server
	client *Client
	local  *block.Live // the node's

	array   string // of the next owner
	epoch   uint64
	allowed []string
	policy  string
	said    lines  // by the next owner
	clock   *clock // of the next owner; nil: that of the machine
	// through leads the node to an owner that serves at addr; nil: it goes there itself.
	through func(addr string) string

	mu   sync.Mutex
	addr string                           // guarded by mu
	hold func(time.Duration, func(error)) // guarded by mu: what the node does where the owner asks it to hold; nil: nothing
	went int                              // guarded by mu: how often it was told to go on
}

func newRig(t testing.TB, limits times) *rig {
	t.Helper()
	return rigOf(t, limits, func(local *block.Live) block.Executor { return local })
}

// rigOf makes a rig whose node has an executor that is made of its own one.
func rigOf(t testing.TB, limits times, of func(local *block.Live) block.Executor) *rig {
	t.Helper()
	r := &rig{t: t, exec: block.NewLive(), local: block.NewLive()}
	t.Cleanup(r.exec.Stop)
	t.Cleanup(r.local.Stop)
	r.target, r.devs = scsitest.NewTarget(r.exec)
	r.own(r.target, limits)
	c, err := NewClient(ClientConfig{Self: Node{ID: 2, Name: "b", Ports: 1}, Targets: 1, Secret: []byte(testSecret), Exec: of(r.local), Address: r.address, StandsBy: true, Hold: r.holds, Go: r.goes, times: limits})
	if err != nil {
		t.Fatal(err)
	}
	r.client = c
	t.Cleanup(c.Stop)
	r.linked(true)
	return r
}

func (r *rig) holds(limit time.Duration, done func(error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hold == nil {
		go done(nil)
		return
	}
	go r.hold(limit, done)
}

func (r *rig) goes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.went++
}

// gone is how often the node was told to go on.
func (r *rig) gone() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.went
}

func (r *rig) address() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addr
}

// own has a server serve a target from now on, as a new process.
func (r *rig) own(t *scsi.Target, limits times) {
	r.t.Helper()
	s, err := NewServer(ServerConfig{Self: Node{ID: 1, Name: "a", Ports: 1}, Targets: []*scsi.Target{t}, Secret: []byte(testSecret), Array: r.array, Epoch: r.epoch, Allowed: r.allowed, Policy: r.policy, Log: r.said.log(), times: limits, clock: r.clock})
	if err != nil {
		r.t.Fatal(err)
	}
	addr := serving(r.t, s)
	if r.through != nil {
		addr = r.through(addr)
	}
	r.server = s
	r.mu.Lock()
	r.addr = addr
	r.mu.Unlock()
}

// serving has a server serve until the test ends, and returns its address.
func serving(t testing.TB, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		now, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Shutdown(now)
		if err := <-served; err != ErrClosed {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

// leave ends the owner without a word, as a kill does.
func (r *rig) leave() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	r.server.Shutdown(now)
	r.mu.Lock()
	r.addr = ""
	r.mu.Unlock()
	r.linked(false)
}

// cut breaks the link.
func (r *rig) cut() {
	r.server.mu.Lock()
	l := r.server.links[2]
	r.server.mu.Unlock()
	l.raw.Close()
}

// relink breaks the link, and waits for the next one.
func (r *rig) relink() {
	r.t.Helper()
	connects := func() int {
		r.local.Lock()
		defer r.local.Unlock()
		return int(r.client.state.connects.Load())
	}
	before := connects()
	r.cut()
	r.poll("the next link", func() bool { return connects() > before })
	r.linked(true)
}

// linked waits until the node has a link, or has none; and its ports are shown as such.
func (r *rig) linked(want bool) {
	r.t.Helper()
	r.poll("the link", func() bool {
		owner, _ := r.client.Owner()
		if !want {
			return !owner.Linked
		}
		return owner.Linked && r.access() == scsi.AccessNonOptimized
	})
}

// access is the state of the node's port.
func (r *rig) access() scsi.AccessState {
	r.exec.Lock()
	defer r.exec.Unlock()
	for _, g := range r.target.Groups() {
		if g.ID == FirstPort(2) {
			return g.State
		}
	}
	return scsi.AccessUnavailable
}

// again is what a host hears behind a break: the loss of the nexus, and what it may have missed.
func again(first int) []int { return []int{first, 0x063F0E, 0x062A09, 0x062A01, 0x062A03, 0x062A06} }

// hang has a unit answer nothing that comes from now on, release all that has come, and what comes.
func (r *rig) hang(d *scsitest.Device) {
	r.exec.Lock()
	defer r.exec.Unlock()
	d.Hold = true
}

func (r *rig) release(d *scsitest.Device) {
	r.exec.Lock()
	defer r.exec.Unlock()
	d.Hold = false
	d.Release(d.Waiting())
}

func (r *rig) poll(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not in %v", what, patience)
		}
	}
}

// heap hands out buffers.
type heap struct{}

func (heap) Get(n int) []byte { return make([]byte, n) }

// host is an initiator with a nexus, by the link or at the owner.
type host struct {
	t    testing.TB
	exec block.Executor
	n    iscsi.Nexus
	lost chan struct{} // closed by a cold reset
}

// login logs in at the node that forwards.
func (r *rig) login(name string) *host {
	r.local.Lock()
	defer r.local.Unlock()
	h := &host{t: r.t, exec: r.local, n: r.client.Target(0).OpenNexus(name, name+",i,0x00023d000001", FirstPort(2)), lost: make(chan struct{})}
	h.n.OnReset(func() { close(h.lost) })
	return h
}

// direct logs in at the owner.
func (r *rig) direct(name string) *host {
	r.exec.Lock()
	defer r.exec.Unlock()
	return &host{t: r.t, exec: r.exec, n: r.target.OpenNexus(name, name+",i,0x00023d000001", 1)}
}

// running is a command in progress.
type running struct {
	h    *host
	task *scsi.Task
	done chan struct{}
	out  int
}

func wire(lun uint64) uint64 {
	if lun > 255 {
		lun |= 0x4000
	}
	return lun << 48
}

func (h *host) start(c scsitest.Command) *running {
	p := &running{h: h, done: make(chan struct{}), out: len(c.Out)}
	p.task = &scsi.Task{LUN: wire(c.LUN), Tag: 7, CDB: c.CDB, MaxIn: c.In, Bufs: heap{}, Done: func(*scsi.Task) { close(p.done) }}
	for out := c.Out; len(out) > 0; { // in pieces, as the portal has it
		n := min(len(out), 700)
		p.task.DataOut = append(p.task.DataOut, out[:n])
		out = out[n:]
	}
	h.exec.Lock()
	h.n.Submit([]*scsi.Task{p.task})
	select {
	case <-p.done:
		h.t.Error("Done from inside Submit")
	default:
	}
	h.exec.Unlock()
	return p
}

// inTime reports that something is wrong unless the command ends, for which half of the patience is enough on a busy machine.
func (p *running) inTime(otherwise string) {
	p.h.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience / 2):
		p.h.t.Error(otherwise)
	}
}

// over reports whether the command has ended.
func (p *running) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *running) wait() scsitest.Result {
	p.h.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.h.t.Fatalf("cdb %x does not end", p.task.CDB)
	}
	t := p.task
	r := scsitest.Result{Status: t.Status, Sense: t.Sense, In: bytes.Join(t.DataIn, nil)}
	switch {
	case t.OutTotal > 0 || p.out > 0:
		r.Residual = t.OutTotal - p.out
	case t.InTotal > 0 || t.MaxIn > 0:
		r.Residual = t.InTotal - t.MaxIn
	}
	return r
}

func (h *host) Do(c scsitest.Command) scsitest.Result {
	h.t.Helper()
	return h.start(c).wait()
}

// ask begins a task management function.
func (h *host) ask(fn scsi.TMF, lun uint64) <-chan scsi.TMFResponse {
	answer := make(chan scsi.TMFResponse, 1)
	h.exec.Lock()
	h.n.Manage(fn, wire(lun), 7, func(r scsi.TMFResponse) { answer <- r })
	h.exec.Unlock()
	return answer
}

func (h *host) manage(fn scsi.TMF, lun uint64) scsi.TMFResponse {
	h.t.Helper()
	return heard(h.t, h.ask(fn, lun))
}

func (h *host) Reset(lun uint64) {
	h.t.Helper()
	if r := h.manage(scsi.LogicalUnitReset, lun); r != scsi.TMFComplete {
		h.t.Fatalf("LOGICAL UNIT RESET: %d", r)
	}
}

func (h *host) Close() {
	h.t.Helper()
	closed := make(chan struct{})
	h.exec.Lock()
	h.n.Close(func() { close(closed) })
	h.exec.Unlock()
	select {
	case <-closed:
	case <-time.After(patience):
		h.t.Fatal("the nexus does not close")
	}
}

// code carries out TEST UNIT READY and returns its sense key, code and qualifier; 0 is GOOD.
func (h *host) code() int {
	h.t.Helper()
	return code(h.Do(scsitest.Command{CDB: make([]byte, 6)}))
}

func code(r scsitest.Result) int {
	k, a, q := scsitest.SenseCode(r.Sense)
	return int(k)<<16 | int(a)<<8 | int(q)
}

// expect carries out TEST UNIT READY until it ends well, and compares what it said before.
func (h *host) expect(want ...int) {
	h.t.Helper()
	var got []int
	for range 16 {
		c := h.code()
		if c == 0 {
			break
		}
		got = append(got, c)
	}
	if len(got) != len(want) {
		h.t.Fatalf("unit attentions %06x, want %06x", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			h.t.Fatalf("unit attentions %06x, want %06x", got, want)
		}
	}
}

// ready clears the unit attentions.
func (h *host) ready() *host {
	h.t.Helper()
	for range 16 {
		if h.Do(scsitest.Command{CDB: make([]byte, 6)}).Status == scsi.StatusGood { // BUSY has no sense data either
			return h
		}
	}
	h.t.Fatal("endless unit attentions")
	return h
}
