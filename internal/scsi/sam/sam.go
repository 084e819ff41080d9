// Package sam has the words of the SCSI architecture model (SAM-5) that front ends, the device
// server and its command sets share: statuses, task attributes, task management functions.
package sam

// SAM status codes (SAM-5 5.3.1).
const (
	StatusGood                = 0x00
	StatusCheckCondition      = 0x02
	StatusConditionMet        = 0x04
	StatusBusy                = 0x08
	StatusReservationConflict = 0x18
	StatusTaskSetFull         = 0x28
	StatusACAActive           = 0x30
	StatusTaskAborted         = 0x40
)

// Attr is a SAM task attribute.
type Attr uint8

// Task attributes (SAM-5 8.6; the numbers are those of RFC 7143 11.3.1).
const (
	AttrUntagged Attr = iota
	AttrSimple
	AttrOrdered
	AttrHeadOfQueue
	AttrACA
)

// Blocks reports whether younger tasks wait for one with this attribute.
func (a Attr) Blocks() bool { return a == AttrOrdered || a == AttrHeadOfQueue }

// TMF is a task management function (the numbers are those of RFC 7143 11.5.1).
type TMF uint8

// Task management functions.
const (
	AbortTask        TMF = 1
	AbortTaskSet     TMF = 2
	ClearACA         TMF = 3
	ClearTaskSet     TMF = 4
	LogicalUnitReset TMF = 5
	TargetWarmReset  TMF = 6
	TargetColdReset  TMF = 7

	// ResetBehind, which no initiator can send, is LogicalUnitReset but for the tasks of the I_T_L nexus itself.
	ResetBehind TMF = 0x80 | LogicalUnitReset
)

// TMFResponse is the service response to a TMF (the numbers are those of RFC
// 7143 11.6.1).
type TMFResponse uint8

// Service responses.
const (
	TMFComplete     TMFResponse = 0
	TMFNoTask       TMFResponse = 1
	TMFNoLUN        TMFResponse = 2
	TMFNotSupported TMFResponse = 5
	TMFRejected     TMFResponse = 255
)
