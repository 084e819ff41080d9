package array

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// The objects of an array (pools, mdisks, volumes) are small and change seldom: they
// are one JSON document in the meta store, committed before a change is
// acknowledged.

// MdiskSpec describes a back-end disk.
type MdiskSpec struct {
	Name string `json:"name"`
	// Size in bytes; rounded down to 4 MiB.
	Size uint64 `json:"size"`
	// Bandwidth (bytes a second) and IOPS are limits; 0 is none.
	Bandwidth uint64 `json:"bandwidth,omitempty"`
	IOPS      uint64 `json:"iops,omitempty"`
	ID        uint32 `json:"id"`
}

// PoolSpec describes a pool.
type PoolSpec struct {
	Name string `json:"name"`
	// CopyData makes offloaded copies move data through the cache, as arrays do that
	// have no reference counted map; else a copy inside the pool is a map edit.
	CopyData bool        `json:"copy_data,omitempty"`
	Mdisks   []MdiskSpec `json:"mdisks"`
	ID       uint16      `json:"id"`
}

// VolumeSpec describes a volume.
type VolumeSpec struct {
	Name      string `json:"name"`
	Pool      string `json:"pool"`
	Sectors   uint64 `json:"sectors"` // of 512 bytes
	BlockSize uint32 `json:"block_size"`
	Thin      bool   `json:"thin"`
	ID        uint32 `json:"id"`
}

type objects struct {
	UUID       uint64            `json:"uuid"`
	Pools      []PoolSpec        `json:"pools"`
	Volumes    []VolumeSpec      `json:"volumes"`
	NextVolume uint32            `json:"next_volume"`
	NextMdisk  uint32            `json:"next_mdisk"`
	NextPool   uint16            `json:"next_pool"`
	Blobs      map[string][]byte `json:"blobs,omitempty"`
}

// validate checks what was read back: numbers are indices elsewhere.
func (o *objects) validate() error {
	pools, vols, mdisks := map[uint16]bool{}, map[uint32]bool{}, map[uint32]bool{}
	names := map[string]bool{}
	for _, p := range o.Pools {
		if p.ID >= maxPools || pools[p.ID] || names["p"+p.Name] || len(p.Mdisks) == 0 || len(p.Mdisks) > maxMdisks {
			return fmt.Errorf("pool %q has number %d", p.Name, p.ID)
		}
		pools[p.ID], names["p"+p.Name] = true, true
		for _, m := range p.Mdisks {
			if m.Size < extentBytes || m.Size > maxMdiskBytes || mdisks[m.ID] {
				return fmt.Errorf("mdisk %q has number %d and %d bytes", m.Name, m.ID, m.Size)
			}
			mdisks[m.ID] = true
		}
	}
	for _, v := range o.Volumes {
		if v.ID >= o.NextVolume || v.ID >= maxVolumeID || vols[v.ID] || names["v"+v.Name] ||
			v.Sectors == 0 || v.Sectors > MaxVolumeBytes/block.SectorSize || v.BlockSize != 512 && v.BlockSize != 4096 {
			return fmt.Errorf("volume %q has number %d, %d sectors and blocks of %d", v.Name, v.ID, v.Sectors, v.BlockSize)
		}
		vols[v.ID], names["v"+v.Name] = true, true
	}
	return nil
}

// Limits of what can be made.
const (
	MaxVolumeBytes = 64 << 40
	maxMdiskBytes  = alloc.MaxExtents * extentBytes
	maxPools       = 1024
	maxVolumeID    = 1 << 24         // volumes that an array can make in its life
	maxMdisks      = alloc.MaxMdisks // of all pools
)

// Errors of object calls. Each is wrapped with the name that it is about.
var (
	ErrExists   = errors.New("exists already")
	ErrNotFound = errors.New("does not exist")
	ErrInUse    = errors.New("is in use")
)

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

func checkName(what, name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%s name %q: use 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit", what, name)
	}
	return nil
}

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
	if err := checkName("pool", spec.Name); err != nil {
		fail(err)
		return
	}
	if a.Pool(spec.Name) != nil || a.media.Pool(spec.Name) > 0 {
		fail(fmt.Errorf("pool %q %w", spec.Name, ErrExists))
		return
	}
	if err := a.checkMdisks(&spec); err != nil {
		fail(err)
		return
	}
	a.media.Make(spec.Name, spec.disks(), func(err error) {
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
