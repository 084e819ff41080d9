package lab

import (
	"time"

	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/lab/plug"
)

// Bytes is a size.
type Bytes uint64

// Sizes.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// Scenario is an experiment: arrays, hosts, and what they do.
type Scenario struct {
	Name string `yaml:"name,omitempty"`
	// Seed is what all random numbers of a run come from; 0 is 1.
	Seed uint64 `yaml:"seed,omitempty"`
	// Until ends the run; 0 ends it when all jobs that end have ended.
	Until time.Duration `yaml:"until,omitempty"`
	// Series is the interval of the time series (1 s), Sample that of the report's samples (5 min).
	Series time.Duration `yaml:"series,omitempty"`
	Sample time.Duration `yaml:"sample,omitempty"`
	// Profile is what arrays cost in time, for those that do not say: a name that `arraysim profile`
	// lists, or the path of a YAML file.
	Profile string `yaml:"profile,omitempty"`
	// Store is none, which keeps no payload, or memory.
	Store  string  `yaml:"store,omitempty"`
	Arrays []Array `yaml:"arrays"`
	Hosts  []Host  `yaml:"hosts"`
	Jobs   []Job   `yaml:"jobs,omitempty"`
	// Plugged are policies of the program's own, by the names that the scenario has for them.
	Plugged plug.Policies `yaml:"-"`
}

// Array is an array: one I/O group.
type Array struct {
	Name    string `yaml:"name,omitempty"`
	Profile string `yaml:"profile,omitempty"`
	Store   string `yaml:"store,omitempty"`
	// Cache is the size of the write cache; pools are its partitions.
	Cache Bytes `yaml:"cache,omitempty"`
	// Copy is reference or data.
	Copy string `yaml:"copy,omitempty"`
	// Adjust changes single settings of the profile, such as "policy.admission": "fair".
	Adjust map[string]any `yaml:"adjust,omitempty"`
	// Destage and Placement are names of Plugged, or what Wasm returns; "" is the profile's policy.
	Destage   string   `yaml:"destage,omitempty"`
	Placement string   `yaml:"placement,omitempty"`
	Pools     []Pool   `yaml:"pools"`
	Volumes   []Volume `yaml:"volumes,omitempty"`
}

// Pool is a pool, or Count of them.
type Pool struct {
	Name    string  `yaml:"name"`
	Count   int     `yaml:"count,omitempty"`
	Copy    string  `yaml:"copy,omitempty"`
	DisksOf string  `yaml:"disks_of,omitempty"` // ARRAY/POOL whose drives it shares
	Mdisks  []Mdisk `yaml:"mdisks"`
}

// Mdisk is Count back-end disks of a kind of the profile.
type Mdisk struct {
	Kind  string `yaml:"kind,omitempty"`
	Count int    `yaml:"count,omitempty"`
	Size  Bytes  `yaml:"size"`
}

// Volume is a volume, or Count of them. Group names them together.
type Volume struct {
	Name      string `yaml:"name"`
	Count     int    `yaml:"count,omitempty"`
	Group     string `yaml:"group,omitempty"`
	Pool      string `yaml:"pool,omitempty"` // "" is the first
	Size      Bytes  `yaml:"size"`
	BlockSize uint32 `yaml:"block_size,omitempty"`
	Thick     bool   `yaml:"thick,omitempty"`
	// Filled is how much of it has contents when the clock starts.
	Filled Bytes `yaml:"filled,omitempty"`
}

// Host is an initiator; it sees all volumes of all arrays.
type Host struct {
	Name  string `yaml:"name"`
	VAAI  VAAI   `yaml:"vaai,omitempty"`
	Mover Mover  `yaml:"mover,omitempty"`
	// Cache is the host's caching layer; its disks share Flash, and Peers lend theirs.
	Cache        []Cache `yaml:"cache,omitempty"`
	Flash        Flash   `yaml:"flash,omitempty"`
	Peers        []Peer  `yaml:"peers,omitempty"`
	DestageSlots int     `yaml:"destage_slots,omitempty"`
}

// VAAI is the offload settings of an ESXi host, by the names that they have there; nil is on.
type VAAI struct {
	Move        *bool `yaml:"HardwareAcceleratedMove,omitempty"`
	Init        *bool `yaml:"HardwareAcceleratedInit,omitempty"`
	Locking     *bool `yaml:"HardwareAcceleratedLocking,omitempty"`
	MaxTransfer Bytes `yaml:"MaxHWTransferSize,omitempty"`
	Reported    bool  `yaml:"array_reported,omitempty"`
	Largest     Bytes `yaml:"max_transfer_size,omitempty"`
}

// Mover is how a host zeroes and copies without offload.
type Mover struct {
	Size        Bytes `yaml:"size,omitempty"`
	Outstanding int   `yaml:"outstanding,omitempty"`
}

// Cache is a host's cache of a volume.
type Cache struct {
	Name   string `yaml:"name,omitempty"`
	Volume string `yaml:"volume"`
	// Policy is off, write_through, write_back, or write_back+N with N peers.
	Policy string `yaml:"policy,omitempty"`
	Size   Bytes  `yaml:"size"`
	Block  Bytes  `yaml:"block,omitempty"` // 8 KiB
	// Eviction is a name of Plugged, a policy that comes with arraysim (lru, s3-fifo, auto...), or
	// what Wasm returns.
	Eviction string `yaml:"eviction,omitempty"`
	// Admission and Throttle are names of Plugged, or what Wasm returns; "" admits all, and holds
	// writes back by Gain and Integral.
	Admission string        `yaml:"admission,omitempty"`
	Throttle  string        `yaml:"throttle,omitempty"`
	Path      time.Duration `yaml:"path,omitempty"` // the host's own time for each I/O
	Warm      Bytes         `yaml:"warm,omitempty"` // of the beginning of the volume, read before the clock starts
	// Area is the most dirty data, Threshold the thousandths of it above which writes are held back.
	Area      Bytes `yaml:"area,omitempty"`
	Threshold int64 `yaml:"threshold,omitempty"`
	Gain      int64 `yaml:"gain,omitempty"`
	Integral  int64 `yaml:"integral,omitempty"`
	Destage   Bytes `yaml:"destage,omitempty"` // the most that one write to the volume carries
}

// Flash is a flash device of a host.
type Flash struct {
	Kind      string        `yaml:"kind,omitempty"` // pcie or sata
	Channels  int           `yaml:"channels,omitempty"`
	Read      time.Duration `yaml:"read,omitempty"`
	Write     time.Duration `yaml:"write,omitempty"`
	Bandwidth Bytes         `yaml:"bandwidth,omitempty"`
	// Interleave puts each stripe of so many bytes on a channel by its address; 0 takes the channel that is free.
	Interleave Bytes `yaml:"interleave,omitempty"`
}

// Peer is another host that lends flash.
type Peer struct {
	Name      string        `yaml:"name,omitempty"`
	Domain    string        `yaml:"domain,omitempty"`
	Flash     Flash         `yaml:"flash,omitempty"`
	Bandwidth Bytes         `yaml:"bandwidth,omitempty"`
	Latency   time.Duration `yaml:"latency,omitempty"`
}

// Job is work of a host: a load of one volume or of each of a group, or a disk that is zeroed, cloned
// or unmapped.
type Job struct {
	Name  string        `yaml:"name"`
	Kind  string        `yaml:"kind,omitempty"` // load, zero, clone, unmap, vmotion
	Host  string        `yaml:"host,omitempty"` // "" is the first
	At    time.Duration `yaml:"at,omitempty"`
	After string        `yaml:"after,omitempty"` // a job that must have ended before
	// AfterAll are several jobs that must all have ended before.
	AfterAll []string `yaml:"after_all,omitempty"`

	For    time.Duration `yaml:"for,omitempty"`
	Volume string        `yaml:"volume"`         // a volume or a group
	Disk   string        `yaml:"disk,omitempty"` // raw, eager, lazy or thin
	Size   Bytes         `yaml:"size,omitempty"`

	// Outstanding makes a closed loop where no rate is given; Rate is I/Os a second.
	Outstanding int           `yaml:"outstanding,omitempty"`
	Think       time.Duration `yaml:"think,omitempty"`
	Rate        float64       `yaml:"rate,omitempty"`
	RateMax     float64       `yaml:"rate_max,omitempty"`
	Bandwidth   Bytes         `yaml:"bandwidth,omitempty"`
	Total       bool          `yaml:"total,omitempty"`
	LogNormal   float64       `yaml:"lognormal,omitempty"`
	Arrival     string        `yaml:"arrival,omitempty"` // poisson or constant
	Burst       *Burst        `yaml:"burst,omitempty"`
	Changes     []Change      `yaml:"changes,omitempty"`
	Write       float64       `yaml:"write,omitempty"` // fraction of I/Os
	IO          Bytes         `yaml:"io,omitempty"`
	Sizes       []IOSize      `yaml:"sizes,omitempty"`
	Pattern     string        `yaml:"pattern,omitempty"` // random or sequential
	Span        Bytes         `yaml:"span,omitempty"`
	Align       Bytes         `yaml:"align,omitempty"`
	Hot         *Hot          `yaml:"hot,omitempty"`
	Laps        int           `yaml:"laps,omitempty"`
	Bytes       Bytes         `yaml:"bytes,omitempty"`
	Timeout     time.Duration `yaml:"timeout,omitempty"`

	// A clone goes to a volume, a vmotion to a host.
	To      string `yaml:"to,omitempty"`
	Offload *bool  `yaml:"offload,omitempty"`
	Skew    Bytes  `yaml:"skew,omitempty"`
	// Ranges is the number of ranges of an UNMAP.
	Ranges int `yaml:"ranges,omitempty"`
	// Memory goes over a vmotion's link of Bandwidth first, then the Caches: file (all of it, unused space too), blocks
	// (what is in it) or drop.
	Memory Bytes  `yaml:"memory,omitempty"`
	Caches string `yaml:"caches,omitempty"`
}

// Burst turns a load on for For, and off for a time whose mean is Every.
type Burst struct {
	For   time.Duration `yaml:"for"`
	Every time.Duration `yaml:"every"`
}

// Change is a new rate from a given time on.
type Change struct {
	At        time.Duration `yaml:"at"`
	Rate      float64       `yaml:"rate,omitempty"`
	Bandwidth Bytes         `yaml:"bandwidth,omitempty"`
}

// IOSize is one size of a histogram.
type IOSize struct {
	Size   Bytes `yaml:"size"`
	Weight int   `yaml:"weight"`
}

// Hot is locality: a fraction of the reads goes to the first bytes of the span.
type Hot struct {
	Reads float64 `yaml:"reads"`
	Span  Bytes   `yaml:"span"`
}

// Wasm names the policy that is in a file: a WebAssembly module, see docs/laboratory.md.
func Wasm(file string) string { return sim.WasmPrefix + file }
