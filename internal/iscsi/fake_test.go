package iscsi

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/testkit"
)

const (
	testTarget    = "iqn.2026-01.example.test:disk"
	testInitiator = "iqn.2026-01.example.test:host"
	fakeBlock     = 512

	opTestUnitReady = 0x00
	opRead10        = 0x28
	opWrite10       = 0x2a
	opWriteSame32   = 0x7f
	opStuck         = 0xff // never completes until let go or aborted
)

// fakeTarget is a RAM disk behind the portal. Its fields are guarded by the
// executor.
type fakeTarget struct {
	exec    block.Executor
	mem     []byte
	hidden  bool // Visible says no
	hung    bool // what is stuck stays so when its nexus is closed
	opened  int
	nexuses map[*fakeNexus]bool
	ended   []*scsi.Task // waiting for Done
	spare   []*scsi.Task
	drainFn func()
	lastCDB []byte
	submits int
	managed int
	seen    func(*scsi.Task) // called for each task that arrives
}

type fakeNexus struct {
	t     *fakeTarget
	port  string
	group uint16
	stuck []*scsi.Task
	gone  func() // Close waits for what is stuck
}

func newFake(exec block.Executor, size int) *fakeTarget {
	f := &fakeTarget{exec: exec, mem: make([]byte, size), nexuses: make(map[*fakeNexus]bool)}
	f.drainFn = f.drain
	return f
}

func (f *fakeTarget) Exec() block.Executor { return f.exec }

func (f *fakeTarget) Visible(string) bool { return !f.hidden }

func (f *fakeTarget) OpenNexus(_, port string, group uint16) Nexus {
	n := &fakeNexus{t: f, port: port, group: group}
	for o := range f.nexuses {
		if o.port == port && o.group == group {
			panic("iscsi: nexus opened twice")
		}
	}
	f.opened++
	f.nexuses[n] = true
	return n
}

// end completes a task outside of Submit, as the contract wants.
func (f *fakeTarget) end(t *scsi.Task) {
	if f.ended = append(f.ended, t); len(f.ended) == 1 {
		f.exec.Post(f.drainFn)
	}
}

func (f *fakeTarget) drain() {
	run := f.ended
	f.ended = f.spare[:0]
	for i, t := range run {
		t.Done(t)
		run[i] = nil
	}
	f.spare = run
}

func (n *fakeNexus) Submit(tasks []*scsi.Task) {
	n.t.submits++
	for _, t := range tasks {
		n.run(t)
	}
}

func (n *fakeNexus) run(t *scsi.Task) {
	f := n.t
	if f.seen != nil {
		f.seen(t)
	}
	f.lastCDB = append(f.lastCDB[:0], t.CDB...)
	lba, count := int(binary.BigEndian.Uint32(t.CDB[2:])), int(binary.BigEndian.Uint16(t.CDB[7:]))
	switch t.CDB[0] {
	case opTestUnitReady, opWriteSame32:
		t.OutTotal = block.VecLen(t.DataOut)
	case opStuck:
		n.stuck = append(n.stuck, t)
		return
	case opRead10, opWrite10:
		total := count * fakeBlock
		if lba*fakeBlock+total > len(f.mem) {
			t.Status, t.Sense = scsi.StatusCheckCondition, []byte{0: 0x70, 2: 5, 7: 10, 12: 0x21, 17: 0}
			break
		}
		at := f.mem[lba*fakeBlock:][:total]
		if t.CDB[0] == opRead10 {
			t.InTotal = total
			// Two pieces, to cross them.
			for k := min(total, t.MaxIn); k > 0; {
				piece := min(k, 300<<10)
				b := t.Bufs.Get(piece)
				copy(b, at)
				at = at[piece:]
				t.DataIn = append(t.DataIn, b)
				k -= piece
			}
			break
		}
		t.OutTotal = total
		for _, b := range t.DataOut {
			at = at[copy(at, b):]
		}
	default:
		t.Status, t.Sense = scsi.StatusCheckCondition, []byte{0: 0x70, 2: 5, 7: 10, 12: 0x20, 17: 0}
	}
	f.end(t)
}

// letGo ends all stuck tasks with GOOD.
func (n *fakeNexus) letGo() {
	for _, t := range n.stuck {
		n.t.end(t)
	}
	n.stuck = nil
	if n.gone != nil {
		n.Close(n.gone)
	}
}

func (n *fakeNexus) abort(match func(*scsi.Task) bool) (hit bool) {
	n.stuck = slices.DeleteFunc(n.stuck, func(t *scsi.Task) bool {
		if match(t) {
			t.Aborted, hit = true, true
			n.t.end(t)
			return true
		}
		return false
	})
	return hit
}

func (n *fakeNexus) Manage(fn scsi.TMF, lun, tag uint64, done func(scsi.TMFResponse)) {
	n.t.managed++
	r := scsi.TMFComplete
	switch fn {
	case scsi.AbortTask:
		if !n.abort(func(t *scsi.Task) bool { return t.Tag == tag && t.LUN == lun }) {
			r = scsi.TMFNoTask
		}
	case scsi.ClearACA:
		r = scsi.TMFNotSupported
	default:
		n.abort(func(*scsi.Task) bool { return true })
	}
	n.t.exec.Post(func() { done(r) })
}

func (n *fakeNexus) OnReset(func()) {}

func (n *fakeNexus) CountRemaps(func() uint64, uint64) {}

func (n *fakeNexus) Close(done func()) {
	if n.t.hung && len(n.stuck) > 0 {
		n.gone = done
		return
	}
	n.abort(func(*scsi.Task) bool { return true })
	delete(n.t.nexuses, n)
	n.t.exec.Post(done)
}

// rig is a portal with one target that listens on a loopback port.
type rig struct {
	t      testing.TB
	exec   *block.Live
	target *fakeTarget
	portal *Portal
	addr   string
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	checkGoroutines(t)
	r := &rig{t: t, exec: block.NewLive(), log: new(lockedBuffer)}
	r.target = newFake(r.exec, 8<<20)
	cfg := Config{
		Targets: []TargetConfig{{Name: testTarget, Alias: "ram", Handler: r.target}},
		Log:     slog.New(slog.NewTextHandler(r.log, nil)),
	}
	cfg.Limits.PingInterval, cfg.Limits.DataTimeout, cfg.Limits.LoginTimeout = -1, -1, patience
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.portal = p
	l, err := net.Listen("tcp", testkit.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != ErrClosed {
			t.Errorf("Serve: %v", err)
		}
		r.exec.Stop()
	})
	return r
}

// checkGoroutines fails the test when it leaves goroutines of this package.
func checkGoroutines(t testing.TB) {
	t.Cleanup(func() {
		var stacks string
		buf := make([]byte, 1<<20)
		gone := func() bool {
			stacks = string(buf[:runtime.Stack(buf, true)])
			return strings.Count(stacks, "iscsi.(*conn)")+strings.Count(stacks, "iscsi.(*Portal)") == 0
		}
		if !poll(gone) {
			t.Errorf("goroutines are left:\n%s", stacks)
		}
	})
}

// patience is how long a test waits before it calls a thing missing: a busy machine is no failure.
const patience = 4 * time.Minute

// poll asks until ok says yes; false when patience is at its end.
func poll(ok func() bool) bool {
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(patience))
	r.t.Cleanup(func() { nc.Close() })
	return nc
}

func (r *rig) login(change func(*ClientConfig)) *Client {
	r.t.Helper()
	c, err := r.tryLogin(change)
	if err != nil {
		r.t.Fatalf("login: %v", err)
	}
	return c
}

func (r *rig) tryLogin(change func(*ClientConfig)) (*Client, error) {
	r.t.Helper()
	return NewClient(r.dial(), testPort(change))
}

// testPort is what a test logs in with.
func testPort(change func(*ClientConfig)) ClientConfig {
	cfg := ClientConfig{Initiator: testInitiator, Target: testTarget, ISID: [6]byte{0x80, 0, 0, 1}}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

// loginLater is login by a goroutine: a login that is to wait. The test ends where what it returns finds that it has failed; were
// that the goroutine's to say, the test would wait for it.
func (r *rig) loginLater(change func(*ClientConfig)) (in func() *Client) {
	r.t.Helper()
	var c *Client
	err, nc, done := error(nil), r.dial(), make(chan struct{})
	go func() {
		defer close(done)
		c, err = NewClient(nc, testPort(change))
	}()
	return func() *Client {
		r.t.Helper()
		if <-done; err != nil {
			r.t.Fatalf("login: %v", err)
		}
		return c
	}
}

// withFake runs fn with the executor held.
func (r *rig) withFake(fn func(*fakeTarget)) {
	r.exec.Lock()
	fn(r.target)
	r.exec.Unlock()
}

// eventually waits for a condition of the target.
func (r *rig) eventually(what string, ok func(*fakeTarget) bool) {
	r.t.Helper()
	there := func() (good bool) {
		r.withFake(func(f *fakeTarget) { good = ok(f) })
		return good
	}
	if !poll(there) {
		r.t.Fatalf("never came true: %s", what)
	}
}

func (r *rig) stuck() int {
	n := 0
	r.withFake(func(f *fakeTarget) {
		for x := range f.nexuses {
			n += len(x.stuck)
		}
	})
	return n
}

// awaitStuck waits until n tasks are stuck in the target.
func (r *rig) awaitStuck(n int) {
	r.t.Helper()
	if poll(func() bool { return r.stuck() == n }) {
		return
	}
	r.t.Fatalf("%d tasks are stuck, want %d", r.stuck(), n)
}

func (r *rig) errors(k ErrorKind) uint64 { return r.portal.errors[k].Load() }

func cdb10(op byte, lba, blocks int) []byte {
	cdb := make([]byte, 10)
	cdb[0] = op
	binary.BigEndian.PutUint32(cdb[2:], uint32(lba))
	binary.BigEndian.PutUint16(cdb[7:], uint16(blocks))
	return cdb
}

// pattern is data that tells where it belongs.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>9 + i*7 + seed)
	}
	return b
}
