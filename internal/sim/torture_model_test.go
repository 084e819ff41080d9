package sim

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi"
)

const (
	unitBytes = 4096 // what the model knows the contents of
	unitSecs  = unitBytes / 512
	// islandUnits is how many of them lie side by side where a volume is sparse.
	islandUnits = 64
	islandSecs  = islandUnits * unitSecs
)

// tortureVolume is what hosts know about a volume: for every 4 KiB the stamps that each of its
// sectors may carry, 0 being zeros. Of a sparse volume they know islands only, so far from each other that
// its map has three levels.
type tortureVolume struct {
	name   string
	pool   string
	units  []tortureUnit
	stride uint64 // sectors from one island to the next; islandSecs: they touch
	naa    [16]byte
	thin   bool
	unit   *scsi.Unit // nil: nobody sees it
	// limbo: its deletion failed, and the next start may find that it has not.
	limbo  bool
	relied bool     // since then a change of it was acknowledged: the next start has to find it
	unsure []uint64 // sizes, likewise
	sizing *sizing  // its size is being changed
}

type tortureUnit struct {
	may  []uint64
	busy bool // a command is under way there
	// anchored: writes to it may not fail for lack of space.
	anchored bool
	next     uint64
	what     bool // that command may change it to next, or to copied
	from     []uint64
	was      []uint64 // what a loss of NVRAM may bring back
	changes  uint64
}

func (v *tortureVolume) sparse() bool { return v.stride > islandSecs }

// lba returns the first sector of a unit, of the one behind the last as well.
func (v *tortureVolume) lba(k uint64) uint64 {
	return k/islandUnits*v.stride + k%islandUnits*unitSecs
}

// sectors is the size that the volume has.
func (v *tortureVolume) sectors() uint64 { return v.lba(uint64(len(v.units))) }

// together returns how many of n units from first on have neighbouring addresses.
func (v *tortureVolume) together(first, n uint64) uint64 {
	n = min(n, uint64(len(v.units))-first)
	if v.sparse() {
		n = min(n, islandUnits-first%islandUnits)
	}
	return n
}

// span returns addresses and sectors from a unit to the end of another, with all that lies between.
func (v *tortureVolume) span(first, n uint64) (lba, sectors uint64) {
	lba = v.lba(first)
	return lba, v.lba(first+n-1) + unitSecs - lba
}

// unwritten are the stamps that a new unit may carry. Like all such lists it is never changed.
var unwritten = []uint64{0}

// setUnits gives the volume so many units; new ones hold zeros.
func (v *tortureVolume) setUnits(n uint64) {
	v.units = slices.Grow(v.units, int(n)-min(int(n), len(v.units)))
	for uint64(len(v.units)) < n {
		v.units = append(v.units, tortureUnit{may: unwritten})
	}
	v.units = v.units[:n:n]
}

// at returns those of a range's units that the volume still has.
func (v *tortureVolume) at(first, n uint64) []tortureUnit {
	end := min(first+n, uint64(len(v.units)))
	return v.units[min(first, end):end]
}

func (v *tortureVolume) busy(first, n uint64) bool {
	return slices.ContainsFunc(v.at(first, n), func(u tortureUnit) bool { return u.busy })
}

func (v *tortureVolume) take(first, n uint64) {
	for k := range v.at(first, n) {
		v.units[first+uint64(k)].busy = true
	}
}

func (v *tortureVolume) release(first, n uint64) {
	for k := range v.at(first, n) {
		u := &v.units[first+uint64(k)]
		u.busy, u.what, u.from = false, false, nil
	}
}

// free finds a run of units of a volume where nothing is under way, and takes it.
func (m *torture) free(most uint64) (v *tortureVolume, lun int, first, n uint64, ok bool) {
	lun = int(m.rng.N(uint64(len(m.vols))))
	v = m.vols[lun]
	if v.unit == nil {
		return nil, 0, 0, 0, false
	}
	first = m.rng.N(uint64(len(v.units)))
	n = v.together(first, 1+m.rng.N(most))
	if v.busy(first, n) {
		return nil, 0, 0, 0, false
	}
	v.take(first, n)
	return v, lun, first, n, true
}

// settle says what a range may hold when the command that changes it has ended.
func (m *torture) settle(v *tortureVolume, first, n uint64, good bool) {
	v.relied = v.relied || good && v.limbo
	for i := range v.at(first, n) {
		u := &v.units[first+uint64(i)]
		next := u.from
		if next == nil {
			next = []uint64{u.next}
		}
		m.changes++
		u.changes = m.changes
		if m.armed() {
			u.was = union(u.was, u.may)
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

// died says what a volume may hold after a power cut.
func (m *torture) died(v *tortureVolume) {
	lossy := m.armed()
	for k := range v.units {
		u := &v.units[k]
		if u.busy && u.what {
			m.settle(v, uint64(k), 1, false)
			u.anchored = false
		}
		if u.busy, u.what, u.from = false, false, nil; lossy && u.was != nil {
			u.may, u.anchored = union(u.may, u.was), false
		}
		u.was = nil
	}
}

// compareWith compares what was read of a range with what may be there, and learns what is.
func (m *torture) compareWith(v *tortureVolume, first, n uint64, data []byte, when string) {
	var seen []uint64
	var look stamps
	for k := range n {
		u := &v.units[first+k]
		seen = seen[:0]
		for s := range uint64(unitSecs) {
			stamp, whole := look.of(data[(k*unitSecs+s)*512:][:512])
			if !whole || !slices.Contains(u.may, stamp) {
				m.fail("%s%s unit %d sector %d reads %d (whole: %v), it may be %v", when, v.name, first+k, s, stamp, whole, u.may)
				return
			}
			if !slices.Contains(seen, stamp) {
				seen = append(seen, stamp)
			}
		}
		if len(seen) < len(u.may) {
			u.may = union(seen, nil)
		}
	}
}
