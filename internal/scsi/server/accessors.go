// What handlers and the copy manager read of targets, units and nexuses, and the few things that
// they may change. All else is changed by this package alone.

package server

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/erase"
	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/scratch"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/threshold"
)

// Exec returns the target's executor.
func (t *Target) Exec() block.Executor { return t.exec }

// Options returns what the target was made with. It must not be changed.
func (t *Target) Options() *Options { return &t.opt }

// Commands returns what the target serves.
func (t *Target) Commands() *Commands { return t.commands }

// CopyManager returns what the target was made with.
func (t *Target) CopyManager() CopyManager { return t.copies }

// ALUA returns the target port groups. ChangeAccess changes their states.
func (t *Target) ALUA() alua.Groups { return t.groups }

// Nexuses returns the I_T nexuses, in the order of their logins. They must not be changed.
func (t *Target) Nexuses() []*Nexus { return t.nexuses }

// Scratch returns the memory that commands read into, or have their device read into.
func (t *Target) Scratch() *scratch.Pools { return &t.scratch }

// Target returns the target that the unit is of.
func (u *Unit) Target() *Target { return u.t }

// Device returns what the unit is made of.
func (u *Unit) Device() block.Device { return u.dev }

// Info returns what the device says of itself. It must not be changed.
func (u *Unit) Info() *block.Info { return &u.info }

// Pool returns what the device knows of its pool.
func (u *Unit) Pool() *threshold.Pool { return &u.pool }

// Blocks returns the capacity in logical blocks.
func (u *Unit) Blocks() uint64 { return u.blocks }

// Shift returns log2 of sectors per logical block.
func (u *Unit) Shift() uint8 { return u.shift }

// Names returns the designators of the unit. They must not be changed.
func (u *Unit) Names() []names.Designator { return u.names }

// Removed reports whether the unit was removed.
func (u *Unit) Removed() bool { return u.removed }

// Removable reports whether the medium can be ejected.
func (u *Unit) Removable() bool { return u.opt.Removable }

// CanSave reports whether state can be made durable.
func (u *Unit) CanSave() bool { return u.opt.Save != nil }

// Mode returns the current values of the mode pages, and SavedMode the saved ones.
func (u *Unit) Mode() pages.Mode { return u.mode }

// SavedMode returns the saved values of the mode pages.
func (u *Unit) SavedMode() pages.Mode { return u.savedMode }

// SetMode changes the current values of the mode pages.
func (u *Unit) SetMode(m pages.Mode) { u.mode = m }

// SetSavedMode changes the values that Save makes durable.
func (u *Unit) SetSavedMode(m pages.Mode) { u.savedMode = m }

// DescriptorSense reports whether sense data are in descriptor format (D_SENSE).
func (u *Unit) DescriptorSense() bool { return u.mode.DSense }

// Label returns what hosts have written on the unit, to be read and written.
func (u *Unit) Label() *Label { return &u.label }

// Medium returns the state of the medium, to be read and changed.
func (u *Unit) Medium() *Medium { return &u.medium }

// Reservation returns the persistent reservation. Its methods change it.
func (u *Unit) Reservation() *reservation.State { return &u.pr }

// SPC2Holder returns who has reserved the unit by RESERVE of SPC-2, or nil.
func (u *Unit) SPC2Holder() *ITL { return u.spc2Holder }

// SetSPC2Holder makes the reservation of SPC-2, with nil ends it.
func (u *Unit) SetSPC2Holder(x *ITL) { u.spc2Holder = x }

// FailedErase returns what the last SANITIZE or FORMAT UNIT was that failed, until one succeeds.
func (u *Unit) FailedErase() *erase.Parameters { return u.failedErase }

// ClearFailedErase leaves the failure mode of SANITIZE.
func (u *Unit) ClearFailedErase() { u.failedErase = nil }

// Target returns the target that the nexus is of.
func (n *Nexus) Target() *Target { return n.t }

// Initiator returns the initiator's name.
func (n *Nexus) Initiator() string { return n.initiator }

// TargetPort returns the relative target port identifier.
func (n *Nexus) TargetPort() uint16 { return n.targetPort }

// Group returns the group of the target port.
func (n *Nexus) Group() *alua.Group { return n.group }

// Fabric reports whether the target port is of a fabric that the target does not know.
func (n *Nexus) Fabric() bool { return n.fabric }

// ITLs returns the I_T_L nexuses by LUN; nil where there is no unit.
func (n *Nexus) ITLs() []*ITL { return n.luns }

// Nexus returns the I_T nexus.
func (x *ITL) Nexus() *Nexus { return x.n }

// Unit returns the logical unit.
func (x *ITL) Unit() *Unit { return x.u }

// Fenced returns the number of the last task that had arrived when the unit was fenced against the
// nexus.
func (x *ITL) Fenced() uint64 { return x.fenced }

// Attentions returns the pending unit attention conditions, to be read, taken and cleared.
func (x *ITL) Attentions() *sense.Attentions { return &x.ua }

// SetPrevent is PREVENT ALLOW MEDIUM REMOVAL of the nexus.
func (x *ITL) SetPrevent(on bool) { x.prevent = on }
