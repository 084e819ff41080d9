package torture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
	"github.com/arraysim/arraysim/internal/store"
)

// gate is an executor in virtual time that takes no messages while it is shut, as one that is held.
type gate struct {
	*block.Virtual
	shut bool
	kept []func()
}

func (g *gate) Post(fn func()) {
	if g.shut {
		g.kept = append(g.kept, fn)
		return
	}
	g.Virtual.Post(fn)
}

func (g *gate) open() {
	g.shut = false
	for _, fn := range g.kept {
		g.Virtual.Post(fn)
	}
	g.kept = nil
}

// group is an I/O group: an array with two volumes and its target.
type group struct {
	gate
	store *store.Memory
	arr   *array.Array
	pool  *array.Pool
	tg    *scsi.Target
	vols  []*array.Volume
	units []*scsi.Unit
}

// groups are two I/O groups in one virtual time.
type groups struct {
	t     testing.TB
	clock *block.Virtual
	g     [2]*group
	tag   uint64
}

const groupSectors = 8 << 11 // of each volume

func newGroups(t testing.TB) *groups { return slowGroups(t, 0) }

// slowGroups has mdisks of a bandwidth in bytes a second, 0 for any.
func slowGroups(t testing.TB, bandwidth uint64) *groups {
	r := &groups{t: t, clock: &block.Virtual{}}
	for i := range r.g {
		g := r.open(i, store.NewMemory(r.clock, store.MemoryOptions{Discard: false}))
		var err error
		g.arr.CreatePool(array.PoolSpec{Name: "p", Mdisks: []array.MdiskSpec{{Name: "m", Size: 64 << 20, Bandwidth: bandwidth}}}, func(p *array.Pool, e error) { g.pool, err = p, e })
		r.settle()
		for v := range 2 {
			g.arr.CreateVolume(array.VolumeSpec{Name: fmt.Sprintf("v%d%d", i, v), Pool: "p", Sectors: groupSectors, BlockSize: 512, Thin: true}, func(x *array.Volume, e error) {
				g.vols, err = append(g.vols, x), e
			})
			r.settle()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.export()
	return r
}

// open opens the array of a group.
func (r *groups) open(i int, st *store.Memory) *group {
	g := &group{gate: gate{Virtual: r.clock}, store: st}
	r.g[i] = g
	var err error
	if g.arr, err = array.Open(array.Options{Exec: &g.gate, Store: st, CacheBytes: 4 << 20, UUID: uint64(i + 1)}); err != nil {
		r.t.Fatal(err)
	}
	return g
}

// die is the death of the process, with both groups, and a start of it from what their stores have. Commands under way
// never end.
func (r *groups) die() {
	r.clock = &block.Virtual{}
	for i, old := range r.g {
		g := r.open(i, old.store.Clone(r.clock))
		g.pool = g.arr.Pool("p")
		for v := range old.vols {
			g.vols = append(g.vols, g.arr.Volume(fmt.Sprintf("v%d%d", i, v)))
		}
	}
	r.export()
}

// export makes the targets of the groups.
func (r *groups) export() {
	for i, g := range r.g {
		g.tg = scsi.NewTarget(scsi.Options{Name: fmt.Sprintf("iqn.2026-11.org.example:g%d", i), Vendor: "A", Product: "B", Exec: &g.gate,
			Random: func(b []byte) {
				r.tag++
				binary.BigEndian.PutUint64(b, r.tag<<8|uint64(i))
			}})
		for lun, v := range g.vols {
			u := g.tg.AddUnit(v, scsi.UnitOptions{})
			g.units = append(g.units, u)
			if err := g.tg.Map("", uint16(lun), u); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	scsi.JoinCopies(r.g[0].tg, r.g[1].tg)
}

func (r *groups) settle() { r.clock.RunUntil(r.clock.Now() + 1e9) }

// login opens a nexus whose unit attentions are cleared.
func (r *groups) login(g int, initiator string) *scsi.Nexus {
	n := r.g[g].tg.OpenNexus(initiator, initiator+",i,0x1", 1)
	for lun := range r.g[g].units {
		for range 3 {
			r.do(n, lun, make([]byte, 6), nil, 0)
		}
	}
	return n
}

// both logs an initiator in to both groups.
func (r *groups) both(initiator string) [2]*scsi.Nexus {
	return [2]*scsi.Nexus{r.login(0, initiator), r.login(1, initiator)}
}

type memory struct{}

func (memory) Get(n int) []byte { return make([]byte, n) }

// call is a command on its way.
type call struct {
	*scsi.Task
	ended bool
}

func (c *call) String() string {
	if c.Status == scsi.StatusCheckCondition {
		key, asc, ascq := scsitest.SenseCode(c.Sense)
		return fmt.Sprintf("%02x %x/%02x/%02x", c.Status, key, asc, ascq)
	}
	return fmt.Sprintf("%02x", c.Status)
}

func (r *groups) start(n *scsi.Nexus, lun int, cdb, out []byte, in int) *call {
	r.tag++
	c := &call{}
	c.Task = &scsi.Task{LUN: uint64(lun) << 48, Tag: r.tag, Attr: scsi.AttrSimple, CDB: cdb, MaxIn: in, Bufs: memory{}, Done: func(*scsi.Task) { c.ended = true }}
	if out != nil {
		c.DataOut = [][]byte{out}
	}
	n.Submit([]*scsi.Task{c.Task})
	return c
}

// within runs until a command has ended, for so many seconds at the most.
func (r *groups) within(c *call, seconds int64) bool {
	for end := r.clock.Now() + seconds*1e9; !c.ended && r.clock.StepUntil(end); {
	}
	return c.ended
}

func (r *groups) do(n *scsi.Nexus, lun int, cdb, out []byte, in int) *call {
	r.t.Helper()
	c := r.start(n, lun, cdb, out, in)
	if !r.within(c, 60) {
		r.t.Fatalf("the command %x never ends", cdb)
	}
	return c
}

func (r *groups) good(n *scsi.Nexus, lun int, cdb, out []byte, in int) []byte {
	r.t.Helper()
	c := r.do(n, lun, cdb, out, in)
	if c.Status != scsi.StatusGood {
		r.t.Fatalf("the command %x ends with %v", cdb, c)
	}
	return bytes.Join(c.DataIn, nil)
}

// device runs a request of a volume itself.
func (r *groups) device(g, v int, q *block.Request) {
	r.t.Helper()
	done := false
	q.Done = func(*block.Request) { done = true }
	r.g[g].vols[v].Submit([]*block.Request{q})
	for !done && r.clock.Step() {
	}
	if !done || q.Status != block.OK {
		r.t.Fatalf("%v of volume %d of group %d: %v, %v", q.Op, v, g, done, q.Status)
	}
}

func (r *groups) write(g, v int, at uint64, b []byte) {
	r.t.Helper()
	r.device(g, v, &block.Request{Op: block.OpWrite, Range: block.Range{Start: at, Count: uint64(len(b)) / 512}, Data: [][]byte{b}})
}

func (r *groups) read(g, v int, at, n uint64) []byte {
	r.t.Helper()
	b := make([]byte, n*512)
	r.device(g, v, &block.Request{Op: block.OpRead, Range: block.Range{Start: at, Count: n}, Data: [][]byte{b}})
	return b
}

// names is the CSCD descriptor of a volume by its NAA name.
func (r *groups) names(g, v int) []byte {
	naa := r.g[g].vols[v].Info().NAA
	b := make([]byte, 32)
	b[0], b[4], b[5], b[7] = 0xE4, 1, 3, 16
	copy(b[8:], naa[:])
	binary.BigEndian.PutUint32(b[28:], 512)
	return b
}

// where is a volume of a group.
type where struct{ g, v int }

// list is a parameter list that copies one segment.
func (r *groups) list(src, dst where, n int, from, to uint64) []byte {
	return scsitest.CopyList(0, 3, [][]byte{r.names(src.g, src.v), r.names(dst.g, dst.v)}, [][]byte{scsitest.Segment02(0, 1, n, from, to, false)})
}

// check compares maps, space and cache of both arrays, and that nothing of a copy is held: without its data, no pool has anything
// allocated.
func (r *groups) check() {
	r.t.Helper()
	for i, g := range r.g {
		for _, p := range g.arr.Check(true).Problems {
			r.t.Errorf("check of group %d: %s", i, p)
		}
	}
}

// empty unmaps all volumes, and sees that no reference holds any of their space.
func (r *groups) empty() {
	r.t.Helper()
	for i, g := range r.g {
		for v := range g.vols {
			r.device(i, v, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{{Count: groupSectors}}})
		}
	}
	r.clock.RunUntil(r.clock.Now() + 400e9) // longer than tokens live
	for i, g := range r.g {
		if s := g.pool.Stats(); s.Allocated != 0 {
			r.t.Errorf("group %d has %d bytes allocated and nothing written: something is held", i, s.Allocated)
		}
	}
	r.check()
}

// conserves: what came into a cache went out of it or is dirty, by volume and origin.
func (r *groups) conserves() {
	r.t.Helper()
	for i, g := range r.g {
		for v, x := range g.vols {
			var flows [block.NumOrigins]array.Flow
			x.Flow(&flows)
			for o, f := range flows {
				if int64(f.In()) != int64(f.Out())+int64(f.Dirty) {
					r.t.Errorf("group %d, volume %d, %v: %d bytes came in, %d went out, %d are dirty", i, v, block.Origin(o), f.In(), f.Out(), f.Dirty)
				}
			}
		}
	}
}
