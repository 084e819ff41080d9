package sim

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array"
)

// doubtUnderWay makes a thick volume of nearly all that a pool has free while large writes and copies are under way
// there, and lets that fail so that nobody knows what the next start finds: the commands may not take what the volume
// would have.
func (m *torture) doubtUnderWay() {
	lun := int(m.rng.N(uint64(len(m.vols))))
	v, name := m.vols[lun], fmt.Sprintf("n%d", m.rng.N(3))
	if x := m.spare[name]; v.unit == nil || !v.thin || v.sizing != nil || x != nil && (x.busy || x.maybe || x.there) {
		return
	}
	m.note("a doubt is to meet large commands on %s", v.name)
	idle := func() bool { return m.tasks == 0 }
	m.until(idle, "the tasks to end")
	type run struct{ first, n uint64 }
	var runs []run
	units := uint64(0)
	for first := uint64(0); first < uint64(len(v.units)) && len(runs) < 6; {
		n := v.together(first, 256)
		runs = append(runs, run{first, n})
		first, units = first+n, units+n
	}
	for _, x := range runs {
		if m.bad == "" && !v.busy(x.first, x.n) {
			v.take(x.first, x.n)
			m.unmapBy(v, lun, x.first, x.n, unitSecs*x.n, 0, "unmap")
			m.until(idle, "the tasks to end")
		}
	}
	if m.bad != "" {
		return
	}
	files := m.files()
	for _, d := range m.arr.Pool(v.pool).Stats().Mdisks {
		m.timed.Slow(v.pool+"."+d.Name, int64(1+m.rng.N(30))*1000)
	}
	for _, x := range runs {
		if v.busy(x.first, x.n) {
			continue
		}
		v.take(x.first, x.n)
		switch m.rng.N(3) {
		case 0:
			m.write(v, lun, x.first, x.n)
		case 1:
			m.stamp++
			m.change(v, x.first, x.n, m.stamp)
			m.task(lun, cdb16(0x93, v.lba(x.first), x.n), m.contents(m.stamp, 1)[:512], 0, m.finish(v, x.first, x.n, fmt.Sprintf("write same %d to", m.stamp)))
		default:
			m.xcopy(v, lun, x.first, x.n)
		}
	}
	free, _, _ := m.arr.Pool(v.pool).Space()
	if left := int64(m.rng.N(units)) * unitBytes; free > left+windowBytes {
		m.store.shaky, m.store.shakyObjects = 4, true
		m.makeSpare(name, array.VolumeSpec{Name: name, Pool: v.pool, Sectors: uint64(free-left) &^ (windowBytes - 1) / 512})
	}
	m.until(func() bool { return m.asked == 0 }, "a thick volume to be made or not")
	if x := m.spare[name]; m.bad == "" && x != nil && x.maybe && m.tasks > 0 {
		m.saw(doubtUnderWay)
	}
	if m.rng.N(4) > 0 {
		m.within(outageBound, idle, "the tasks to end")
	} else {
		m.exec.RunUntil(m.exec.Now() + int64(m.rng.N(100e6)))
	}
	if m.bad != "" {
		return
	}
	if m.rng.N(4) > 0 {
		m.powerCut()
		return
	}
	m.metaWorks(files)
}

// windowBytes is what a pool gives to a volume at once.
const windowBytes = 64 << 10
