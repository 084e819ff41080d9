package sim

import (
	"errors"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// What TestTorture knows of space and of waiting: thick volumes and anchors are never refused space, pools
// account for all of theirs, volumes come and go, and who has room does not wait.

// anchoring is the name of a command that anchors its range.
const anchoring = "anchor"

// roomBound is how long a write may take for which its pool has room when it comes: whatever other pools do.
const roomBound = 2e9

func noSpace(t *scsi.Task) bool {
	return t.Status == scsi.StatusCheckCondition && senseOf(t.Sense) == 0x072707
}

// promised reports whether a change of a range may not fail for lack of space. Of copies that is not known:
// what they read may be given up.
func (v *tortureVolume) promised(first, n uint64) bool {
	for _, u := range v.units[first : first+n] {
		if u.from != nil || v.thin && !u.anchored {
			return false
		}
	}
	return true
}

func (v *tortureVolume) anchor(first, n uint64, yes bool) {
	for k := first; k < first+n; k++ {
		v.units[k].anchored = yes
	}
}

// create makes a volume of random size, thick if there is space for it.
func (m *torture) create(name, pool string) *tortureVolume {
	v := &tortureVolume{name: name, pool: pool, thin: m.rng.N(3) > 0}
	sectors := (1 + m.rng.N(4)) << 11
	if p := m.arr.Pool(pool); !v.thin && p != nil {
		free, _, _ := p.Space()
		v.thin = free < int64(sectors)*block.SectorSize
	}
	done := false
	era := m.era
	m.arr.CreateVolume(array.VolumeSpec{Name: name, Pool: pool, Sectors: sectors, Thin: v.thin}, func(w *array.Volume, err error) {
		if done = true; err != nil {
			if era == m.era {
				m.fail("volume: %v", err)
			}
			return
		}
		v.naa = w.Info().NAA
	})
	m.until(func() bool { return done }, "a volume to be made")
	m.note("volume %s of %d sectors in %s, thin %v", name, sectors, pool, v.thin)
	v.units = make([]tortureUnit, sectors/unitSecs)
	for k := range v.units {
		v.units[k].may = []uint64{0}
	}
	return v
}

// export gives a volume a LUN, under the eyes of a watch.
func (m *torture) export(lun int) {
	v := m.vols[lun]
	w := m.arr.Volume(v.name)
	v.unit = m.target.AddUnit(watch{w, m, w.Pool()}, scsi.UnitOptions{})
	if err := m.target.Map("", uint16(lun), v.unit); err != nil {
		m.fail("map: %v", err)
	}
}

// churn deletes a volume and makes another one under its name.
func (m *torture) churn() {
	lun := int(m.rng.N(uint64(len(m.vols))))
	v := m.vols[lun]
	m.note("volume %s is deleted", v.name)
	m.until(func() bool { return m.tasks == 0 }, "the tasks to end")
	if m.bad != "" {
		return
	}
	m.target.RemoveUnit(v.unit)
	over := false
	for try := 0; try < 50 && !over && m.bad == ""; try++ {
		answered := false
		m.arr.DeleteVolume(m.arr.Volume(v.name), func(err error) {
			if answered = true; err == nil {
				over = true
			} else if !errors.Is(err, array.ErrInUse) {
				m.fail("delete: %v", err)
			}
		})
		m.until(func() bool { return answered }, "a volume to be deleted")
		m.exec.RunUntil(m.exec.Now() + 1e6) // what was aborted may still be at it
	}
	if m.bad != "" {
		return
	}
	if over { // else what an absent mdisk has to take still belongs to it
		m.vols[lun] = m.create(v.name, v.pool)
	}
	if m.bad == "" {
		m.export(lun)
		for i := range m.nexus {
			m.calm(i, lun)
		}
	}
}

// checkSpace compares the accounts of the pools with what there must be.
func (m *torture) checkSpace() {
	thick := map[string]int64{}
	for _, v := range m.vols {
		if !v.thin {
			thick[v.pool] += int64(len(v.units)) * unitBytes
		}
	}
	for _, p := range m.arr.Pools() {
		free, allocated, reserved := p.Space()
		capacity := int64(p.Stats().Capacity)
		if free+allocated+reserved != capacity || allocated < 0 || allocated > capacity || m.tasks == 0 && (free < 0 || reserved < 0) {
			m.fail("pool %s: %d bytes are free, %d allocated and %d reserved of %d", p.Name(), free, allocated, reserved, capacity)
		}
		if allocated+reserved < thick[p.Name()] {
			m.fail("pool %s: %d bytes are allocated and %d reserved, its thick volumes have %d", p.Name(), allocated, reserved, thick[p.Name()])
		}
	}
}

// watch is a volume whose writes end in time where their pool has room.
type watch struct {
	block.Device
	m    *torture
	pool *array.Pool
}

func (w watch) Submit(reqs []*block.Request) {
	for _, q := range reqs {
		if q.Op != block.OpWrite || q.Flags&block.FUA != 0 || !w.room(q.Range.Bytes()) {
			continue
		}
		from, done := w.m.exec.Now(), q.Done
		q.Done = func(q *block.Request) {
			if took := w.m.exec.Now() - from; took > roomBound {
				w.m.fail("a write of %v of %s took %.3f s, and its pool had room", q.Range, w.Info().Name, float64(took)/1e9)
			}
			q.Done = done
			done(q)
		}
	}
	w.Device.Submit(reqs)
}

// room reports whether the pool's floor has room for so many bytes and nobody of it waits.
func (w watch) room(bytes uint64) bool {
	st := w.pool.Stats()
	if st.WriteMode != array.WriteFast || !w.m.arr.Mirrored() || st.CacheUsed+bytes+2*unitBytes > st.CacheFloor {
		return false
	}
	for o := range block.NumOrigins {
		if _, _, waiting := w.pool.Waits(o); waiting > 0 {
			return false
		}
	}
	return true
}
