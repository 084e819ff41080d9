package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/scsi"
)

// Pools and volumes of TestTorture: they come, change their size and go, also while nothing can be made durable.

// addPool makes a pool of two mdisks.
func (m *torture) addPool(name string, copyData bool) {
	done := false
	m.startPool(name, copyData, func(err error) {
		if done = true; err != nil {
			m.fail("pool: %v", err)
		}
	})
	m.until(func() bool { return done }, "a pool to be made")
}

func (m *torture) startPool(name string, copyData bool, done func(error)) {
	spec := array.PoolSpec{Name: name, CopyData: copyData}
	for i := range 2 {
		disk := fmt.Sprintf("m%d", i)
		if name == "y" { // the files of y.0
			disk = "0." + disk
		}
		spec.Mdisks = append(spec.Mdisks, array.MdiskSpec{Name: disk, Size: m.disks})
	}
	era := m.era
	m.arr.CreatePool(spec, func(_ *array.Pool, err error) {
		if era != m.era {
			return
		}
		if err == nil {
			m.pools[name] = true
			m.poolRoom--
		}
		done(err)
	})
}

// poolsChange makes pools that are not used, or deletes one.
func (m *torture) poolsChange() {
	name := fmt.Sprintf("x%d", m.rng.N(3))
	switch {
	case m.pools[name]:
		m.deletePool()
	case m.poolRoom == 0:
	case m.poolRoom < 3:
		m.racePools()
	default:
		m.note("pool %s is added", name)
		m.addPool(name, false)
	}
}

// racePools makes two pools at once: no more of them than there are numbers.
func (m *torture) racePools() {
	m.note("two pools at once, and room for %d", m.poolRoom)
	var names []string
	for i := 0; len(names) < 2; i++ {
		if name := fmt.Sprintf("x%d", i); !m.pools[name] {
			names = append(names, name)
		}
	}
	if m.poolRoom == 1 {
		m.saw(poolRace)
	}
	room, made, ended := m.poolRoom, 0, 0
	for _, name := range names {
		m.startPool(name, false, func(err error) {
			if ended++; err == nil {
				made++
			}
		})
	}
	m.until(func() bool { return ended == 2 }, "two pools to be made")
	if made != min(2, room) {
		m.fail("%d of 2 pools were made, and there was room for %d", made, room)
	}
	if m.rng.N(2) == 0 {
		m.powerCut()
	}
}

// deletePool deletes a pool that has no volumes, where there is one.
func (m *torture) deletePool() {
	var unused []string
	for _, p := range m.arr.Pools() {
		if !slices.ContainsFunc(m.vols, func(v *tortureVolume) bool { return v.pool == p.Name() }) && m.pools[p.Name()] && !m.unsure[p.Name()] && !m.flying[p.Name()] {
			unused = append(unused, p.Name())
		}
	}
	if len(unused) == 0 || len(m.arr.Pools()) < 2 {
		return
	}
	name := unused[m.rng.N(uint64(len(unused)))]
	m.note("pool %s is deleted", name)
	ended, era := false, m.era
	m.flying[name] = true
	m.asked++
	m.arr.DeletePool(m.arr.Pool(name), func(err error) {
		if era != m.era {
			return
		}
		ended = true
		m.asked--
		delete(m.flying, name)
		switch {
		case err == nil:
			delete(m.pools, name)
			maps.DeleteFunc(m.down, func(key string, _ bool) bool { return strings.HasPrefix(key, name+".") })
			m.saw(poolsComeAndGo)
		case errors.Is(err, errTorture):
			m.unsure[name] = doubtful(err)
			m.saw(failedPool)
			if m.arr.Pool(name) == nil {
				m.fail("pool %s is gone, and its deletion failed: %v", name, err)
			}
		case !errors.Is(err, array.ErrInUse):
			m.fail("pool %s is not deleted: %v", name, err)
		}
	})
	if twin := twins[name]; m.store.shaky > 0 && (twin != "" || m.rng.N(2) == 0) { // a crash may come before
		m.shakyPool(twin)
		return
	}
	m.until(func() bool { return ended }, "a pool to be deleted")
}

// create makes a volume of random size, thick if there is space for it.
func (m *torture) create(name, pool string) *tortureVolume {
	v := &tortureVolume{name: name, pool: pool, thin: m.rng.N(3) > 0, stride: islandSecs}
	units := (1 + m.rng.N(4)) << 8
	if v.thin && m.rng.N(3) == 0 {
		v.stride = []uint64{1 << 20, 5 << 20, 1 << 25}[m.rng.N(3)] + 8*m.rng.N(64)
		units = (2 + m.rng.N(7)) * islandUnits
	}
	if p := m.arr.Pool(pool); !v.thin && p != nil {
		free, _, _ := p.Space()
		v.thin = free < int64(units)*unitBytes
	}
	m.make(v, units)
	return v
}

// fill makes a thick volume of all that is free in a pool, and exports it if others are.
func (m *torture) fill(pool string) {
	free, _, _ := m.arr.Pool(pool).Space()
	units := uint64(max(0, free)) / unitBytes
	if units == 0 || len(m.vols) > 15 {
		return
	}
	v := &tortureVolume{name: fmt.Sprintf("v%d", len(m.vols)), pool: pool, stride: islandSecs}
	m.make(v, units)
	m.vols = append(m.vols, v)
	m.saw(fullPools)
	if m.bad == "" && m.nexus[0] != nil {
		m.export(len(m.vols) - 1)
		for i := range m.nexus { // on all LUNs they are told of the new one
			for lun, v := range m.vols {
				if v.unit != nil {
					m.calm(i, lun)
				}
			}
		}
	}
}

func (m *torture) make(v *tortureVolume, units uint64) {
	done, era := false, m.era
	v.setUnits(units)
	m.note("volume %s of %d sectors in %s, thin %v", v.name, v.sectors(), v.pool, v.thin)
	m.arr.CreateVolume(array.VolumeSpec{Name: v.name, Pool: v.pool, Sectors: v.sectors(), Thin: v.thin}, func(w *array.Volume, err error) {
		if done = true; err != nil {
			if era == m.era {
				m.fail("volume: %v", err)
			}
			return
		}
		v.naa = w.Info().NAA
	})
	m.until(func() bool { return done }, "a volume to be made")
	if v.sectors() > 1<<23 {
		m.saw(deepMaps)
	}
}

// failToCreate makes a volume when that cannot be committed: nothing is left of it.
func (m *torture) failToCreate() {
	ended, era := false, m.era
	m.arr.CreateVolume(array.VolumeSpec{Name: "never", Pool: m.vols[0].pool, Sectors: 4096, Thin: true}, func(_ *array.Volume, err error) {
		if era != m.era {
			return
		}
		if ended = true; err == nil {
			m.fail("a volume was made that was not committed")
		}
	})
	m.until(func() bool { return ended }, "a volume to be refused")
	if m.bad == "" && m.arr.Volume("never") != nil {
		m.fail("a volume that could not be made is there")
	}
	m.saw(failedCreation)
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
	if v.unit == nil {
		return
	}
	m.note("volume %s is deleted", v.name)
	m.until(func() bool { return m.tasks == 0 }, "the tasks to end")
	if m.bad != "" {
		return
	}
	m.target.RemoveUnit(v.unit)
	v.unit = nil
	switch over, failed := m.delete(v); {
	case m.bad != "":
		return
	case failed != nil: // it goes on as it was
		m.saw(failedDeletion)
		if v.limbo, v.relied = doubtful(failed), false; m.arr.Volume(v.name) == nil {
			m.fail("volume %s is gone, and its deletion failed", v.name)
		}
	case over && m.store.metaBad:
		m.fail("volume %s was deleted while nothing can be committed", v.name)
	case over: // else what an absent mdisk has to take still belongs to it
		m.saw(churned)
		shaky := m.store.shaky
		m.store.shaky = 0
		m.vols[lun] = m.create(v.name, v.pool)
		m.store.shaky = shaky
	}
	if m.bad == "" {
		m.export(lun)
		for i := range m.nexus {
			m.calm(i, lun)
		}
	}
}

// delete deletes a volume, if need be in some attempts.
func (m *torture) delete(v *tortureVolume) (over bool, failed error) {
	for try := 0; try < 50 && !over && failed == nil && m.bad == ""; try++ {
		answered := false
		m.arr.DeleteVolume(m.arr.Volume(v.name), func(err error) {
			switch answered = true; {
			case err == nil:
				over = true
				m.certain()
			case errors.Is(err, array.ErrInUse):
			case errors.Is(err, errTorture):
				failed = err
			default:
				m.fail("delete: %v", err)
			}
		})
		m.until(func() bool { return answered }, "a volume to be deleted")
		m.exec.RunUntil(m.exec.Now() + 1e6) // what was aborted may still be at it
	}
	return over, failed
}

// sizing is what is known of a volume while its size is changed.
type sizing struct {
	pending []uint64 // units that it may get
	units   uint64   // that it has if these fail
	lowest  uint64   // what lies behind is busy
	keep    uint64   // what lies behind is gone
	maybe   uint64   // what lies behind may be gone, after a loss of power
}

// resize gives a volume another size; the power may go meanwhile.
func (m *torture) resize() {
	v := m.vols[m.rng.N(uint64(len(m.vols)))]
	if !m.startResize(v) {
		return
	}
	if m.rng.N(3) == 0 && !m.store.metaBad && !m.store.failObjects {
		for range m.rng.N(6) {
			m.exec.Step()
		}
		if m.rng.N(3) == 0 { // longer
			m.exec.RunUntil(m.exec.Now() + int64(m.rng.N(5e6)))
		}
		if v.sizing != nil {
			m.saw(resizeCut)
		}
		m.powerCut()
	}
	m.until(func() bool { return v.sizing == nil }, "a volume to have another size")
}

// resizeTwice changes the size of a volume twice at once.
func (m *torture) resizeTwice() {
	v := m.vols[m.rng.N(uint64(len(m.vols)))]
	if first := m.startResize(v); first && m.startResize(v) {
		m.saw(resizeTwice)
	}
	m.until(func() bool { return v.sizing == nil }, "a volume to have one size of two")
}

// startResize begins to change the size of a volume. What may be cut off is busy meanwhile.
func (m *torture) startResize(v *tortureVolume) bool {
	if v.unit == nil {
		return false
	}
	old := uint64(len(v.units))
	units := min(1+m.rng.N(2*old), 1024)
	z := v.sizing
	if z == nil {
		z = &sizing{units: old, lowest: old, keep: old, maybe: old}
	}
	if cut := min(units, z.lowest); v.busy(cut, z.lowest-cut) {
		return false
	} else {
		v.take(cut, z.lowest-cut)
		z.lowest = cut
	}
	v.sizing, z.pending = z, append(z.pending, units)
	m.note("volume %s of %d units gets %d, %d sectors", v.name, old, units, v.lba(units))
	era := m.era
	m.arr.Resize(m.arr.Volume(v.name), v.lba(units), func(err error) {
		if era != m.era {
			return
		}
		m.note("  volume %s with %d units: %v", v.name, units, err)
		i := slices.Index(z.pending, units)
		z.pending = slices.Delete(z.pending, i, i+1)
		switch {
		case err == nil:
			z.units, z.keep = units, min(z.keep, units)
			m.saw(resized)
			m.certain()
		case doubtful(err):
			v.unsure = append(v.unsure, units)
		}
		if len(z.pending) == 0 {
			m.endSizing(v, m.arr.Volume(v.name).Info().Sectors)
		}
	})
	return true
}

// endSizing says what a volume holds that has this size now: that of the last change which ended well, or after
// a loss of power that of one without an answer.
func (m *torture) endSizing(v *tortureVolume, sectors uint64) {
	z := v.sizing
	units := z.units
	for _, n := range z.pending {
		if z.maybe = min(z.maybe, n); v.lba(n) == sectors {
			units, z.keep = n, min(z.keep, n)
		}
	}
	if v.lba(units) != sectors {
		m.fail("volume %s has %d sectors; it should have %d units, or of %v", v.name, sectors, z.units, z.pending)
	}
	v.release(z.lowest, uint64(len(v.units))-z.lowest)
	for k := min(z.maybe, uint64(len(v.units))); k < uint64(len(v.units)); k++ {
		v.units[k].may, v.units[k].anchored = union(v.units[k].may, []uint64{0}), false
	}
	v.setUnits(min(z.keep, units))
	v.setUnits(units)
	v.sizing = nil
	if v.sectors() > 1<<23 {
		m.saw(deepMaps)
	}
}
