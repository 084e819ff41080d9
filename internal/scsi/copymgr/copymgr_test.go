package copymgr

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copylist"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/testkit"
)

// slow is a device that ends requests when the test says so, and those that are withdrawn, unless
// it has begun what it gets at once.
type slow struct {
	info block.Info
	keen bool
	reqs []*block.Request
	refs int // that are held
}

func (d *slow) Info() block.Info           { return d.info }
func (d *slow) Submit(r []*block.Request)  { d.reqs = append(d.reqs, r...) }
func (d *slow) Notify(func(e block.Event)) {}

func (d *slow) Cancel(r *block.Request) {
	if d.keen {
		return
	}
	for i, q := range d.reqs {
		if q == r {
			d.reqs = append(d.reqs[:i:i], d.reqs[i+1:]...)
			r.Status = block.Cancelled
			r.Done(r)
			return
		}
	}
}

// end ends the i-th request.
func (d *slow) end(i int, s block.Status) {
	r := d.reqs[i]
	d.reqs = append(d.reqs[:i:i], d.reqs[i+1:]...)
	if r.Status = s; r.Op == block.OpHold && s == block.OK {
		d.refs++
		r.Ref = &hold{d}
	}
	r.Done(r)
}

type hold struct{ d *slow }

func (*hold) Sectors() uint64 { return 8 }
func (h *hold) Release()      { h.d.refs-- }

type heap struct{}

func (heap) Get(n int) []byte { return make([]byte, n) }

func row(op byte, sa int, run func(*server.Task)) *server.Command {
	usage := make([]byte, 16)
	usage[0], usage[1] = op, byte(sa)
	return &server.Command{Name: "test", Op: op, ServiceAction: sa, Usage: usage, Run: run}
}

func commands() *server.Commands {
	return server.NewCommands([]*server.Command{row(0x83, SACopyLID4, ExtendedCopy), row(0x83, SAPopulateToken, PopulateToken), row(0x83, SAWriteToken, WriteToken), row(0x84, 5, CopyStatus4), row(0x84, 7, TokenInformation)}, nil, nil)
}

// rig is a target with a copy manager and no commands but those of copies.
type rig struct {
	exec *block.Virtual
	dev  *slow
	tg   *server.Target
	u    *server.Unit
	m    *Manager
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{exec: &block.Virtual{}, dev: &slow{info: block.Info{Name: "disk", Sectors: 1 << 20, BlockSize: 512}}}
	r.tg = server.NewTarget(server.Options{Exec: r.exec, Random: func(b []byte) { b[0] = byte(len(b)) }}, commands(), func(tg *server.Target) server.CopyManager {
		r.m = NewManager(tg)
		return r.m
	})
	r.u = r.tg.AddUnit(r.dev, server.UnitOptions{})
	if err := r.tg.Map("", 0, r.u); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) login(name string) *server.Nexus {
	n := r.tg.OpenNexus(name, name, 1)
	n.ITLs()[0].Attentions().Clear(1<<32 - 1)
	return n
}

func (r *rig) submit(n *server.Nexus, cdb, list []byte) *server.Task {
	binary.BigEndian.PutUint32(cdb[10:], uint32(len(list)))
	t := &server.Task{CDB: cdb, MaxIn: 1 << 20, Bufs: heap{}, Done: func(t *server.Task) { t.Ctx = true }}
	if list != nil {
		t.DataOut = [][]byte{list}
	} else {
		binary.BigEndian.PutUint32(cdb[10:], 1<<16)
	}
	n.Submit([]*server.Task{t})
	return t
}

// copy sends an EXTENDED COPY(LID4) of segments of 8 blocks inside the unit.
func (r *rig) copy(n *server.Nexus, id uint32, immed bool, segments int) *server.Task {
	list := make([]byte, copylist.Header4, copylist.Header4+segments*copylist.SegmentBlocksLen)
	be := binary.BigEndian
	const flagsAt, typeAt, idAt, segmentsAt = 15, 16, 20, 44 // SPC-4 6.4.4
	list[0] = 1
	be.PutUint16(list[2:], copylist.CSCDLen)
	list[typeAt] = 0xFF
	if immed {
		list[flagsAt] = 1
	}
	be.PutUint32(list[idAt:], id)
	be.PutUint16(list[segmentsAt:], uint16(segments*copylist.SegmentBlocksLen))
	for i := range segments {
		list = append(list, blocksSegment(8, uint64(8*i), uint64(1000+8*i))...)
	}
	return r.submit(n, []byte{0x83, SACopyLID4, 15: 0}, list)
}

func blocksSegment(n uint16, from, to uint64) []byte {
	b := make([]byte, copylist.SegmentBlocksLen)
	be := binary.BigEndian
	b[0], b[3] = copylist.SegmentBlocks, copylist.SegmentBlocksLen-4
	be.PutUint16(b[copylist.SegmentSource:], copylist.CSCDSelf)
	be.PutUint16(b[copylist.SegmentTarget:], copylist.CSCDSelf)
	be.PutUint16(b[blocksCount:], n)
	be.PutUint64(b[segmentFromLBA:], from)
	be.PutUint64(b[segmentToLBA:], to)
	return b
}

// populate sends a POPULATE TOKEN of 8 blocks.
func (r *rig) populate(n *server.Nexus, id uint32, immed bool) *server.Task {
	list := make([]byte, populateHead+rangeLen)
	list[1], list[populateRanges+1], list[populateHead+11] = populateHead+rangeLen-2, rangeLen, 8
	if immed {
		list[tokenFlags] = tokenImmed
	}
	cdb := []byte{0x83, SAPopulateToken, 15: 0}
	binary.BigEndian.PutUint32(cdb[tokenListID:], id)
	return r.submit(n, cdb, list)
}

// TestNothingIsKept: whatever ends operations, at the end nobody has one any more, nothing is held
// but by valid tokens, and the manager keeps nothing for nexuses that are gone.
func TestNothingIsKept(t *testing.T) {
	base := testkit.Seed(t)
	for seed := base; seed < base+150; seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		r := newRig(t)
		r.dev.keen = rng.IntN(2) == 0
		names := []string{"a", "b", "c"}
		nexuses := make([]*server.Nexus, len(names))
		for i, name := range names {
			nexuses[i] = r.login(name)
		}
		most := 0
		for range 150 {
			i := rng.IntN(len(names))
			n := nexuses[i]
			switch op := rng.IntN(20); {
			case op < 6:
				r.copy(n, rng.Uint32N(4), rng.IntN(2) == 0, 1+rng.IntN(3))
			case op < 9:
				r.populate(n, rng.Uint32N(4), rng.IntN(2) == 0)
			case op < 16:
				if len(r.dev.reqs) > 0 {
					s := block.OK
					if rng.IntN(6) == 0 {
						s = block.MediumRead
					}
					r.dev.end(rng.IntN(len(r.dev.reqs)), s)
				}
			case op == 16:
				n.Manage(sam.AbortTaskSet, 0, 0, func(sam.TMFResponse) {})
			case op == 17 && rng.IntN(3) == 0:
				n.Manage(sam.LogicalUnitReset, 0, 0, func(sam.TMFResponse) {})
			case op == 18 && rng.IntN(3) == 0:
				n.Close(func() {})
				nexuses[i] = r.login(names[i])
			case op == 19 && rng.IntN(5) == 0:
				r.tg.RevokeTokens()
			}
			r.exec.RunUntil(r.exec.Now() + 1)
			n.ITLs()[0].Attentions().Clear(1<<32 - 1)
			most = max(most, len(r.m.operations))
			sum := 0
			for _, h := range r.m.hosts {
				sum += h.operations
			}
			if sum != len(r.m.operations) {
				t.Fatalf("seed %d: initiators count %d operations of %d", seed, sum, len(r.m.operations))
			}
		}
		for _, n := range nexuses {
			n.Close(func() {})
		}
		for len(r.dev.reqs) > 0 {
			r.dev.end(0, block.OK)
		}
		r.exec.RunUntil(r.exec.Now() + 1)
		valid, counted := len(r.m.read.Tokens()), 0
		for id, h := range r.m.hosts {
			if counted += r.m.read.Valid(uint32(id)); h.operations != 0 {
				t.Errorf("seed %d: initiator %d has %d operations", seed, id, h.operations)
			}
		}
		if len(r.m.operations) != 0 || len(r.m.sources) != 0 || most == 0 {
			t.Fatalf("seed %d: %d operations and what %d nexuses keep are left, of at most %d operations", seed, len(r.m.operations), len(r.m.sources), most)
		}
		if counted != valid || r.dev.refs != valid {
			t.Fatalf("seed %d: %d tokens, counted as %d, hold %d references", seed, valid, counted, r.dev.refs)
		}
		if r.tg.RevokeTokens(); r.dev.refs != 0 {
			t.Fatalf("seed %d: %d references are left", seed, r.dev.refs)
		}
	}
}

// TestResultsAreKept: of the results that a nexus keeps, the oldest goes first, never that of an
// operation that runs.
func TestResultsAreKept(t *testing.T) {
	r := newRig(t)
	n := r.login("a")
	first := r.copy(n, 1000, true, 1)
	for id := range uint32(maxHeld + 3) {
		if r.copy(n, id, true, 1); id%2 == 0 {
			r.dev.end(1, block.OK) // the hold
			r.dev.end(1, block.OK) // the place
		} else {
			r.dev.end(1, block.MediumRead)
		}
	}
	r.exec.RunUntil(r.exec.Now() + 1)
	s := r.m.source(n.ITLs()[0])
	if first.Status != sam.StatusGood || len(s.results) != maxHeld || s.with(1000) == nil || s.with(1000).op == nil {
		t.Fatalf("status %02x, %d results, that of the one that runs: %+v", first.Status, len(s.results), s.with(1000))
	}
	for id := range uint32(maxHeld + 3) {
		got := s.with(id)
		if kept := id >= 4; kept != (got != nil) || kept && got.failed() != (id%2 == 1) {
			t.Errorf("copy %d: result %+v", id, got)
		}
	}
}

// TestRanges: what segments cover on units of 512 and of 4,096 bytes a block, in sectors.
func TestRanges(t *testing.T) {
	tg := server.NewTarget(server.Options{Exec: &block.Virtual{}}, commands(), func(*server.Target) server.CopyManager { return nil })
	n := tg.OpenNexus("a", "a", 1)
	shown := func(lun uint16, u *server.Unit) *cscd {
		if err := tg.Map("a", lun, u); err != nil {
			t.Fatal(err)
		}
		return &cscd{x: n.ITLs()[lun]}
	}
	small := shown(0, tg.AddUnit(&slow{info: block.Info{Name: "small", Sectors: 1 << 20, BlockSize: 512}}, server.UnitOptions{}))
	large := shown(1, tg.AddUnit(&slow{info: block.Info{Name: "large", Sectors: 1 << 20, BlockSize: 4096}}, server.UnitOptions{}))
	counted := blocksSegment(2, 8, 1)
	byTarget := blocksSegment(2, 8, 1)
	byTarget[1] = segmentDC
	offset := make([]byte, copylist.SegmentOffsetLen)
	offset[0], offset[offsetBytes+2], offset[segmentFromLBA+7], offset[offsetFrom], offset[segmentToLBA+7] = copylist.SegmentOffset, 0x10, 3, 2, 1
	bent := make([]byte, copylist.SegmentOffsetLen)
	bent[0], bent[offsetBytes+3] = copylist.SegmentOffset, 1
	far := blocksSegment(8, 1<<63, 0)
	for _, c := range []struct {
		name     string
		raw      []byte
		src, dst *cscd
		from, to block.Range
		why      sense.Code
	}{
		{"small to small", counted, small, small, block.Range{Start: 8, Count: 2}, block.Range{Start: 1, Count: 2}, 0},
		{"large to small", counted, large, small, block.Range{Start: 64, Count: 16}, block.Range{Start: 1, Count: 16}, 0},
		{"small to large, half a block", counted, small, large, block.Range{Start: 8, Count: 2}, block.Range{Start: 8, Count: 2}, sense.CopyInexact},
		{"small to large, in blocks of the target", byTarget, small, large, block.Range{Start: 8, Count: 16}, block.Range{Start: 8, Count: 16}, 0},
		{"offsets", offset, small, large, block.Range{Start: 4, Count: 8}, block.Range{Start: 8, Count: 8}, 0},
		{"half a sector", bent, small, small, block.Range{}, block.Range{}, sense.CopyGranularity},
		{"far out", far, small, small, block.Range{Start: 1 << 60, Count: 8}, block.Range{Count: 8}, 0},
	} {
		g := &copylist.Segment{Raw: c.raw}
		from, to, s := ranges(g, c.src, c.dst)
		if s.Code != c.why || c.why == 0 && (from != c.from || to != c.to) {
			t.Errorf("%s: from %+v, to %+v, sense %06x", c.name, from, to, s.Code)
		}
	}
}
