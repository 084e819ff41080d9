package array

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/store/storetest"
	"github.com/arraysim/arraysim/internal/testkit"
)

var cutsFlag = flag.Int("cuts", 0, "number of power cuts of TestPowerCuts; 0 is its default")

// version is what a sector was made by one command.
type version struct {
	stamp uint64
	cmd   *command // nil: found at the last start
}

// command is a command of the random program.
type command struct {
	acked            int  // its place in the order of acknowledgements; 0: none yet
	atomic           bool // a map edit: all of it or nothing
	refused          bool // ended with an error: done in part, or not at all
	oldSeen, newSeen bool
	what             string
	from             string // a copy: the pool of its source
	then             func() // when it has ended well
}

// powerRig runs a random program over an array in a simulated file system.
type powerRig struct {
	t     testing.TB
	rnd   *rand.Rand
	disk  *storetest.Disk
	clock *block.Virtual
	files *store.Files
	a     *Array
	opt   Options
	wrap  []func(block.Store) block.Store // what the array has of the store

	vols     []*Volume
	sectors  [][][]version // by volume and number among the sectors of its islands: what it may hold, the oldest first
	sizes    []uint64      // of the volumes
	resizes  []uint64      // the sizes that commands under way give them, or that a start may find; 0: none
	shrinks  []int         // how often they got another size
	acks     int
	flushed  int // acknowledgements that a flush has covered
	stamp    uint64
	busy     []busyRange
	cut      bool
	killed   bool // the last death was the process's alone
	comes    bool // volumes come and go
	slots    []slot
	pool     poolSlot
	over     bool // the power goes now
	hangs    bool // calls of the store do not end for a while, one in hangOnce
	hangOnce int
	calm     bool   // nothing hangs now
	stopping *Array // the last one that was asked to stop
	faulty   bool   // writes and syncs of mdisks and of NVRAM fail now and then, and those of the meta store in some lives
}

type busyRange struct {
	vol int
	block.Range
}

// powerSaw counts what all programs have met.
var powerSaw struct {
	stops, failedStops atomic.Int64 // in good order, and with an error
	broken             atomic.Int64 // arrays that took no more changes
	cutOff             atomic.Int64 // commands that ended because their volume became smaller
	noSpace            atomic.Int64 // commands that found no space
	moved, shrunk      atomic.Int64 // the source of a copy was deleted, or cut off, and the power went at once
	squeezed           atomic.Int64 // a thick volume was made of what had just become free, likewise
	discarded          atomic.Int64 // bytes
	cutDiscards        atomic.Int64 // the power went just when something was
	lasting, refused   atomic.Int64 // starts over a fault that lasted, and that ended for one
	hangs, overdue     atomic.Int64 // calls of the store that hung, and commands that ended for that
}

// powerVolume is what a volume of the program is.
type powerVolume struct {
	pool    string
	thin    bool
	sizes   []uint64
	islands []block.Range
}

// powerVolumes are the volumes of the program. Data is only ever written to the islands of a volume, so that one
// whose map has three levels can be verified; what lies between them stays without data. sizes are those that
// the volume may take.
var powerVolumes = []powerVolume{
	{"a", true, []uint64{9_000_011, 8_388_800, 33_000, 700}, []block.Range{rng(0, 1500), rng(32_768-400, 800), rng(8_388_608-300, 600), rng(9_000_011-100, 100)}},
	{"a", false, []uint64{1000}, []block.Range{rng(0, 1000)}},
	{"b", true, []uint64{2001, 33_000}, []block.Range{rng(0, 2001), rng(32_768, 232)}},
	// These come and go, if volumes do: see power_slots_test.go. The thick one and the others do not fit in their pool together.
	{"c", true, []uint64{5120, 600}, []block.Range{rng(0, 5120)}},
	{"c", false, []uint64{4864, 1100}, []block.Range{rng(0, 1000), rng(4800, 64)}},
	{"a", true, []uint64{1000, 100}, []block.Range{rng(0, 1000)}},
	// So does the pool of this one: see power_pools_test.go.
	{comingPool, true, []uint64{1000, 300}, []block.Range{rng(0, 1000)}},
}

// stayingVolumes is how many of them are always there.
const stayingVolumes = 3

// lba returns the address of a sector of an island by its number.
func lba(vol, n int) uint64 {
	for _, x := range powerVolumes[vol].islands {
		if uint64(n) < x.Count {
			return x.Start + uint64(n)
		}
		n -= int(x.Count)
	}
	panic("no such sector")
}

// each calls fn with the number and the address of all sectors of islands in a range.
func each(vol int, g block.Range, fn func(n int, s uint64)) {
	first := 0
	for _, x := range powerVolumes[vol].islands {
		for s := max(x.Start, g.Start); s < min(x.End(), g.End()); s++ {
			fn(first+int(s-x.Start), s)
		}
		first += int(x.Count)
	}
}

func newPowerRig(t testing.TB, seed uint64, copyData bool) *powerRig {
	return newPowerRigWith(t, seed, copyData, nil)
}

// newPowerRigWith is newPowerRig; prepare, if any, is called before the array is opened.
func newPowerRigWith(t testing.TB, seed uint64, copyData bool, prepare func(*powerRig)) *powerRig {
	r := &powerRig{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), disk: storetest.NewDisk(seed),
		opt: Options{CacheBytes: 1 << 20, LogBytes: 64 << 10, CounterRows: 512, UUID: 1, CheckpointBytes: []int{0, 1, 5000, 20_000}[seed%4],
			Policy: Policy{DestagePages: []int{0, 8}[seed/8%2], Round: []int{0, 0, 4, 16}[seed/4%4]}, LeafBytes: []uint64{0, 1, 10_000}[seed%3], MapBytes: []uint64{0, 1, 20_000}[seed/3%3], Discard: seed%7 != 6, DiscardDelay: []int64{1e6, 1e7, 1e8, 0}[seed/2%4]}}
	if prepare != nil {
		prepare(r)
	}
	r.open()
	r.a.CreatePool(PoolSpec{Name: "a", CopyData: copyData, Mdisks: []MdiskSpec{{Name: "m0", Size: 64 << 20}, {Name: "m1", Size: 64 << 20}}}, r.must)
	r.a.CreatePool(PoolSpec{Name: "b", Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, r.must)
	r.clock.Run() // the store makes the mdisks meanwhile
	if r.comes {
		r.a.CreatePool(PoolSpec{Name: "c", CopyData: copyData, Mdisks: []MdiskSpec{{Name: "m", Size: 4 << 20}}}, r.must)
		r.clock.Run()
	}
	for i, v := range powerVolumes[:stayingVolumes] {
		r.a.CreateVolume(VolumeSpec{Name: fmt.Sprintf("v%d", i), Pool: v.pool, Sectors: v.sizes[0], Thin: v.thin}, func(_ *Volume, err error) { r.must(nil, err) })
		r.addModel(i)
		r.sizes[i], r.slots[i].there = v.sizes[0], true
	}
	if r.comes {
		for i := stayingVolumes; i < len(powerVolumes); i++ {
			r.addModel(i)
		}
	}
	r.clock.Run()
	r.find()
	return r
}

// addModel begins to know a volume, all of which is zeros.
func (r *powerRig) addModel(vol int) {
	sectors := uint64(0)
	for _, x := range powerVolumes[vol].islands {
		sectors += x.Count
	}
	r.sectors = append(r.sectors, make([][]version, sectors))
	r.sizes, r.resizes, r.shrinks = append(r.sizes, 0), append(r.resizes, 0), append(r.shrinks, 0)
	r.slots = append(r.slots, slot{name: fmt.Sprintf("v%d", vol)})
	r.isNew(vol)
}

func (r *powerRig) must(_ *Pool, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *powerRig) find() {
	r.vols = nil
	for i := range r.slots {
		r.vols = append(r.vols, r.found(i))
	}
}

// open opens the array that is on the disk.
func (r *powerRig) open() {
	r.clock = &block.Virtual{Late: lateness(r.rnd)}
	var err error
	if r.a, r.files, err = r.openAgain(); err != nil {
		r.t.Fatal(err)
	}
}

// openAgain opens the array. Where things hang, one in some hundred calls of the store does not end for up to a minute, whatever it
// is: a transfer, a sync, a discard, a flush of NVRAM, a batch of the meta store.
func (r *powerRig) openAgain() (*Array, *store.Files, error) {
	if !r.hangs {
		return openOn(r.disk, r.clock, r.rnd, r.opt, r.wrap...)
	}
	clock := r.clock
	return openLater(r.disk, clock, func(fn func()) {
		wait := r.rnd.Int64N(3e6)
		if !r.calm && r.rnd.IntN(r.hangOnce) == 0 {
			wait = r.rnd.Int64N(60e9)
			powerSaw.hangs.Add(1)
		}
		clock.At(clock.Now()+wait, fn)
	}, r.opt, r.wrap...)
}

func openOn(d store.FS, clock *block.Virtual, rnd *rand.Rand, opt Options, wrap ...func(block.Store) block.Store) (*Array, *store.Files, error) {
	return openLater(d, clock, func(fn func()) { clock.At(clock.Now()+rnd.Int64N(3e6), fn) }, opt, wrap...)
}

// openLater opens an array over a file system; later says when what may wait for a disk ends.
func openLater(d store.FS, clock *block.Virtual, later func(func()), opt Options, wrap ...func(block.Store) block.Store) (*Array, *store.Files, error) {
	files, err := store.OpenFiles(clock, "/data", store.FilesOptions{FS: d, Later: later})
	if err != nil {
		return nil, nil, err
	}
	opt.Exec, opt.Store = clock, files
	for _, w := range wrap {
		opt.Store = w(opt.Store)
	}
	a, err := Open(opt)
	if err != nil {
		files.Close()
		return nil, nil, err
	}
	return a, files, nil
}

// run runs the program until the power is cut.
func (r *powerRig) run(steps int) {
	r.killed, r.over = false, false
	switch r.rnd.IntN(4) {
	case 0:
		r.disk.CutAtSync(1 + r.rnd.IntN(40))
	case 1:
		r.disk.CutAtSync(1 + r.rnd.IntN(400))
	case 2:
		if r.killed = true; r.faulty && r.rnd.IntN(2) == 0 {
			r.disk.KillAtFailedSync(1 + r.rnd.IntN(20))
			break
		}
		fallthrough
	default:
		steps = r.rnd.IntN(steps)
	}
	if r.faulty {
		meta := []string{"", "", "", "/data/meta/", "/data/meta.copy/", "/data/meta"}[r.rnd.IntN(6)]
		r.disk.SetFault(func(op storetest.Op, path string, n int) (int, error) {
			if strings.HasPrefix(path, "/data/mdisk/") && op != storetest.Read && r.rnd.IntN(20) == 0 {
				return 0, syscall.EIO
			}
			if path == "/data/nvram" && op == storetest.Sync && r.rnd.IntN(5) == 0 {
				return 0, syscall.EIO
			}
			if meta != "" && strings.HasPrefix(path, meta) && op != storetest.Read && r.rnd.IntN(40) == 0 {
				return 0, syscall.EIO
			}
			return n, nil
		})
	}
	before := r.discarded()
	r.steps(steps)
	powerSaw.discarded.Add(int64(r.discarded() - before))
	if r.a.engine.Broken() != "" {
		powerSaw.broken.Add(1)
	}
	if !r.isCut() && !r.over && r.rnd.IntN(5) == 0 {
		r.stop()
	}
	if r.killed {
		r.disk.KillNow()
	} else if r.disk.Image() == nil {
		r.disk.Cut()
	}
	r.cut = true
}

// discarded returns how many bytes all mdisks have discarded in all lives.
func (r *powerRig) discarded() (n uint64) {
	for _, p := range r.a.Pools() {
		for _, d := range p.Mdisks {
			_, bytes := d.Discarded()
			n += bytes
		}
	}
	return n
}

// stop stops the array when its commands have ended, whatever fails meanwhile, before the power goes. Where it has
// stopped without an error, all that was acknowledged survives.
func (r *powerRig) stop() {
	until := r.clock.Now() + 600e9
	for len(r.busy) > 0 && !r.isCut() && r.clock.Now() < until && r.clock.Step() {
	}
	if r.isCut() {
		return
	}
	if len(r.busy) > 0 {
		r.t.Fatalf("commands never end: %v", r.busy)
	}
	err := errNever
	r.stopping = r.a
	r.a.Stop(func(e error) { err = e })
	for errors.Is(err, errNever) && !r.isCut() && r.clock.Now() < until && r.clock.Step() {
	}
	switch {
	case r.isCut():
	case errors.Is(err, errNever):
		r.t.Fatal("the array does not stop")
	case err == nil:
		powerSaw.stops.Add(1)
		r.flushed = r.acks
	case !r.faulty && !r.hangs:
		r.t.Fatalf("it stops with %v", err)
	default:
		powerSaw.failedStops.Add(1)
	}
}

// steps runs the program, that many steps or until it is dead.
func (r *powerRig) steps(steps int) {
	for ; steps > 0 && !r.isCut() && !r.over; steps-- {
		if r.comes && r.rnd.IntN(40) == 0 {
			r.comeAndGo()
		}
		if r.comes && r.rnd.IntN(80) == 0 {
			r.comeAndGoPool()
		}
		if r.opt.Discard && r.rnd.IntN(150) == 0 {
			r.cutBehindDiscard()
		}
		switch k := r.rnd.IntN(100); {
		case k < 2:
			r.resize()
		case k < 30 && len(r.busy) < 6:
			if r.launch(); r.faulty {
				r.look()
			}
		case k < 33:
			r.disk.WriteBack(r.rnd)
		case k < 34:
			if r.disk.WriteBack(r.rnd); r.faulty {
				r.disk.FailWriteBack(r.rnd, "/data/mdisk/")
			}
		case k < 37:
			r.clock.RunUntil(r.clock.Now() + r.rnd.Int64N(1e9))
			if r.hangs && r.rnd.IntN(4) == 0 {
				r.clock.RunUntil(r.clock.Now() + r.rnd.Int64N(30e9))
			}
		case k < 39:
			r.a.checkpoint(true)
		default:
			for range 1 + r.rnd.IntN(4) {
				if !r.isCut() && !r.over {
					r.clock.Step()
				}
			}
		}
	}
}

// cutBehindDiscard has the power go just when space was discarded that commands have freed of which nobody has flushed
// anything.
func (r *powerRig) cutBehindDiscard() {
	r.clock.RunUntil(r.clock.Now() + 3e9) // all is destaged, and what is free is discarded
	for range 1 + r.rnd.IntN(4) {
		if !r.isCut() {
			r.launch()
		}
	}
	before := r.discarded()
	for range 200 {
		if r.isCut() || r.discarded() != before {
			break
		}
		r.clock.Step()
	}
	if !r.isCut() && r.discarded() != before {
		r.end(&powerSaw.cutDiscards)
	}
}

func (r *powerRig) isCut() bool { return r.disk.Image() != nil }

// restart recovers from what the cut left, perhaps cutting the power again meanwhile, and
// verifies every sector.
func (r *powerRig) restart(what string) {
	r.calm = true // it has its time to remove files
	for {
		dead := r.disk
		r.disk = dead.Cut()
		r.files.Close()
		dead.Forget()
		again := r.rnd.IntN(4) == 0
		if again {
			r.disk.CutAtSync(1 + r.rnd.IntN(12))
		}
		r.openFaulty(what)
		if !again || !r.isCut() {
			break
		}
		r.killed = false
	}
	if r.killed {
		r.flushed = r.acks
	}
	r.disk.CutAtSync(1 << 40)
	r.findPool()
	r.find()
	r.sized(what)
	rep := r.a.Check(true)
	for _, p := range rep.Problems {
		r.t.Errorf("%s: check: %s", what, p)
	}
	if rec := r.a.Recovery(); rec.BadPages+rec.BadSectors > 0 {
		r.t.Errorf("%s: recovery: %+v", what, rec)
	}
	r.verify(what)
	r.verifyStore(what)
	r.busy, r.cut, r.calm = nil, false, false
}

// openFaulty opens the array. Where things fail, some fail now and then while it opens, or all that are of a kind fail, also
// while it is verified. If it does not open then, it is opened again.
func (r *powerRig) openFaulty(what string) {
	for fails := r.faulty; ; fails = false {
		failed, lasts := false, false
		if fails {
			var hits func(op storetest.Op, path string) bool
			hits, lasts = r.startFault()
			r.disk.SetFault(func(op storetest.Op, path string, n int) (int, error) {
				if hits(op, path) {
					failed = true
					return 0, syscall.EIO
				}
				return n, nil
			})
		}
		r.clock = &block.Virtual{Late: lateness(r.rnd)}
		var err error
		if r.a, r.files, err = r.openAgain(); err == nil && lasts {
			powerSaw.lasting.Add(1)
			return
		}
		if r.disk.SetFault(nil); err == nil {
			return
		}
		if !failed {
			r.t.Fatalf("%s: %v", what, err)
		}
		powerSaw.refused.Add(1)
	}
}

// startFault returns what fails in a start, perhaps nothing, and whether that lasts.
func (r *powerRig) startFault() (hits func(op storetest.Op, path string) bool, lasts bool) {
	change := func(prefix string) func(storetest.Op, string) bool {
		return func(op storetest.Op, path string) bool {
			return op != storetest.Read && strings.HasPrefix(path, prefix)
		}
	}
	only := func(kind storetest.Op, prefix string) func(storetest.Op, string) bool {
		return func(op storetest.Op, path string) bool { return op == kind && strings.HasPrefix(path, prefix) }
	}
	switch r.rnd.IntN(24) {
	case 0:
		return change("/data/meta/"), true
	case 1:
		return change("/data/meta.copy/"), true
	case 2:
		return only(storetest.Read, "/data/meta/"), true
	case 3:
		return only(storetest.Read, "/data/meta.copy/"), true
	case 4:
		return only(storetest.Read, "/data/meta"), true
	case 5:
		return only(storetest.Sync, "/data/nvram"), true
	case 6:
		return only(storetest.Sync, "/data/mdisk/"), true
	case 7:
		return change("/data/mdisk/"), true
	case 8, 9, 10, 11, 12, 13, 14, 15:
		return func(op storetest.Op, path string) bool {
			nvram := path == "/data/nvram" && op == storetest.Sync && r.rnd.IntN(3) == 0
			return nvram || strings.HasPrefix(path, "/data/meta") && op != storetest.Read && r.rnd.IntN(50) == 0
		}, false
	}
	return func(storetest.Op, string) bool { return false }, false
}

// sized takes the sizes of the volumes from the array: they are the last that was acknowledged, or that of a command
// under way. What is cut off never comes back.
func (r *powerRig) sized(what string) {
	for i, v := range r.vols {
		if v == nil {
			continue
		}
		size := v.Spec.Sectors
		if size != r.sizes[i] && size != r.resizes[i] {
			r.t.Fatalf("%s: volume %d has %d sectors, not %d", what, i, size, r.sizes[i])
		}
		if size < r.sizes[i] {
			r.survived(i)
		}
		r.sizes[i], r.resizes[i] = size, 0
		each(i, rng(size, 1<<40), func(n int, _ uint64) { r.sectors[i][n] = []version{{}} })
	}
}

// progress returns what a case of a test reports its share of the work to: every tenth of the whole is logged.
func progress(t *testing.T, whole int, what string) func(more int) {
	var done atomic.Int64
	return func(more int) {
		t.Helper()
		if n := int(done.Add(int64(more))); n*10/whole > (n-more)*10/whole {
			t.Logf("%d of %d %s", n, whole, what)
		}
	}
}

// TestPowerCuts cuts the power at random moments of a random program, and during the
// recovery from that, too.
func TestPowerCuts(t *testing.T) {
	cuts := *cutsFlag
	if cuts == 0 {
		cuts = 1000
		switch {
		case underRace:
			cuts = 100
		case testing.Short():
			cuts = 60
		}
	}
	base := testkit.Seed(t)
	t.Cleanup(func() {
		s := &powerSaw
		n := [...]int64{s.failedStops.Load(), s.broken.Load(), s.stops.Load(), s.cutOff.Load(), s.noSpace.Load(), s.moved.Load(), s.shrunk.Load(), s.squeezed.Load(), s.discarded.Load() >> 20, s.cutDiscards.Load()}
		t.Logf("failed stops, arrays that broke, stops, commands cut off, without space; cuts behind a deletion, a shrink, a thick volume; MiB discarded, cuts behind that: %d", n)
		p := [...]int64{poolSaw.made.Load(), poolSaw.deleted.Load(), poolSaw.unknown.Load(), poolSaw.strays.Load()}
		t.Logf("pools made, deleted, of which a start had to find out; mdisks that it removed: %d", p)
		h := [...]int64{s.hangs.Load(), s.overdue.Load(), s.lasting.Load(), s.refused.Load()}
		t.Logf("calls of the store that hung, commands that ended for that; starts over a fault that lasted, and that ended for one: %d", h)
		if cuts >= 1000 && slices.Min(append(p[:], h[:]...)) == 0 {
			t.Error("the programs have not met all of that")
		}
		often := n[2:] // 15 in 1,000 cuts at least; of the others there may be 6
		if cuts >= 1000 && slices.Min(often) == 0 || cuts >= 5000 && slices.Min(n[:]) == 0 {
			t.Error("the programs have not met all of that")
		}
	})
	const chain = 10 // cuts of one array
	tell := progress(t, cuts, "cuts")
	for i := 0; i < cuts; i += chain {
		s := base + uint64(i/chain)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			r := newPowerRigWith(t, s, s%2 == 0, func(r *powerRig) { r.comes = true })
			r.faulty = s%3 == 0
			if r.hangs = s%4 == 1; r.hangs {
				r.hangOnce = []int{100, 300, 1000}[s/4%3]
			}
			if s%5 == 0 {
				r.disk.HideBoot()
			}
			for n := range chain {
				r.run(600)
				r.restart(fmt.Sprintf("-seed %d -cuts %d, cut %d", s, chain, n))
				if t.Failed() {
					t.FailNow()
				}
			}
			r.files.Close()
			tell(chain)
		})
	}
}
