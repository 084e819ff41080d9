// What an array is asked of its own soundness; see package check.

package array

import (
	"github.com/arraysim/arraysim/internal/array/check"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/recovery"
)

// What a check finds and does, by the names that users of this package have for it.
type (
	// Report is what a check found.
	Report = check.Report
	// Scrub reads all data at rest once.
	Scrub = check.Scrub
	// Verify is a check in small steps.
	Verify = check.Verify
	// Recovery is what the last start found and did.
	Recovery = recovery.Found
	// Progress is how far a start is.
	Progress = recovery.Progress
)

// checker returns what checks work with.
func (a *Array) checker() *check.Checker {
	return &check.Checker{Set: a.set, Meta: a.meta, Known: a.known, Stepped: a.engine.EndStep,
		Stopped: a.engine.Stopped}
}

// Check verifies the array as it is now; see check.Checker.All. It changes nothing. verify reads
// the dirty pages to compare their checksums.
func (a *Array) Check(verify bool) Report { return a.checker().All(verify) }

// StartScrub starts a scrub of that many bytes a second; 0 is no limit. It calls done at
// its end, unless it is stopped before.
func (a *Array) StartScrub(rate int64, done func(*Scrub)) *Scrub {
	return a.checker().NewScrub(rate, false, done)
}

// NewVerify returns a check that has not begun. With repair, single flipped bits of data at rest
// are mended; no host may use the array then.
func (a *Array) NewVerify(repair bool) *Verify { return a.checker().NewVerify(repair) }

// CheckCopies reads all copies of the meta store and names those that are damaged, and what the account of space there says
// otherwise than the pages of maps beside it, a line each. It may only be called before the array serves, with the executor
// held. The next start makes damaged copies anew, and derives the account.
func (a *Array) CheckCopies() (lines []string) {
	var wrong []string
	lines = a.meta.CheckCopies(func(entries metadata.Entries) {
		if a.set.Payload {
			wrong = a.checker().Stored(entries)
		}
	})
	return append(lines, wrong...)
}

// Recovery tells what the last start found.
func (a *Array) Recovery() Recovery { return a.recovery }

// known names what is known to be damaged beside sectors.
func (a *Array) known(add func(format string, args ...any)) {
	if n := a.recovery.BadPages; n > 0 {
		add("cache: %d page descriptors were damaged beyond repair when the array started: their data is lost, and sectors may have older contents", n)
	}
	if n := a.recovery.Unread; n > 0 {
		add("map: %d pages of volumes that are promised space could not be read when the array started: other space is reserved for what they have", n)
	}
	if n := a.arena.PassedOver(); n > 0 {
		add("space: %d pages of maps that were cut off could not be read: what they refer to stays taken until a start can read all pages", n)
	} else if a.arena.Account().HasTooMuch() {
		add("space: pages of maps that were cut off could not be read before the last start: what they refer to stays taken until a start can read all pages")
	}
	if wrong := a.arena.Account().Wrong(); wrong != nil {
		add("space: %v; the next start derives it from the maps", wrong)
	}
	if a.engine.Broken() != "" {
		add("array: changes are refused: %s", a.engine.Broken())
	}
}
