package sim

import (
	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// What TestTorture knows of space and of waiting: thick volumes and anchors are never refused space, pools
// account for all of theirs, volumes come and go, and who has room does not wait.

// anchoring is the name of a command that anchors its range.
const anchoring = "anchor"

// roomBound is how long a write may take for which its pool has room when it comes: whatever other pools do, as long
// as NVRAM can be flushed and the log can be cut.
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
	for k := range v.at(first, n) {
		v.units[first+uint64(k)].anchored = yes
	}
}

// checkSpace compares the accounts of the pools with what there must be. Under way, or held by a token, may be what
// is promised to others already: that makes free negative.
func (m *torture) checkSpace() {
	thick := map[string]int64{}
	for _, v := range m.vols {
		if !v.thin && v.sizing == nil {
			thick[v.pool] += int64(len(v.units)) * unitBytes
		}
	}
	for _, p := range m.arr.Pools() {
		free, allocated, reserved := p.Space()
		capacity := int64(p.Stats().Capacity)
		if free+allocated+reserved != capacity || allocated < 0 || allocated > capacity || reserved < 0 || m.tasks == 0 && !m.held && free < 0 {
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
			if took := w.m.exec.Now() - from; took > roomBound && w.m.store.lastBad < from {
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
	if st.WriteMode != array.WriteFast || !w.m.arr.Mirrored() || w.m.store.flushBad || w.m.store.metaBad || w.m.store.pages.of > 0 || st.CacheUsed+bytes+2*unitBytes > st.CacheFloor {
		return false
	}
	for o := range block.NumOrigins {
		if _, _, waiting := w.pool.Waits(o); waiting > 0 {
			return false
		}
	}
	return true
}
