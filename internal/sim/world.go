package sim

import (
	"fmt"
	"strings"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/lab/plug"
)

// Run is a scenario that is being carried out.
type Run struct {
	s       *Scenario
	exec    *block.Virtual
	arrays  []*system
	volumes []*volume // of all arrays, in their order
	hosts   []*host
	caches  []*cached // of all hosts, in their order
	jobs    []*job
	start   int64 // on the executor's clock: what came before is preparation
	end     int64 // of the run's time, -1 while nothing ended it
	log     strings.Builder
	series  series
	base    snapshot // counters at the start
	last    snapshot // counters at the end, once finished
	started bool
	// finished says that the arrays are gone, cut that this was before the run's end.
	finished bool
	cut      bool
	problem  error
	policies []madePolicy // of somebody else's
	changes  []change     // of rates
	watch    func(IO)
	// most is how many steps may be at one instant; interrupted, if there is one, is asked meanwhile.
	most        int
	interrupted func() bool
}

// system is an array with its profile.
type system struct {
	r      *Run
	name   string
	spec   ArraySpec
	p      *profile.Profile
	array  *array.Array
	target *scsi.Target
	store  *store.Timed
	engine *profile.Engine
	kinds  map[string]string // of mdisks, by the name under which the array opens them
	pools  []*array.Pool
	vols   []*volume
	nodes  map[string]*link // to the owner, by the node's name
	naked  *store.Memory
	// Of somebody else's; nil: the profile's.
	destage   func(pool string) plug.Destage
	placement plug.Placement
	check     array.Report // of the array, once the run is finished
}

// volume is a volume with what hosts experienced on it.
type volume struct {
	sys    *system
	name   string
	group  string
	vol    *array.Volume
	lun    uint16
	info   block.Info
	filled uint64
	host   hostSide
}

// hostSide counts what hosts experienced: [0] reads, [1] writes.
type hostSide struct {
	ops   [2]uint64
	bytes [2]uint64
	wait  [2]int64 // sum of response times, nanoseconds
}

// New builds a run: arrays, volumes with their contents, hosts that are logged in. The
// scenario's clock stands at 0 afterwards.
func New(s *Scenario) (*Run, error) {
	r := &Run{s: s, exec: &block.Virtual{}, end: -1, most: mostAtOnce}
	err := r.build()
	if r.problem != nil {
		err = r.problem // it says where
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Run) build() error {
	s := r.s
	if err := checkNames(&s.Plugged); err != nil {
		return err
	}
	for _, spec := range s.Arrays {
		if err := r.addArray(spec); err != nil {
			return fmt.Errorf("array %s: %w", spec.Name, err)
		}
	}
	if err := r.checkShared(); err != nil {
		return err
	}
	for _, spec := range s.Hosts {
		h, err := r.newHost(spec)
		if err != nil {
			return fmt.Errorf("host %s: %w", spec.Name, err)
		}
		r.hosts = append(r.hosts, h)
	}
	if err := r.fill(); err != nil {
		return err
	}
	for _, h := range r.hosts {
		if err := h.addCaches(); err != nil {
			return fmt.Errorf("host %s: %w", h.name, err)
		}
	}
	for _, spec := range s.Jobs {
		if spec.Off {
			continue
		}
		j, err := r.newJob(spec)
		if err != nil {
			return fmt.Errorf("job %s: %w", spec.Name, err)
		}
		r.jobs = append(r.jobs, j)
	}
	for i := range s.Faults {
		if err := r.plan(&s.Faults[i]); err != nil {
			return fmt.Errorf("fault %d (%s): %w", i+1, s.Faults[i].Kind, err)
		}
	}
	r.begin()
	return nil
}

// now returns the scenario's time in nanoseconds.
func (r *Run) now() int64 {
	if r.finished {
		return r.end
	}
	return r.exec.Now() - r.start
}

// at runs fn at a time of the scenario.
func (r *Run) at(t int64, fn func()) { r.exec.Call(r.start+t, fn) }

// event writes a line of the event log.
func (r *Run) event(format string, args ...any) {
	t := r.now()
	fmt.Fprintf(&r.log, "%d.%09d ", t/1e9, t%1e9)
	fmt.Fprintf(&r.log, format, args...)
	r.log.WriteByte('\n')
}

func (r *Run) addArray(spec ArraySpec) error {
	p, err := r.s.profileOf(&spec)
	if err != nil {
		return err
	}
	if spec.Policy != nil {
		p.Policy = *spec.Policy
	}
	if spec.Copy != "" {
		p.Copy.Mode = spec.Copy
	}
	y := &system{r: r, name: spec.Name, spec: spec, p: p, kinds: map[string]string{}}
	y.naked = store.NewMemory(r.exec, store.MemoryOptions{Discard: spec.Store == "none"})
	rng := newRand(r.s.Seed, "mdisks of "+spec.Name)
	y.store = p.Timed(y.naked, r.exec, func(m string) string { return y.kinds[m] }, rng.Uint64())
	// Until the clock starts nothing takes time.
	y.store.SetModel(func(string) store.Service { return store.Service{} })
	cache := int64(spec.Cache)
	if cache == 0 {
		cache = int64(p.Cache.Size)
	}
	y.array, err = array.Open(y.options(cache))
	if err != nil {
		return err
	}
	y.engine = p.NewEngine(r.exec)
	opt := scsi.Options{Name: "iqn.2026-01.io.arraysim:" + spec.Name, Vendor: "ARRAYSIM", Product: "array", Revision: "0001", Exec: r.exec}
	if y.engine != nil {
		opt.Delay = func(t *scsi.Task) int64 {
			if !r.started {
				return 0
			}
			return y.engine.Delay(t)
		}
	}
	y.target = scsi.NewTarget(opt)
	if err := y.addNodes(); err != nil {
		return err
	}
	r.arrays = append(r.arrays, y)
	for _, ps := range spec.Pools {
		for i := range max(1, ps.Count) {
			if err := y.addPool(ps, numbered(ps.Name, i, ps.Count)); err != nil {
				return err
			}
		}
	}
	for _, vs := range spec.Volumes {
		for i := range max(1, vs.Count) {
			if err := y.addVolume(vs, numbered(vs.Name, i, vs.Count)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkShared refuses a name that objects of two arrays have: figures, random streams and the log of I/Os go by it.
func (r *Run) checkShared() error {
	of := map[string]*system{}
	for _, y := range r.arrays {
		var names []string
		for _, p := range y.pools {
			names = append(names, "pool "+p.Name())
		}
		for _, v := range y.vols {
			names = append(names, "volume "+v.name)
		}
		for _, name := range names {
			if o := of[name]; o != nil && o != y {
				return fmt.Errorf("arrays %s and %s both have a %s; rename one", o.name, y.name, name)
			}
			of[name] = y
		}
	}
	return nil
}

// numbered names one of several.
func numbered(name string, i, count int) string {
	if count <= 1 {
		return name
	}
	return fmt.Sprintf("%s%0*d", name, len(fmt.Sprint(count-1)), i)
}

// settle runs the preparation until nothing is left to do at once.
func (r *Run) settle(done *bool) {
	for !*done && r.exec.Step() {
	}
}

func (y *system) addPool(ps PoolSpec, name string) error {
	mode := ps.Copy
	if mode == "" {
		mode = y.p.Copy.Mode
	}
	spec := array.PoolSpec{Name: name, CopyData: mode == "data"}
	for _, m := range ps.Mdisks {
		if _, ok := y.p.Kind(m.Kind); !ok {
			return fmt.Errorf("pool %s: the profile %s has no mdisks of kind %q", name, y.p.Name, m.Kind)
		}
		for range max(1, m.Count) {
			n := fmt.Sprintf("m%02d", len(spec.Mdisks))
			spec.Mdisks = append(spec.Mdisks, array.MdiskSpec{Name: n, Size: uint64(m.Size)})
			y.kinds[name+"."+n] = m.Kind
		}
	}
	var failed error
	done := false
	y.array.CreatePool(spec, func(p *array.Pool, err error) {
		failed, done = err, true
		switch {
		case err == nil:
			y.pools = append(y.pools, p)
			if shared := y.r.checkShared(); shared != nil && y.r.started {
				y.r.fail(shared)
			}
		case y.r.started: // a fault's, and nobody waits for it
			y.r.fail(fmt.Errorf("array %s: pool-add: %w", y.name, err))
		}
	})
	if !y.r.started {
		y.r.settle(&done)
	}
	if failed != nil || ps.DisksOf == "" {
		return failed
	}
	return y.shareDisks(name, ps.DisksOf, len(spec.Mdisks))
}

// shareDisks puts a pool's mdisks on the drives of another pool, ARRAY/POOL.
func (y *system) shareDisks(pool, of string, n int) error {
	from, other, _ := strings.Cut(of, "/")
	for _, o := range y.r.arrays {
		if o.name != from || o == y {
			continue
		}
		for i := range n {
			as, is := fmt.Sprintf("%s.m%02d", other, i), fmt.Sprintf("%s.m%02d", pool, i)
			a, _ := y.p.Kind(y.kinds[is])
			if b, _ := o.p.Kind(o.kinds[as]); a != b || !y.store.Share(is, o.store, as) {
				return fmt.Errorf("pool %s: disks_of %s: that pool has no mdisk %d of the same kind", pool, of, i)
			}
		}
		return nil
	}
	return fmt.Errorf("pool %s: disks_of %s: there is no array %q before this one", pool, of, from)
}

func (y *system) addVolume(vs VolumeSpec, name string) error {
	pool := vs.Pool
	if pool == "" && len(y.pools) > 0 {
		pool = y.pools[0].Name()
	}
	var failed error
	done := false
	y.array.CreateVolume(array.VolumeSpec{Name: name, Pool: pool, Sectors: uint64(vs.Size) / block.SectorSize, BlockSize: vs.BlockSize, Thin: !vs.Thick},
		func(v *array.Volume, err error) {
			done = true
			if failed = err; err != nil {
				return
			}
			w := &volume{sys: y, name: name, group: vs.Group, vol: v, lun: uint16(len(y.vols)), info: v.Info(), filled: uint64(min(vs.Filled, vs.Size))}
			y.vols = append(y.vols, w)
			y.r.volumes = append(y.r.volumes, w)
			failed = y.target.Map("", w.lun, y.target.AddUnit(v, scsi.UnitOptions{MaxTasks: 1 << 20}))
		})
	y.r.settle(&done)
	return failed
}

// fill gives volumes their contents, before the clock starts: where no payload is kept
// they are there at once, else they are written.
func (r *Run) fill() error {
	for _, v := range r.volumes {
		all := block.Range{Count: v.filled / block.SectorSize &^ 127}
		var err error
		switch {
		case all.Count == 0:
		case v.sys.spec.Store == "none":
			err = v.vol.Import(all)
		default:
			err = r.write(v, all)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.name, err)
		}
	}
	for _, y := range r.arrays {
		done := false
		y.array.Drain(func() { done = true })
		r.settle(&done)
	}
	return nil
}

// write fills a range with zeros that lie on the back end.
func (r *Run) write(v *volume, all block.Range) error {
	const piece = 512
	var failed block.Status
	q := &block.Request{Op: block.OpWrite, Data: make([][]byte, 1)}
	done := false
	q.Done = func(*block.Request) {
		if q.Status != block.OK {
			failed = q.Status
		}
		if all.Count == 0 || failed != block.OK {
			done = true
			return
		}
		n := min(piece, all.Count)
		q.Range = block.Range{Start: all.Start, Count: n}
		q.Data[0] = zeros[:n*block.SectorSize]
		all.Start, all.Count = all.Start+n, all.Count-n
		v.vol.Submit([]*block.Request{q})
	}
	q.Done(q)
	r.settle(&done)
	if failed != block.OK {
		return fmt.Errorf("it cannot be filled: %s", failed)
	}
	return nil
}

// zeros are what hosts of arrays without payload write. An array costs a start nothing; a slice of this size would have
// each command of the program collect garbage before it begins.
var zeros [16 << 20]byte
