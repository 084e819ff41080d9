// What pools and volumes tell of themselves: counters for metrics, and figures of the moment. It
// changes nothing.

package pool

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// Emit emits the counters of pools, mdisks and volumes. It costs a few hundred nanoseconds a
// volume.
func (set *Set) Emit(e metrics.Emitter) {
	const page = layout.PageBytes
	for _, p := range set.Pools() {
		e.Value(metrics.CacheLimit, float64(p.Part.Limit())*page, p.name)
		e.Value(metrics.CacheUsed, float64(p.Part.Room.Used())*page, p.name)
		e.Value(metrics.CacheUsedSeconds, p.Part.UsedSeconds(), p.name)
		e.Value(metrics.CachePinned, float64(p.Part.Pinned())*page, p.name)
		for prim, ns := range p.throttled {
			if ns != 0 {
				e.Value(metrics.OffloadThrottled, float64(ns)/1e9, primNames[prim], p.name)
			}
		}
		e.Value(metrics.PoolCapacity, float64(p.Alloc.Grains())*layout.WindowSectors*block.SectorSize, p.name)
		e.Value(metrics.PoolAllocated, float64(p.Alloc.Allocated()+p.Alloc.Reserved())*layout.WindowSectors*block.SectorSize, p.name)
		for o := range block.NumOrigins {
			if p.wait[o].Count > 0 {
				e.Histogram(metrics.CacheWait, &p.wait[o], p.name, o.String())
			}
			if p.wait[o].Count > 0 || p.waitingBytes[o] != 0 || o == block.OriginHost || o == block.OriginXCopy {
				e.Value(metrics.CacheWaiting, float64(p.waitingBytes[o]), p.name, o.String())
			}
		}
		for prim, n := range p.copying {
			if prim == primXCopy || n != 0 {
				e.Value(metrics.OffloadInflight, float64(n), primNames[prim], p.name)
			}
		}
		for _, d := range p.Mdisks {
			d.Emit(e, p.name)
		}
	}
	for _, v := range set.Vols {
		if v != nil && !v.Replaced && !v.Making {
			v.emit(e)
		}
	}
	set.emitOffloads(e)
}

func (v *Volume) emit(e metrics.Emitter) {
	for o := range block.NumOrigins {
		f, _ := v.Cached.Flow(o)
		// Origins that never occurred are left out, but for the two that everybody looks for.
		if f.In() == 0 && f.Out() == 0 && o != block.OriginHost && o != block.OriginXCopy {
			continue
		}
		l := [...]string{v.pool.name, v.Spec.Name, o.String()}
		short := v.Cached.Short(o)
		for _, m := range [...]struct {
			name string
			n    uint64
		}{{"fast", f.Fast}, {"flush_through", f.FlushThrough}, {"write_through", f.WriteThrough - short}, {"fast_short_memory", short}} {
			if m.n > 0 || m.name == "fast" {
				e.Value(metrics.CacheAdmitted, float64(m.n), l[0], l[1], l[2], m.name)
			}
		}
		e.Value(metrics.CacheRecovered, float64(f.Recovered), l[:]...)
		e.Value(metrics.CacheDirty, float64(f.Dirty), l[:]...)
		e.Value(metrics.CacheOverwritten, float64(f.Overwritten), l[:]...)
		e.Value(metrics.CacheDiscarded, float64(f.Discarded), l[:]...)
		e.Value(metrics.CacheDestaged, float64(f.Destaged), l[:]...)
		if o.Undercover() {
			e.Value(metrics.Undercover, float64(f.Fast+f.FlushThrough+f.WriteThrough), l[:]...)
		}
	}
	if v.Deleted {
		return
	}
	e.Value(metrics.CacheDirtySeconds, v.Cached.DirtySeconds(), v.pool.name, v.Spec.Name)
	e.Value(metrics.VolumeSize, float64(v.Spec.Sectors)*block.SectorSize, v.Spec.Name, v.pool.name)
	s := v.Map.SumsOf(v.Spec.Sectors)
	for _, x := range [...]struct {
		state block.State
		n     int64
	}{{block.Data, s.Data}, {block.Zero, s.Zero}, {block.Anchored, s.Anchored}, {block.Unmapped, int64(v.Spec.Sectors) - s.Data - s.Zero - s.Anchored}} {
		e.Value(metrics.VolumeState, float64(x.n)*block.SectorSize, v.Spec.Name, v.pool.name, x.state.String())
	}
}

func (set *Set) emitOffloads(e metrics.Emitter) {
	type key struct {
		prim, path int
		src, dst   uint16
	}
	bytes := map[key]uint64{}
	var order []key
	set.Rows.Each(rowOffload, func(r *nvlog.Row) {
		prim, path := int(r.Head().Key()>>4), int(r.Head().Key()&15)
		src, id := r.Head().Group(), r.Head().ID()
		if prim >= len(primNames) || path >= len(pathNames) {
			return
		}
		k := key{prim, path, src, 0}
		switch {
		case id >= rowsOfGone && int(id-rowsOfGone) < len(set.pools) && set.pools[id-rowsOfGone] != nil:
			k.dst = uint16(id - rowsOfGone)
		case int(id) < len(set.Vols) && set.Vols[id] != nil && !set.Vols[id].Replaced:
			v := set.Vols[id]
			e.Value(metrics.OffloadOperations, float64(r.Cells[0]), primNames[prim], v.Spec.Name, pathNames[path], "good")
			k.dst = v.pool.id
		default:
			return
		}
		if _, ok := bytes[k]; !ok {
			order = append(order, k)
		}
		bytes[k] += r.Cells[1]
	})
	for _, k := range order {
		from := ""
		switch {
		case k.src == OtherGroup:
			from = otherGroup
		case k.src == OtherArray:
			from = otherArray
		case int(k.src) < len(set.pools) && set.pools[k.src] != nil:
			from = set.pools[k.src].name
		default:
			continue
		}
		e.Value(metrics.OffloadBytes, float64(bytes[k]), primNames[k.prim], from, set.pools[k.dst].name, pathNames[k.path])
	}
}

// VolumeStats is a volume's state at an instant, in bytes where not said otherwise.
type VolumeStats struct {
	Spec                             directory.VolumeSpec
	Mapped, Zero, Anchored, Unmapped uint64
	Dirty                            uint64
	Admitted                         [block.NumOrigins]uint64
	Destaged                         [block.NumOrigins]uint64
	MapBytes                         uint64 // memory of all volumes' maps
	Exclusive                        uint64 // allocated by this volume
}

// Stats describes a volume now. Its cost does not depend on the map.
func (v *Volume) Stats() VolumeStats {
	s := v.Map.SumsOf(v.Spec.Sectors)
	st := VolumeStats{Spec: v.Spec, Mapped: uint64(s.Data) * block.SectorSize,
		Zero: uint64(s.Zero) * block.SectorSize, Anchored: uint64(s.Anchored) * block.SectorSize,
		Dirty: uint64(v.Cached.Dirty()), MapBytes: v.Set.MapBytes(), Exclusive: uint64(v.Map.Tenant().Allocated()) * layout.WindowSectors * block.SectorSize}
	st.Unmapped = v.Spec.Sectors*block.SectorSize - st.Mapped - st.Zero - st.Anchored
	for o := range block.NumOrigins {
		if f, ever := v.Cached.Flow(o); ever {
			st.Admitted[o] = f.In() - f.Recovered
			st.Destaged[o] = f.Destaged
		}
	}
	return st
}

// MapBytes returns the memory that the maps, details and space tables take.
func (set *Set) MapBytes() uint64 {
	n := set.Arena.Bytes()
	for _, p := range set.Pools() {
		n += p.Alloc.Bytes()
	}
	return n
}

// PoolStats is a pool's state at an instant, in bytes.
type PoolStats struct {
	Name                          string
	CopyData                      bool
	Capacity, Allocated, Reserved uint64
	CacheLimit, CacheUsed         uint64
	CacheFloor                    uint64 // of the write cache: what other pools cannot take
	Volumes                       int
	WriteMode                     wcache.Mode
	Mdisks                        []MdiskStats
}

// MdiskStats describes a back-end disk.
type MdiskStats struct {
	Name            string
	Size            uint64
	Bandwidth, IOPS uint64
	Failures        uint64
	Offline         bool
}

// Stats describes a pool now.
func (p *Pool) Stats() PoolStats {
	const grain = layout.WindowSectors * block.SectorSize
	st := PoolStats{Name: p.name, CopyData: p.CopyData, Capacity: uint64(p.Alloc.Grains()) * grain, Allocated: uint64(p.Alloc.Allocated()) * grain,
		Reserved: uint64(max(0, p.Alloc.Reserved())) * grain, CacheLimit: uint64(p.Part.Limit()) * layout.PageBytes, CacheUsed: uint64(p.Part.Room.Used()) * layout.PageBytes,
		CacheFloor: uint64(p.Part.Room.Floor()) * layout.PageBytes, Volumes: p.volumes, WriteMode: p.Part.Mode()}
	for _, d := range p.Mdisks {
		st.Mdisks = append(st.Mdisks, MdiskStats{d.Name(), d.Size(), d.Limits().Bandwidth, d.Limits().IOPS, d.Failures(), d.Offline()})
	}
	return st
}

// naa makes the NAA IEEE Registered Extended designator of a volume (SPC-5
// 7.7.6.6.5) from the array's identity.
func (set *Set) naa(vol uint32) [16]byte {
	var n [16]byte
	u := set.UUID
	// NAA 6, a locally administered company identifier, then the array and the volume.
	copy(n[:4], []byte{0x60, 0xaa, 0x55, 0xa0 | byte(u>>60)})
	for i := range 8 {
		n[4+i] = byte(u >> (56 - 8*i))
	}
	for i := range 4 {
		n[12+i] = byte(vol >> (24 - 8*i))
	}
	return n
}

func (set *Set) serial(vol uint32) string { return fmt.Sprintf("%016x%08x", set.UUID, vol) }
