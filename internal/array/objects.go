package array

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
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

// commitObjects makes the objects durable and calls done.
func (a *Array) commitObjects(done func(error)) {
	if !a.payload { // nobody opens a store again that keeps nothing, and arrays of 10,000 volumes are made over it
		a.commitMeta(nil, done)
		return
	}
	b, err := json.Marshal(&a.objects)
	if err != nil {
		panic("array: internal error: " + err.Error())
	}
	a.commitMeta([]block.KV{{Key: []byte(keyObjects), Value: b}}, done)
}

// SetBlob keeps a value for the front ends, durably, under a name; nil removes it.
func (a *Array) SetBlob(name string, value []byte, done func(error)) {
	if a.objects.Blobs == nil {
		a.objects.Blobs = map[string][]byte{}
	}
	if value == nil {
		delete(a.objects.Blobs, name)
	} else {
		a.objects.Blobs[name] = value
	}
	a.commitObjects(done)
}

// Blob returns what SetBlob kept, nil if nothing.
func (a *Array) Blob(name string) []byte { return a.objects.Blobs[name] }

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
		if v != nil && !v.deleted {
			out = append(out, v)
		}
	}
	return out
}

// Volume returns the volume with this name, nil if there is none.
func (a *Array) Volume(name string) *Volume {
	for _, v := range a.vols {
		if v != nil && !v.deleted && v.spec.Name == name {
			return v
		}
	}
	return nil
}

// CreatePool makes a pool of new mdisks. The caps of all partitions change at once. Other calls go on
// while the mdisks are made; on an error nothing is left of it.
func (a *Array) CreatePool(spec PoolSpec, done func(*Pool, error)) {
	fail := func(err error) { a.exec.Post(func() { done(nil, err) }) }
	if err := checkName("pool", spec.Name); err != nil {
		fail(err)
		return
	}
	if a.Pool(spec.Name) != nil || a.making[spec.Name] > 0 {
		fail(fmt.Errorf("pool %q %w", spec.Name, ErrExists))
		return
	}
	if err := a.checkMdisks(&spec); err != nil {
		fail(err)
		return
	}
	a.makeMdisks(spec, func(err error) {
		if err != nil {
			fail(err)
			return
		}
		a.openPool(spec, done)
	})
}

// addPool opens the mdisks of a pool and makes it known.
func (a *Array) addPool(spec PoolSpec) (*Pool, error) {
	p := &Pool{a: a, id: spec.ID, name: spec.Name, copyData: spec.CopyData}
	p.tickFn = p.tick
	p.wakeFn = p.wakeUp
	p.part.hosts = map[uint32]int{}
	counts := make([]int, len(spec.Mdisks))
	for i, m := range spec.Mdisks {
		size := m.Size &^ (extentBytes - 1)
		medium, err := a.store.Medium(fmt.Sprintf("%s.%s", spec.Name, m.Name), size)
		if err != nil {
			return nil, err
		}
		p.mdisks = append(p.mdisks, &mdisk{a: a, id: m.ID, name: m.Name, pool: p, size: size, medium: medium,
			bandwidth: m.Bandwidth, iops: m.IOPS, pinned: noPages})
		counts[i] = int(size / extentBytes)
	}
	p.part.lru, p.part.direct = p.emptyLists(), p.emptyLists()
	p.space = alloc.New(counts, alloc.Events{Freed: p.grainFreed, Vacated: func(vol uint32) { a.vols[vol].left() }})
	for len(a.pools) <= int(spec.ID) {
		a.pools = append(a.pools, nil)
	}
	a.pools[spec.ID] = p
	return p, nil
}

// grainFreed drops what is dirty of a grain that nothing refers to any more.
func (p *Pool) grainFreed(g uint64) {
	if p.part.used+p.part.reserve == 0 && len(p.a.bad) == 0 {
		return
	}
	k := keyOf(p.id, g<<windowShift)
	for i := range pageKey(grainPages) {
		p.a.drop(k+i, 0xff)
	}
}

// dropSectors drops what is dirty of the sectors of a layer that lost its only reference to them.
func (p *Pool) dropSectors(base uint64, mask layout.Mask) {
	if p.part.used+p.part.reserve == 0 && len(p.a.bad) == 0 {
		return
	}
	for i := mask.Next(0); i < windowSectors; i = mask.Next(i + 1) {
		s := base + i
		p.a.drop(keyOf(p.id, s), 1<<(s%pageSectors))
	}
}

// CreateVolume makes a volume; on an error nothing is left of it.
func (a *Array) CreateVolume(spec VolumeSpec, done func(*Volume, error)) {
	fail := func(err error) { a.exec.Post(func() { done(nil, err) }) }
	if err := checkName("volume", spec.Name); err != nil {
		fail(err)
		return
	}
	p := a.Pool(spec.Pool)
	if spec.BlockSize == 0 {
		spec.BlockSize = 512
	}
	switch {
	case a.Volume(spec.Name) != nil:
		fail(fmt.Errorf("volume %q %w", spec.Name, ErrExists))
		return
	case p == nil:
		fail(fmt.Errorf("pool %q %w", spec.Pool, ErrNotFound))
		return
	case spec.BlockSize != 512 && spec.BlockSize != 4096:
		fail(fmt.Errorf("volume %q: the block size is 512 or 4096", spec.Name))
		return
	}
	if err := a.checkSize(p, &spec, 0); err != nil {
		fail(err)
		return
	}
	if a.objects.NextVolume >= maxVolumeID {
		fail(fmt.Errorf("volume %q: the array has used all of its volume numbers", spec.Name))
		return
	}
	spec.ID = a.objects.NextVolume
	a.objects.NextVolume++
	for _, old := range a.vols {
		if old != nil && old.spec.Name == spec.Name { // deleted: what it counted is not the new one's
			old.replaced = true
		}
	}
	v := a.addVolume(spec, p)
	v.account()
	a.objects.Volumes = append(a.objects.Volumes, spec)
	a.commitObjects(func(err error) {
		if err != nil {
			a.DeleteVolume(v, func(error) { done(nil, err) })
			return
		}
		done(v, nil)
	})
}

// checkSize checks a volume's size; had is what a thick one reserves already.
func (a *Array) checkSize(p *Pool, spec *VolumeSpec, had int64) error {
	blockSectors := uint64(spec.BlockSize / block.SectorSize)
	if spec.Sectors == 0 || spec.Sectors%blockSectors != 0 || spec.Sectors > MaxVolumeBytes/block.SectorSize {
		return fmt.Errorf("volume %q: the size goes from one block to 64 TiB, in whole blocks of %d bytes", spec.Name, spec.BlockSize)
	}
	if !spec.Thin {
		want := int64((spec.Sectors+windowSectors-1)>>windowShift) - had
		if !p.has(want) {
			free := p.space.Available()
			return fmt.Errorf("volume %q: pool %q has %d MiB free and a thick volume reserves all of its size; make it smaller or thin", spec.Name, p.name, max(0, free)/16)
		}
	}
	return nil
}

func (a *Array) addVolume(spec VolumeSpec, p *Pool) *Volume {
	v := &Volume{a: a, id: spec.ID, pool: p, spec: spec,
		dirty: p.emptyLists(), metered: a.exec.Now()}
	v.m = a.arena.NewMap(extent.Config{Space: p.space, Volume: spec.ID, Sectors: spec.Sectors, Thick: !spec.Thin, Drop: p.dropSectors})
	for len(a.vols) <= int(spec.ID) {
		a.vols = append(a.vols, nil)
	}
	a.vols[spec.ID] = v
	p.volumes++
	return v
}

// DeleteVolume removes a volume; its space comes back in the background. Requests
// that wait end Gone or Cancelled first.
func (a *Array) DeleteVolume(v *Volume, done func(error)) {
	if v.ops > 0 {
		a.exec.Post(func() { done(fmt.Errorf("volume %q %w: it has commands under way", v.spec.Name, ErrInUse)) })
		return
	}
	v.deleted = true
	v.m.Abandon()
	a.foldOffloads(v) // before the deletion can be durable: what is counted by pool never gets less
	for i, s := range a.objects.Volumes {
		if s.ID == v.id {
			a.objects.Volumes = append(a.objects.Volumes[:i], a.objects.Volumes[i+1:]...)
			break
		}
	}
	v.pool.volumes--
	v.tell(block.EventGone)
	a.commitObjects(func(err error) {
		// Only now may its space be used for others.
		v.m.Clear()
		v.account()
		v.forgotten = true
		v.left()
		a.endStep()
		done(err)
	})
}

// Resize changes a volume's size; what is cut off is gone.
func (a *Array) Resize(v *Volume, sectors uint64, done func(error)) {
	spec := v.spec
	spec.Sectors = sectors
	had := int64(0)
	if !spec.Thin {
		had = v.windows()
	}
	if err := a.checkSize(v.pool, &spec, had); err != nil {
		a.exec.Post(func() { done(err) })
		return
	}
	old := v.spec.Sectors
	lo := min(old, sectors)
	room, ok := a.log.Claim(1)
	if !ok {
		a.exec.At(a.exec.Now()+10_000_000, func() { a.Resize(v, sectors, done) })
		return
	}
	// Behind the smaller end nothing may be left, and the map may have been widened there.
	end := v.m.Span()
	if _, ok := room.Append([]nvlog.Edit{{Volume: v.id, State: block.Unmapped, Range: block.Range{Start: lo, Count: end - lo}}}, 0); !ok {
		a.exec.Post(func() {
			done(fmt.Errorf("volume %q: internal error: the log refused the record of the new size", spec.Name))
		})
		return
	}
	v.m.SetState(lo, end, block.Unmapped)
	v.m.Grow(sectors)
	v.spec = spec
	v.account()
	// The objects may not say the new size before the log has what the edit cut off.
	a.flusher.After(func(err error) {
		if err != nil {
			v.spec.Sectors = old
			v.account()
			done(err)
			return
		}
		for i := range a.objects.Volumes {
			if a.objects.Volumes[i].ID == v.id {
				a.objects.Volumes[i] = spec
			}
		}
		a.commitObjects(func(err error) {
			v.tell(block.EventCapacity)
			a.endStep()
			done(err)
		})
	})
}
