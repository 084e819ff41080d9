// What happens to what finds its partition full, or its budget spent.

package policy

import (
	"fmt"
	"slices"
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

// Known reports whether there is such an admission.
func (x Admission) Known() bool { return int(x) < len(admissionNames) }

// ParseAdmission is the inverse of String.
func ParseAdmission(s string) (Admission, error) {
	if i := slices.Index(admissionNames[:], s); i >= 0 {
		return Admission(i), nil
	}
	return 0, fmt.Errorf("admission %q: it is fifo, fair or through", s)
}

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
