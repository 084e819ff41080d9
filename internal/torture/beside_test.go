package torture

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// What goes on beside a program, which must not make a difference to its hosts: a pool whose mdisk is slow has 64 writes
// outstanding, all of what its cap lets it have of the cache, and a volume in the program's pools is made, written,
// copied to, resized and deleted, while commands for it are under way.
//
// The laws: no write of a pool that has room waits longer than its bound; the others are served in the end; what is new of
// a volume holds zeros; and when the program has ended and all volumes are deleted, all space is free.
type beside struct {
	r       *rig
	rng     *rand.Rand
	host    *scsi.Nexus
	unit    *scsi.Unit // of the volume that comes and goes, nil: nobody sees it
	writes  int        // outstanding ones of the full pool
	cmds    int        // for the volume that comes and goes
	changes bool       // it is being made, resized or deleted
	stopped bool
	broken  string
	did     besides
}

// besides counts what went on, in all lives of an array.
type besides struct{ waited, made, resized, deleted, copied, bounded int }

const (
	fullPool, fullVolume = "full", "busy"
	comingVolume         = "coming"
	besideLUN            = 9
	besideName           = "iqn.2026-01.host:beside"
	outstanding          = 64

	besideTick = 20e6
	// roomBound is how long a write may take for which its pool has room when it comes; fullBound is that for a pool
	// that is saturated: its mdisk takes 4 s for all that is outstanding.
	roomBound = 2e9
	fullBound = 60e9
)

// makeFull makes the pool and the volume that will be saturated.
func (r *rig) makeFull(done func(error)) {
	r.arr.CreatePool(array.PoolSpec{Name: fullPool, Mdisks: []array.MdiskSpec{{Name: "m", Size: 8 << 20, Bandwidth: 256 << 10}}}, func(_ *array.Pool, err error) {
		if err != nil {
			done(err)
			return
		}
		r.arr.CreateVolume(array.VolumeSpec{Name: fullVolume, Pool: fullPool, Sectors: 8192, Thin: true}, func(_ *array.Volume, err error) { done(err) })
	})
}

// startBeside begins what goes on beside the program, in a new life of the array as well.
func (r *rig) startBeside() error {
	if r.setup.Beside == 0 {
		return nil
	}
	b := &beside{r: r, rng: r.besideRng}
	if r.beside != nil {
		b.did = r.beside.did
	}
	r.beside = b
	for lun, u := range r.exports {
		if err := r.tg.Map(besideName, uint16(lun), u); err != nil {
			return err
		}
	}
	b.host = r.tg.OpenNexus(besideName, besideName+",i,0x1", 1)
	if w := r.arr.Volume(comingVolume); w != nil {
		b.export(w)
	}
	b.tick()
	return nil
}

func (b *beside) fail(format string, args ...any) {
	if b.broken == "" {
		b.broken = fmt.Sprintf(format, args...)
	}
}

func (b *beside) later(after int64, fn func()) {
	b.r.exec.At(b.r.exec.Now()+after, fn)
}

func (b *beside) tick() {
	if b.stopped {
		return
	}
	b.saturate()
	switch k := b.rng.IntN(12); {
	case k == 0 && !b.changes:
		b.change()
	case k < 4 && b.unit != nil && b.cmds < 8:
		b.command()
	}
	b.later(besideTick, b.tick)
}

// saturate keeps writes of the full pool outstanding.
func (b *beside) saturate() {
	for b.writes < outstanding {
		b.writes++
		from := b.r.exec.Now()
		data := bytes.Repeat([]byte{byte(from)}, 32*512)
		q := &block.Request{Op: block.OpWrite, Range: block.Range{Start: 32 * b.rng.Uint64N(256), Count: 32}, Data: [][]byte{data}}
		q.Done = func(*block.Request) {
			b.writes--
			took := b.r.exec.Now() - from
			if took > fullBound {
				b.fail("a write of the full pool took %d s", took/1e9)
			}
			if took > besideTick {
				b.did.waited++
			}
		}
		b.r.arr.Volume(fullVolume).Submit([]*block.Request{q})
	}
}

// change makes the volume that comes and goes, or deletes or resizes it.
func (b *beside) change() {
	w := b.r.arr.Volume(comingVolume)
	sectors := 8 * (1 + b.rng.Uint64N(256))
	b.changes = true
	switch {
	case w == nil:
		spec := array.VolumeSpec{Name: comingVolume, Pool: []string{"a", "b"}[b.rng.IntN(2)], Sectors: sectors, Thin: b.rng.IntN(2) == 0}
		b.r.arr.CreateVolume(spec, func(w *array.Volume, err error) {
			if err != nil {
				b.fail("a volume beside the program cannot be made: %v", err)
				return
			}
			b.did.made++
			b.zeros(w, 0, sectors, func() { b.export(w) })
		})
	case b.rng.IntN(3) == 0:
		if b.unit != nil {
			b.r.tg.RemoveUnit(b.unit) // what is under way ends first
			b.unit = nil
		}
		b.delete(w)
	default:
		old, quiet := w.Info().Sectors, b.cmds == 0
		b.r.arr.Resize(w, sectors, func(err error) {
			if err != nil {
				b.fail("a volume beside the program cannot be resized: %v", err)
				return
			}
			b.did.resized++
			if sectors > old && quiet {
				b.zeros(w, old, sectors, func() {})
			} else {
				b.changes = false
			}
		})
	}
}

func (b *beside) delete(w *array.Volume) {
	b.r.arr.DeleteVolume(w, func(err error) {
		switch {
		case errors.Is(err, array.ErrInUse):
			b.later(besideTick, func() { b.delete(w) })
		case err != nil:
			b.fail("a volume beside the program cannot be deleted: %v", err)
		default:
			b.did.deleted++
			b.changes = false
		}
	})
}

// zeros reads what is new of a volume.
func (b *beside) zeros(w *array.Volume, from, to uint64, then func()) {
	data := make([]byte, (to-from)*512)
	q := &block.Request{Op: block.OpRead, Range: block.Range{Start: from, Count: to - from}, Data: [][]byte{data}}
	q.Done = func(q *block.Request) {
		if q.Status == block.OK && bytes.Count(data, []byte{0}) != len(data) {
			i := bytes.IndexFunc(data, func(c rune) bool { return c != 0 })
			b.fail("sector %d of a volume beside the program is new, and holds %02x", from+uint64(i/512), data[i])
		}
		b.changes = false
		then()
	}
	w.Submit([]*block.Request{q})
}

// export gives the volume a LUN that only the host beside the program sees.
func (b *beside) export(w *array.Volume) {
	b.unit = b.r.tg.AddUnit(w, scsi.UnitOptions{})
	if err := b.r.tg.Map(besideName, besideLUN, b.unit); err != nil {
		b.fail("%v", err)
	}
}

// command sends one to the volume that comes and goes. Any answer is right, but there must be one.
func (b *beside) command() {
	n := 1 + b.rng.Uint64N(200)
	lba := b.rng.Uint64N(1024)
	lun, cdb, list, in := besideLUN, scsitest.CDB(0x8A, lba, int(n)), []byte(nil), 0
	copies := false
	switch k := b.rng.IntN(8); {
	case k < 4:
		list = bytes.Repeat([]byte{0xA5}, int(n)*512)
	case k == 4:
		cdb, in = scsitest.CDB(0x88, lba, int(n)), int(n)*512
	case k == 5:
		cdb = scsitest.CDB(0x93, lba, int(n))
		cdb[1] = []byte{1, 9}[b.rng.IntN(2)] // NDOB, UNMAP
	default:
		from := b.rng.IntN(3)
		b.r.lists++
		list = scsitest.CopyList(0, 3, [][]byte{b.r.naaOf(volume(from)), b.r.naaOf(comingVolume)},
			[][]byte{scsitest.Segment02(0, 1, int(n), b.rng.Uint64N(1024), lba, true)})
		cdb, copies = scsitest.CopyCDB(list), true
		if b.rng.IntN(2) == 0 {
			lun = from
		}
	}
	t := &scsi.Task{LUN: uint64(lun) << 48, Attr: scsi.AttrSimple, CDB: cdb, MaxIn: in, Bufs: heap{}}
	b.r.tag++
	if t.Tag = b.r.tag; list != nil {
		t.DataOut = [][]byte{list}
	}
	b.cmds++
	t.Done = func(t *scsi.Task) {
		if b.cmds--; copies && t.Status == scsi.StatusGood {
			b.did.copied++
		}
	}
	b.host.Submit([]*scsi.Task{t})
}

// endBeside lets what goes on beside the program come to its end.
func (r *rig) endBeside() error {
	b := r.beside
	if b == nil {
		return nil
	}
	b.stopped = true
	if over := func() bool { return b.writes+b.cmds == 0 && !b.changes }; b.broken == "" {
		if r.until(over); !over() {
			b.fail("%d writes of the full pool and %d commands of the volume beside the program have not ended", b.writes, b.cmds)
		}
	}
	if b.broken != "" {
		return errors.New(b.broken)
	}
	return nil
}

// room reports whether the floor of a pool has room for so many bytes and nobody of the pool waits.
func (r *rig) room(p *array.Pool, bytes uint64) bool {
	st := p.Stats()
	if st.WriteMode != array.WriteFast || st.CacheUsed+bytes+8192 > st.CacheFloor {
		return false
	}
	for o := range block.NumOrigins {
		if _, _, waiting := p.Waits(o); waiting > 0 {
			return false
		}
	}
	return true
}

// timed has a write of a pool that has room be no longer under way than its bound.
func (r *rig) timed(w *array.Volume, q *block.Request) {
	b := r.beside
	if b == nil || q.Op != block.OpWrite || q.Flags&block.FUA != 0 || !r.room(w.Pool(), q.Range.Bytes()) {
		return
	}
	from, done := r.exec.Now(), q.Done
	q.Done = func(q *block.Request) {
		if took := r.exec.Now() - from; took > roomBound {
			b.fail("a write of %v of %s took %d ms, and its pool had room", q.Range, w.Name(), took/1e6)
		}
		b.did.bounded++
		q.Done = done
		done(q)
	}
}

// freeAll deletes all volumes when a program has ended: all space is free then.
func (r *rig) freeAll() error {
	r.tg.RevokeTokens()
	for _, w := range r.arr.Volumes() {
		var failed error
		for again := true; again; {
			ended := false
			r.arr.DeleteVolume(w, func(err error) { ended, failed = true, err })
			if r.until(func() bool { return ended }); !ended {
				return fmt.Errorf("the deletion of volume %s does not end", w.Name())
			}
			if again = errors.Is(failed, array.ErrInUse); again {
				r.exec.RunUntil(r.exec.Now() + besideTick)
			}
		}
		if failed != nil {
			return failed
		}
	}
	r.exec.RunUntil(r.exec.Now() + 60e9)
	for _, p := range r.arr.Pools() {
		if free, allocated, reserved := p.Space(); free != int64(p.Stats().Capacity) || allocated != 0 || reserved != 0 {
			return fmt.Errorf("pool %s has no volumes, and %d bytes of %d are free, %d allocated, %d reserved", p.Name(), free, p.Stats().Capacity, allocated, reserved)
		}
	}
	return nil
}

// checkSpace compares the accounts of the pools with what there must be.
func (r *rig) checkSpace() error {
	// What edits have cut off gives its space back a bit later; until then less is reserved than there is.
	r.exec.RunUntil(r.exec.Now() + besideTick)
	thick := map[string]int64{}
	for i, l := range luns {
		if !l.thin {
			thick[l.pool] += int64(r.arr.Volume(volume(i)).Info().Sectors * 512)
		}
	}
	for _, p := range r.arr.Pools() {
		free, allocated, reserved := p.Space()
		capacity := int64(p.Stats().Capacity)
		if free+allocated+reserved != capacity || free < 0 || allocated < 0 || reserved < 0 || allocated+reserved < thick[p.Name()] {
			return fmt.Errorf("pool %s: %d bytes are free, %d allocated and %d reserved of %d; thick volumes have %d", p.Name(), free, allocated, reserved, capacity, thick[p.Name()])
		}
	}
	return nil
}
