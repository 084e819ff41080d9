// What a user may choose of how the cache admits, orders and paces, and how copies are bounded:
// defaults, checks, and what of it each part is told. The parts keep what they were told; the array
// keeps the whole for who asks.

package array

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/copying"
	"github.com/arraysim/arraysim/internal/array/policy"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/lab/plug"
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
	// CopyBytes bounds the pieces of all copies of the array together; 0 is no bound. What buffers
	// they have with payload is bounded anyway (copying.MaxLent).
	CopyBytes int64
	// CopyReads bounds the source reads of all copies of the array; 0 is no bound.
	CopyReads int
	// Budget bounds what offloads hold of a partition.
	Budget Budget
	// Destage makes what answers for a pool in the place of Order and Ramp, but for the stalling of
	// the latter; nil: nobody does. It is asked once for each pool.
	Destage func(pool string) plug.Destage
	// Placement decides how copies inside a pool are carried out; nil: as the pool says.
	Placement plug.Placement
}

// What the write cache knows of a policy, by the names that this package has for it.
type (
	// Admission is what happens to a write that finds its partition full.
	Admission = policy.Admission
	// DestageOrder is which dirty data of a partition goes first.
	DestageOrder = policy.DestageOrder
	// Ramp is the destage rate over the fullness of a partition.
	Ramp = policy.Ramp
	// RampPoint is one corner of a Ramp; Rate is in bytes a second.
	RampPoint = policy.RampPoint
	// Budget bounds what the data of offloads holds of a partition.
	Budget = policy.Budget
	// WriteMode is how a pool takes writes.
	WriteMode = wcache.Mode
)

// Admissions, orders and write modes; see package wcache.
const (
	AdmitFIFO         = policy.AdmitFIFO
	AdmitFair         = policy.AdmitFair
	AdmitThrough      = policy.AdmitThrough
	DestageRoundRobin = policy.RoundRobin
	DestageLRU        = policy.LRU
	WriteFast         = wcache.Fast
	FlushThrough      = wcache.FlushThrough
	WriteThrough      = wcache.WriteThrough
)

// ParseAdmission is the inverse of Admission.String.
func ParseAdmission(s string) (Admission, error) { return policy.ParseAdmission(s) }

// ParseDestageOrder is the inverse of DestageOrder.String.
func ParseDestageOrder(s string) (DestageOrder, error) { return policy.ParseDestageOrder(s) }

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
	c := p.cache(nil)
	return c.Validate()
}

// copies returns what the copy engine is told of the policy.
func (p *Policy) copies() copying.Limits {
	return copying.Limits{Pieces: p.CopyPieces, Bytes: p.CopyBytes, Reads: p.CopyReads}
}

// cache returns what the write cache is told of the policy; name gives the names of pools.
func (p *Policy) cache(name func(pool uint16) string) wcache.Policy {
	out := wcache.Policy{Admission: p.Admission, Order: p.Order, Ramp: p.Ramp, DestageDepth: p.DestageDepth, DestagePages: p.DestagePages, Round: p.Round, Budget: p.Budget}
	if p.Destage != nil {
		out.Ramp.Points, out.Ramp.MaxAge = nil, 0
		out.Destage = func(pool uint16) plug.Destage { return p.Destage(name(pool)) }
	}
	return out
}

// placement returns what decides on copies.
func (p *Policy) placement() plug.Placement {
	if p.Placement == nil {
		return policy.AsPool{}
	}
	return p.Placement
}
