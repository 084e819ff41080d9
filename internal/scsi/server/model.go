// The objects of the device server: a target, its logical units, the I_T nexuses that are logged
// in, and the I_T_L nexus, which is what a unit keeps for one of them. Here stand their fields, who
// changes them, and what can be read off them. Nothing here has an effect but that an initiator
// gets its number.

package server

import (
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/erase"
	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/scratch"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/threshold"
)

// Target is a SCSI target device: its logical units, and which of them each initiator may see.
type Target struct {
	opt      Options
	exec     block.Executor
	commands *Commands

	// Who is there (target.go, nexus.go).
	units      []*Unit // in the order of AddUnit
	maps       names.LUNMaps[*Unit]
	nexuses    []*Nexus    // in the order of OpenNexus
	remapping  bool        // Map and Unmap only change the maps (unmap.go)
	unmapped   []*Unit     // meanwhile
	detached   []*ITL      // that are gone, of which tasks may be left
	groups     alua.Groups // in the order of Options.Ports
	initiators names.Initiators
	ports      names.PortBook // initiator ports that were here

	// What they count, and from where generations of changes count.
	stats   counters.Set
	genBase uint64

	arrivals uint64 // tasks received, the number of the last
	copies   CopyManager
	scratch  scratch.Pools // of commands that compare, and that combine

	// The batch of requests that the present call collects for one device (device.go).
	depth     int
	batch     []*block.Request
	batchUnit *Unit

	// Completions that wait for the executor to call drain (deliver.go).
	ended  []*Task
	spare  []*Task
	calls  []func()
	posted bool
	drain  func()
}

// Unit is a logical unit: a block.Device with SCSI state. All of its state survives a loss of any
// I_T nexus; what belongs to one is in itl.
type Unit struct {
	t       *Target
	dev     block.Device
	pool    threshold.Pool // of dev, if that knows it
	opt     UnitOptions
	info    block.Info // of dev, renewed by its events
	blocks  uint64     // capacity in logical blocks
	shift   uint8      // log2 of sectors per logical block
	names   []names.Designator
	itls    []*ITL // in the order in which nexuses saw the unit
	removed bool   // it stays so
	powerOn uint64 // the number of its last loss of power, or 0

	taskSet

	mode, savedMode pages.Mode // current and saved values of the mode pages
	label           Label      // written by hosts
	medium          Medium     // ejected or not
	erasing         *erasure   // SANITIZE or FORMAT UNIT in progress (erase.go)
	// failedErase is what the last of them was that failed, until one succeeds.
	failedErase *erase.Parameters
	spc2Holder  *ITL // RESERVE(6) and RESERVE(10)
	pr          reservation.State
	stats       *counters.Volume
}

// Medium is the state that START STOP UNIT changes, and what the front end says of a write cache.
type Medium struct {
	NotReady     sense.Code // why it cannot be accessed: it is ejected, or being ejected; sense.NoSense: it can be
	WriteThrough bool       // what copies place is flushed: hosts are told WCE=0
	Cycles       uint32     // of stopping and starting
}

// Label is what hosts have written on a unit.
type Label struct {
	Ident, Text []byte // peripheral device identifying information, and text; durable
	Clock       uint64 // the timestamp, in milliseconds, at the zero of the executor's clock
	ClockSet    bool   // by SET TIMESTAMP
}

// Nexus is an I_T nexus: one initiator port logged in to one target port.
type Nexus struct {
	t          *Target
	initiator  string
	port       string
	targetPort uint16
	group      *alua.Group
	host       *names.Initiator
	portNumber uint32        // of the initiator port
	luns       []*ITL        // by LUN
	closed     bool          // it stays so
	fabric     bool          // its target port is of a fabric that the target does not know
	onReset    func()        // see OnReset
	countRemap func() uint64 // see CountRemaps
	since      uint64        // the count when the nexus was created: nothing from before is meant for its units
}

// ITL is an I_T_L nexus: what a unit keeps for one nexus.
type ITL struct {
	n       *Nexus
	u       *Unit
	lun     uint16
	since   uint64           // what Nexus.countRemap said when the unit came to the LUN, or 0
	cut     uint64           // the same, when others aborted its tasks last
	ua      sense.Attentions // pending
	prevent bool             // PREVENT ALLOW MEDIUM REMOVAL
	gone    bool             // it has left its nexus's LUNs, or that is lost; it stays so
	stats   *counters.Host
	tasks   int // in the unit's task set
	// fenced is the last task that had arrived when the unit was fenced against the nexus: what a
	// copy that came before has not begun by then it does not begin later.
	fenced uint64
}

// Product is what INQUIRY says of all units alike.
func (t *Target) Product() *pages.Product {
	return &pages.Product{Vendor: t.opt.Vendor, Product: t.opt.Product, Revision: t.opt.Revision}
}

// GenerationBase is what log pages add to generations of changes, which begin anew in every
// process.
func (t *Target) GenerationBase() uint64 {
	if t.genBase == 0 {
		var b [4]byte
		t.opt.Random(b[:])
		t.genBase = uint64(binary.BigEndian.Uint32(b[:])|1) << 32
	}
	return t.genBase
}

// BlockSize returns the logical block length in bytes.
func (u *Unit) BlockSize() uint64 { return block.SectorSize << u.shift }

// LastLBA returns the last LOGICAL BLOCK ADDRESS.
func (u *Unit) LastLBA() uint64 { return max(u.blocks, 1) - 1 }

// AtomicBlocks is MAXIMUM ATOMIC TRANSFER LENGTH.
func (u *Unit) AtomicBlocks() uint64 { return uint64(u.info.AtomicSectors) >> u.shift }

// WriteProtected reports whether the medium refuses writes.
func (u *Unit) WriteProtected() bool {
	return u.opt.WriteProtect || u.info.ReadOnly || u.mode.SWP
}

// BlockSize returns the logical block length in bytes of the unit that an
// enabled task is for.
func (t *Task) BlockSize() uint64 { return t.state.u.BlockSize() }

// lookup finds the I_T_L nexus that the 8 bytes of a LUN address, or nil.
func (n *Nexus) lookup(lun uint64) *ITL {
	i, ok := names.ParseLUN(lun)
	if !ok || i >= len(n.luns) {
		return nil
	}
	return n.luns[i]
}

// Sees reports whether the nexus has a LUN of the unit.
func (n *Nexus) Sees(u *Unit) bool {
	return slices.ContainsFunc(n.luns, func(x *ITL) bool { return x != nil && x.u == u })
}

// SetsGroups reports whether the initiator may change the state of target port groups.
func (n *Nexus) SetsGroups() bool {
	may := n.t.opt.SetGroups
	return may != nil && may(n.initiator)
}

// Attached reports whether the nexus still sees the unit at this LUN.
func (x *ITL) Attached() bool { return !x.u.removed && !x.n.closed && !x.gone }

// Registrant returns the names by which registrations know the nexus.
func (n *Nexus) Registrant() reservation.Nexus {
	return reservation.Nexus{Port: n.port, TargetPort: n.targetPort}
}

// HostID returns the number that the target gave to the nexus's initiator; it is
// the Host of every request that the nexus causes.
func (n *Nexus) HostID() uint32 { return n.host.ID }

// PortNumber is the number of the initiator port, by which devices tell who changed what.
func (n *Nexus) PortNumber() uint32 { return n.portNumber }
