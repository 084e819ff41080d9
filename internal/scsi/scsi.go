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
// This package puts the parts together: it has the dispatch table, and names what front ends use.
// Package server has the objects and takes a task from stage to stage; spc and sbc have the
// handlers of primary and of block commands; copymgr has the copies. What they stand on knows no
// task: sense, names, reservation, alua, pages, counters, sgl. docs/architecture.md draws the walk
// of a command and that of a copy through them.
//
// # Concurrency
//
// Everything in these packages is called with the target's executor held.
package scsi

import (
	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/copymgr"
	"github.com/arraysim/arraysim/internal/scsi/copysource"
	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/saved"
	"github.com/arraysim/arraysim/internal/scsi/sbc"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// NewTarget makes a target without units.
func NewTarget(opt Options) *Target {
	return server.NewTarget(opt, allCommands, func(t *server.Target) server.CopyManager { return copymgr.NewManager(t) })
}

// JoinCopies makes the copy managers of several targets, those of one array's I/O groups, find each
// other's units and tokens. It is called once, before any of them has a command.
func JoinCopies(all ...*Target) {
	managers := make([]*copymgr.Manager, len(all))
	for i, t := range all {
		managers[i] = t.CopyManager().(*copymgr.Manager)
	}
	copymgr.Join(managers...)
}

// LinkCopies has a target find units to copy from, and tokens, in another array. It is called before the target has a command.
func LinkCopies(t *Target, a CopyArray) { t.CopyManager().(*copymgr.Manager).Link(a) }

// CopySourceOf returns what other arrays may read of a target, for a link to them.
func CopySourceOf(t *Target) *CopySource { return t.CopyManager().(*copymgr.Manager).Lends() }

// CopyTokenUnknown is the sense code of a token that an array does not have.
const CopyTokenUnknown = uint32(sense.TokenUnknown)

// CheckISCSIName says what is wrong with an iSCSI name: of the initiators that log in, and of those that
// are registered by TransportIDs.
func CheckISCSIName(name string) error { return names.CheckISCSI(name) }

// What a link between two arrays moves for copies from one to the other.
type (
	CopySource     = copysource.Store
	CopyArray      = copymgr.Array
	CopyUnit       = copymgr.ArrayUnit
	CopyInitiator  = copymgr.Initiator
	CopyDesignator = copymgr.Designator
	CopyTokenSum   = copymgr.TokenSum
	CopyEnding     = copymgr.Ending
	CopyAnswer     = copymgr.Answer
	CopyLent       = copysource.Lent
)

// The objects of the device server, and what it is made with.
type (
	Target      = server.Target
	Unit        = server.Unit
	Nexus       = server.Nexus
	Task        = server.Task
	Options     = server.Options
	UnitOptions = server.UnitOptions
	UnitState   = saved.State
	Buffers     = server.Buffers
	Scattered   = sbc.Scattered
	Attr        = sam.Attr
	TMF         = sam.TMF
	TMFResponse = sam.TMFResponse
	Offload     = server.Offload
	PortGroup   = alua.Description
	Port        = alua.Port
	AccessState = alua.State
	Attentions  = sense.Attentions
)

// Unit attention conditions that a front end may tell its hosts of in its own way, or raise.
const (
	AttentionPowerOn     = sense.UAPowerOn
	AttentionReset       = sense.UAReset
	AttentionLUNsChanged = sense.UALUNsChanged
	AttentionCapacity    = sense.UACapacity
)

// ParseUnitState reads what UnitOptions.Save got. Nil is the state of a new unit.
func ParseUnitState(b []byte) (UnitState, error) { return saved.Parse(b) }

// SameLUN tells whether two LUN fields, big endian, name the same logical unit: peripheral device and flat space addressing
// have a form each for the first 256 (SAM-5 4.7.7).
func SameLUN(a, b uint64) bool {
	if a == b {
		return true
	}
	m, ok := names.ParseLUN(a)
	n, ok2 := names.ParseLUN(b)
	return ok && ok2 && m == n
}

// SAM status codes (SAM-5 5.3.1).
const (
	StatusGood                = sam.StatusGood
	StatusCheckCondition      = sam.StatusCheckCondition
	StatusConditionMet        = sam.StatusConditionMet
	StatusBusy                = sam.StatusBusy
	StatusReservationConflict = sam.StatusReservationConflict
	StatusTaskSetFull         = sam.StatusTaskSetFull
	StatusACAActive           = sam.StatusACAActive
	StatusTaskAborted         = sam.StatusTaskAborted
)

// Task attributes (SAM-5 8.6).
const (
	AttrUntagged    = sam.AttrUntagged
	AttrSimple      = sam.AttrSimple
	AttrOrdered     = sam.AttrOrdered
	AttrHeadOfQueue = sam.AttrHeadOfQueue
	AttrACA         = sam.AttrACA
)

// Task management functions, and the responses to them.
const (
	AbortTask        = sam.AbortTask
	AbortTaskSet     = sam.AbortTaskSet
	ClearACA         = sam.ClearACA
	ClearTaskSet     = sam.ClearTaskSet
	LogicalUnitReset = sam.LogicalUnitReset
	TargetWarmReset  = sam.TargetWarmReset
	TargetColdReset  = sam.TargetColdReset
	// ResetBehind is LogicalUnitReset but for the tasks of the I_T_L nexus itself: they came behind it.
	ResetBehind = sam.ResetBehind

	TMFComplete     = sam.TMFComplete
	TMFNoTask       = sam.TMFNoTask
	TMFNoLUN        = sam.TMFNoLUN
	TMFNotSupported = sam.TMFNotSupported
	TMFRejected     = sam.TMFRejected
)

// Asymmetric access states that a target port group can be put into.
const (
	AccessOptimized    = alua.Optimized
	AccessNonOptimized = alua.NonOptimized
	AccessStandby      = alua.Standby
	AccessUnavailable  = alua.Unavailable
)
