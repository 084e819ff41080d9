// The objects of the device server: a target, its logical units, the I_T nexuses that are logged
// in, and the I_T_L nexus, which is what a unit keeps for one of them. Here stand their fields, who
// changes them, and what can be read off them. Nothing here has an effect but that an initiator
// gets its number.

package scsi

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// maxLUN is the largest LUN of flat space addressing (SAM-5 4.7.7.4).
const maxLUN = 1<<14 - 1

// Target is a SCSI target device: its logical units, and which of them each
// initiator may see.
type Target struct {
	opt      Options
	exec     block.Executor
	commands *commands

	// Who is there (target.go, nexus.go).
	units   []*Unit            // in the order of AddUnit
	maps    map[string]*lunMap // by initiator; never iterated where order matters
	nexuses []*Nexus           // in the order of OpenNexus
	groups  alua.Groups        // in the order of Options.Ports
	hosts   []*host            // hosts[i].id == i+1
	hostOf  map[string]*host
	known   map[string]bool // initiator ports that logged in before; bounded

	// What they count, and from where generations count (logs.go).
	stats   counters.Set
	genBase uint64

	arrivals uint64 // tasks received, the number of the last
	copies   copyManager
	scratch  scratch // of VERIFY

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

// host is an initiator by name, however many ports and sessions it has. What it takes of the scratch
// memory is bounded, so that it leaves room for others.
type host struct {
	id      uint32
	name    string
	scratch int // pieces of the target's scratch memory
}

type lunMap struct{ luns []*Unit } // by LUN

// Unit is a logical unit: a block.Device with SCSI state. All of its state survives a loss of any
// I_T nexus; what belongs to one is in itl.
type Unit struct {
	t           *Target
	dev         block.Device
	provisioner provisioner // dev, if it knows how full its pool is
	opt         UnitOptions
	info        block.Info // of dev, renewed by its events
	blocks      uint64     // capacity in logical blocks
	shift       uint8      // log2 of sectors per logical block
	names       []names.Designator
	itls        []*itl // in the order in which nexuses saw the unit
	removed     bool   // it stays so

	taskSet

	mode, savedMode pages.Mode      // current and saved values of the mode pages
	label           label           // identify.go
	overThreshold   bool            // the pool's use is above the soft threshold
	medium          mediumState     // medium.go
	eraseOperation  *eraseOperation // SANITIZE or FORMAT UNIT in progress (erase.go)
	// failedErase is what the last of them was that failed, until one succeeds.
	failedErase *eraseParameters
	spc2Holder  *itl // RESERVE(6) and RESERVE(10)
	pr          reservation.State
	stats       *counters.Volume
}

// Nexus is an I_T nexus: one initiator port logged in to one target port.
type Nexus struct {
	t          *Target
	initiator  string
	port       string
	targetPort uint16
	group      *alua.Group
	host       *host
	luns       []*itl // by LUN
	closed     bool   // it stays so
	fabric     bool   // its target port is of a fabric that the target does not know
	onReset    func() // see OnReset
}

// itl is an I_T_L nexus: what a unit keeps for one nexus.
type itl struct {
	n       *Nexus
	u       *Unit
	lun     uint16
	ua      sense.Attentions // pending
	prevent bool             // PREVENT ALLOW MEDIUM REMOVAL
	stats   *counters.Host
	// fenced is the last task that had arrived when the unit was fenced against the nexus: what a
	// copy that came before has not begun by then it does not begin later.
	fenced uint64
}

// product is what INQUIRY says of all units alike.
func (t *Target) product() *pages.Product {
	return &pages.Product{Vendor: t.opt.Vendor, Product: t.opt.Product, Revision: t.opt.Revision}
}

func (t *Target) mapFor(initiator string) *lunMap {
	if m := t.maps[initiator]; m != nil {
		return m
	}
	return t.maps[""]
}

// maxHosts bounds what is counted by name: initiators may call themselves anything.
// Those beyond it are counted together.
const (
	maxHosts   = 1024
	otherHosts = "(others)"
)

func (t *Target) hostNamed(name string) *host {
	h := t.hostOf[name]
	if h == nil && len(t.hosts) >= maxHosts {
		name = otherHosts
		h = t.hostOf[name]
	}
	if h == nil {
		h = &host{id: uint32(len(t.hosts) + 1), name: name}
		t.hosts = append(t.hosts, h)
		t.hostOf[name] = h
	}
	return h
}

// blockSize returns the logical block length in bytes.
func (u *Unit) blockSize() uint64 { return block.SectorSize << u.shift }

func (u *Unit) lastLBA() uint64 { return max(u.blocks, 1) - 1 }

// atomicBlocks is MAXIMUM ATOMIC TRANSFER LENGTH.
func (u *Unit) atomicBlocks() uint64 { return uint64(u.info.AtomicSectors) >> u.shift }

// writeProtected reports whether the medium refuses writes.
func (u *Unit) writeProtected() bool {
	return u.opt.WriteProtect || u.info.ReadOnly || u.mode.SWP
}

// BlockSize returns the logical block length in bytes of the unit that an
// enabled task is for.
func (t *Task) BlockSize() uint64 { return t.state.u.blockSize() }

// lookup finds the I_T_L nexus that the 8 bytes of a LUN address: peripheral
// device addressing on bus 0, or flat space addressing (SAM-5 4.7.7).
func (n *Nexus) lookup(lun uint64) *itl {
	if lun<<16 != 0 {
		return nil
	}
	v := lun >> 48
	switch v >> 14 {
	case 0:
		if v > 0xFF {
			return nil
		}
	case 1:
		v &= maxLUN
	default:
		return nil
	}
	if v >= uint64(len(n.luns)) {
		return nil
	}
	return n.luns[v]
}

// sees reports whether the nexus has a LUN of the unit.
func (n *Nexus) sees(u *Unit) bool {
	return slices.ContainsFunc(n.luns, func(x *itl) bool { return x != nil && x.u == u })
}

// setsGroups reports whether the initiator may change the state of target port groups.
func (n *Nexus) setsGroups() bool {
	may := n.t.opt.SetGroups
	return may != nil && may(n.initiator)
}

// attached reports whether the nexus still sees the unit at this LUN.
func (x *itl) attached() bool { return !x.u.removed && !x.n.closed && x.n.luns[x.lun] == x }

// it returns the names by which registrations know the nexus.
func (n *Nexus) it() reservation.Nexus {
	return reservation.Nexus{Port: n.port, TargetPort: n.targetPort}
}

// HostID returns the number that the target gave to the nexus's initiator; it is
// the Host of every request that the nexus causes.
func (n *Nexus) HostID() uint32 { return n.host.id }
