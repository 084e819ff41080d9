// Package scsi is the SCSI device server: CDBs in, status, sense data and
// Data-In out. It owns no descriptor and starts no goroutine; front ends (the
// iSCSI portal, the TCMU ring, the simulator's hosts) submit a [Task] on a
// [Nexus], and what a command asks of the medium goes to a [block.Device].
//
// The commands are those of SPC-5 and SBC-4 that dispatch.go lists. What is left
// out, and why, stands in docs/conformance.md.
//
// # Concurrency
//
// Everything in this package is called with the target's executor held.
package scsi

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// maxLUN is the largest LUN of flat space addressing (SAM-5 4.7.7.4).
const maxLUN = 1<<14 - 1

// Target is a SCSI target device: its logical units, and which of them each
// initiator may see.
type Target struct {
	opt      Options
	exec     block.Executor
	units    []*Unit            // in the order of AddUnit
	maps     map[string]*lunMap // by initiator; never iterated
	nexuses  []*Nexus           // in the order of OpenNexus
	hosts    []*host            // hosts[i].id == i+1
	hostOf   map[string]*host
	known    map[string]bool // initiator ports that logged in before; bounded
	stats    map[string]*unitStats
	vols     []string // keys of stats in order
	genBase  uint64   // see generationBase
	arrivals uint64   // of tasks
	// operations are the copy operations that run, in the order of their beginning.
	operations []*operation
	tokens     []*rodToken  // in the order of creation
	scratch    scratch      // of VERIFY
	groups     []*portGroup // in the order of Options.Ports

	// The batch of requests that the present call collects for one device.
	depth     int
	batch     []*block.Request
	batchUnit *Unit

	// Completions that wait for the executor to call drain.
	ended  []*Task
	spare  []*Task
	calls  []func()
	posted bool
	drain  func()
}

// host is an initiator by name, however many ports and sessions it has.
type host struct {
	id      uint32
	name    string
	copies  int // copy operations that run
	tokens  int // ROD tokens that are valid
	scratch int // pieces of the target's scratch memory
}

type lunMap struct{ luns []*Unit } // by LUN

// Unit is a logical unit: a block.Device with SCSI state.
type Unit struct {
	t       *Target
	dev     block.Device
	opt     UnitOptions
	info    block.Info
	blocks  uint64 // capacity in logical blocks
	shift   uint8  // log2 of sectors per logical block
	names   []designator
	itls    []*itl // in the order in which nexuses saw the unit
	removed bool

	taskSet
	mode modeState
	// savedMode are the saved values of the mode pages.
	savedMode modeState
	// ident and identText are the identifying information: peripheral device
	// identifying, and text.
	ident, identText []byte
	timestamp        uint64 // milliseconds, at the clock's zero
	timestampSet     bool
	overThreshold    bool // the pool's use is above the soft threshold
	medium           mediumState
	job              *background // SANITIZE or FORMAT UNIT in progress
	// failedErase is what the last of them was that failed, until one succeeds.
	failedErase *erasure
	holder      *itl // RESERVE(6) and RESERVE(10)
	pr          persistent
	stats       *unitStats
}

// Nexus is an I_T nexus: one initiator port logged in to one target port.
type Nexus struct {
	t          *Target
	initiator  string
	port       string
	targetPort uint16
	group      *portGroup
	host       *host
	luns       []*itl // by LUN
	closed     bool
	fabric     bool   // its target port is of a fabric that the target does not know
	onReset    func() // see OnReset
}

// itl is an I_T_L nexus: what a unit keeps for one nexus.
type itl struct {
	n       *Nexus
	u       *Unit
	lun     uint16
	ua      attention
	prevent bool // PREVENT ALLOW MEDIUM REMOVAL
	stats   *hostStats
	copies  []*copyResult
	running int // copy operations that came here and are not over
	// fenced is the last task that had arrived when the unit was fenced against the nexus: what a
	// copy that came before has not begun by then it does not begin later.
	fenced uint64
}

// NewTarget makes a target without units.
func NewTarget(opt Options) *Target {
	t := &Target{
		opt:    opt,
		exec:   opt.Exec,
		maps:   make(map[string]*lunMap),
		hostOf: make(map[string]*host),
		known:  make(map[string]bool),
		stats:  make(map[string]*unitStats),
	}
	t.drain = t.runEnded
	t.makeGroups(opt.Ports)
	return t
}

// AddUnit makes a logical unit of dev. No initiator sees it yet.
func (t *Target) AddUnit(dev block.Device, opt UnitOptions) *Unit {
	u := &Unit{t: t, dev: dev, opt: opt}
	u.refresh()
	u.limit = opt.MaxTasks
	if u.limit == 0 {
		u.limit = defaultMaxTasks
	}
	u.names = u.designators()
	u.stats = t.statsOf(u.info.Name)
	u.stats.pool = u.info.Pool
	u.stats.unit = u
	t.units = append(t.units, u)
	u.restore(opt.State)
	dev.Notify(u.event)
	return u
}

func (u *Unit) refresh() {
	u.info = u.dev.Info()
	u.shift = 0
	if u.info.BlockSize == 4096 {
		u.shift = 3
	}
	u.blocks = u.info.Sectors >> u.shift
}

func (u *Unit) event(e block.Event) {
	if u.removed {
		return
	}
	was, old := u.blocks, u.info
	if e.Kind != block.EventGone {
		u.refresh()
	}
	switch e.Kind {
	case block.EventCapacity:
		if u.blocks != was {
			u.attend(uaCapacity, nil)
		}
		if old.Thin != u.info.Thin {
			u.attend(uaInquiry, nil) // it stands in VPD pages
		}
	case block.EventThreshold:
		u.attend(uaThreshold, nil)
	}
}

// blockSize returns the logical block length in bytes.
func (u *Unit) blockSize() uint64 { return block.SectorSize << u.shift }

// writeProtected tells whether the medium refuses writes.
func (u *Unit) writeProtected() bool {
	return u.opt.WriteProtect || u.info.ReadOnly || u.mode.swp
}

// RemoveUnit takes a unit out of every LUN map and ends its tasks.
func (t *Target) RemoveUnit(u *Unit) {
	if u.removed {
		return
	}
	t.enter()
	defer t.leave()
	t.flush()
	u.removed = true
	u.stats.unit = nil
	u.revokeTokens()
	for _, m := range t.maps { // each map is changed on its own: order does not matter
		for lun, v := range m.luns {
			if v == u {
				m.luns[lun] = nil
			}
		}
	}
	for _, n := range t.nexuses {
		n.remap()
	}
	t.units = slices.DeleteFunc(t.units, func(v *Unit) bool { return v == u })
	u.fence(nil, rest, func(*operation, *itl, use) (byte, code) { return StatusCheckCondition, lunNotSupported })
	u.paused++
	for _, x := range u.tasks() {
		u.expel(x)
	}
	u.paused--
}

// Map makes u visible as lun to the named initiator; the empty name stands for
// every initiator that has no map of its own. Unmap takes it away. Both raise
// REPORTED LUNS DATA HAS CHANGED on the nexuses concerned.
func (t *Target) Map(initiator string, lun uint16, u *Unit) error {
	if lun > maxLUN {
		return fmt.Errorf("LUN %d is above %d", lun, maxLUN)
	}
	if u.removed {
		return fmt.Errorf("unit %s is removed", u.info.Name)
	}
	m := t.maps[initiator]
	if m == nil {
		m = &lunMap{}
		t.maps[initiator] = m
	}
	for len(m.luns) <= int(lun) {
		m.luns = append(m.luns, nil)
	}
	if v := m.luns[lun]; v != nil && v != u {
		return fmt.Errorf("LUN %d is taken by %s", lun, v.info.Name)
	}
	m.luns[lun] = u
	t.remap()
	return nil
}

// Unmap takes lun out of the initiator's map.
func (t *Target) Unmap(initiator string, lun uint16) {
	m := t.maps[initiator]
	if m == nil || int(lun) >= len(m.luns) {
		return
	}
	m.luns[lun] = nil
	t.remap()
}

func (t *Target) remap() {
	for _, n := range t.nexuses {
		n.remap()
	}
}

func (t *Target) mapFor(initiator string) *lunMap {
	if m := t.maps[initiator]; m != nil {
		return m
	}
	return t.maps[""]
}

// Visible tells whether the initiator has any LUN here: a front end uses it to
// answer discovery.
func (t *Target) Visible(initiator string) bool {
	m := t.mapFor(initiator)
	return m != nil && slices.ContainsFunc(m.luns, func(u *Unit) bool { return u != nil })
}

// knownPorts bounds the memory of initiator ports that were here before.
const knownPorts = 4096

// OpenNexus makes an I_T nexus. initiator is the initiator's name, port the name
// of its port (for iSCSI name + ",i,0x" + ISID), targetPort the relative target
// port identifier. Front ends close the old nexus of the same port first.
func (t *Target) OpenNexus(initiator, port string, targetPort uint16) *Nexus {
	port, _ = canonicalPort(port)
	n := &Nexus{t: t, initiator: initiator, port: port, targetPort: targetPort, group: t.groupOfPort(targetPort), host: t.hostNamed(initiator)}
	t.nexuses = append(t.nexuses, n)
	n.remap()
	ua := uaPowerOn
	if t.known[port] {
		ua = uaNexusLoss
	}
	for _, x := range n.luns {
		if x != nil {
			x.ua = ua
		}
	}
	return n
}

// OpenFabricNexus makes a nexus of a front end whose target ports are not the target's own (LIO's
// fabrics): its units say nothing of ports in the terms of iSCSI. name is that of initiator and port.
func (t *Target) OpenFabricNexus(name string) *Nexus {
	n := t.OpenNexus(name, name, t.groups[0].ports[0])
	n.fabric = true
	return n
}

// HostID returns the number that the target gave to the nexus's initiator; it is
// the Host of every request that the nexus causes.
func (n *Nexus) HostID() uint32 { return n.host.id }

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

// remap makes n.luns what the LUN map says and raises REPORTED LUNS DATA HAS
// CHANGED when that is something else than before.
func (n *Nexus) remap() {
	var want []*Unit
	if m := n.t.mapFor(n.initiator); m != nil {
		want = m.luns
	}
	changed := false
	for lun := range max(len(want), len(n.luns)) {
		var u *Unit
		if lun < len(want) {
			u = want[lun]
		}
		if lun >= len(n.luns) {
			n.luns = append(n.luns, nil)
		}
		old := n.luns[lun]
		if old != nil && old.u == u || old == nil && u == nil {
			continue
		}
		changed = true
		if old != nil {
			old.detach()
		}
		n.luns[lun] = nil
		if u != nil {
			x := &itl{n: n, u: u, lun: uint16(lun), ua: uaPowerOn, stats: u.stats.host(n.host)}
			u.itls = append(u.itls, x)
			n.luns[lun] = x
		}
	}
	if !changed {
		return
	}
	for _, x := range n.luns {
		if x != nil {
			x.ua |= uaLUNsChanged
		}
	}
}

// detach ends what the unit keeps for an I_T_L nexus that is going away: what an
// I_T nexus loss ends (SAM-5 6.3.4).
func (x *itl) detach() {
	u := x.u
	u.itls = slices.DeleteFunc(u.itls, func(y *itl) bool { return y == x })
	if u.holder == x {
		u.holder = nil
	}
	x.dropCopies()
}

// Close ends the nexus (I_T nexus loss): its tasks are aborted, done is called
// when the last of them has ended.
func (n *Nexus) Close(done func()) {
	t := n.t
	t.enter()
	defer t.leave()
	if n.closed {
		t.call(done)
		return
	}
	t.flush()
	n.closed = true
	w := newWaiter(done)
	for _, x := range n.luns {
		if x != nil {
			x.u.abortWhere(w, nil, func(task *Task) bool { return task.state.itl == x })
		}
	}
	t.endOperations(w, func(o *operation) bool { return o.x.n == n })
	for _, x := range n.luns {
		if x != nil {
			x.detach()
		}
	}
	t.nexuses = slices.DeleteFunc(t.nexuses, func(m *Nexus) bool { return m == n })
	if len(t.known) >= knownPorts {
		clear(t.known)
	}
	t.known[n.port] = true
	w.less(t)
}

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
