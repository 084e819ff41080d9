package sim

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/store"
)

var (
	tortureSeeds = flag.Int("torture.seeds", 500, "number of seeds that TestTorture runs")
	tortureFirst = flag.Uint64("torture.first", 1, "first seed of TestTorture; with -torture.seeds=1 that one alone, with its log")
)

// TestTorture lets hosts write, read, zero, unmap, copy, compare and sync on arrays that keep their
// payload, while nodes and mdisks go and come back, caches are full, pools and volumes come and go
// and change their size, also over a meta store of which nobody knows what it has, policies change,
// tasks are aborted, units are reset and fenced, flushes and commits fail, and the power fails.
// Every read returns the last acknowledged write, every task ends, space adds up, who has room does
// not wait, a start finds the pools and volumes that it has to, and the array's own check finds
// nothing. A seed gives the same run each time. With -v it tells how many seeds have drawn what: in
// 500 seeds each class has to be there.
func TestTorture(t *testing.T) {
	n := *tortureSeeds
	switch {
	case testing.Short():
		n = min(n, 25)
	case raceEnabled:
		n = min(n, 100)
	}
	if all := runTorture(t, n, newTorture); !t.Failed() {
		all.report(t)
	}
}

// TestTortureOfRemoteLog is TestTorture on arrays whose NVRAM a partner keeps, at the end of a link: what the process has not
// heard of as committed when it dies is lost, and nobody was told that it was written, or has read it.
func TestTortureOfRemoteLog(t *testing.T) {
	n := *tortureSeeds
	if n > 1 {
		n = min((n+24)/25, 100) // a seed takes ten times as long
	}
	switch {
	case testing.Short():
		n = min(n, 4)
	case raceEnabled:
		n = min(n, 20)
	}
	runTorture(t, n, func(seed uint64) *torture {
		m := newTorture(seed)
		m.store.partner = blocktest.NewPartner()
		return m
	})
}

// runTorture runs so many seeds on all cores.
func runTorture(t *testing.T, n int, world func(seed uint64) *torture) *drawn {
	var next atomic.Int64
	var wg sync.WaitGroup
	var failed atomic.Int64
	all := &drawn{}
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed.Load() < 5; i = next.Add(1) - 1 {
				seed := *tortureFirst + uint64(i)
				m := world(seed)
				if msg := m.run(); msg != "" {
					failed.Add(1)
					t.Errorf("seed %d: %s\nits last events:\n%s\nrun it alone with -run '^%s$' -torture.first=%d -torture.seeds=1", seed, msg, m.tail(), t.Name(), seed)
				} else if n == 1 {
					t.Log(m.tail())
				}
				all.add(m)
			}
		})
	}
	wg.Wait()
	return all
}

// torture is one seed's world.
type torture struct {
	rng      Rand
	exec     *block.Virtual
	store    *tortureStore
	timed    *store.Timed
	arr      *array.Array
	target   *scsi.Target
	nexus    [2]*scsi.Nexus
	vols     []*tortureVolume
	pools    map[string]bool // that there are
	unsure   map[string]bool // those that the next start may find or not
	flying   map[string]bool // those whose making or deletion has no answer yet
	spare    map[string]*spareVolume
	asked    int // changes of pools and of spare volumes without an answer
	opt      array.Options
	slow     store.Service
	tasks    int
	copies   int // of them
	tag      uint64
	stamp    uint64
	changes  uint64
	lists    uint32
	tokens   [3]*tortureToken
	odx      bool // there may be tokens
	held     bool // there are: what they hold is not free
	log      []event
	memory   tortureMemory
	scratch  []byte
	bad      string
	era      int // grows with each loss of power: what ends later belongs to the dead
	down     map[string]bool
	disks    uint64 // size of an mdisk
	poolRoom int    // how many pools the array can still make
	cutIn    int    // steps until NVRAM loses what is not flushed, 0: it does not
	drew     [numClasses]bool

	pagesOften bool // half of what goes wrong is that pages of maps are bad
}

func newTorture(seed uint64) *torture {
	m := &torture{rng: newRand(seed, "torture"), exec: &block.Virtual{}, down: map[string]bool{}, pools: map[string]bool{}, unsure: map[string]bool{},
		flying: map[string]bool{}, spare: map[string]*spareVolume{}}
	m.slow = store.Service{Parallel: 1 + int(m.rng.N(4)), Base: int64(m.rng.N(3e6)), Bandwidth: 20e6, Low: 500, High: 1500}
	m.opt = array.Options{CacheBytes: int64(2+m.rng.N(6)) << 20, UUID: seed, Policy: m.policy(), CounterRows: 4096}
	if caps := [][]int{nil, nil, {100}, {60}}[m.rng.N(4)]; caps != nil {
		m.opt.CapPercent = caps
	}
	m.disks = []uint64{16 << 20, 16 << 20, 4 << 20}[m.rng.N(3)]
	if m.rng.N(4) > 0 { // small logs fill, and checkpoints come
		m.opt.LogBytes = 64 << 10
		m.opt.CheckpointBytes = []int{0, 1, 5000, 20_000}[m.rng.N(4)]
	}
	if late := newRand(seed, "late"); late.N(2) == 0 { // data gets into NVRAM beside the core
		m.exec.Late = func() int64 { return int64(late.N(50_000)) }
	}
	leaves := newRand(seed, "leaves")
	m.opt.LeafBytes = []uint64{0, 1, 10_000}[leaves.N(3)]
	maps := newRand(seed, "maps")
	m.opt.MapBytes = []uint64{0, 1, 20_000}[maps.N(3)]
	rng := newRand(seed, "store")
	m.store = newTortureStore(m.exec, &rng, []uint64{1, 1e5, 3e6}[m.rng.N(3)])
	m.poolRoom = maxTorturePools
	m.odx = m.rng.N(2) == 0
	return m
}

// maxTorturePools is how many pools an array can make in its life: see docs/limits.md.
const maxTorturePools = 1024

func (m *torture) note(format string, args ...any) {
	m.log = append(m.log, event{m.exec.Now(), format, args})
}

func (m *torture) tail() string { return strings.Join(noted(m.log[max(0, len(m.log)-60):]), "\n") }

func (m *torture) fail(format string, args ...any) {
	if m.bad == "" {
		m.bad = fmt.Sprintf(format, args...)
		m.note("FAILED: %s", m.bad)
	}
}

// policy returns a random policy.
func (m *torture) policy() array.Policy {
	p := array.Policy{Admission: array.Admission(m.rng.N(3)), Order: array.DestageOrder(m.rng.N(2)),
		DestageDepth: 1 + int(m.rng.N(8)), CopyPieces: 1 + int(m.rng.N(16)), CopyReads: int(m.rng.N(4))}
	if m.rng.N(2) == 0 {
		f0 := int64(m.rng.N(600))
		p.Ramp.Points = []array.RampPoint{{At: f0, Rate: int64(m.rng.N(2)) << 20}, {At: f0 + 300, Rate: 10 << 20}, {At: 1000, Rate: 100 << 20}}
		p.Ramp.MaxAge = int64(m.rng.N(3)) * 1e9
	}
	if m.rng.N(3) == 0 {
		p.Budget = array.Budget{Percent: 10 + int(m.rng.N(60)), HostPercent: int(m.rng.N(50)), Pressure: true}
	}
	return p
}

// open starts an array over the store, and hosts that see its volumes.
func (m *torture) open() bool {
	m.timed = store.NewTimed(m.store, m.exec, func(string) store.Service { return m.slow }, store.ReadCache{}, m.rng.Uint64())
	m.opt.Exec, m.opt.Store = m.exec, m.timed
	a, err := array.Open(m.opt)
	if err != nil {
		m.fail("open: %v", err)
		return false
	}
	m.arr = a
	tokens := newRand(m.rng.Uint64(), "tokens")
	random := func(b []byte) {
		for i := range b {
			b[i] = byte(tokens.Uint64())
		}
	}
	m.target = scsi.NewTarget(scsi.Options{Name: "iqn.2026-01.io.arraysim:array", Vendor: "ARRAYSIM", Product: "array", Exec: m.exec, Random: random})
	return true
}

func (m *torture) login() {
	for i := range m.vols {
		m.export(i)
	}
	for i := range m.nexus {
		name := fmt.Sprintf("iqn.2026-01.host:%d", i)
		m.nexus[i] = m.target.OpenNexus(name, name+",i,0x1", 1)
		for lun := range m.vols {
			m.calm(i, lun)
		}
	}
}

// calm takes a nexus' unit attentions.
func (m *torture) calm(nexus, lun int) {
	for range 3 {
		m.nexus[nexus].Submit([]*scsi.Task{{LUN: uint64(lun) << 48, CDB: make([]byte, 6), Bufs: heapBuffers{}, Done: func(*scsi.Task) {}}})
		m.exec.RunUntil(m.exec.Now())
	}
}

// build makes pools and volumes.
func (m *torture) build() bool {
	pools := []uint64{2, 2, 3, 3, 1, 5, 16, 64}[m.rng.N(8)]
	if m.rng.N(12) == 0 { // an array that is old
		m.poolRoom = int(pools) + 1
		if err := m.store.age(m.opt.UUID, maxTorturePools-m.poolRoom); err != nil {
			m.fail("%v", err)
		}
	}
	if !m.open() {
		return false
	}
	if pools >= 16 {
		m.saw(manyPools)
	}
	for i := range pools {
		m.addPool(fmt.Sprintf("p%d", i), m.rng.N(2) == 0)
	}
	m.seeCaps(int(pools))
	for i := range max(4, min(pools, 12)) {
		m.vols = append(m.vols, m.create(fmt.Sprintf("v%d", i), fmt.Sprintf("p%d", m.rng.N(pools-pools/4))))
	}
	if m.bad == "" && m.rng.N(6) == 0 {
		m.fill(m.vols[m.rng.N(uint64(len(m.vols)))].pool)
	}
	if m.bad == "" {
		m.login()
	}
	return m.bad == ""
}

// seeCaps notes whether the pools can have more than the cache.
func (m *torture) seeCaps(pools int) {
	caps := m.opt.CapPercent
	if caps == nil {
		caps = []int{100, 66, 40, 30, 25}
	}
	if caps[min(pools, len(caps))-1]*pools > 100 {
		m.saw(overcommit)
	}
}

// until runs until a condition holds; nothing takes as long as an hour.
func (m *torture) until(cond func() bool, what string) {
	m.within(3600e9, cond, what)
}

func (m *torture) within(long int64, cond func() bool, what string) {
	limit := m.exec.Now() + long
	for !cond() && m.bad == "" {
		if !m.exec.Step() || m.exec.Now() > limit {
			m.fail("waited in vain for %s", what)
		}
	}
}

// step lets the hosts send commands, and time pass.
func (m *torture) step() {
	for range 1 + m.rng.N(4) {
		m.command()
	}
	m.exec.RunUntil(m.exec.Now() + int64(m.rng.N(20e6)))
}

// run returns what went wrong, "" if nothing.
func (m *torture) run() string {
	if !m.build() {
		return m.bad
	}
	steps := 150 + int(m.rng.N(250))
	for i := 0; i < steps && m.bad == ""; i++ {
		if m.rng.N(10) == 0 {
			m.trouble()
		}
		if m.bad == "" && m.rng.N(40) == 0 {
			m.fence()
		}
		if m.bad == "" {
			m.step()
		}
		if m.cutIn > 0 {
			if m.cutIn--; m.cutIn == 0 && m.armed() {
				m.powerCut()
			}
		}
		if i%50 == 49 {
			m.check()
		}
	}
	m.repair()
	m.until(func() bool { return m.tasks == 0 }, "the tasks to end")
	if m.bad == "" {
		drained := false
		m.arr.Drain(func() { drained = true })
		m.until(func() bool { return drained }, "the cache to be drained")
	}
	for i := range m.vols {
		if m.bad == "" {
			m.readAll(i)
		}
	}
	if m.bad == "" {
		m.revoke()
	}
	m.check()
	return m.bad
}

func (m *torture) check() {
	if m.bad != "" || m.store.metaBad {
		return
	}
	if yes, _ := m.refused(); yes {
		return
	}
	if r := m.arr.Check(true); len(r.Problems) > 0 {
		m.fail("check: %s", strings.Join(r.Problems, "; "))
	}
	m.checkSpace()
	m.checkObjects()
}
