// Package block is the storage vocabulary that everything in arraysim composes
// through: the [Device] interface, the [Request] that travels down a stack of
// devices, sector ranges, and the contracts of what lies around the
// deterministic core ([Clock], [Executor], [Medium], [Region], [MetaStore]).
//
// Addresses and lengths are in sectors of 512 bytes everywhere below the SCSI
// layer, whatever the logical block size that hosts see.
//
// # Concurrency
//
// A Device belongs to one [Executor]. All of its methods are called, and all of
// its completions are delivered, while that executor is held. Nothing in this
// package starts a goroutine except [Live].
package block

import (
	"cmp"
	"fmt"
	"slices"
)

// SectorSize is the unit of every address below the SCSI layer, in bytes.
const SectorSize = 512

// SectorShift is log2 of SectorSize.
const SectorShift = 9

// Range is a run of sectors, [Start, Start+Count).
type Range struct {
	Start uint64
	Count uint64
}

// End returns the first sector behind the range.
func (r Range) End() uint64 { return r.Start + r.Count }

// Bytes returns the length in bytes.
func (r Range) Bytes() uint64 { return r.Count << SectorShift }

// Overlaps tells whether the two ranges share a sector.
func (r Range) Overlaps(o Range) bool {
	return r.Count != 0 && o.Count != 0 && r.Start < o.End() && o.Start < r.End()
}

// Within tells whether r lies in a medium of n sectors, without overflowing.
func (r Range) Within(n uint64) bool { return r.Start <= n && r.Count <= n-r.Start }

// Union puts ranges in the order of addresses and makes one of those that overlap or touch. The list
// is used for the answer.
func Union(list []Range) []Range {
	slices.SortFunc(list, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	out := list[:0]
	for _, r := range list {
		if k := len(out) - 1; k >= 0 && r.Start <= out[k].End() {
			out[k].Count = max(out[k].End(), r.End()) - out[k].Start
			continue
		}
		out = append(out, r)
	}
	return out
}

func (r Range) String() string { return fmt.Sprintf("[%d+%d)", r.Start, r.Count) }

// Op is what a Request asks for.
type Op uint8

// The operations. Hold and Place are the two halves of every copy.
const (
	OpRead         Op = iota // Data receives Range
	OpWrite                  // Data becomes Range
	OpWriteSame              // Data (one logical block, or none for zeros) repeated over Range
	OpUnmap                  // each of Ranges is deallocated
	OpCompareWrite           // atomically: if Range equals Compare it becomes Data
	OpOrWrite                // atomically: Range becomes Range OR Data
	OpFlush                  // what was acknowledged survives power loss once this completes
	OpStatus                 // Extents receives the provisioning status from Range.Start on
	OpHold                   // Ref receives a point-in-time reference to Ranges
	OpPlace                  // Range becomes what Ref holds from RefOffset on
	NumOps
)

var opNames = [NumOps]string{"read", "write", "write_same", "unmap", "compare_write", "or_write", "flush", "status", "hold", "place"}

func (o Op) String() string {
	if o < NumOps {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// TakesSpace reports whether an operation can take space from the pool.
func (o Op) TakesSpace() bool {
	return o == OpWrite || o == OpWriteSame || o == OpPlace || o == OpCompareWrite || o == OpOrWrite
}

// Flags modify a Request.
type Flags uint8

const (
	// FUA: the write survives power loss before it completes; a read comes from
	// what would survive it.
	FUA Flags = 1 << iota
	// Deallocate lets WRITE SAME of zeros unmap instead of zero (the UNMAP bit).
	Deallocate
	// Anchor makes a deallocation keep its physical reservation (the ANCHOR bit).
	Anchor
	// Atomic: after a crash the write, of at most Info.AtomicSectors, is there as a
	// whole or not at all.
	Atomic
)

// Origin says who caused data to exist. It is kept per sector of dirty data, the
// last writer wins, and it labels every lower-layer counter.
type Origin uint8

// Origins. Destage is never one of them: that is a [Reason].
const (
	OriginHost Origin = iota
	OriginWriteSame
	OriginXCopy
	OriginODX
	OriginCAW
	OriginUnmap
	OriginRebuild
	OriginMigrate
	NumOrigins
)

// OriginAt returns the origin of a sector of a page, whose origins have 4 bits a sector, the first in the lowest ones.
func OriginAt(origins uint32, sector int) Origin { return Origin(origins >> (4 * sector) & 15) }

var originNames = [NumOrigins]string{"host", "write_same", "xcopy", "odx", "caw", "unmap", "rebuild", "migrate"}

func (o Origin) String() string {
	if o < NumOrigins {
		return originNames[o]
	}
	return fmt.Sprintf("origin(%d)", uint8(o))
}

// Undercover tells whether writes of this origin are invisible in the host layer:
// everything that an array does on its own account or for an offload. A COMPARE
// AND WRITE carries its data over the wire, so it is a host write.
func (o Origin) Undercover() bool { return o != OriginHost && o != OriginCAW }

// Reason says why a back-end I/O happened.
type Reason uint8

// Reasons.
const (
	ReasonDestage Reason = iota
	ReasonWriteThrough
	ReasonFlush
	ReasonStage    // a host read that the cache could not answer
	ReasonCopyRead // the source side of a data copy
	ReasonRMW
	ReasonScrub // to compare data at rest with its checksums
	NumReasons
)

var reasonNames = [NumReasons]string{"destage", "write_through", "flush", "stage", "copy_read", "rmw", "scrub"}

func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Status is the outcome of a Request. It is a value and not a Go error: the SCSI
// layer turns it into sense data, in one place.
type Status uint8

// Outcomes.
const (
	OK          Status = iota
	Miscompare         // OpCompareWrite found a difference; Request.Offset says where
	OutOfRange         // the range is not inside the medium
	NoSpace            // the pool has no room (SBC: SPACE ALLOCATION FAILED WRITE PROTECT)
	MediumRead         // data could not be read, or failed its checksum
	MediumWrite        // data could not be written
	Hardware           // the device is broken (log, NVRAM)
	Cancelled          // withdrawn by Cancel
	Gone               // the device is closed or deleted
	ReadOnly           // the medium is write protected
	Resources          // a limit of the device was hit; try again later
	Unsupported        // the device does not have this operation
	Offline            // what holds the data is offline for now
)

var statusNames = [...]string{"ok", "miscompare", "out of range", "no space", "medium error on read", "medium error on write",
	"hardware error", "cancelled", "gone", "read only", "out of resources", "unsupported", "offline"}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// Extent is one run of equal provisioning status, as GET LBA STATUS reports it.
type Extent struct {
	Range
	State State
}

// State is the provisioning state of a sector.
type State uint8

// Provisioning states. Zero reads as zeros like Unmapped but counts as mapped
// for hosts: WRITE SAME of zeros without the UNMAP bit makes it.
const (
	Unmapped State = iota
	Zero
	Anchored
	Data
)

var stateNames = [...]string{"unmapped", "zero", "anchored", "mapped"}

func (s State) String() string { return stateNames[s&3] }

// Request is one operation on a Device. The caller owns it and may reuse it after
// Done. Data buffers belong to the device from Submit until Done.
type Request struct {
	Op    Op
	Flags Flags
	// Origin of what the request writes; the SCSI layer sets it.
	Origin Origin
	// Host is the number that the front end gave to the initiator, for counters
	// and budgets; 0 is none.
	Host uint32
	// Port is the number that the front end gave to the initiator port, to tell a host's caches and its other ways in
	// apart; 0 is none.
	Port uint32
	// Lent: OpHold on behalf of a host at another array, which asked for it.
	Lent bool
	// Priority of a copy among copies, 0 (first) to 7 (SPC-4, PRIORITY of EXTENDED COPY).
	Priority uint8

	Range     Range
	Ranges    []Range  // OpUnmap, OpHold
	Data      [][]byte // see the operations; the lengths add up to Range
	Compare   [][]byte // OpCompareWrite
	Ref       Ref      // OpPlace: what to place; OpHold: the result, owned by the caller
	RefOffset uint64   // OpPlace: sectors into Ref

	Extents []Extent // OpStatus: filled up to its capacity, at least one slot
	// Offset is where it went wrong, in bytes from the start of Range: with Miscompare the first byte that
	// differs, with MediumRead and MediumWrite, where Located is set, the first that is bad. The caller clears
	// Located before Submit; a device that cannot tell leaves it so.
	Offset  uint64
	Located bool

	Status Status
	// Done is called exactly once, on the executor, never from inside Submit of
	// the same request's device.
	Done func(*Request)

	// Ctx belongs to the caller, Priv to the device that has the request now.
	Ctx  any
	Priv any
}

// Ref is a point-in-time reference to ranges of a device, made by OpHold. It
// stays readable whatever is written to the device afterwards. Release must be
// called exactly once, on the executor.
type Ref interface {
	// Sectors is the length of what is held.
	Sectors() uint64
	Release()
}

// Vulnerable is a Ref that does not keep what it refers to: a name and ranges, for a device that cannot keep more.
// Changed reports whether that may be something else than when the Ref was made.
type Vulnerable interface {
	Ref
	Changed() bool
}

// Info describes a Device. All of it but Sectors and ReadOnly is constant.
type Info struct {
	Name      string
	ID        uint32 // number of the volume, never reused
	Pool      string
	Sectors   uint64
	BlockSize uint32 // logical block, 512 or 4096 bytes
	// PhysicalExp is log2 of logical blocks per physical block.
	PhysicalExp uint8
	Thin        bool
	ReadOnly    bool
	// NAA is the NAA-6 designator (16 bytes), Serial the unit serial number.
	NAA    [16]byte
	Serial string
	// GranuleSectors is the deallocation granularity that is worth reporting.
	GranuleSectors uint32
	// AtomicSectors is the longest write that can be Atomic; 0 is none.
	AtomicSectors uint32
	// CopyDomain: offloads may copy by reference between devices of equal domain.
	CopyDomain string
}

// EventKind says what a device notifies its front ends of.
type EventKind uint8

// Events.
const (
	EventCapacity   EventKind = iota // Info().Sectors changed
	EventThreshold                   // a thin provisioning soft threshold was crossed
	EventGeneration                  // contents changed by something else than this path
	EventHealth                      // the device got worse or better
	EventGone                        // the device is deleted; all later requests end Gone
	EventPowerLoss                   // what was written and not flushed since may be lost; told before what came behind it ends
)

// Event is a notification of a Device.
type Event struct{ Kind EventKind }

// Device is a logical unit's medium: an array volume, a host cache over a
// Device, a session to a remote LUN.
type Device interface {
	// Info returns the device's present description. It may change while the executor is not held.
	Info() Info
	// Submit starts the requests. It never blocks; each Done is called exactly
	// once and never from inside Submit.
	Submit([]*Request)
	// Cancel withdraws a request that still waits for admission: its Done comes
	// with Cancelled. A request that has started runs to its end, or ends with an error when
	// what it waits for does not answer.
	Cancel(*Request)
	// Notify registers a function that hears of events until the device is Gone. Of a loss of power
	// that the device was told of while nobody was registered, the first one hears at once.
	Notify(func(Event))
}

// VecLen returns the number of bytes in v.
func VecLen(v [][]byte) int {
	n := 0
	for _, b := range v {
		n += len(b)
	}
	return n
}
