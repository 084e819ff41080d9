package array

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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

	vols    []*Volume
	sectors [][][]version // by volume and sector: what it may hold, the oldest first
	acks    int
	flushed int // acknowledgements that a flush has covered
	stamp   uint64
	busy    []busyRange
	cut     bool
	faulty  bool // writes and syncs of mdisks fail now and then
}

type busyRange struct {
	vol int
	block.Range
}

var powerVolumes = []struct {
	pool    string
	sectors uint64
	thin    bool
}{{"a", 3000, true}, {"a", 1000, false}, {"b", 2001, true}}

func newPowerRig(t testing.TB, seed uint64, copyData bool) *powerRig {
	return newPowerRigWith(t, seed, copyData, nil)
}

// newPowerRigWith is newPowerRig; prepare, if any, is called before the array is opened.
func newPowerRigWith(t testing.TB, seed uint64, copyData bool, prepare func(*powerRig)) *powerRig {
	r := &powerRig{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), disk: storetest.NewDisk(seed),
		opt: Options{CacheBytes: 1 << 20, LogBytes: 64 << 10, CounterRows: 512, UUID: 1}}
	if prepare != nil {
		prepare(r)
	}
	r.open()
	r.a.CreatePool(PoolSpec{Name: "a", CopyData: copyData, Mdisks: []MdiskSpec{{Name: "m0", Size: 64 << 20}, {Name: "m1", Size: 64 << 20}}}, r.must)
	r.a.CreatePool(PoolSpec{Name: "b", Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, r.must)
	r.clock.Run() // the store makes the mdisks meanwhile
	for i, v := range powerVolumes {
		r.a.CreateVolume(VolumeSpec{Name: fmt.Sprintf("v%d", i), Pool: v.pool, Sectors: v.sectors, Thin: v.thin}, func(_ *Volume, err error) { r.must(nil, err) })
		r.sectors = append(r.sectors, make([][]version, v.sectors))
		for s := range r.sectors[i] {
			r.sectors[i][s] = []version{{}}
		}
	}
	r.clock.Run()
	r.find()
	return r
}

func (r *powerRig) must(_ *Pool, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *powerRig) find() {
	r.vols = nil
	for i := range powerVolumes {
		v := r.a.Volume(fmt.Sprintf("v%d", i))
		if v == nil {
			r.t.Fatalf("volume v%d is gone", i)
		}
		r.vols = append(r.vols, v)
	}
}

// open opens the array that is on the disk.
func (r *powerRig) open() {
	r.clock = &block.Virtual{}
	var err error
	if r.a, r.files, err = openOn(r.disk, r.clock, r.rnd, r.opt); err != nil {
		r.t.Fatal(err)
	}
}

func openOn(d *storetest.Disk, clock *block.Virtual, rnd *rand.Rand, opt Options) (*Array, *store.Files, error) {
	later := func(fn func()) { clock.At(clock.Now()+rnd.Int64N(3e6), fn) }
	files, err := store.OpenFiles(clock, "/data", store.FilesOptions{FS: d, Later: later})
	if err != nil {
		return nil, nil, err
	}
	opt.Exec, opt.Store = clock, files
	a, err := Open(opt)
	if err != nil {
		files.Close()
		return nil, nil, err
	}
	return a, files, nil
}

// run runs the program until the power is cut.
func (r *powerRig) run(steps int) {
	switch r.rnd.IntN(3) {
	case 0:
		r.disk.CutAtSync(1 + r.rnd.IntN(40))
	case 1:
		r.disk.CutAtSync(1 + r.rnd.IntN(400))
	default:
		steps = r.rnd.IntN(steps)
	}
	if r.faulty {
		r.disk.SetFault(func(op storetest.Op, path string, n int) (int, error) {
			if strings.HasPrefix(path, "/data/mdisk/") && op != storetest.Read && r.rnd.IntN(20) == 0 {
				return 0, syscall.EIO
			}
			return n, nil
		})
	}
	r.steps(steps)
	if r.disk.Image() == nil {
		r.disk.Cut()
	}
	r.cut = true
}

// steps runs the program, that many steps or until it is dead.
func (r *powerRig) steps(steps int) {
	for ; steps > 0 && !r.isCut(); steps-- {
		switch k := r.rnd.IntN(100); {
		case k < 30 && len(r.busy) < 6:
			r.launch()
		case k < 34:
			r.disk.WriteBack(r.rnd)
		case k < 37:
			r.clock.RunUntil(r.clock.Now() + r.rnd.Int64N(1e9))
		case k < 39:
			r.a.checkpoint(true)
		default:
			for range 1 + r.rnd.IntN(4) {
				if !r.isCut() {
					r.clock.Step()
				}
			}
		}
	}
}

func (r *powerRig) isCut() bool { return r.disk.Image() != nil }

// pick returns a range that no command under way touches.
func (r *powerRig) pick(vol int, limit uint64) (block.Range, bool) {
	n := 1 + r.rnd.Uint64N(limit)
	at := r.rnd.Uint64N(powerVolumes[vol].sectors - n + 1)
	if r.rnd.IntN(3) == 0 {
		at &^= 127
	}
	return rng(at, n), r.isFree(vol, rng(at, n))
}

func (r *powerRig) isFree(vol int, g block.Range) bool {
	for _, b := range r.busy {
		if b.vol == vol && b.Overlaps(g) {
			return false
		}
	}
	return true
}

// isCertain tells whether the last command of each sector of a range was not refused, so that
// what a copy of the range reads is known.
func (r *powerRig) isCertain(vol int, g block.Range) bool {
	return !slices.ContainsFunc(r.sectors[vol][g.Start:g.End()], func(vs []version) bool {
		last := vs[len(vs)-1].cmd
		return last != nil && last.refused
	})
}

// launch submits a random command.
func (r *powerRig) launch() {
	vol := r.rnd.IntN(len(r.vols))
	q, cmd := &block.Request{}, &command{}
	switch k := r.rnd.IntN(100); {
	case k < 12:
		q.Op = block.OpFlush
	case k < 60: // a write, mostly where others were
		g, ok := r.pick(vol, []uint64{8, 60, 400}[r.rnd.IntN(3)])
		if !ok {
			return
		}
		q.Op, q.Range = block.OpWrite, g
		if r.rnd.IntN(6) == 0 {
			q.Flags = block.FUA
		}
		buf := make([]byte, g.Bytes())
		r.stamp++
		for s := range g.Count {
			stamp := r.stamp<<20 | s
			fillStamp(buf[s*512:(s+1)*512], stamp)
			r.become(vol, g.Start+s, stamp, cmd)
		}
		q.Data = [][]byte{buf}
	case k < 72:
		g, ok := r.pick(vol, 600)
		if !ok {
			return
		}
		q.Op, q.Range = block.OpWriteSame, g
		stamp := uint64(0)
		if r.rnd.IntN(3) == 0 {
			r.stamp++
			stamp = r.stamp << 20
			buf := make([]byte, 512)
			fillStamp(buf, stamp)
			q.Data = [][]byte{buf}
		} else {
			cmd.atomic = true
			if r.rnd.IntN(2) == 0 {
				q.Flags = block.Deallocate
			}
		}
		for s := range g.Count {
			r.become(vol, g.Start+s, stamp, cmd)
		}
	case k < 80:
		g, ok := r.pick(vol, 600)
		if !ok {
			return
		}
		q.Op, q.Ranges = block.OpUnmap, []block.Range{g}
		cmd.atomic = true
		for s := range g.Count {
			r.become(vol, g.Start+s, 0, cmd)
		}
	default:
		from := r.rnd.IntN(len(r.vols))
		src, ok := r.pick(from, 500)
		to := rng(r.rnd.Uint64N(powerVolumes[vol].sectors-min(src.Count, powerVolumes[vol].sectors)+1), src.Count)
		if r.rnd.IntN(2) == 0 {
			to.Start = min(to.Start&^127+src.Start&127, powerVolumes[vol].sectors-to.Count)
		}
		if !ok || !r.isFree(vol, to) || vol == from && src.Overlaps(to) || !r.isCertain(from, src) {
			return
		}
		h := &block.Request{Op: block.OpHold, Ranges: []block.Range{src}, Done: func(*block.Request) {}}
		r.vols[from].Submit([]*block.Request{h})
		q.Op, q.Range, q.Ref, q.Origin = block.OpPlace, to, h.Ref, block.OriginXCopy
		cmd.atomic = r.vols[vol].pool == r.vols[from].pool && !r.vols[vol].pool.copyData
		for s := range src.Count {
			old := r.sectors[from][src.Start+s]
			r.become(vol, to.Start+s, old[len(old)-1].stamp, cmd)
		}
		r.busy = append(r.busy, busyRange{from, src})
	}
	cmd.what = fmt.Sprint(q.Op, q.Range, q.Ranges)
	mark := busyRange{vol, q.Range}
	if q.Op == block.OpUnmap {
		mark.Range = q.Ranges[0]
	}
	r.busy = append(r.busy, mark)
	if q.Op != block.OpPlace {
		r.busy = append(r.busy, busyRange{vol: -1})
	}
	// Two marks a command: its target, and its source or nothing.
	pair := slices.Clone(r.busy[len(r.busy)-2:])
	covers := r.acks
	q.Done = func(q *block.Request) {
		if r.isCut() {
			return // nobody heard of it
		}
		// What waited too long for an mdisk that fails may have been done in part.
		refused := r.faulty && q.Status == block.MediumWrite
		if q.Status != block.OK && !refused {
			r.t.Fatalf("%s ended %v", cmd.what, q.Status)
		}
		cmd.refused = refused
		if !refused {
			r.acks++
			cmd.acked = r.acks
		}
		cmd.atomic = cmd.atomic && !refused
		if q.Op == block.OpFlush {
			r.flushed = max(r.flushed, covers)
		}
		if q.Flags&block.FUA != 0 && !refused {
			for s := q.Range.Start; s < q.Range.End(); s++ {
				r.sectors[vol][s] = r.sectors[vol][s][len(r.sectors[vol][s])-1:]
			}
		}
		if q.Ref != nil {
			q.Ref.Release()
		}
		for _, m := range pair {
			i := slices.Index(r.busy, m)
			r.busy = slices.Delete(r.busy, i, i+1)
		}
	}
	r.vols[vol].Submit([]*block.Request{q})
}

// become notes what a sector is to become.
func (r *powerRig) become(vol int, s, stamp uint64, cmd *command) {
	vs := r.sectors[vol][s]
	// What a flush has covered is certain: what was before is not needed any more.
	for i := len(vs) - 1; i > 0; i-- {
		if vs[i].cmd != nil && vs[i].cmd.acked != 0 && vs[i].cmd.acked <= r.flushed {
			vs = vs[i:]
			break
		}
	}
	r.sectors[vol][s] = append(vs[:len(vs):len(vs)], version{stamp, cmd})
}

// restart recovers from what the cut left, perhaps cutting the power again meanwhile, and
// verifies every sector.
func (r *powerRig) restart(what string) {
	for {
		r.disk = r.disk.Cut()
		r.files.Close()
		again := r.rnd.IntN(4) == 0
		if again {
			r.disk.CutAtSync(1 + r.rnd.IntN(12))
		}
		r.clock = &block.Virtual{}
		var err error
		if r.a, r.files, err = openOn(r.disk, r.clock, r.rnd, r.opt); err != nil {
			r.t.Fatalf("%s: %v", what, err)
		}
		if !again || !r.isCut() {
			break
		}
	}
	r.disk.CutAtSync(1 << 40)
	r.find()
	rep := r.a.Check(true)
	for _, p := range rep.Problems {
		r.t.Errorf("%s: check: %s", what, p)
	}
	if rec := r.a.Recovery(); rec.BadPages+rec.BadSectors > 0 {
		r.t.Errorf("%s: recovery: %+v", what, rec)
	}
	r.verify(what)
	r.busy, r.cut = nil, false
}

func (r *powerRig) verify(what string) {
	want := make([]byte, 512)
	for i, v := range r.vols {
		got := make([]byte, v.spec.Sectors*512)
		q := &block.Request{Op: block.OpRead, Range: rng(0, v.spec.Sectors), Data: [][]byte{got}}
		ended := false
		q.Done = func(*block.Request) { ended = true }
		v.Submit([]*block.Request{q})
		for !ended && r.clock.Step() {
		}
		if !ended || q.Status != block.OK {
			r.t.Fatalf("%s: reading volume %d ended %v", what, i, q.Status)
		}
		for s := range r.sectors[i] {
			r.verifySector(what, i, s, got[s*512:(s+1)*512], want)
		}
	}
	for i := range r.sectors {
		for s, vs := range r.sectors[i] {
			for _, c := range vs {
				if c.cmd != nil && c.cmd.oldSeen && c.cmd.newSeen {
					r.t.Fatalf("%s: %s was done by half, volume %d sector %d", what, c.cmd.what, i, s)
				}
			}
			r.sectors[i][s] = vs[:1]
			r.sectors[i][s][0].cmd = nil
		}
	}
}

// verifySector checks that a sector holds one of the versions since the last flush.
func (r *powerRig) verifySector(what string, vol, s int, got, want []byte) {
	vs := r.sectors[vol][s]
	from := 0
	for i, v := range vs {
		if v.cmd != nil && v.cmd.acked != 0 && v.cmd.acked <= r.flushed {
			from = i
		}
	}
	stamp := le.Uint64(got)
	fillStamp(want, stamp)
	found := -1
	for i := len(vs) - 1; i >= from && found < 0; i-- {
		if vs[i].stamp == stamp {
			found = i
		}
	}
	if string(got) != string(want) || found < 0 {
		var may []string
		for _, v := range vs[from:] {
			c := "found at the start"
			if v.cmd != nil {
				c = fmt.Sprintf("%s acked %d", v.cmd.what, v.cmd.acked)
			}
			may = append(may, fmt.Sprintf("%x (%s)", v.stamp, c))
		}
		r.t.Fatalf("%s: volume %d sector %d holds %x, it may hold %v; flushed up to acknowledgement %d", what, vol, s, stamp, may, r.flushed)
	}
	// The last command of a sector was done there, or was not.
	if last := vs[len(vs)-1]; last.cmd != nil && last.cmd.atomic && len(vs)-1 > from {
		unique := true
		for _, v := range vs[from : len(vs)-1] {
			unique = unique && v.stamp != last.stamp
		}
		if unique && found == len(vs)-1 {
			last.cmd.newSeen = true
		} else if unique {
			last.cmd.oldSeen = true
		}
	}
	r.sectors[vol][s] = append([]version{{stamp: stamp}}, vs...)
}

// TestPowerCuts cuts the power at random moments of a random program, and during the
// recovery from that, too.
func TestPowerCuts(t *testing.T) {
	cuts := *cutsFlag
	if cuts == 0 {
		cuts = 1000
		if testing.Short() || underRace {
			cuts = 100
		}
	}
	base := testkit.Seed(t)
	const chain = 10 // cuts of one array
	for i := 0; i < cuts; i += chain {
		s := base + uint64(i/chain)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			r := newPowerRig(t, s, s%2 == 0)
			r.faulty = s%3 == 0
			for n := range chain {
				r.run(600)
				r.restart(fmt.Sprintf("-seed %d -cuts %d, cut %d", s, chain, n))
				if t.Failed() {
					t.FailNow()
				}
			}
			r.files.Close()
		})
	}
}
