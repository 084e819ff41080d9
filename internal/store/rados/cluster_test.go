//go:build rados && linux

package rados_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/librados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
	"github.com/arraysim/arraysim/internal/testkit"
)

const script = "../../../scripts/ceph.py"

var osds = flag.Int("osds", 1, "OSDs of the clusters that tests start; with three, each object has three copies")

// live drives a suite by the wall clock.
type live struct{ *block.Live }

func (l live) Wait(start func(done func())) {
	ch := make(chan struct{})
	l.Lock()
	start(func() { close(ch) })
	l.Unlock()
	<-ch
}

// startCluster starts a throw-away Ceph cluster until the test ends, and returns how to reach it. The test is
// skipped where Ceph is not installed. Below `scripts/ceph.py run` there is one.
func startCluster(t testing.TB) librados.Config {
	t.Helper()
	if conf := os.Getenv("ARRAYSIM_CEPH_CONF"); conf != "" {
		return librados.Config{Conf: conf, Keyring: filepath.Join(filepath.Dir(conf), "client.arraysim.keyring"), Pool: "arraysim", User: "arraysim"}
	}
	out, err := exec.Command(script, "missing").Output()
	if err != nil {
		t.Skipf("%s does not run: %v", script, err)
	}
	if list := strings.Fields(string(out)); len(list) > 0 {
		t.Skipf("Ceph is not installed: %s; run make rados-test", strings.Join(list, " "))
	}
	if err := librados.Available(); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(script, "hold", "--osds", fmt.Sprint(*osds))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var says strings.Builder
	cmd.Stderr = &says
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	var about struct{ Conf, Keyring, Pool, User string }
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &about)
	}
	if err != nil {
		t.Fatalf("the cluster did not come up: %v\n%s", err, says.String())
	}
	return librados.Config{Conf: about.Conf, Keyring: about.Keyring, Pool: about.Pool, User: about.User}
}

// connect connects to a namespace.
func connect(t testing.TB, cfg librados.Config, namespace string) rados.Cluster {
	t.Helper()
	cfg.Namespace = namespace
	c, err := librados.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var cookies int

// openLive opens an array of a cluster.
func openLive(t testing.TB, cfg librados.Config, namespace string, opt rados.Options) (live, *rados.Store) {
	t.Helper()
	l := live{block.NewLive()}
	t.Cleanup(l.Stop)
	if opt.Log == "" {
		opt.Log = rados.LogReplicated
	}
	if opt.Self == (rados.Owner{}) {
		opt.Self = rados.Owner{Host: "here", PID: 1}
	}
	cookies++
	opt.Cookie = fmt.Sprint(cookies)
	s, err := rados.Open(l.Live, connect(t, cfg, namespace), opt)
	if err != nil {
		t.Fatal(err)
	}
	return l, s
}

// TestCluster is the smoke test on a real cluster in memory.
func TestCluster(t *testing.T) {
	cfg := startCluster(t)
	t.Run("store", func(t *testing.T) {
		blocktest.Store(t, func(t *testing.T) (block.Store, blocktest.Driver) {
			l, s := openLive(t, cfg, t.Name(), rados.Options{})
			return s, l
		})
	})
	t.Run("as simulated", func(t *testing.T) { asSimulated(t, cfg) })
	t.Run("many at a time", func(t *testing.T) { manyAtATime(t, cfg) })
	t.Run("takeover", func(t *testing.T) { takeover(t, cfg) })
	t.Run("full", func(t *testing.T) { fullPool(t, cfg) })
}

// carryOut submits operations and waits for all of them.
func carryOut(c rados.Cluster, ops []*rados.Op) {
	var left atomic.Int32
	left.Store(int32(len(ops)))
	for _, op := range ops {
		op.Done = func(*rados.Op) { left.Add(-1) }
		c.Submit(op)
	}
	c.Wait(func() bool { return left.Load() == 0 })
}

// asSimulated: random operations, one after the other, have the same results on the real cluster as on the
// simulated one.
func asSimulated(t *testing.T, cfg librados.Config) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 9))
	real := connect(t, cfg, t.Name())
	defer real.Close()
	simulation := simulated.New(simulated.Options{}, rnd).Connect(&block.Virtual{}, t.Name())
	defer simulation.Close()
	seen := map[string]int{}
	for i := range 300 {
		object, steps := string(rune('a'+rnd.IntN(4))), randomSteps(rnd)
		look := []rados.Step{{Kind: rados.Read, Buf: make([]byte, 200)}, {Kind: rados.OmapList, Max: 100}}
		for _, now := range [][]rados.Step{steps, look} {
			op, same := &rados.Op{Object: object, Steps: now}, &rados.Op{Object: object, Steps: slices.Clone(now)}
			for j := range same.Steps {
				st := &same.Steps[j]
				st.Buf, st.Pairs = slices.Clone(st.Buf), slices.Clone(st.Pairs)
			}
			carryOut(real, []*rados.Op{op})
			carryOut(simulation, []*rados.Op{same})
			if got, want := describe(op), describe(same); got != want {
				t.Fatalf("operation %d, -seed %d: %+v on %s, behind %+v:\nreal      %s\nsimulated %s", i, seed, now, object, steps, got, want)
			}
			for _, known := range []error{nil, rados.ErrNotFound, rados.ErrExists, rados.ErrGuard} {
				if op.Err == known {
					seen[fmt.Sprint(known)]++
				}
			}
		}
	}
	if len(seen) != 4 || seen["<nil>"] < 100 {
		t.Errorf("the test does not get there: %v", seen)
	}
}

// manyAtATime: hundreds of writes, zeroings and reads of a few objects under way at a time, as they come from mdisks, have
// the results that they would have one after the other, in the order of Submit.
func manyAtATime(t *testing.T, cfg librados.Config) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 13))
	real := connect(t, cfg, t.Name())
	defer real.Close()
	simulation := simulated.New(simulated.Options{}, rnd).Connect(&block.Virtual{}, t.Name())
	defer simulation.Close()
	for range 4 {
		var ops, same []*rados.Op
		for range 300 {
			object, off := string(rune('a'+rnd.IntN(4))), uint64(rnd.IntN(64))*512
			n := (1 + rnd.IntN(16)) * 512
			var steps []rados.Step
			switch rnd.IntN(5) {
			case 0, 1:
				steps = []rados.Step{{Kind: rados.Write, Off: off, Data: [][]byte{filled(n, byte(rnd.Uint32()))}},
					{Kind: rados.Write, Off: 1<<20 + off/128, Data: [][]byte{filled(n/128, byte(rnd.Uint32()))}}}
			case 2:
				steps = []rados.Step{{Kind: rados.Zero, Off: off, N: uint64(n)}, {Kind: rados.Zero, Off: 1<<20 + off/128, N: uint64(n / 128)}}
			default:
				steps = []rados.Step{{Kind: rados.Read, Off: off, Buf: make([]byte, n)}, {Kind: rados.Read, Off: 1<<20 + off/128, Buf: make([]byte, n/128)}}
			}
			op, o := &rados.Op{Object: object, Steps: steps}, &rados.Op{Object: object, Steps: slices.Clone(steps)}
			for j := range o.Steps {
				o.Steps[j].Buf = slices.Clone(o.Steps[j].Buf)
			}
			ops, same = append(ops, op), append(same, o)
		}
		carryOut(real, ops)
		carryOut(simulation, same)
		for i, op := range ops {
			if describe(op) != describe(same[i]) {
				t.Fatalf("operation %d, -seed %d, on %s: %v, simulated %v, or other bytes", i, seed, op.Object, op.Err, same[i].Err)
			}
		}
	}
}

// describe says what came of an operation.
func describe(op *rados.Op) string {
	out := fmt.Sprint(op.Err)
	for i := range op.Steps {
		st := &op.Steps[i]
		if op.Err == nil && op.Reads() {
			out += fmt.Sprintf(" %d %x %v %q", st.N, st.Buf, st.More, st.Pairs)
		}
	}
	return out
}

// randomSteps returns the steps of an operation.
func randomSteps(rnd *rand.Rand) (steps []rados.Step) {
	if rnd.IntN(3) == 0 {
		steps = append(steps, rados.Step{Kind: rados.Kind(rnd.IntN(2)), Name: "epoch", Value: []string{"", "0", "1", "2"}[rnd.IntN(4)]})
	}
	if rnd.IntN(6) == 0 { // of an attribute that there is not
		steps = append(steps, rados.Step{Kind: rados.Guard, Name: "lease"})
	}
	writes := rnd.IntN(2) > 0
	if writes && rnd.IntN(4) == 0 {
		steps = append(steps, rados.Step{Kind: rados.Exists})
	}
	bytes := func() [][]byte {
		b := make([]byte, 1+rnd.IntN(40))
		for i := range b {
			b[i] = byte(1 + rnd.IntN(255))
		}
		n := rnd.IntN(len(b) + 1)
		return [][]byte{b[:n], b[n:]}
	}
	pairs := func(values bool) (list []rados.Pair) {
		for k := range 6 {
			if rnd.IntN(2) == 0 {
				p := rados.Pair{Key: fmt.Sprintf("%c\x01%d", 'k'+k%2, k)}
				if values {
					p.Value = append([]byte{}, bytes()[0]...)
				}
				list = append(list, p)
			}
		}
		return append(list, rados.Pair{Key: "z", Value: []byte{}})
	}
	off := uint64(rnd.IntN(60))
	if !writes {
		switch rnd.IntN(3) {
		case 0:
			return append(steps, rados.Step{Kind: rados.Read, Off: off, Buf: make([]byte, 1+rnd.IntN(50))}, rados.Step{Kind: rados.Read, Buf: make([]byte, 8)})
		case 1:
			return append(steps, rados.Step{Kind: rados.OmapGet, Pairs: pairs(false)})
		}
		after := []string{"", "k", "k\x012", "l"}[rnd.IntN(4)]
		return append(steps, rados.Step{Kind: rados.OmapList, After: after, Prefix: []string{"", "k", "l\x01"}[rnd.IntN(3)], Max: 1 + rnd.IntN(4)})
	}
	if rnd.IntN(8) == 0 {
		return append(steps, rados.Step{Kind: rados.Remove})
	}
	for range 1 + rnd.IntN(3) {
		steps = append(steps, []rados.Step{
			{Kind: rados.Create, Exclusive: rnd.IntN(3) == 0},
			{Kind: rados.SetAttr, Name: "epoch", Value: fmt.Sprint(rnd.IntN(3))},
			{Kind: rados.Write, Off: off, Data: bytes()},
			{Kind: rados.Replace, Data: bytes()},
			{Kind: rados.Zero, Off: off, N: uint64(1 + rnd.IntN(30))},
			{Kind: rados.OmapSet, Pairs: pairs(true)},
			{Kind: rados.OmapRemove, Pairs: pairs(false)},
		}[rnd.IntN(7)])
	}
	return steps
}

// takeover: a successor fences an owner that still runs, and finds what that one has committed.
func takeover(t *testing.T, cfg librados.Config) {
	layout := block.RegionLayout{State: 512, Counters: 64, Log: 4096}
	l, old := openLive(t, cfg, t.Name(), rados.Options{})
	m := medium(t, old, 8<<20)
	r, _, err := old.Region("nvram", layout)
	if err != nil {
		t.Fatal(err)
	}
	write := func(l live, m block.Medium, b byte) (err error) {
		l.Wait(func(done func()) {
			io := &block.IO{Write: true, N: 8 << 20, Vec: [][]byte{filled(8<<20, b)}}
			io.Done = func(io *block.IO) { err = io.Err; done() }
			m.Submit([]*block.IO{io})
		})
		return err
	}
	commit := func() (err error) {
		l.Wait(func(done func()) { r.Commit(func(e error) { err = e; done() }) })
		return err
	}
	l.Lock()
	r.Append(512, filled(512, 7))
	l.Unlock()
	if err := errors.Join(write(l, m, 1), commit()); err != nil {
		t.Fatal(err)
	}
	if _, err := rados.Open(l.Live, connect(t, cfg, t.Name()), rados.Options{}); !errors.Is(err, rados.ErrTaken) {
		t.Errorf("an array that is open: %v", err)
	}
	begin := time.Now()
	l2, next := openLive(t, cfg, t.Name(), rados.Options{Dead: dead})
	m2 := medium(t, next, 8<<20)
	r2, fresh, err := next.Region("nvram", layout)
	if err != nil || fresh {
		t.Fatalf("the successor finds a log that is fresh: %v, %v", fresh, err)
	}
	t.Logf("taken over after %v", time.Since(begin))
	record := make([]byte, 512)
	if r2.ReadLog(512, record); record[0] != 7 {
		t.Error("the successor does not find a record that was committed")
	}
	if err := write(l2, m2, 2); err != nil {
		t.Fatal(err)
	}
	l.Lock()
	r.Append(1024, filled(512, 8))
	l.Unlock()
	if err := commit(); !errors.Is(err, block.ErrFenced) {
		t.Errorf("a commit of the old owner: %v", err)
	}
	if err := write(l, m, 3); !errors.Is(err, block.ErrFenced) {
		t.Errorf("a write of the old owner: %v", err)
	}
	got := make([]byte, 8<<20)
	l2.Wait(func(done func()) {
		m2.Submit([]*block.IO{{N: 8 << 20, Vec: [][]byte{got}, Done: func(*block.IO) { done() }}})
	})
	if got[0] != 2 || got[8<<20-1] != 2 {
		t.Errorf("the old owner wrote: %d, %d", got[0], got[8<<20-1])
	}
	if err := errors.Join(old.Close(), next.Close()); err != nil {
		t.Error(err)
	}
}

// fullPool: a write to a full cluster fails at once with ErrFull; one in place, and a discard, do not.
func fullPool(t *testing.T, cfg librados.Config) {
	l, s := openLive(t, cfg, t.Name(), rados.Options{})
	defer s.Close()
	m := medium(t, s, 12<<20)
	writeMuch := func(off uint64, n int) (err error) {
		l.Wait(func(done func()) {
			io := &block.IO{Write: true, Off: off, N: uint64(n), Vec: [][]byte{filled(n, 1)}}
			io.Done = func(io *block.IO) { err = io.Err; done() }
			m.Submit([]*block.IO{io})
		})
		return err
	}
	write := func(off uint64) error { return writeMuch(off, 4096) }
	inject := func(state ...string) {
		cmd := exec.Command("ceph", append([]string{"--conf", cfg.Conf, "tell", "osd.0", "injectfull"}, state...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	if err := writeMuch(0, 4<<20); err != nil {
		t.Fatal(err)
	}
	inject("full", "1000")
	var err error
	for end := time.Now().Add(20 * time.Second); err == nil && time.Now().Before(end); { // an OSD has to hear of it
		err = write(4 << 20)
		if err == nil {
			l.Wait(func(done func()) { m.(block.Discarder).Discard(4<<20, 4<<20, func(error) { done() }) })
		}
	}
	if !errors.Is(err, block.ErrFull) {
		t.Errorf("a write to a full pool: %v", err)
	}
	if err := write(0); err != nil {
		t.Errorf("a write in place: %v", err)
	}
	l.Wait(func(done func()) {
		m.(block.Discarder).Discard(0, 4<<20, func(err error) {
			if err != nil {
				t.Errorf("a discard: %v", err)
			}
			done()
		})
	})
	inject("none")
	for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); {
		err = write(4 << 20)
	}
	if err != nil {
		t.Errorf("a write where there is room again: %v", err)
	}
}
