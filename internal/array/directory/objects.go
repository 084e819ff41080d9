// Package directory keeps what an array has: pools, mdisks and volumes as they were made, and
// values for the front ends. They are small and change seldom: one JSON document in the meta store,
// under the key "o", committed before a change is acknowledged.
//
// Invariant: the document is what the meta store has, or is just given, but for the next numbers of
// pools, mdisks and volumes, and stray mdisks that the store has no more: these numbers only grow, as
// soon as one is taken, and go there with the next change. A number whose object failed is not used
// again before a restart. Any other change is carried out when those before it are durable or have
// failed, and is taken back if it fails itself.
//
// It knows no pool or volume that works: what a change is about its user changes when it is
// durable.
//
// # Concurrency
//
// Everything runs with the executor held.
package directory

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

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

// Objects is the document.
type Objects struct {
	UUID       uint64            `json:"uuid"`
	Pools      []PoolSpec        `json:"pools"`
	Volumes    []VolumeSpec      `json:"volumes"`
	NextVolume uint32            `json:"next_volume"`
	NextMdisk  uint32            `json:"next_mdisk"`
	NextPool   uint16            `json:"next_pool"`
	Stray      []string          `json:"stray,omitempty"` // mdisks that the store may have and no pool has, by their names there
	Blobs      map[string][]byte `json:"blobs,omitempty"`
}

// validate checks what was read back: numbers are indices elsewhere.
func (o *Objects) validate() error {
	pools, vols, mdisks := map[uint16]bool{}, map[uint32]bool{}, map[uint32]bool{}
	names := map[string]bool{}
	for _, p := range o.Pools {
		if p.ID >= MaxPools || pools[p.ID] || names["p"+p.Name] || len(p.Mdisks) == 0 || len(p.Mdisks) > MaxMdisks {
			return fmt.Errorf("pool %q has number %d", p.Name, p.ID)
		}
		pools[p.ID], names["p"+p.Name] = true, true
		for _, m := range p.Mdisks {
			if m.Size < layout.ExtentBytes || m.Size > maxMdiskBytes || mdisks[m.ID] {
				return fmt.Errorf("mdisk %q has number %d and %d bytes", m.Name, m.ID, m.Size)
			}
			mdisks[m.ID] = true
		}
	}
	for _, v := range o.Volumes {
		if v.ID >= o.NextVolume || v.ID >= MaxVolumeID || vols[v.ID] || names["v"+v.Name] ||
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
	MaxPools       = 1024            // that an array can make in its life
	MaxVolumeID    = 1 << 24         // volumes that it can make in its life
	MaxMdisks      = alloc.MaxMdisks // of all pools
	maxMdiskBytes  = alloc.MaxExtents * layout.ExtentBytes
)

// Errors of object calls. Each is wrapped with the name that it is about.
var (
	ErrExists   = errors.New("exists already")
	ErrNotFound = errors.New("does not exist")
	ErrInUse    = errors.New("is in use")
)

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// CheckName tells what is wrong with the name of an object of a kind.
func CheckName(what, name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%s name %q: use 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit", what, name)
	}
	return nil
}
