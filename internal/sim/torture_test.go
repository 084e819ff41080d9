package sim

import (
	"encoding/binary"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/store"
)

var (
	tortureSeeds = flag.Int("torture.seeds", 1000, "number of seeds that TestTorture runs")
	tortureFirst = flag.Uint64("torture.first", 1, "first seed of TestTorture; with -torture.seeds=1 that one alone, with its log")
)

// TestTorture lets hosts write, read, zero, unmap, copy, compare and sync on arrays that
// keep their payload, while nodes and mdisks go and come back, caches are full, pools are added,
// policies change, tasks are aborted, units are reset, and the power fails. Every read
// returns the last acknowledged write, every task ends, and the array's own check finds
// nothing. A seed gives the same run each time.
func TestTorture(t *testing.T) {
	n := *tortureSeeds
	if testing.Short() || raceEnabled {
		n = min(n, 100)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed.Load() < 5; i = next.Add(1) - 1 {
				seed := *tortureFirst + uint64(i)
				m := newTorture(seed)
				if msg := m.run(); msg != "" {
					failed.Add(1)
					t.Errorf("seed %d: %s\nits last events:\n%s\nrun it alone with -run TestTorture -torture.first=%d -torture.seeds=1", seed, msg, m.tail(), seed)
				} else if n == 1 {
					t.Log(m.tail())
				}
			}
		})
	}
	wg.Wait()
}

const (
	unitBytes = 4096 // what the model knows the contents of
	unitSecs  = unitBytes / 512
)

// torture is one seed's world.
type torture struct {
	rng    Rand
	exec   *block.Virtual
	mem    *store.Memory
	timed  *store.Timed
	arr    *array.Array
	target *scsi.Target
	nexus  [2]*scsi.Nexus
	vols   []*tortureVolume
	opt    array.Options
	slow   store.Service
	tasks  int
	tag    uint64
	stamp  uint64
	log    []string
	bad    string
	era    int // grows with each loss of power: what ends later belongs to the dead
	down   map[string]bool
	added  int
	disks  uint64 // size of an mdisk
}

// tortureVolume is what hosts know about a volume: for every 4 KiB the stamps that each of its
// sectors may carry, 0 being zeros.
type tortureVolume struct {
	name  string
	pool  string
	units []tortureUnit
	naa   [16]byte
	thin  bool
	unit  *scsi.Unit
}

type tortureUnit struct {
	may  []uint64
	busy bool // a command is under way there
	// anchored: writes to it may not fail for lack of space.
	anchored bool
	next     uint64
	what     bool // that command may change it to next, or to copied
	from     []uint64
}

func newTorture(seed uint64) *torture {
	m := &torture{rng: newRand(seed, "torture"), exec: &block.Virtual{}, down: map[string]bool{}}
	m.mem = store.NewMemory(m.exec, store.MemoryOptions{})
	m.slow = store.Service{Parallel: 1 + int(m.rng.N(4)), Base: int64(m.rng.N(3e6)), Bandwidth: 20e6, Low: 500, High: 1500}
	m.opt = array.Options{CacheBytes: int64(2+m.rng.N(6)) << 20, UUID: seed, Policy: m.policy()}
	if caps := [][]int{nil, nil, {100}, {60}}[m.rng.N(4)]; caps != nil {
		m.opt.CapPercent = caps
	}
	m.disks = []uint64{16 << 20, 16 << 20, 4 << 20}[m.rng.N(3)]
	return m
}

func (m *torture) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%12.6f ", float64(m.exec.Now())/1e9)+fmt.Sprintf(format, args...))
}

func (m *torture) tail() string { return strings.Join(m.log[max(0, len(m.log)-60):], "\n") }

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
	m.timed = store.NewTimed(m.mem, m.exec, func(string) store.Service { return m.slow }, store.ReadCache{}, m.rng.Uint64())
	m.opt.Exec, m.opt.Store = m.exec, m.timed
	a, err := array.Open(m.opt)
	if err != nil {
		m.fail("open: %v", err)
		return false
	}
	m.arr = a
	m.target = scsi.NewTarget(scsi.Options{Name: "iqn.2026-01.io.arraysim:array", Vendor: "ARRAYSIM", Product: "array", Exec: m.exec})
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
	if !m.open() {
		return false
	}
	pools := []uint64{2, 2, 3, 3, 1, 5, 16, 64}[m.rng.N(8)]
	for i := range pools {
		m.addPool(fmt.Sprintf("p%d", i), m.rng.N(2) == 0)
	}
	for i := range max(4, min(pools, 12)) {
		m.vols = append(m.vols, m.create(fmt.Sprintf("v%d", i), fmt.Sprintf("p%d", m.rng.N(pools-pools/4))))
	}
	if m.bad == "" {
		m.login()
	}
	return m.bad == ""
}

func (m *torture) addPool(name string, copyData bool) {
	done := false
	spec := array.PoolSpec{Name: name, CopyData: copyData}
	for i := range 2 {
		spec.Mdisks = append(spec.Mdisks, array.MdiskSpec{Name: fmt.Sprintf("m%d", i), Size: m.disks})
	}
	era := m.era
	m.arr.CreatePool(spec, func(_ *array.Pool, err error) {
		if done = true; err != nil && era == m.era {
			m.fail("pool: %v", err)
		}
	})
	m.until(func() bool { return done }, "a pool to be made")
}

// until runs until a condition holds; nothing takes as long as an hour.
func (m *torture) until(cond func() bool, what string) {
	limit := m.exec.Now() + 3600e9
	for !cond() && m.bad == "" {
		if !m.exec.Step() || m.exec.Now() > limit {
			m.fail("waited in vain for %s", what)
		}
	}
}

// run returns what went wrong, "" if nothing.
func (m *torture) run() string {
	if !m.build() {
		return m.bad
	}
	steps := 150 + int(m.rng.N(250))
	for i := 0; i < steps && m.bad == ""; i++ {
		for range 1 + m.rng.N(4) {
			m.command()
		}
		if m.rng.N(12) == 0 {
			m.trouble()
		}
		if m.bad == "" && m.rng.N(40) == 0 {
			m.fence()
		}
		m.exec.RunUntil(m.exec.Now() + int64(m.rng.N(20e6)))
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
	m.check()
	return m.bad
}

func (m *torture) check() {
	if m.bad != "" {
		return
	}
	if r := m.arr.Check(true); len(r.Problems) > 0 {
		m.fail("check: %s", strings.Join(r.Problems, "; "))
	}
	m.checkSpace()
}

// free finds a run of units of a volume where nothing is under way, and takes it.
func (m *torture) free(most uint64) (v *tortureVolume, lun int, first, n uint64, ok bool) {
	lun = int(m.rng.N(uint64(len(m.vols))))
	v = m.vols[lun]
	first = m.rng.N(uint64(len(v.units)))
	n = min(1+m.rng.N(most), uint64(len(v.units))-first)
	for _, u := range v.units[first : first+n] {
		if u.busy {
			return nil, 0, 0, 0, false
		}
	}
	for k := first; k < first+n; k++ {
		v.units[k].busy = true
	}
	return v, lun, first, n, true
}

func (v *tortureVolume) release(first, n uint64) {
	for k := first; k < first+n; k++ {
		v.units[k].busy, v.units[k].what, v.units[k].from = false, false, nil
	}
}

// settle says what a range may hold when the command that changes it has ended.
func (v *tortureVolume) settle(first, n uint64, good bool) {
	for k := first; k < first+n; k++ {
		u := &v.units[k]
		next := u.from
		if next == nil {
			next = []uint64{u.next}
		}
		if good {
			u.may = next
		} else {
			u.may = union(u.may, next)
		}
	}
	v.release(first, n)
}

func union(a, b []uint64) []uint64 {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// contents are n units that carry a stamp.
func contents(stamp uint64, n uint64) []byte {
	b := make([]byte, n*unitBytes)
	if stamp == 0 {
		return b
	}
	for s := uint64(0); s < n*unitSecs; s++ {
		x := b[s*512:]
		for k := range 64 {
			binary.LittleEndian.PutUint64(x[8*k:], stamp+uint64(k)<<40)
		}
	}
	return b
}

// stampOf returns the stamp of a sector, and whether the sector is whole.
func stampOf(b []byte) (uint64, bool) {
	stamp := binary.LittleEndian.Uint64(b)
	for k := range 64 {
		want := stamp
		if stamp != 0 {
			want += uint64(k) << 40
		}
		if binary.LittleEndian.Uint64(b[8*k:]) != want {
			return stamp, false
		}
	}
	return stamp, true
}

// task sends a command; done is not called if the power failed meanwhile.
func (m *torture) task(lun int, cdb, out []byte, in int, done func(*scsi.Task)) {
	m.tag++
	m.tasks++
	era := m.era
	t := &scsi.Task{LUN: uint64(lun) << 48, Tag: m.tag, Attr: scsi.Attr(1 + m.rng.N(20)/19), CDB: cdb, MaxIn: in, Bufs: heapBuffers{}}
	if out != nil {
		t.DataOut = [][]byte{out}
	}
	t.Done = func(t *scsi.Task) {
		if era == m.era {
			m.tasks--
			done(t)
		}
	}
	m.nexus[m.rng.N(2)].Submit([]*scsi.Task{t})
}

// outcome tells whether a task ended well; what a unit attention kept from being carried
// out did nothing.
func outcome(t *scsi.Task) (good, nothing bool) {
	switch {
	case t.Aborted || t.Status == scsi.StatusTaskAborted:
		return false, false
	case t.Status == scsi.StatusGood:
		return true, false
	}
	return false, t.Status == scsi.StatusCheckCondition && senseOf(t.Sense)>>16 == senseUnitAttention
}

// command issues a random command where nothing else is under way.
func (m *torture) command() {
	if m.tasks > 40 {
		return
	}
	kind := m.rng.N(100)
	most := uint64(16)
	if kind%7 == 0 {
		most = 200
	}
	v, lun, first, n, ok := m.free(most)
	if !ok {
		return
	}
	if kind >= 90 && kind < 96 {
		n = m.one(v, first, n)
	}
	change := func(stamp uint64) {
		for k := first; k < first+n; k++ {
			v.units[k].what, v.units[k].next = true, stamp
		}
	}
	finish := func(what string) func(*scsi.Task) { return m.finish(v, first, n, what) }
	switch {
	case kind < 40:
		m.stamp++
		stamp := m.stamp
		change(stamp)
		cdb := cdb16(0x8A, first, n)
		if m.rng.N(10) == 0 {
			cdb[1] = 8 // FUA
		}
		m.task(lun, cdb, contents(stamp, n), 0, finish(fmt.Sprintf("write %d to", stamp)))
	case kind < 60:
		m.read(v, lun, first, n)
	case kind < 68:
		change(0)
		cdb := cdb16(0x93, first, n)
		cdb[1] = 1 // NDOB
		if v.thin && m.rng.N(2) == 0 {
			cdb[1] |= 8 // UNMAP
		}
		what := "zero"
		if cdb[1]&8 != 0 && m.rng.N(2) == 0 {
			cdb[1] |= 16 // ANCHOR
			what = anchoring
		}
		m.task(lun, cdb, nil, 0, finish(what))
	case kind < 74:
		if !v.thin {
			v.release(first, n)
			return
		}
		change(0)
		list := make([]byte, 24)
		list[1], list[3] = 22, 16
		binary.BigEndian.PutUint64(list[8:], first*unitSecs)
		binary.BigEndian.PutUint32(list[16:], uint32(n*unitSecs))
		cdb := make([]byte, 10)
		cdb[0], cdb[8] = 0x42, 24
		what := "unmap"
		if m.rng.N(3) == 0 {
			cdb[1] = 1 // ANCHOR
			what = anchoring
		}
		m.task(lun, cdb, list, 0, finish(what))
	case kind < 78:
		m.stamp++
		stamp := m.stamp
		change(stamp)
		m.task(lun, cdb16(0x93, first, n), contents(stamp, 1)[:512], 0, finish(fmt.Sprintf("write same %d to", stamp)))
	case kind < 90:
		m.xcopy(v, lun, first, n)
	case kind < 96:
		m.compare(v, lun, first, finish)
	default:
		v.release(first, n)
		sync := make([]byte, 10)
		sync[0] = 0x35
		m.task(lun, sync, nil, 0, func(*scsi.Task) {})
	}
}

// finish notes the next task, which changes a range, and returns what to do when it ends.
func (m *torture) finish(v *tortureVolume, first, n uint64, what string) func(*scsi.Task) {
	tag := m.tag + 1
	m.note("%s %s [%d+%d) tag %d", what, v.name, first, n, tag)
	promised := v.promised(first, n)
	return func(t *scsi.Task) {
		good, nothing := outcome(t)
		m.note("  tag %d: status %02x sense %06x aborted %v", tag, t.Status, senseOf(t.Sense), t.Aborted)
		if promised && noSpace(t) {
			m.fail("%s %s [%d+%d) found no space, which was promised", what, v.name, first, n)
		}
		defer v.anchor(first, n, good && what == anchoring)
		if nothing {
			v.release(first, n)
			return
		}
		v.settle(first, n, good)
	}
}

// one keeps the first unit of a range only.
func (m *torture) one(v *tortureVolume, first, n uint64) uint64 {
	v.release(first+1, n-1)
	return 1
}

func cdb16(op byte, first, n uint64) []byte {
	b := make([]byte, 16)
	b[0] = op
	binary.BigEndian.PutUint64(b[2:], first*unitSecs)
	binary.BigEndian.PutUint32(b[10:], uint32(n*unitSecs))
	return b
}

// read compares what comes with what may be there; what was read is what is there.
func (m *torture) read(v *tortureVolume, lun int, first, n uint64) {
	m.note("read %s [%d+%d) tag %d", v.name, first, n, m.tag+1)
	m.task(lun, cdb16(0x88, first, n), nil, int(n*unitBytes), func(t *scsi.Task) {
		defer v.release(first, n)
		if good, _ := outcome(t); !good {
			return
		}
		data := slices.Concat(t.DataIn...)
		for k := range n {
			u := &v.units[first+k]
			var seen []uint64
			for s := range uint64(unitSecs) {
				stamp, whole := stampOf(data[(k*unitSecs+s)*512:])
				if !whole || !slices.Contains(u.may, stamp) {
					m.fail("%s unit %d sector %d reads %d (whole: %v), it may be %v", v.name, first+k, s, stamp, whole, u.may)
					return
				}
				seen = append(seen, stamp)
			}
			u.may = union(seen, nil)
		}
	})
}

func (m *torture) readAll(lun int) {
	v := m.vols[lun]
	for first := uint64(0); first < uint64(len(v.units)) && m.bad == ""; first += 256 {
		n := min(256, uint64(len(v.units))-first)
		// Each unit attention condition that waits is one attempt: resets, reservations, LUNs that come and go.
		for attempt := 0; attempt < 8; attempt++ {
			ended, good := false, false
			m.task(lun, cdb16(0x88, first, n), nil, int(n*unitBytes), func(t *scsi.Task) {
				ended = true
				good, _ = outcome(t)
				if !good {
					if attempt == 7 {
						m.fail("%s [%d+%d) cannot be read: status %02x sense %06x", v.name, first, n, t.Status, senseOf(t.Sense))
					}
					return
				}
				data := slices.Concat(t.DataIn...)
				for k := range n * unitSecs {
					stamp, whole := stampOf(data[k*512:])
					if may := v.units[first+k/unitSecs].may; !whole || !slices.Contains(may, stamp) {
						m.fail("at the end, %s unit %d sector %d reads %d (whole: %v), it may be %v", v.name, first+k/unitSecs, k%unitSecs, stamp, whole, may)
						return
					}
				}
			})
			m.until(func() bool { return ended }, "a read")
			if good {
				break
			}
		}
	}
}

// xcopy copies to [first+n) of v from somewhere else.
func (m *torture) xcopy(v *tortureVolume, lun int, first, n uint64) {
	w, src, from, k, ok := m.free(n)
	if !ok {
		v.release(first, n)
		return
	}
	if k < n {
		v.release(first+k, n-k)
		n = k
	}
	for i := range n {
		u := &v.units[first+i]
		u.what, u.from = true, slices.Clone(w.units[from+i].may)
	}
	be := binary.BigEndian
	list := make([]byte, 16+64+28)
	list[1], list[3], list[11] = 3<<3, 64, 28
	for i, x := range []*tortureVolume{w, v} {
		d := list[16+32*i:]
		d[0], d[4], d[5], d[7], d[30] = 0xE4, 1, 3, 16, 2
		copy(d[8:], x.naa[:])
	}
	s := list[80:]
	s[0], s[3], s[7] = 2, 0x18, 1
	be.PutUint16(s[10:], uint16(n*unitSecs))
	be.PutUint64(s[12:], from*unitSecs)
	be.PutUint64(s[20:], first*unitSecs)
	cdb := make([]byte, 16)
	cdb[0] = 0x83
	be.PutUint32(cdb[10:], uint32(len(list)))
	then := m.finish(v, first, n, fmt.Sprintf("copy %s [%d+%d) to", w.name, from, n))
	if m.rng.N(2) == 0 {
		lun = src // either unit takes the command
	}
	m.task(lun, cdb, list, 0, func(t *scsi.Task) {
		then(t)
		w.release(from, n)
	})
}

// compare sends COMPARE AND WRITE of one sector's unit whose contents are known.
func (m *torture) compare(v *tortureVolume, lun int, first uint64, finish func(string) func(*scsi.Task)) {
	u := &v.units[first]
	if len(u.may) != 1 {
		v.release(first, 1)
		return
	}
	was := u.may[0]
	m.stamp++
	wrong := m.rng.N(3) == 0
	expect := was
	if wrong {
		expect = m.stamp | 1<<60
	}
	u.what, u.next = true, m.stamp
	if wrong {
		u.next = was
	}
	cdb := make([]byte, 16)
	cdb[0], cdb[13] = 0x89, unitSecs
	binary.BigEndian.PutUint64(cdb[2:], first*unitSecs)
	then := finish(fmt.Sprintf("compare with %d and write %d to", expect, m.stamp))
	m.task(lun, cdb, slices.Concat(contents(expect, 1), contents(m.stamp, 1)), 0, func(t *scsi.Task) {
		good, _ := outcome(t)
		miscompare := t.Status == scsi.StatusCheckCondition && senseOf(t.Sense) == 0x0E1D00
		if good && wrong || miscompare && !wrong {
			m.fail("%s unit %d: compare with %d where %d is: status %02x sense %06x", v.name, first, expect, was, t.Status, senseOf(t.Sense))
		}
		then(t)
	})
}

// trouble is one thing that goes wrong, or is changed.
func (m *torture) trouble() {
	pools := m.arr.Pools()
	p := pools[m.rng.N(uint64(len(pools)))]
	disk := fmt.Sprintf("m%d", m.rng.N(2))
	key := p.Name() + "." + disk
	switch m.rng.N(13) {
	case 12:
		m.churn()
	case 0, 1:
		tag, lun := m.tag-m.rng.N(min(m.tag, 8)), uint64(m.rng.N(uint64(len(m.vols))))
		m.note("abort tag %d on LUN %d", tag, lun)
		for _, n := range m.nexus {
			m.manage(n, scsi.AbortTask, lun, tag)
		}
	case 2:
		lun := m.rng.N(uint64(len(m.vols)))
		m.note("reset LUN %d", lun)
		m.manage(m.nexus[0], scsi.LogicalUnitReset, lun, 0)
	case 3:
		ok := m.rng.N(2) == 0
		m.note("mirrored: %v", ok)
		m.arr.SetMirrored(ok)
	case 4:
		factor := int64(1+m.rng.N(30)) * 1000
		m.note("%s takes %d times as long", key, factor/1000)
		m.timed.Slow(key, factor)
	case 5, 6:
		m.down[key] = !m.down[key]
		m.note("%s offline: %v", key, m.down[key])
		if err := p.SetMdiskOffline(disk, m.down[key]); err != nil {
			m.fail("%s: %v", key, err)
		}
	case 7:
		m.note("another policy")
		if err := m.arr.SetPolicy(m.policy()); err != nil {
			m.fail("policy: %v", err)
		}
	case 8:
		mode := array.WriteMode(m.rng.N(3))
		m.note("pool %s write mode %d", p.Name(), mode)
		p.SetWriteMode(mode)
	case 9:
		if m.added < 2 {
			m.added++
			m.note("pool x%d is added", m.added)
			m.addPool(fmt.Sprintf("x%d", m.added), false)
		}
	default:
		m.powerCut()
	}
}

func (m *torture) manage(n *scsi.Nexus, fn scsi.TMF, lun, tag uint64) {
	m.tasks++
	era := m.era
	n.Manage(fn, lun<<48, tag, func(scsi.TMFResponse) {
		if era == m.era {
			m.tasks--
		}
	})
}

// powerCut kills the array: another one recovers from what it left.
func (m *torture) powerCut() {
	m.note("power cut")
	m.era++
	m.tasks = 0
	exec := &block.Virtual{}
	exec.RunUntil(m.exec.Now())
	m.exec, m.mem = exec, m.mem.Reopen(exec)
	m.down = map[string]bool{}
	for _, v := range m.vols {
		for k := range v.units {
			u := &v.units[k]
			if u.busy && u.what {
				v.settle(uint64(k), 1, false)
				u.anchored = false
			}
			u.busy, u.what, u.from = false, false, nil
		}
	}
	if m.open() {
		m.login()
		m.check()
	}
}

// repair ends all trouble.
func (m *torture) repair() {
	if m.bad != "" {
		return
	}
	m.note("repair")
	m.arr.SetMirrored(true)
	for _, p := range m.arr.Pools() {
		for _, d := range p.Stats().Mdisks {
			m.timed.Slow(p.Name()+"."+d.Name, 1000)
			if err := p.SetMdiskOffline(d.Name, false); err != nil {
				m.fail("repair: %v", err)
			}
		}
	}
}
