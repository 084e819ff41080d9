package admin

import (
	"encoding/json"
	"io"

	"github.com/arraysim/arraysim/internal/array"
)

// What travels between the daemon and its clients, as JSON. Sizes are in bytes.

// NewVolume asks for a volume.
type NewVolume struct {
	Name         string `json:"name"`
	Pool         string `json:"pool"`
	Size         Size   `json:"size"`
	Thick        bool   `json:"thick,omitempty"`
	BlockSize    uint32 `json:"block_size,omitempty"` // 512 when 0
	Removable    bool   `json:"removable,omitempty"`
	WriteProtect bool   `json:"write_protect,omitempty"`
}

// Volume describes a volume.
type Volume struct {
	Name         string   `json:"name"`
	ID           uint32   `json:"id"`
	Pool         string   `json:"pool"`
	Size         Size     `json:"size"`
	Thin         bool     `json:"thin"`
	BlockSize    uint32   `json:"block_size"`
	Removable    bool     `json:"removable"`
	WriteProtect bool     `json:"write_protect"`
	NAA          string   `json:"naa"`
	Serial       string   `json:"serial"`
	Exports      []Export `json:"exports"`
	Kernel       string   `json:"kernel_device,omitempty"` // that has it, by TCMU
	// Mapped, Zero, Anchored and Unmapped add up to Size.
	Mapped   Size `json:"mapped"`
	Zero     Size `json:"zero"`
	Anchored Size `json:"anchored"`
	Unmapped Size `json:"unmapped"`
	// Dirty is in the write cache and not on the back end yet.
	Dirty Size `json:"dirty"`
	// Exclusive is the space that this volume allocated and that is still in use.
	Exclusive Size `json:"exclusive"`
	// Detail is set by show alone: counting the entries walks the map.
	Detail *VolumeDetail `json:"detail,omitempty"`
}

// VolumeDetail is what takes a walk over the volume's map.
type VolumeDetail struct {
	Entries  int             `json:"map_entries"` // maximal runs of equal state
	Admitted map[string]Size `json:"admitted_by_origin"`
	Destaged map[string]Size `json:"destaged_by_origin"`
	// MapBytes is the memory of the maps of all volumes.
	MapBytes Size `json:"map_bytes_of_array"`
}

// Export shows a volume as a LUN.
type Export struct {
	Volume string `json:"volume"`
	LUN    int    `json:"lun"`
	// Initiators may see it; none means every initiator.
	Initiators []string `json:"initiators"`
}

// NewPool asks for a pool.
type NewPool struct {
	Name     string            `json:"name"`
	CopyData bool              `json:"copy_data,omitempty"`
	Mdisks   []array.MdiskSpec `json:"mdisks"`
}

// Pool describes a pool.
type Pool struct {
	Name       string  `json:"name"`
	CopyData   bool    `json:"copy_data"`
	Capacity   Size    `json:"capacity"`
	Allocated  Size    `json:"allocated"`
	Reserved   Size    `json:"reserved"` // for thick volumes and anchored ranges
	CacheLimit Size    `json:"cache_limit"`
	CacheUsed  Size    `json:"cache_used"`
	Volumes    int     `json:"volumes"`
	Mdisks     []Mdisk `json:"mdisks"`
}

// Mdisk describes a back-end disk.
type Mdisk struct {
	Name      string `json:"name"`
	Size      Size   `json:"size"`
	Bandwidth Size   `json:"bandwidth"` // a second; 0 is no limit
	IOPS      uint64 `json:"iops"`
	Failures  uint64 `json:"failures"`
}

// Status describes the daemon.
type Status struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
	Data    string `json:"data"`
	Store   string `json:"store"`
	Portal  string `json:"portal"`
	Target  string `json:"target"`
	TCMU    bool   `json:"tcmu,omitempty"` // the kernel's door is open
	Metrics string `json:"metrics,omitempty"`
	Dirty   Size   `json:"dirty"`
}

// CheckReport is what a check found.
type CheckReport struct {
	OK       bool     `json:"ok"`
	Problems []string `json:"problems"`
	Volumes  int      `json:"volumes"`
	Windows  int      `json:"data_windows"`
	Pages    int      `json:"dirty_pages"`
	// Conserved is each side of admitted + recovered = dirty + destaged +
	// overwritten + discarded, added up.
	Conserved  Size `json:"conserved_bytes"`
	BadSectors int  `json:"bad_sectors"`
	// Offline says that no daemon ran and the folder itself was opened.
	Offline bool `json:"offline"`
}

// Counters is one reading of both layers.
type Counters struct {
	// Time in nanoseconds of the daemon's clock; differences are what counts.
	Time      int64            `json:"time_ns"`
	CacheSize Size             `json:"cache_size"`
	Volumes   []VolumeCounters `json:"volumes"`
	Pools     []PoolCounters   `json:"pools"`
}

// VolumeCounters are a volume's sums since the array was made.
type VolumeCounters struct {
	Volume string `json:"volume"`
	Pool   string `json:"pool"`
	// Host layer: on the wire, and described by offloads (by operation).
	Commands  uint64          `json:"host_commands"`
	Read      Size            `json:"host_read_bytes"`
	Written   Size            `json:"host_written_bytes"`
	Described map[string]Size `json:"host_described_bytes"`
	// Lower layer.
	Admitted   map[string]Size `json:"cache_admitted_bytes"` // by origin
	Destaged   map[string]Size `json:"cache_destaged_bytes"` // by origin
	Dirty      Size            `json:"cache_dirty_bytes"`
	Undercover Size            `json:"undercover_write_bytes"`
}

// PoolCounters are a pool's state and sums.
type PoolCounters struct {
	Pool         string `json:"pool"`
	CacheUsed    Size   `json:"cache_used_bytes"`
	CacheLimit   Size   `json:"cache_limit_bytes"`
	Waiting      Size   `json:"cache_waiting_bytes"`
	BackendRead  Size   `json:"backend_read_bytes"`
	BackendWrite Size   `json:"backend_written_bytes"`
}

// Problem is the body of an answer that is an error.
type Problem struct {
	Message string `json:"error"`
	// Force says that the request would go through with force.
	Force bool `json:"force,omitempty"`
}

// Clone asks for a copy of a volume, as it is now.
type Clone struct {
	Name string `json:"name"`
	Pool string `json:"pool,omitempty"` // the source's when empty
}

// Resize asks for another size.
type Resize struct {
	Size  Size `json:"size"`
	Force bool `json:"force,omitempty"`
}

// Session is an initiator's session.
type Session struct {
	Initiator string `json:"initiator"`
	Address   string `json:"address"`
	Target    string `json:"target,omitempty"` // none in a discovery session
	Commands  uint64 `json:"commands"`
}

// WriteLine writes v as JSON on one line.
func WriteLine(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }
