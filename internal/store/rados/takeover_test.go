package rados_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
	"github.com/arraysim/arraysim/internal/testkit"
)

// The tests of takeovers: processes on several nodes wait for one array and take it over from each other, over a
// simulated cluster in virtual time, while a host writes and reads, and they are killed, stopped and continued at any
// moment. What an array does is reduced to what a takeover can lose: a write goes to the log, is acknowledged, and goes
// to an mdisk then.
const (
	places   = 6 // that the host writes to, each in an extent of its own
	logSlots = 128
	leaseNS  = 10e9

	losingSeed    = 21  // without a blocklist
	overtakenSeed = 110 // without the guard of the lease
)

var gameLayout = block.RegionLayout{State: 512, Counters: 64, Log: logSlots * 512}

// control is what a negative control leaves out.
type control int

const (
	whole control = iota
	// refusals: the cluster refuses nobody.
	refusals
	// blind: a node serves whatever the lease says.
	blind
	// unguarded: an epoch is raised whatever has become of the lease since before its taker had the lock.
	unguarded
)

// value is what a place has: the write with that number, and what told it from others.
type value struct{ seq, id uint64 }

func (v value) bytes(place int) []byte {
	b := make([]byte, 512)
	for i, n := range []uint64{v.seq, v.id, uint64(place)} {
		binary.LittleEndian.PutUint64(b[8*i:], n)
	}
	return b
}

func valueOf(b []byte) (v value, place int) {
	le := binary.LittleEndian
	return value{le.Uint64(b), le.Uint64(b[8:])}, int(le.Uint64(b[16:]))
}

// game is a run: the host, and what it knows.
type game struct {
	t       *testing.T
	what    string
	rnd     *rand.Rand
	v       *block.Virtual
	c       *simulated.Cluster
	nodes   []*node      // those that run, some of them stopped
	killed  map[int]bool // processes that are known to be dead
	all     int
	same    bool // they are of one machine, and know of each other's death
	control control
	acked   [places]value
	ids     uint64
	spell   int64 // operations fail at times until then
	monitor int64 // what a request to the monitors takes
	quiet   bool  // the first trouble comes behind the take-over from a taker that was stopped behind its lock

	opens, writes, reads, lost, stale int
	handed                            int   // arrays to somebody
	caught                            int   // starts, between their lock and their epoch
	unknown, unheard                  int   // calls of locks and watches, and requests to monitors, that had an effect and an error
	both                              int   // moments at which two took themselves for the owner
	longest                           int64 // without an owner that serves
	served                            int64 // when one did last
}

// node is a process.
type node struct {
	g      *game
	p      *simulated.Process
	client *simulated.Client
	number int
	cookie string // what the cookies of its locks begin with
	s      *rados.Store
	r      block.Region
	m      block.Medium
	meta   block.MetaStore
	table  [places]value // what was committed
	seq    uint64        // the last number
	base   uint64        // the log up to here is in the mdisk
	out    int           // destages under way
	saving bool
	open   bool
	until  bool // it is stopped until another one takes the lease away
}

// start starts a process that waits for the array.
func (g *game) start() *node {
	g.all++
	n := &node{g: g, p: simulated.NewProcess(g.v), number: g.all, cookie: fmt.Sprint(g.all, ".")}
	n.client = g.c.Connect(n.p, "array")
	g.nodes = append(g.nodes, n)
	n.p.Go(n.run)
	return n
}

// end ends a process, and has another one started in its place.
func (n *node) end() {
	g := n.g
	for i, o := range g.nodes {
		if o == n {
			g.nodes = append(g.nodes[:i:i], g.nodes[i+1:]...)
		}
	}
	g.killed[n.number] = true
	n.client.Kill()
	n.p.Kill()
	g.v.At(g.v.Now()+g.rnd.Int64N(3e9), func() { g.start() })
}

// stop has an owner stop in good order.
func (n *node) stop() {
	if !n.open || n.p.Stopped() {
		return
	}
	n.open = false
	if g := n.g; g.control == whole && len(g.nodes) > 0 && g.rnd.IntN(2) == 0 { // to one that may end before it hears of it
		n.s.HandTo(fmt.Sprint(g.nodes[g.rnd.IntN(len(g.nodes))].number))
		g.handed++
	}
	n.p.Go(func() {
		n.s.Close()
		n.later()
	})
}

// found has an owner make the array and stop in good order, so that nobody is fenced yet, which takes takers time.
func (g *game) found() {
	n := g.start()
	g.v.RunUntil(g.v.Now() + 1e9)
	n.stop()
	for end := g.v.Now() + 1e9; g.v.Now() < end && len(g.nodes) > 0; {
		g.v.RunUntil(g.v.Now() + 10e6)
	}
}

// later ends it when its thread does not run.
func (n *node) later() { n.g.v.Post(n.end) }

func (n *node) run() {
	g := n.g
	s, err := rados.Open(n.p, n.client, rados.Options{Log: rados.LogReplicated, Cookie: fmt.Sprint(n.number), Lease: leaseNS, Standby: true,
		Name: fmt.Sprint(n.number), Self: rados.Owner{Host: "h", PID: n.number}, Dead: func(o rados.Owner) bool { return g.same && g.killed[o.PID] },
		Lost: func(error) { n.later() }})
	if err == nil {
		n.s = s
		err = n.recover()
	}
	if err != nil {
		if !errors.Is(err, block.ErrFenced) && !errors.Is(err, rados.ErrGuard) && !errors.Is(err, errInjected) && !errors.Is(err, rados.ErrUnanswered) {
			g.t.Fatalf("%s: process %d: %v", g.what, n.number, err)
		}
		n.later()
		return
	}
	g.opens++
	n.open = true
	n.check()
}

// transfer moves a sector of a place, and waits.
func (n *node) transfer(write bool, place int, b []byte) error {
	var io block.IO
	over := false
	io = block.IO{Write: write, Off: uint64(place) * 4 << 20, N: 512, Vec: [][]byte{b}, Done: func(*block.IO) { over = true }}
	n.m.Submit([]*block.IO{&io})
	n.client.Wait(func() bool { return over })
	return io.Err
}

// recover brings what the log has to the mdisk.
func (n *node) recover() (err error) {
	if n.m, err = n.s.Medium("m", places*4<<20); err != nil {
		return err
	}
	if n.r, _, err = n.s.Region("nvram", gameLayout); err != nil {
		return err
	}
	if n.meta, err = n.s.Meta(); err != nil {
		return err
	}
	b, err := n.meta.Get([]byte("base"))
	if err != nil {
		return err
	}
	if b != nil {
		n.base = binary.LittleEndian.Uint64(b)
	}
	for i := range n.table {
		b := make([]byte, 512)
		if err := n.transfer(false, i, b); err != nil {
			return err
		}
		n.table[i], _ = valueOf(b)
	}
	found := map[uint64][]byte{}
	for i := range logSlots {
		b := make([]byte, 512)
		if err := n.r.ReadLog(i*512, b); err != nil {
			return err
		}
		v, _ := valueOf(b)
		found[v.seq] = b
	}
	for n.seq = n.base; found[n.seq+1] != nil; {
		n.seq++
		v, place := valueOf(found[n.seq])
		n.table[place] = v
		if err := n.transfer(true, place, found[n.seq]); err != nil {
			return err
		}
	}
	for seq := range found {
		if seq > n.seq {
			n.g.t.Fatalf("%s: record %d is there, and %d is not", n.g.what, seq, n.seq+1)
		}
	}
	n.base = n.seq
	return n.meta.CommitNow([]block.KV{{Key: []byte("base"), Value: binary.LittleEndian.AppendUint64(nil, n.base)}})
}

// check compares what a new owner has with what the host was told.
func (n *node) check() {
	for i, have := range n.table {
		if want := n.g.acked[i]; have.seq < want.seq || have.seq == want.seq && have.id != want.id {
			n.g.lost++
			n.g.acked[i] = have // counted once
		}
	}
}

func (n *node) serves() bool { return n.open && (n.g.control == blind || n.s.Serving()) }

// write is a host's write.
func (n *node) write(place int) {
	g := n.g
	if !n.serves() || n.seq-n.base >= logSlots-8 {
		n.save()
		return
	}
	g.served = g.v.Now()
	n.seq++
	g.ids++
	v := value{n.seq, g.ids}
	n.r.Append(int(v.seq%logSlots)*512, v.bytes(place))
	n.r.Commit(func(err error) {
		if err != nil {
			return
		}
		n.table[place] = v
		if v.seq > g.acked[place].seq {
			g.acked[place] = v
		}
		g.writes++
		n.out++
		n.m.Submit([]*block.IO{{Write: true, Off: uint64(place) * 4 << 20, N: 512, Vec: [][]byte{v.bytes(place)}, Done: func(io *block.IO) {
			if n.out--; io.Err != nil {
				n.out = 1 << 20 // what is not there is never said to be
			}
			n.save()
		}}})
	})
}

// save notes how much of the log is in the mdisk, when all of it is.
func (n *node) save() {
	if !n.open || n.saving || n.out > 0 || n.seq-n.base < logSlots/2 {
		return
	}
	n.saving = true
	seq := n.seq
	n.r.Commit(func(err error) {
		if err != nil || n.out > 0 || seq != n.seq {
			n.saving = false
			return
		}
		n.meta.Commit([]block.KV{{Key: []byte("base"), Value: binary.LittleEndian.AppendUint64(nil, seq)}}, func(err error) {
			if n.saving = false; err == nil {
				n.base = seq
			}
		})
	})
}

// warm returns a place to write to: two of them at a time are written to again and again, and then not for a while, so
// that what comes late to one is not written over at once.
func (g *game) warm() int { return (int(g.v.Now()/4e9)*2 + g.rnd.IntN(2)) % places }

// hosts sends a command to one of the nodes, and then another one.
func (g *game) hosts(end int64) {
	if g.v.Now() >= end {
		return
	}
	if len(g.nodes) > 0 {
		n, place := g.nodes[g.rnd.IntN(len(g.nodes))], g.rnd.IntN(places)
		if g.rnd.IntN(3) == 0 {
			want := g.acked[place]
			n.p.Run(func() {
				if n.serves() {
					if g.reads++; n.table[place].seq < want.seq {
						g.stale++
					}
				}
			})
		} else {
			place = g.warm()
			n.p.Run(func() { n.write(place) })
		}
	}
	owners := 0
	for _, n := range g.nodes {
		if n.s != nil && !n.p.Stopped() && n.s.Serving() {
			owners++
		}
	}
	if owners > 1 {
		g.both++
	}
	if g.served > 0 {
		g.longest = max(g.longest, g.v.Now()-g.served)
	}
	g.v.At(g.v.Now()+g.rnd.Int64N(60e6), func() { g.hosts(end) })
}

// play plays a seed.
func play(t *testing.T, seed uint64, without control) *game {
	rnd := rand.New(rand.NewPCG(seed, 21))
	opt := simulated.Options{NoBlocklist: without == refusals, Latency: 1 + rnd.Int64N(3e6), Tail: rnd.IntN(50)}
	g := &game{t: t, what: fmt.Sprintf("-run %s -seed %d", t.Name(), seed), rnd: rnd, v: &block.Virtual{}, c: simulated.New(opt, rnd), same: rnd.IntN(3) == 0, control: without,
		killed: map[int]bool{}}
	g.c.Fail, g.c.Forget, g.c.ForgetMonitor = g.fails, g.forgets, g.forgetsMonitor
	calm := without == refusals // a control that loses seldom is not to be kept from it
	begin := int64(2e9)
	if !calm && rnd.IntN(2) == 0 {
		g.found()
		if g.quiet = rnd.IntN(2) == 0; g.quiet {
			begin = g.v.Now() + 14e9
		}
	}
	for range 2 + rnd.IntN(2) {
		g.start()
	}
	if g.quiet || !calm && rnd.IntN(2) == 0 {
		g.setMonitor(g.rnd.Int64N(1 + g.rnd.Int64N(1e9)))
		g.locked(g.v.Now() + 1e9)
	}
	const end = 70e9
	g.hosts(end)
	kinds := 10
	if calm {
		kinds = 7
	}
	g.v.At(begin, func() { g.trouble(end, kinds) })
	g.v.RunUntil(end + 40e9)
	// The last word has one that comes when all is over.
	for _, n := range g.nodes {
		n.p.Continue()
	}
	g.c.Continue()
	g.spell, g.c.FailMonitor, g.c.MonitorTimeout = 0, nil, 0
	g.v.RunUntil(g.v.Now() + 30e9)
	for len(g.nodes) > 0 {
		n := g.nodes[0]
		g.nodes = g.nodes[1:]
		g.killed[n.number] = true
		n.client.Kill()
		n.p.Kill()
	}
	g.c.Settle()
	g.same = true
	last := g.start()
	g.v.RunUntil(g.v.Now() + 60e9)
	if !last.open {
		t.Fatalf("%s: nobody can have the array", g.what)
	}
	for _, n := range g.nodes {
		n.client.Kill()
		n.p.Kill()
	}
	return g
}

var takeovers = flag.Int("takeovers", 60, "seeds of TestTakeovers")

// TestTakeovers: whatever happens to nodes, nothing that was acknowledged is lost, and nothing older is read than what
// was acknowledged before the read began.
func TestTakeovers(t *testing.T) {
	seed, seeds := testkit.Seed(t), uint64(*takeovers)
	if testing.Short() {
		seeds = 20
	}
	var (
		all  game
		mu   sync.Mutex // all
		next atomic.Uint64
		wait sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for s := seed + next.Add(1) - 1; s < seed+seeds && !t.Failed(); s = seed + next.Add(1) - 1 {
				g := play(t, s, whole)
				if g.lost > 0 || g.stale > 0 || g.both > 0 {
					t.Errorf("%s: %d acknowledged writes were lost, %d reads were stale, two served at %d moments", g.what, g.lost, g.stale, g.both)
				}
				mu.Lock()
				all.opens, all.writes, all.reads, all.caught = all.opens+g.opens, all.writes+g.writes, all.reads+g.reads, all.caught+g.caught
				all.handed += g.handed
				all.unknown, all.unheard, all.longest = all.unknown+g.unknown, all.unheard+g.unheard, max(all.longest, g.longest)
				if all.all++; all.all%5000 == 0 {
					fmt.Printf("%d of %d seeds: nothing lost, nothing stale\n", all.all, seeds)
				}
				mu.Unlock()
			}
		})
	}
	if wait.Wait(); t.Failed() {
		return
	}
	t.Logf("%d seeds, %d owners, %d arrays handed to somebody, %d starts caught behind their lock, %d locks and watches and %d requests to monitors with an effect and an error, "+
		"%d writes, %d reads: 0 lost, 0 stale; at most %d s without an owner that serves",
		seeds, all.opens, all.handed, all.caught, all.unknown, all.unheard, all.writes, all.reads, all.longest/1e9)
	// Few seeds differ more: 20 may have half of the writes, and hardly a request, of other 20.
	n := int(seeds)
	if n < 1000 {
		n /= 4
	}
	if all.opens < 3*n || all.writes < 100*n || all.caught < n/2 || all.handed < n/10 || all.unknown < n/4 || all.unheard < n/8 {
		t.Errorf("the test does not get there: %d owners, %d writes, %d caught, %d and %d unknown", all.opens, all.writes, all.caught, all.unknown, all.unheard)
	}
}

// TestTakeoverControls: each part of the fencing is needed. Without the blocklist data is lost that was acknowledged, without
// the look at the lease old data is read, and without the guard of the lease two serve where an epoch is raised late.
func TestTakeoverControls(t *testing.T) {
	for _, row := range []struct {
		without     control
		first, most uint64
		what        string
		of          func(*game) int
	}{
		{refusals, losingSeed, 240, "acknowledged writes lost without a blocklist", func(g *game) int { return g.lost }},
		{blind, 1, 100, "stale reads without a look at the lease", func(g *game) int { return g.stale }},
		{unguarded, overtakenSeed, 400, "moments with two owners without the guard of the lease", func(g *game) int { return g.both }},
	} {
		found := 0
		for s := row.first; s < row.first+row.most && found == 0; s++ {
			if found = row.of(play(t, s, row.without)); found > 0 {
				t.Logf("seed %d: %d %s", s, found, row.what)
			}
		}
		if found == 0 {
			t.Errorf("0 %s: the test proves nothing", row.what)
		}
	}
}
