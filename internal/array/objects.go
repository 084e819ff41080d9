package array

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/ticket"
)

// Pools returns the pools in the order of their making.
func (a *Array) Pools() []*Pool {
	var out []*Pool
	for _, p := range a.pools {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

// Pool returns the pool with this name, nil if there is none.
func (a *Array) Pool(name string) *Pool {
	for _, p := range a.pools {
		if p != nil && p.name == name {
			return p
		}
	}
	return nil
}

// Volumes returns the volumes in the order of their making.
func (a *Array) Volumes() []*Volume {
	var out []*Volume
	for _, v := range a.vols {
		if v != nil && v.there() {
			out = append(out, v)
		}
	}
	return out
}

// Volume returns the volume with this name, nil if there is none.
func (a *Array) Volume(name string) *Volume {
	for _, v := range a.vols {
		if v != nil && v.there() && v.spec.Name == name {
			return v
		}
	}
	return nil
}

// there tells whether the volume is one of the array's: it is from when its making is durable until its deletion is.
func (v *Volume) there() bool { return !v.making && !v.deleted }

// nameTaken tells whether a volume has a name, or is being made under it.
func (a *Array) nameTaken(name string) bool {
	return slices.ContainsFunc(a.vols, func(v *Volume) bool { return v != nil && !v.deleted && v.spec.Name == name })
}

// CreatePool makes a pool of new mdisks. The caps of all partitions change at once. Other calls go on
// while the mdisks are made; on an error nothing is left of it.
func (a *Array) CreatePool(spec PoolSpec, done func(*Pool, error)) {
	fail := func(err error) { a.exec.Post(func() { done(nil, err) }) }
	if err := directory.CheckName("pool", spec.Name); err != nil {
		fail(err)
		return
	}
	if a.Pool(spec.Name) != nil || a.media.Pool(spec.Name) > 0 {
		fail(fmt.Errorf("pool %q %w", spec.Name, ErrExists))
		return
	}
	if err := a.objects.CheckMdisks(&spec, a.media); err != nil {
		fail(err)
		return
	}
	a.media.Make(spec.Name, spec.Disks(), func(err error) {
		if err != nil {
			fail(err)
			return
		}
		a.openPool(spec, done)
	})
}

// newPool opens the mdisks of a pool.
func (a *Array) newPool(spec PoolSpec) (*Pool, error) {
	p := &Pool{a: a, id: spec.ID, name: spec.Name, copyData: spec.CopyData}
	p.spaceWait.Of = ticket.Space
	counts := make([]int, len(spec.Mdisks))
	for i, m := range spec.Mdisks {
		size := m.Size &^ (extentBytes - 1)
		medium, err := a.store.Medium(fmt.Sprintf("%s.%s", spec.Name, m.Name), size)
		if err != nil {
			return nil, err
		}
		d := a.back.NewMdisk(backend.Config{ID: m.ID, Pool: spec.ID, Number: i, Name: m.Name, Size: size,
			Limits: backend.Limits{Bandwidth: m.Bandwidth, IOPS: m.IOPS}}, medium)
		p.mdisks = append(p.mdisks, &mdisk{Mdisk: d, pool: p})
		counts[i] = int(size / extentBytes)
	}
	p.space = alloc.New(counts, alloc.Events{Freed: p.grainFreed, Left: p.gaveSpace, Vacated: func(vol uint32) { a.vols[vol].left() }})
	p.part = a.gate.AddPool(a.cache.AddPartition(p.id, p.space, len(p.mdisks)))
	return p, nil
}

// addPool makes a pool known.
func (a *Array) addPool(p *Pool) {
	for len(a.pools) <= int(p.id) {
		a.pools = append(a.pools, nil)
	}
	a.pools[p.id] = p
	p.part.Open()
	for _, d := range p.mdisks {
		a.back.Attach(d.Mdisk)
	}
}

// grainFreed drops what is dirty of a grain that nothing refers to any more.
func (p *Pool) grainFreed(g uint64) {
	if p.part.Empty() && p.a.back.Bad.Len() == 0 {
		return
	}
	k := keyOf(p.id, g<<windowShift)
	for i := range pageKey(grainPages) {
		p.a.drop(k+i, 0xff)
	}
}

// dropSectors drops what is dirty of the sectors of a layer that lost its only reference to them.
func (p *Pool) dropSectors(base uint64, mask layout.Mask) {
	if p.part.Empty() && p.a.back.Bad.Len() == 0 {
		return
	}
	for i := mask.Next(0); i < windowSectors; i = mask.Next(i + 1) {
		s := base + i
		p.a.drop(keyOf(p.id, s), 1<<(s%pageSectors))
	}
}

// SetBlob keeps a value for the front ends, durably, under a name; nil removes it. On an error the value before counts,
// after a start, too, unless the error says that nobody knows.
func (a *Array) SetBlob(name string, value []byte, done func(error)) {
	a.objects.SetBlob(name, value, done)
}

// Blob returns what SetBlob was given last, nil if nothing.
func (a *Array) Blob(name string) []byte { return a.objects.Blob(name) }
