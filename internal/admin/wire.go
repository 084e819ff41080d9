package admin

import (
	"encoding/json"
	"io"
	"time"
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
	// Export, if any, shows it to initiators; the volume is made with it or not at all.
	Export *NewExport `json:"export,omitempty"`
}

// NewExport asks for the export of a volume that is made.
type NewExport struct {
	LUN        int      `json:"lun"`
	Initiators []string `json:"initiators,omitempty" doc:"None means every initiator."`
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
	// Target is the iSCSI name of its volume's I/O group; who adds an export leaves it out.
	Target string `json:"target,omitempty"`
	// Initiators may see it; none means every initiator.
	Initiators []string `json:"initiators"`
}

// NewPool asks for a pool.
type NewPool struct {
	Name     string     `json:"name"`
	CopyData bool       `json:"copy_data,omitempty" doc:"Offloaded copies move data, even inside the pool."`
	Mdisks   []NewMdisk `json:"mdisks" minItems:"1" nullable:"false"`
	IOGroup  *int       `json:"io_group,omitempty" doc:"Number of its I/O group; if left out, the one with the fewest pools."`
}

// NewMdisk asks for a back-end disk.
type NewMdisk struct {
	Name      string `json:"name"`
	Size      Size   `json:"size"`
	Bandwidth Size   `json:"bandwidth,omitempty" doc:"Limit in bytes a second; 0 is none."`
	IOPS      uint64 `json:"iops,omitempty" doc:"Limit in operations a second; 0 is none."`
}

// Pool describes a pool.
type Pool struct {
	Name       string  `json:"name"`
	ID         uint32  `json:"id" doc:"The pool's number. No other pool ever gets it."`
	IOGroup    int     `json:"io_group"`
	CopyData   bool    `json:"copy_data"`
	Capacity   Size    `json:"capacity"`
	Allocated  Size    `json:"allocated"`
	Reserved   Size    `json:"reserved"` // for thick volumes and anchored ranges
	CacheLimit Size    `json:"cache_limit"`
	CacheUsed  Size    `json:"cache_used"`
	Volumes    int     `json:"volumes"`
	WriteMode  string  `json:"write_mode" enum:"fast,flush_through,write_through"`
	Mdisks     []Mdisk `json:"mdisks"`
}

// Mdisk describes a back-end disk.
type Mdisk struct {
	Name      string `json:"name"`
	Size      Size   `json:"size"`
	Bandwidth Size   `json:"bandwidth"` // a second; 0 is no limit
	IOPS      uint64 `json:"iops"`
	Failures  uint64 `json:"failures"`
	Offline   bool   `json:"offline"`
}

// Status describes the daemon.
type Status struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
	Data    string `json:"data"`
	Store   string `json:"store"`
	Portal  string `json:"portal"`
	Target  string `json:"target"`
	// Targets are those of the I/O groups; Target is the first.
	Targets []string `json:"targets"`
	TCMU    bool     `json:"tcmu,omitempty"` // the kernel's door is open
	Metrics string   `json:"metrics,omitempty"`
	Page    string   `json:"page,omitempty"` // for people and their browsers
	Dirty   Size     `json:"dirty"`
	// Mirrored tells whether the write cache has its mirror.
	Mirrored bool `json:"mirrored"`
	// Health says what fails now, a line each; none: all works.
	Health []string `json:"health,omitempty"`
	// Ownership is of an array in a Ceph pool that several processes may serve; nil: there is none.
	Ownership *OwnershipStatus `json:"ownership,omitempty"`
	// Start is what a process is at that does not serve yet; nil: it serves, or that is not known.
	Start *StartStatus `json:"start,omitempty"`
	// Nodes are those that show the same array; none: this one alone does.
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// Peers are other arrays, between which and this one hosts copy.
	Peers []PeerStatus `json:"peers,omitempty"`
}

// The states of a process that may have an array in a Ceph pool.
const (
	StateServing    = "serving"     // it has the array, and answers hosts
	StateBusy       = "busy"        // it had the array last, and answers BUSY until its lease is renewed
	StateStandingBy = "standing by" // it waits for the array
	StateTakingOver = "taking over" // it has the array's lock, and is about to raise its epoch
	StateOpening    = "opening"     // it waits for the cluster, or has the array and recovers it
)

// OwnershipStatus says who has an array in a Ceph pool, as this process sees it.
type OwnershipStatus struct {
	State string `json:"state"`
	Owner string `json:"owner"` // this process, or which it waits for; empty: it is not known
	// Epoch is the array's, which each take-over raises; 0: it has none yet, nil: it is not known.
	Epoch *int64 `json:"epoch,omitempty"`
	// LeaseAge is for how many seconds the owner's lease has not been renewed, as far as this process has seen; nil: it has
	// not seen that, or there is no lease.
	LeaseAge *float64 `json:"lease_age_s,omitempty"`
	// Since is when this process became the owner; nil: it is not, or that is not known.
	Since   *time.Time `json:"since,omitempty"`
	Trouble string     `json:"trouble,omitempty"` // what the cluster does not answer, or does not take
	// TroubleSince is when that began; nil: there is nothing.
	TroubleSince *time.Time `json:"trouble_since,omitempty"`
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
	Hosts     []HostCounters   `json:"hosts"`
}

// VolumeCounters are a volume's sums since it was made.
type VolumeCounters struct {
	Volume string `json:"volume"`
	// ID is the volume's number: a volume that gets the name of another counts from 0.
	ID   uint32 `json:"id"`
	Pool string `json:"pool"`
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
	// Offloads carried out, by primitive; Queue is the number of commands in progress.
	Offloads map[string]uint64 `json:"offload_operations"`
	Queue    uint64            `json:"host_queue_depth"`
	// Timed commands took Busy nanoseconds together: their quotient is the mean latency.
	Timed uint64 `json:"host_timed_commands"`
	Busy  uint64 `json:"host_busy_ns"`
}

// HostCounters are what an initiator did, added up over the volumes.
type HostCounters struct {
	Host     string            `json:"host"`
	Commands map[string]uint64 `json:"commands"` // by operation
	Failed   uint64            `json:"failed"`   // that did not end GOOD
}

// PoolCounters are a pool's state and sums.
type PoolCounters struct {
	Pool         string `json:"pool"`
	ID           uint32 `json:"id"`
	CacheUsed    Size   `json:"cache_used_bytes"`
	CacheLimit   Size   `json:"cache_limit_bytes"`
	Waiting      Size   `json:"cache_waiting_bytes"`
	BackendRead  Size   `json:"backend_read_bytes"`
	BackendWrite Size   `json:"backend_written_bytes"`
	// Written by origin: what the back end writes for whom.
	Origins map[string]Size `json:"backend_written_by_origin"`
	// Inflight are the bytes of data copies in progress, by primitive.
	Inflight map[string]Size `json:"offload_inflight_bytes"`
	Pinned   Size            `json:"cache_pinned_bytes"` // for mdisks that are offline
	Queue    uint64          `json:"backend_queue_depth"`
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
	// On the wire, headers included.
	Received Size      `json:"received_bytes"`
	Sent     Size      `json:"sent_bytes"`
	Since    time.Time `json:"since"`
}

// Offload is an offload command that has begun and not ended.
type Offload struct {
	Volume    string `json:"volume" doc:"The one that is written, or that the token stands for."`
	Initiator string `json:"initiator"`
	Primitive string `json:"primitive" enum:"xcopy,write_same,odx"`
	Done      Size   `json:"done_bytes" doc:"Whole segments, ranges or pieces that are written."`
	Total     Size   `json:"total_bytes" doc:"What the command describes."`
	// Since is by this machine's clock; Age is exact.
	Since      time.Time `json:"since"`
	Age        int64     `json:"age_ns" doc:"Time since the command arrived."`
	Background bool      `json:"background,omitempty" doc:"The command has ended and the copy continues (IMMED=1)."`
}

// Policy is how the write cache admits and destages, and what bounds copies.
type Policy struct {
	Admission         string `json:"admission" enum:"fifo,fair,through"`
	Order             string `json:"destage_order" enum:"round-robin,lru"`
	DestageDepth      int    `json:"destage_depth" doc:"Destages of up to 256 KiB that an mdisk has in flight."`
	CopyPieces        int    `json:"copy_pieces" doc:"Pieces of 256 KiB that one copy has in flight."`
	CopyBytes         Size   `json:"copy_bytes" doc:"Bound of the pieces of all copies together; 0 is none."`
	CopyReads         int    `json:"copy_reads" doc:"Bound of the source reads of all copies; 0 is none."`
	BudgetPercent     int    `json:"budget_percent" doc:"Share of a partition that offloads may hold, in percent; 0 is no bound."`
	BudgetHostPercent int    `json:"budget_host_percent" doc:"The same for the offloads of one host."`
	BudgetPressure    bool   `json:"budget_pressure" doc:"Destage as for a full partition while an offload waits for its budget."`
}

// PolicyChange names what of a [Policy] changes.
type PolicyChange struct {
	Admission         *string `json:"admission,omitempty" enum:"fifo,fair,through"`
	Order             *string `json:"destage_order,omitempty" enum:"round-robin,lru"`
	DestageDepth      *int    `json:"destage_depth,omitempty" minimum:"1"`
	CopyPieces        *int    `json:"copy_pieces,omitempty" minimum:"1"`
	CopyBytes         *Size   `json:"copy_bytes,omitempty"`
	CopyReads         *int    `json:"copy_reads,omitempty" minimum:"0"`
	BudgetPercent     *int    `json:"budget_percent,omitempty" minimum:"0" maximum:"100"`
	BudgetHostPercent *int    `json:"budget_host_percent,omitempty" minimum:"0" maximum:"100"`
	BudgetPressure    *bool   `json:"budget_pressure,omitempty"`
}

// PoolChange says how a pool takes writes from now on.
type PoolChange struct {
	WriteMode string `json:"write_mode" enum:"fast,flush_through,write_through"`
}

// MdiskChange names what of an mdisk changes.
type MdiskChange struct {
	Offline   *bool   `json:"offline,omitempty"`
	Bandwidth *Size   `json:"bandwidth,omitempty" doc:"Limit in bytes a second; 0 is none."`
	IOPS      *uint64 `json:"iops,omitempty" doc:"Limit in operations a second; 0 is none."`
}

// Mirror tells whether the write cache has its mirror: the other node of the I/O group.
type Mirror struct {
	Mirrored bool `json:"mirrored"`
}

// EventKind is what an event is about.
type EventKind string

// Kinds of events.
const (
	EventChange     EventKind = "change"     // somebody administered the array
	EventFault      EventKind = "fault"      // somebody made or ended a fault
	EventUndercover EventKind = "undercover" // a volume is written by offloads
	EventFull       EventKind = "full"       // a partition reached its cap, or left it
	EventSession    EventKind = "session"    // an initiator came or went
	EventNode       EventKind = "node"       // a node took the array, was linked, or is not any more
)

// Event is something that happened of late.
type Event struct {
	Number uint64    `json:"number"` // rises by one
	Time   time.Time `json:"time"`
	Kind   EventKind `json:"kind" enum:"change,fault,undercover,full,session,node"`
	Volume string    `json:"volume,omitempty"`
	Pool   string    `json:"pool,omitempty"`
	Text   string    `json:"text"`
}

// WriteLine writes v as JSON on one line.
func WriteLine(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }
