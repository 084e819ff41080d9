// Package scsi is the SCSI device server: CDBs in, status, sense data and
// Data-In out. It owns no descriptor and starts no goroutine; front ends (the
// iSCSI portal, the TCMU ring, the simulator's hosts) submit a [Task] on a
// [Nexus], and what a command asks of the medium goes to a [block.Device].
//
// The commands are those of SPC-5 and SBC-4 that dispatch.go lists. What is left
// out, and why, stands in docs/conformance.md.
//
// # Reading
//
// model.go has the objects, taskstate.go the states of a task. A command goes downhill through
// receive.go, enable.go, check.go, its handler, device.go, then complete.go and deliver.go; a copy
// through extendedcopy.go or odx.go, copystart.go, copysegment.go, device.go and copyend.go.
// docs/architecture.md draws both walks.
//
// # Concurrency
//
// Everything in this package is called with the target's executor held.
package scsi

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
)

// NewTarget makes a target without units.
func NewTarget(opt Options) *Target {
	t := newTarget(opt, allCommands)
	t.copies = newManager(t)
	return t
}

// newTarget makes a target without units and without a copy manager, which serves these commands.
func newTarget(opt Options, all *commands) *Target {
	t := &Target{
		opt:      opt,
		exec:     opt.Exec,
		maps:     make(map[string]*lunMap),
		hostOf:   make(map[string]*host),
		known:    make(map[string]bool),
		copies:   noCopies{},
		commands: all,
	}
	t.drain = t.runEnded
	t.groups = alua.New(opt.Ports)
	return t
}

// AddUnit makes a logical unit of dev. No initiator sees it yet.
func (t *Target) AddUnit(dev block.Device, opt UnitOptions) *Unit {
	u := &Unit{t: t, dev: dev, opt: opt}
	u.provisioner, _ = dev.(provisioner)
	u.refresh()
	u.limit = opt.MaxTasks
	if u.limit == 0 {
		u.limit = defaultMaxTasks
	}
	u.names = names.UnitDesignators(u.info.NAA, u.info.Serial, t.opt.Vendor)
	u.stats = t.stats.Volume(u.info.Name)
	u.stats.Attach(u.info.Pool, u)
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
			u.establish(sense.UACapacity, nil)
		}
		if old.Thin != u.info.Thin {
			u.establish(sense.UAInquiry, nil) // it stands in VPD pages
		}
	case block.EventThreshold:
		u.establish(sense.UAThreshold, nil)
	}
}

// restore takes over a saved state. An erasure that power loss interrupted starts
// anew (SBC-4 4.11.2).
func (u *Unit) restore(s UnitState) {
	if s.Mode != nil {
		u.mode = pages.Mode{DSense: s.Mode.DSense, SWP: s.Mode.SWP}
		u.savedMode = u.mode
	}
	u.label.ident, u.label.text = s.Ident, s.Info
	if s.PR != nil {
		u.pr = reservation.Restore(s.PR)
	}
	u.failedErase = s.Failed
	if s.Erasing != nil {
		if s.Erasing.Passes > 0 {
			s.Erasing.Pattern = sgl.Repeat(s.Erasing.Pattern, int(u.blockSize()))
		}
		u.erase(*s.Erasing, nil)
	}
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
	u.stats.Detach()
	t.copies.revoke(u)
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
	u.fence(nil, rest, func(_, _ *itl, _ use) (byte, sense.Code) {
		return sense.StatusCheckCondition, sense.LUNNotSupported
	})
	u.paused++
	for _, x := range u.tasks() {
		x.expel()
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

// Visible reports whether the initiator has any LUN here: a front end uses it to
// answer discovery.
func (t *Target) Visible(initiator string) bool {
	m := t.mapFor(initiator)
	return m != nil && slices.ContainsFunc(m.luns, func(u *Unit) bool { return u != nil })
}

// Forget drops the counters of a volume that has no unit any more: another may get its name, and
// counts from 0.
func (t *Target) Forget(volume string) { t.stats.Forget(volume) }

// Emit emits the host layer's families.
func (t *Target) Emit(e metrics.Emitter) { t.stats.Emit(e) }

var _ metrics.Source = (*Target)(nil)

// SaveCounters returns the host layer's counters for LoadCounters.
func (t *Target) SaveCounters() []byte { return t.stats.Save() }

// LoadCounters adds what SaveCounters returned to the counters. On an error
// nothing is changed.
func (t *Target) LoadCounters(b []byte) error {
	return t.stats.Load(b, func(initiator string) string { return t.hostNamed(initiator).name })
}
