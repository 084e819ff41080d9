// Which dirty data goes first, and at what rate.

package policy

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/lab/plug"
)

// DestageOrder is which dirty data of a partition goes first.
type DestageOrder uint8

// Orders.
const (
	// RoundRobin: volumes with dirty data take turns of 256 KiB; inside a
	// volume the oldest goes first.
	RoundRobin DestageOrder = iota
	// LRU: the oldest of the partition goes first, whosever it is.
	LRU
)

var orderNames = [...]string{"round-robin", "lru"}

func (x DestageOrder) String() string { return orderNames[x] }

// Known reports whether there is such an order.
func (x DestageOrder) Known() bool { return int(x) < len(orderNames) }

// ParseDestageOrder is the inverse of String.
func ParseDestageOrder(s string) (DestageOrder, error) {
	if i := slices.Index(orderNames[:], s); i >= 0 {
		return DestageOrder(i), nil
	}
	return 0, fmt.Errorf("destage order %q: it is round-robin or lru", s)
}

// Pace is at what rate a partition destages. A [plug.Destage] is one, too.
type Pace interface {
	// Rate returns bytes a second: 0 is nothing, negative is no limit.
	Rate(f plug.Fullness) int64
}

// Threshold destages without a limit from a fullness on, of the partition or of the cache, in
// percent, and while somebody waits for room.
type Threshold int

// Rate implements Pace.
func (t Threshold) Rate(f plug.Fullness) int64 {
	if f.Waiting || f.Used*100 >= f.Limit*int64(t) || f.CacheUsed*100 >= f.CacheLimit*int64(t) {
		return -1
	}
	return 0
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

// AtRest reports whether what the fullness does not press for waits until no writes come.
func (r *Ramp) AtRest() bool { return r.MaxAge == 0 && len(r.Points) == 0 }

// RampPoint is one corner of a Ramp; Rate is in bytes a second.
type RampPoint struct{ At, Rate int64 }

// Validate says what is wrong with a ramp.
func (r *Ramp) Validate() error {
	last := RampPoint{At: -1}
	for _, x := range r.Points {
		if x.At <= last.At || x.Rate < 0 {
			return fmt.Errorf("ramp: points rise in fullness and rates are not negative; %d follows %d", x.At, last.At)
		}
		last = x
	}
	switch {
	case r.Waiting < 0 || r.MaxAge < 0:
		return fmt.Errorf("ramp: limits are not negative")
	case r.StallAt != 0 && (r.ResumeAt <= 0 || r.ResumeAt >= r.StallAt || r.StallAt > 1000):
		return fmt.Errorf("ramp: stalling begins at no more than 1000 per mille and ends below where it begins")
	}
	return nil
}

// Rate implements Pace.
func (r *Ramp) Rate(f plug.Fullness) int64 {
	if f.Waiting {
		if r.Waiting == 0 {
			return -1
		}
		return r.Waiting
	}
	used := f.Used
	if !r.Absolute {
		used = used * 1000 / max(f.Limit, 1)
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
