// The policy of the cache: each switch is a mechanism that real arrays may have.

package wcache

import (
	"fmt"
	"slices"
)

// Policy is how the cache admits, orders and paces.
type Policy struct {
	Admission Admission    // what happens to a write that finds its partition full
	Order     DestageOrder // which dirty data of a partition is destaged first
	Ramp      Ramp         // paces the destager by the fullness of the partition
	// DestageDepth is the number of destages of up to 256 KiB that an mdisk has under way.
	DestageDepth int
	// DestagePages is the number of pages up to which an mdisk has more destages under way than these.
	DestagePages int
	// Round is the pages that a sync of the mdisks, or a flush of NVRAM for destages, has at the least
	// while nobody waits. 0: a 64th of the cache for a sync, and a flush whenever a page lacks one.
	Round  int
	Budget Budget // bounds what offloads hold of a partition
}

// Mode is how a partition takes writes, and how a write was taken.
type Mode uint8

// Modes.
const (
	// Fast acknowledges when the cache has the data.
	Fast Mode = iota
	// FlushThrough takes the data into the partition and acknowledges when the back end has it.
	FlushThrough
	// WriteThrough keeps the data out of the partition, and acknowledges when the back
	// end has it. A cache that has lost its mirror is in this mode.
	WriteThrough
	// ShortOfMemory is WriteThrough of a single write because the partition has no room for it. No
	// partition is in this mode.
	ShortOfMemory
)

// Admission is what happens to a write that finds its partition full.
type Admission uint8

// Admissions.
const (
	// AdmitFIFO: hosts and offloads wait in one queue, one out, one in.
	AdmitFIFO Admission = iota
	// AdmitFair: volumes take turns, by bytes.
	AdmitFair
	// AdmitThrough: a host's write goes through to the back end for lack of memory,
	// and is counted as such (ctwfwsh of SVC); offloads wait.
	AdmitThrough
)

var admissionNames = [...]string{"fifo", "fair", "through"}

func (x Admission) String() string { return admissionNames[x] }

// ParseAdmission is the inverse of String.
func ParseAdmission(s string) (Admission, error) {
	if i := slices.Index(admissionNames[:], s); i >= 0 {
		return Admission(i), nil
	}
	return 0, fmt.Errorf("admission %q: it is fifo, fair or through", s)
}

// DestageOrder is which dirty data of a partition goes first.
type DestageOrder uint8

// Orders.
const (
	// DestageRoundRobin: volumes with dirty data take turns of 256 KiB; inside a
	// volume the oldest goes first.
	DestageRoundRobin DestageOrder = iota
	// DestageLRU: the oldest of the partition goes first, whosever it is.
	DestageLRU
)

var orderNames = [...]string{"round-robin", "lru"}

func (x DestageOrder) String() string { return orderNames[x] }

// ParseDestageOrder is the inverse of String.
func ParseDestageOrder(s string) (DestageOrder, error) {
	if i := slices.Index(orderNames[:], s); i >= 0 {
		return DestageOrder(i), nil
	}
	return 0, fmt.Errorf("destage order %q: it is round-robin or lru", s)
}

// Ramp is the destage rate over the fullness of a partition: linear between its
// points, nothing below the first, the last one's rate above it.
type Ramp struct {
	// Points rise in At. No points mean no pacing.
	Points []RampPoint
	// Absolute makes At a number of bytes; else it is per mille of the partition's cap.
	Absolute bool
	// Waiting is the rate, in bytes a second, while somebody waits for room; 0 is as fast as the
	// mdisks.
	Waiting int64
	// MaxAge is the time, in nanoseconds, after which dirty data is destaged whatever
	// the fullness; 0 is never.
	MaxAge int64
	// StallAt delays all writes to a partition from this fullness on, until it is
	// below ResumeAt (per mille of the cap); 0 is never.
	StallAt, ResumeAt int64
}

// atRest tells that what the fullness does not press for waits until no writes come.
func (r *Ramp) atRest() bool { return r.MaxAge == 0 && len(r.Points) == 0 }

// RampPoint is one corner of a Ramp; Rate is in bytes a second.
type RampPoint struct{ At, Rate int64 }

// Budget bounds what the data of offloads (XCOPY, ODX, WRITE SAME of a pattern) holds of a
// partition: what waits is the offload, and never the hosts behind it.
type Budget struct {
	// Percent of the partition's cap for all offloads of the pool; 0 is no bound.
	Percent int
	// HostPercent of the cap for the offloads of one host; 0 is no bound.
	HostPercent int
	// Pressure makes the destager run as for a full partition while an offload waits for
	// its budget. Without it the offload gets only what the ramp drains anyway.
	Pressure bool
}

// Validate tells what is wrong with a policy.
func (p *Policy) Validate() error {
	last := RampPoint{At: -1}
	for _, x := range p.Ramp.Points {
		if x.At <= last.At || x.Rate < 0 {
			return fmt.Errorf("ramp: points rise in fullness and rates are not negative; %d follows %d", x.At, last.At)
		}
		last = x
	}
	switch {
	case int(p.Admission) >= len(admissionNames) || int(p.Order) >= len(orderNames):
		return fmt.Errorf("policy: unknown admission or destage order")
	case p.Budget.Percent < 0 || p.Budget.Percent > 100 || p.Budget.HostPercent < 0 || p.Budget.HostPercent > 100:
		return fmt.Errorf("budget: percentages go from 0 to 100")
	case p.DestageDepth < 0 || p.DestagePages < 0 || p.Round < 0 || p.Ramp.Waiting < 0 || p.Ramp.MaxAge < 0:
		return fmt.Errorf("policy: limits are not negative")
	case p.Ramp.StallAt != 0 && (p.Ramp.ResumeAt <= 0 || p.Ramp.ResumeAt >= p.Ramp.StallAt || p.Ramp.StallAt > 1000):
		return fmt.Errorf("ramp: stalling begins at no more than 1000 per mille and ends below where it begins")
	}
	return nil
}

// rate returns the bytes a second of the ramp with used bytes of a cap; waiting
// tells that somebody waits for room. Negative is no limit, 0 is nothing.
func (r *Ramp) rate(used, limit int64, waiting bool) int64 {
	if waiting {
		if r.Waiting == 0 {
			return -1
		}
		return r.Waiting
	}
	if !r.Absolute {
		used = used * 1000 / max(limit, 1)
	}
	prev := RampPoint{}
	for i, x := range r.Points {
		if used < x.At {
			if i == 0 {
				return 0
			}
			return prev.Rate + (x.Rate-prev.Rate)*(used-prev.At)/(x.At-prev.At)
		}
		prev = x
	}
	return prev.Rate
}
