package admin

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/testkit"
)

// pondHost writes to blocks of its own by one session, and reads them back.
type pondHost struct {
	t       *testing.T
	name    string
	portal  string
	isid    byte
	c       *iscsi.Client
	logins  int
	leaves  bool // it ends its session every now and then, and logs in again
	first   int  // block
	rnd     *rand.Rand
	stop    atomic.Bool
	ended   atomic.Bool
	over    sync.WaitGroup
	written atomic.Int64
	bytes   atomic.Int64  // of these
	longest time.Duration // that a command took; of the goroutine
	heard   map[string]int
	errors  []string // answers that are neither good, nor a unit attention condition, nor BUSY
	data    []byte   // that was written last, of all its blocks
}

const hostBlocks = 512

func (n *pondNode) host(number int, seed uint64) *pondHost {
	n.t.Helper()
	h := &pondHost{t: n.t, name: fmt.Sprintf("iqn.2026-01.host:h%d", number), portal: n.portal, isid: byte(n.id), first: number * hostBlocks, rnd: rand.New(rand.NewPCG(seed, uint64(number))),
		heard: map[string]int{}, data: make([]byte, hostBlocks*512)}
	if err := h.login(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { h.c.Close() })
	return h
}

func (h *pondHost) login() error {
	nc, err := net.Dial("tcp", h.portal)
	if err != nil {
		return err
	}
	_ = nc.SetDeadline(time.Now().Add(2 * startTimeout))
	c, err := iscsi.NewClient(nc, iscsi.ClientConfig{Initiator: h.name, Target: DefaultConfig().Portal.Target, ISID: [6]byte{0x80, 0, 0, h.isid}})
	if err != nil {
		nc.Close()
		return err
	}
	h.c = c
	h.logins++
	return nil
}

// leave ends the session, in one of three ways, and logs in again.
func (h *pondHost) leave() error {
	old := h.c
	defer old.Close()
	switch h.rnd.IntN(3) {
	case 0:
		if err := old.Logout(); err != nil {
			return err
		}
	case 1:
		old.Close()
	} // or the login ends it
	return h.login()
}

// command carries a command out, and again behind unit attention conditions and BUSY; false: the session has ended, or it failed.
func (h *pondHost) command(cdb, out []byte, in int) (*iscsi.Result, bool) {
	for {
		began := time.Now()
		res, err := h.c.Command(0, cdb, out, in)
		h.longest = max(h.longest, time.Since(began))
		switch {
		case err != nil:
			h.errors = append(h.errors, err.Error())
			return nil, false
		case res.Status == scsi.StatusGood:
			return res, true
		case res.Status == scsi.StatusCheckCondition && len(res.Sense) > 13 && res.Sense[2]&0xF == 6:
			h.heard[fmt.Sprintf("%02x%02x", res.Sense[12], res.Sense[13])]++
		case res.Status == scsi.StatusBusy: // it was not begun: on a machine that stands still for a second it was too long on its way
			h.heard["busy"]++
			time.Sleep(5 * time.Millisecond)
		default:
			h.errors = append(h.errors, fmt.Sprintf("status %02x, sense %x", res.Status, res.Sense))
			return nil, false
		}
	}
}

func blockCDB(op byte, at, n int) []byte {
	cdb := make([]byte, 10)
	cdb[0] = op
	binary.BigEndian.PutUint32(cdb[2:], uint32(at))
	binary.BigEndian.PutUint16(cdb[7:], uint16(n))
	return cdb
}

// run writes and reads until stop; tries says how it goes on behind an answer that is an error: again, or not at all.
func (h *pondHost) run(again bool) {
	h.over.Go(func() {
		defer h.ended.Store(true)
		for !h.stop.Load() {
			if h.leaves && h.rnd.IntN(40) == 0 {
				if err := h.leave(); err != nil {
					h.errors = append(h.errors, err.Error())
					return
				}
			}
			at := h.rnd.IntN(hostBlocks)
			n := 1 + h.rnd.IntN(min(64, hostBlocks-at))
			was, now := h.data[at*512:(at+n)*512], make([]byte, n*512)
			testkit.Fill(h.rnd, now)
			before := len(h.errors)
			_, ok := h.command(blockCDB(0x2A, h.first+at, n), now, 0)
			for ; !ok && again && !strings.Contains(h.errors[len(h.errors)-1], "EOF"); _, ok = h.command(blockCDB(0x2A, h.first+at, n), now, 0) {
				time.Sleep(5 * time.Millisecond)
			}
			if !ok {
				return
			}
			copy(was, now)
			h.written.Add(1)
			h.bytes.Add(int64(n) * 512)
			res, ok := h.command(blockCDB(0x28, h.first+at, n), nil, n*512)
			switch {
			case ok && !bytes.Equal(res.Data, now):
				h.t.Errorf("%s: blocks %d to %d have other data than were written", h.name, h.first+at, h.first+at+n)
				return
			case !ok && !again:
				return
			case !again && len(h.errors) > before:
				return
			}
		}
	})
}

// end stops the host, and compares all that it has written.
func (h *pondHost) end() {
	h.t.Helper()
	h.stop.Store(true)
	h.over.Wait()
	res, ok := h.command(blockCDB(0x28, h.first, hostBlocks), nil, hostBlocks*512)
	if ok && !bytes.Equal(res.Data, h.data) {
		h.t.Errorf("%s: an acknowledged write is lost", h.name)
	}
}

// TestArrayMoves: an array moves between three nodes while hosts of all of them write and read. Nothing that they are told is
// an error, no session ends but those that hosts end, nothing acknowledged is lost, and the array that was moved is right.
func TestArrayMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	const moves = 12
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 3))
	manager := newSystemd(t, "")
	p := newPond(t, seed)
	nodes := []*pondNode{p.node(1, false), p.node(2, true), p.node(3, true)}
	var told []string
	var listens sync.WaitGroup
	var over atomic.Bool
	t.Cleanup(func() {
		over.Store(true)
		listens.Wait()
	})
	listens.Go(func() {
		for !over.Load() {
			if m := manager.hears(20 * time.Millisecond); m != "" {
				told = append(told, m)
			}
		}
	})
	var hosts []*pondHost
	for i, n := range nodes {
		for k := range 2 {
			h := n.host(2*i+k, seed)
			h.leaves = k == 1
			h.run(false)
			hosts = append(hosts, h)
		}
	}
	owner, ctx := 0, context.Background()
	var took []time.Duration
	for move := range moves {
		time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
		to := (owner + 1 + rnd.IntN(2)) % 3
		name := fmt.Sprint("n", to+1)
		if rnd.IntN(2) == 0 {
			name = fmt.Sprint(to + 1)
		}
		for _, n := range nodes { // the owner has to know of the heir
			n.await("it is linked", func(s Status) bool { return n.ownerOf(s) == owner+1 })
		}
		nodes[owner].await("the heir is linked", func(s Status) bool {
			return slices.ContainsFunc(s.Nodes, func(x NodeStatus) bool { return x.ID == to+1 && x.State == NodeForwarding && x.StandsBy })
		})
		before := make([]int64, len(hosts))
		for i, h := range hosts {
			before[i] = h.written.Load()
		}
		began := time.Now()
		s, err := nodes[owner].Move(ctx, Move{To: name})
		if err != nil {
			t.Fatalf("move %d, to node %s: %v", move, name, err)
		}
		if now, err := nodes[owner].AwaitMove(ctx, s); err != nil || now.ID != to+1 {
			t.Fatalf("move %d, to node %s: %+v, %v\n%s", move, name, now, err, nodes[to].out)
		}
		for i, h := range hosts {
			for end := time.Now().Add(startTimeout); h.written.Load() < before[i]+2; time.Sleep(time.Millisecond) {
				if h.ended.Load() || time.Now().After(end) {
					h.stop.Store(true)
					for _, n := range nodes {
						t.Log(n.out)
					}
					t.Fatalf("move %d, to node %s: %s does not go on: %q", move, name, h.name, h.errors)
				}
			}
		}
		took = append(took, time.Since(began))
		owner = to
	}
	over.Store(true)
	listens.Wait()
	if i := slices.IndexFunc(told, func(m string) bool { return strings.Contains(m, "STOPPING=1") }); i >= 0 {
		t.Errorf("systemd hears %q of a service that goes on", told[i])
	}
	var bytes int64
	for _, h := range hosts {
		h.end()
		bytes += h.bytes.Load()
	}
	c, err := nodes[owner].Counters(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if v := c.Volumes[0]; int64(v.Written) != bytes || int64(v.Admitted["host"]) != bytes {
		t.Errorf("hosts have written %d bytes, and the counters say %d, of which %d were admitted", bytes, v.Written, v.Admitted["host"])
	}
	var longest time.Duration
	written := int64(0)
	heard := map[string]int{}
	for i, h := range hosts {
		if len(h.errors) > 0 {
			t.Errorf("a host of node %d hears of errors: %q\n%s", i/2+1, h.errors, nodes[i/2].out)
		}
		longest, written = max(longest, h.longest), written+h.written.Load()
		for code, n := range h.heard {
			heard[code] += n
		}
	}
	for code := range heard {
		if !slices.Contains([]string{"busy", "2904", "2900", "2907", "2a06", "3f0e", "2a09", "2a01", "2a03"}, code) {
			t.Errorf("unit attention conditions that hosts hear: %v", heard)
		}
	}
	for i, n := range nodes {
		want := hosts[2*i].logins + hosts[2*i+1].logins
		if k := strings.Count(n.out.String(), "iscsi: logged in"); k != want || hosts[2*i].logins != 1 {
			t.Errorf("node %d has had %d logins, want %d", n.id, k, want)
		}
	}
	if rep, err := nodes[owner].Check(ctx); err != nil || !rep.OK {
		t.Errorf("check: %+v, %v", rep, err)
	}
	slices.Sort(took)
	t.Logf("%d moves, %d writes: %v in the middle, %v at most until all hosts went on; the longest command took %v; heard %v", moves, written, took[len(took)/2], took[len(took)-1], longest, heard)
}

// sums adds up families of counters, all of one moment.
func (n *pondNode) sums(families ...*metrics.Family) []int64 {
	n.t.Helper()
	sums := make([]int64, len(families))
	var s metrics.Snapshot
	if err := n.Samples(context.Background(), &s); err != nil {
		n.t.Fatal(err)
	}
	s.Each(func(g *metrics.Family, _ []string, value float64, _ *metrics.Histogram) {
		if i := slices.Index(families, g); i >= 0 {
			sums[i] += int64(value)
		}
	})
	return sums
}

// TestTakeOverKeepsSessions: the owner falls silent, and a standby takes the array over. Hosts of its own portal keep their
// sessions, as those of the third node do; they hear of a transition, then of a change. Nothing acknowledged is lost, what the
// cache admits is conserved, and the counters go on where they were.
func TestTakeOverKeepsSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	seed, ctx := testkit.Seed(t), context.Background()
	p := newPond(t, seed)
	a, b, c := p.node(1, false), p.node(2, true), p.node(3, true)
	var hosts []*pondHost
	for i, n := range []*pondNode{b, b, c, c} {
		h := n.host(i, seed)
		h.run(true)
		hosts = append(hosts, h)
	}
	time.Sleep(500 * time.Millisecond)
	var certain int64 // bytes that are old enough for the counters that the next owner finds
	for _, h := range hosts {
		certain += h.bytes.Load()
	}
	// The owner sends its counters once a second, with a write: one that begins behind that second is behind them.
	time.Sleep(1100 * time.Millisecond)
	for last, end := hosts[0].written.Load(), time.Now().Add(startTimeout); hosts[0].written.Load() < last+2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not write: %q", hosts[0].name, hosts[0].errors)
		}
	}
	p.mu.Lock()
	p.clients[0].silence()
	p.mu.Unlock()
	before := int64(0)
	for _, h := range hosts {
		before += h.bytes.Load()
	}
	next := 0
	for _, n := range []*pondNode{b, c} {
		n.await("the next owner", func(s Status) bool {
			owner := n.ownerOf(s)
			if owner > 1 {
				next = owner
			}
			return owner > 1
		})
	}
	a.drop()
	since := hosts[0].written.Load() + hosts[2].written.Load()
	for end := time.Now().Add(startTimeout); hosts[0].written.Load()+hosts[2].written.Load() < since+20 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	var acknowledged int64
	for _, h := range hosts {
		h.end()
		acknowledged += h.bytes.Load()
		for _, e := range h.errors {
			if !strings.Contains(e, "00000000040a") && !strings.Contains(e, "000000000800") {
				t.Errorf("%s hears %s", h.name, e)
			}
		}
		if h.heard["2a06"] == 0 {
			t.Errorf("%s hears of no change: %v", h.name, h.heard)
		}
	}
	owner := map[int]*pondNode{2: b, 3: c}[next]
	for _, n := range []*pondNode{b, c} {
		if k := strings.Count(n.out.String(), "iscsi: logged in"); k != 2 {
			t.Errorf("node %d has had %d logins, want 2", n.id, k)
		}
	}
	rep, err := owner.Check(ctx)
	if err != nil || !rep.OK {
		t.Errorf("check: %+v, %v", rep, err)
	}
	sums := owner.sums(metrics.CacheAdmitted, metrics.CacheRecovered, metrics.CacheDirty, metrics.CacheDestaged, metrics.CacheOverwritten, metrics.CacheDiscarded)
	admitted, recovered := sums[0], sums[1]
	if left := sums[2] + sums[3] + sums[4] + sums[5]; admitted+recovered != left || admitted+recovered < acknowledged-before+certain {
		t.Errorf("%d bytes were acknowledged, %d of them in the last second of the former owner; %d were admitted and %d recovered, of which %d are dirty or have left the cache", acknowledged, before-certain, admitted, recovered, left)
	}
	t.Logf("node %d took over; %d bytes acknowledged, %d admitted, %d recovered", next, acknowledged, admitted, recovered)
}

// TestMoveThatLasts: an array moves, and the cluster answers its owner no more before it has stopped. The owner's hosts hear of a
// transition when the limit of the hold is there, though the process still waits for the cluster.
func TestMoveThatLasts(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	const limit = 2 * time.Second
	seed, ctx := testkit.Seed(t), context.Background()
	p := newPond(t, seed)
	a := p.node(1, false, func(d *daemon) { d.moves.limit = limit })
	p.node(2, true)
	h := a.host(1, seed)
	a.await("the heir is linked", func(s Status) bool { return len(s.Nodes) == 2 && s.Nodes[1].State == NodeForwarding })
	if _, ok := h.command(make([]byte, 6), nil, 0); !ok {
		t.Fatal(h.errors)
	}
	p.mu.Lock()
	p.clients[0].silence()
	p.mu.Unlock()
	if _, err := a.Move(ctx, Move{To: "n2"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	res, err := h.c.Command(0, make([]byte, 6), nil, 0)
	switch took := time.Since(began); {
	case err != nil || res.Status != scsi.StatusCheckCondition || len(res.Sense) < 14 || res.Sense[2] != 2 || res.Sense[12] != 4 || res.Sense[13] != 0x0A:
		t.Errorf("a host hears %+v, %v behind %v\n%s", res, err, took, a.out)
	case took > limit+20*time.Second:
		t.Errorf("a host has waited for %v", took)
	}
	a.drop()
}

// TestMoveIsRefused: a move that cannot be is refused in one line, and nothing changes.
func TestMoveIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	ctx := context.Background()
	lone := start(t, parse(t, testConfig, t.TempDir()))
	if _, err := lone.Move(ctx, Move{To: "b"}); err == nil || !strings.Contains(err.Error(), "has one node") {
		t.Errorf("an array without nodes: %v", err)
	}
	lone.stop()
	p := newPond(t, testkit.Seed(t))
	a, b := p.node(1, false), p.node(2, true)
	h := b.host(1, 1)
	h.run(false)
	for to, says := range map[string]string{
		"3":  `there is no node "3"; there are 2 n2`,
		"n1": "node 1 n1 already has the array",
		"1":  "already has the array",
		"":   "there is no node",
	} {
		if _, err := a.Move(ctx, Move{To: to}); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("to %q: %v, want %q", to, err, says)
		}
	}
	if _, err := b.Move(ctx, Move{To: "1"}); err == nil || !strings.Contains(err.Error(), "stands by") {
		t.Errorf("asked of a standby: %v", err)
	}
	b.stop()
	a.await("the end of the link", func(s Status) bool { return s.Nodes[1].State == NodeAway })
	if _, err := a.Move(ctx, Move{To: "2"}); err == nil || !strings.Contains(err.Error(), "is not linked") {
		t.Errorf("to a node that is away: %v", err)
	}
	if s, err := a.Status(ctx); err != nil || s.Ownership.State != StateServing {
		t.Errorf("behind it: %+v, %v", s, err)
	}
	h.stop.Store(true)
	h.over.Wait()
}

// TestHeirDoesNotCome: an heir that takes nothing leaves the array to whoever stands by: here the one that had it, whose hosts
// wait, and hear of no error when it has it again in time.
func TestHeirDoesNotCome(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	ctx := context.Background()
	seed := testkit.Seed(t)
	p := newPond(t, seed)
	a := p.node(1, false, func(d *daemon) { d.moves.limit = startTimeout }) // hosts wait for as long as a start may take
	b := p.node(2, true)
	h := a.host(1, seed)
	h.run(false)
	a.await("the heir is linked", func(s Status) bool { return len(s.Nodes) == 2 && s.Nodes[1].State == NodeForwarding })
	p.mu.Lock()
	p.clients[1].silence() // it is linked, and the cluster does not answer it
	p.mu.Unlock()
	s, err := a.Move(ctx, Move{To: "n2"})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if now, err := a.AwaitMove(ctx, s); err == nil || now.ID != 1 || !strings.Contains(err.Error(), "node 2 n2 did not take the array, and node 1 n1 has it") {
		t.Errorf("%+v, %v", now, err)
	}
	took := time.Since(began)
	before := h.written.Load()
	for end := time.Now().Add(startTimeout); h.written.Load() < before+2 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	h.end()
	if len(h.errors) > 0 || h.written.Load() < before+2 {
		t.Errorf("a host of the node that has the array again: %d writes, %q", h.written.Load()-before, h.errors)
	}
	t.Logf("it has the array again behind %v", took)
	b.cancel()
}
