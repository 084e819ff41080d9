// Package server is the device server of SAM-5 without its commands: targets, logical units,
// nexuses and tasks, and the stages through which a task goes. What a command does, its handler
// says, which is in a row of the table that a target is made with; what a copy does, the copy
// manager.
//
// model.go has the objects, taskstate.go the states of a task. A task goes through receive.go,
// enable.go, check.go, its handler, device.go, then complete.go and deliver.go. handler.go and
// accessors.go are what handlers work with.
package server

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/saved"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
	"github.com/arraysim/arraysim/internal/scsi/threshold"
)

// NewTarget makes a target without units, which serves these commands. copies makes its copy manager.
func NewTarget(opt Options, all *Commands, copies func(*Target) CopyManager) *Target {
	t := &Target{
		opt:      opt,
		exec:     opt.Exec,
		ports:    names.NewPortBook(),
		commands: all,
	}
	t.drain = t.runEnded
	t.groups = alua.New(opt.Ports)
	t.copies = copies(t)
	return t
}

// AddUnit makes a logical unit of dev. No initiator sees it yet.
func (t *Target) AddUnit(dev block.Device, opt UnitOptions) *Unit {
	u := &Unit{t: t, dev: dev, pool: threshold.Of(dev), opt: opt}
	u.refresh()
	u.limit = cmp.Or(opt.MaxTasks, defaultMaxTasks)
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
	u.shift = uint8(bits.Len32(uint32(u.info.BlockSize / (2 * block.SectorSize))))
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
			u.Establish(sense.UACapacity, nil)
		}
		if old.Thin != u.info.Thin {
			u.Establish(sense.UAInquiry, nil) // it stands in VPD pages
		}
	case block.EventPowerLoss:
		u.powerOn = u.t.ports.PowerOn()
		u.Establish(sense.UAPowerOn, nil)
	case block.EventThreshold:
		u.Establish(sense.UAThreshold, nil)
	}
}

// restore takes over a saved state. An erasure that power loss interrupted starts anew (SBC-4 4.11.2).
func (u *Unit) restore(s saved.State) {
	u.savedMode = s.Modes()
	u.mode = u.savedMode
	u.label.Ident, u.label.Text = s.Ident, s.Info
	if s.PR != nil {
		u.pr = reservation.Restore(s.PR, !u.t.opt.Survived)
	}
	u.failedErase = s.Failed
	if s.Erasing != nil {
		if s.Erasing.Passes > 0 {
			s.Erasing.Pattern = sgl.Repeat(s.Erasing.Pattern, int(u.BlockSize()))
		}
		u.Erase(*s.Erasing, nil) // which saves
	} else if s.PR != nil && !u.t.opt.Survived {
		u.Save(func(error) {}) // after a failure, the next change does
	}
}

// Save makes the unit's state durable, if somebody keeps it.
func (u *Unit) Save(done func(error)) {
	if u.opt.Save == nil {
		done(nil)
		return
	}
	s := saved.State{PR: u.pr.Save(), Ident: u.label.Ident, Info: u.label.Text, Failed: u.failedErase}
	s.SetModes(u.savedMode)
	if u.erasing != nil && !u.erasing.over {
		s.Erasing = &u.erasing.What
	}
	u.opt.Save(s.Encode(), done)
}

// RemoveUnit takes a unit out of every LUN map and ends its tasks.
func (t *Target) RemoveUnit(u *Unit) {
	if u.removed {
		return
	}
	t.Enter()
	defer t.Leave()
	t.Flush()
	u.removed = true
	if u.erasing != nil {
		u.erasing.Stop()
	}
	u.stats.Detach()
	t.copies.Revoke(u)
	u.Fence(nil, Rest, revokes(sense.LUNNotSupported))
	t.maps.Remove(u)
	t.remap(nil)
	t.units = slices.DeleteFunc(t.units, func(v *Unit) bool { return v == u })
}

// Visible reports whether the initiator has any LUN here: a front end uses it to answer discovery.
func (t *Target) Visible(initiator string) bool {
	return slices.ContainsFunc(t.maps.Of(initiator), func(u *Unit) bool { return u != nil })
}

// Forget drops the counters of a volume that has no unit any more: another may get its name, and
// counts from 0.
func (t *Target) Forget(volume string) { t.stats.Forget(volume) }

// Emit emits the host layer's families.
func (t *Target) Emit(e metrics.Emitter) { t.stats.Emit(e) }

// SaveCounters returns the host layer's counters for LoadCounters.
func (t *Target) SaveCounters() []byte { return t.stats.Save() }

// LoadCounters adds what SaveCounters returned to the counters. On an error
// nothing is changed.
func (t *Target) LoadCounters(b []byte) error {
	return t.stats.Load(b, func(initiator string) string { return t.initiators.Named(initiator).Name })
}
