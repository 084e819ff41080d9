// What a simulator samples at every tick, without allocation and without walks, and how it gives a
// volume contents that it never wrote.

package pool

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// Flow is the bytes of one origin that went through the cache for a volume; see package wcache.
type Flow = wcache.Flow

// Flow fills the flows of all origins.
func (v *Volume) Flow(to *[block.NumOrigins]Flow) {
	for o := range block.NumOrigins {
		to[o], _ = v.Cached.Flow(o)
	}
}

// DirtySeconds is the integral of the volume's dirty bytes over time, in byte seconds.
func (v *Volume) DirtySeconds() float64 { return v.Cached.DirtySeconds() }

// Fullness is what the pool holds of the write cache and its cap, in bytes.
func (p *Pool) Fullness() (used, limit int64) {
	return int64(p.Part.Room.Used()) * layout.PageBytes, int64(p.Part.Limit()) * layout.PageBytes
}

// UsedSeconds is the integral of what the pool holds over time, in byte seconds.
func (p *Pool) UsedSeconds() float64 { return p.Part.UsedSeconds() }

// Pinned is what the cache holds for mdisks of the pool that are offline, in bytes.
func (p *Pool) Pinned() int64 { return int64(p.Part.Pinned()) * layout.PageBytes }

// Waits is how long writes of an origin have waited for room in the partition, in
// nanoseconds, how many have, and the bytes that wait now.
func (p *Pool) Waits(o block.Origin) (sum int64, count uint64, waiting int64) {
	h := &p.wait[o]
	return h.Sum, h.Count, p.waitingBytes[o]
}

// Throttled is how long pieces of offloads have waited for the offload budget, in
// nanoseconds.
func (p *Pool) Throttled() int64 {
	n := int64(0)
	for _, ns := range p.throttled {
		n += ns
	}
	return n
}

// Import makes a range data that is on the back end already, without moving any: a
// scenario's volumes have contents before its clock starts. It needs a store that keeps no payload:
// on another it would show what earlier volumes left on the mdisks. The range covers whole
// windows of 64 KiB; the call is synchronous, and no log record tells of it.
func (v *Volume) Import(r block.Range) error {
	set := v.Set
	switch {
	case set.Payload:
		return errors.New("import: this store keeps contents, and this data would belong to others; write it instead")
	case !r.Within(v.Spec.Sectors) || r.Start%layout.WindowSectors != 0 || r.Count%layout.WindowSectors != 0:
		return fmt.Errorf("import: %v of volume %q is not whole windows of 64 KiB inside of it", r, v.Spec.Name)
	}
	run := nvlog.Edit{Volume: v.id, State: block.Data} // windows in a row whose grains lie in a row
	apply := func() {
		v.Apply(&run)
		run.Count = 0
	}
	for at := r.Start; at < r.End(); {
		w := at >> layout.WindowShift
		if n := v.Map.Fill(w, (r.End()-at)>>layout.WindowShift); n > 0 {
			at += n << layout.WindowShift
			continue
		}
		if v.Map.HasData(w) {
			at += layout.WindowSectors
			continue
		}
		g, ok := v.Map.Allocate(w)
		for !ok && set.Arena.HasGarbageOf(v.pool.Alloc) {
			g, ok = v.Map.Allocate(w)
		}
		if !ok {
			apply()
			return fmt.Errorf("import: pool %q has no room for the %d MiB of volume %q", v.pool.name, r.Bytes()>>20, v.Spec.Name)
		}
		phys := g << layout.WindowShift
		if at != run.End() || phys != run.Phys+run.Count {
			apply()
			run.Start, run.Phys = at, phys
		}
		run.Count += layout.WindowSectors
		at += layout.WindowSectors
	}
	apply()
	v.Account()
	return nil
}
