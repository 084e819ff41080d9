// What a user may choose of how the cache admits, orders and paces, and how copies are bounded:
// defaults, checks, and what of it each part is told. The parts keep what they were told; the array
// keeps the whole for who asks.

package array

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/array/wcache"
)

// Policy is how the write cache admits, orders and paces, and how the copy engine
// is bounded. What real arrays do inside is not published; each switch is a mechanism that
// they may have, and a profile says which of them it takes and why. The zero value
// means the defaults that are named.
type Policy struct {
	// Admission is what happens to a write that finds its partition full.
	Admission Admission
	// Order is which dirty data of a partition is destaged first.
	Order DestageOrder
	// Ramp paces the destager by the fullness of the partition. Without points it
	// runs unpaced above Options.DestageStart, and below it when no write came for half a second or
	// the data is half a minute old.
	Ramp Ramp
	// DestageDepth is the number of destages of up to 256 KiB that an mdisk has under
	// way (16). They count as used.
	DestageDepth int
	// DestagePages is the number of pages of 4 KiB up to which an mdisk has more destages under way
	// than DestageDepth: many small ones. 0: never.
	DestagePages int
	// Round is the number of pages for which a sync of the mdisks, or a flush of NVRAM for the sake of
	// destages, is worth while as long as nobody waits for room; a 16th of the cache at the most.
	// 0: a 64th of the cache for syncs, one page for flushes.
	Round int
	// CopyPieces is the number of 256 KiB pieces that one copy command has under way (8).
	CopyPieces int
	// CopyBytes bounds the pieces of all copies of the array together; 0 is no bound.
	CopyBytes int64
	// CopyReads bounds the source reads of all copies of the array; 0 is no bound.
	CopyReads int
	// Budget bounds what offloads hold of a partition.
	Budget Budget
}

// What the write cache knows of a policy, by the names that this package has for it.
type (
	// Admission is what happens to a write that finds its partition full.
	Admission = wcache.Admission
	// DestageOrder is which dirty data of a partition goes first.
	DestageOrder = wcache.DestageOrder
	// Ramp is the destage rate over the fullness of a partition.
	Ramp = wcache.Ramp
	// RampPoint is one corner of a Ramp; Rate is in bytes a second.
	RampPoint = wcache.RampPoint
	// Budget bounds what the data of offloads holds of a partition.
	Budget = wcache.Budget
	// WriteMode is how a pool takes writes.
	WriteMode = wcache.Mode
)

// Admissions, orders and write modes; see package wcache.
const (
	AdmitFIFO         = wcache.AdmitFIFO
	AdmitFair         = wcache.AdmitFair
	AdmitThrough      = wcache.AdmitThrough
	DestageRoundRobin = wcache.DestageRoundRobin
	DestageLRU        = wcache.DestageLRU
	WriteFast         = wcache.Fast
	FlushThrough      = wcache.FlushThrough
	WriteThrough      = wcache.WriteThrough
)

// ParseAdmission is the inverse of Admission.String.
func ParseAdmission(s string) (Admission, error) { return wcache.ParseAdmission(s) }

// ParseDestageOrder is the inverse of DestageOrder.String.
func ParseDestageOrder(s string) (DestageOrder, error) { return wcache.ParseDestageOrder(s) }

func (p *Policy) fill() {
	if p.DestageDepth == 0 {
		p.DestageDepth = 16
	}
	if p.CopyPieces == 0 {
		p.CopyPieces = 8
	}
}

// Validate tells what is wrong with a policy.
func (p *Policy) Validate() error {
	if p.CopyPieces < 0 || p.CopyBytes < 0 || p.CopyReads < 0 {
		return fmt.Errorf("policy: limits are not negative")
	}
	c := p.cache()
	return c.Validate()
}

// copies returns what the copy engine is told of the policy.
func (p *Policy) copies() request.CopyLimits {
	return request.CopyLimits{Pieces: p.CopyPieces, Bytes: p.CopyBytes, Reads: p.CopyReads}
}

// cache returns what the write cache is told of the policy.
func (p *Policy) cache() wcache.Policy {
	return wcache.Policy{Admission: p.Admission, Order: p.Order, Ramp: p.Ramp, DestageDepth: p.DestageDepth, DestagePages: p.DestagePages, Round: p.Round, Budget: p.Budget}
}
