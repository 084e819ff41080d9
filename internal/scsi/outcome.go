// How the outcome of a request becomes a SAM status and sense data. No other file looks at the status
// of a request but to see that it is OK.

package scsi

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// badBlock is a medium error with the first bad block in INFORMATION, if the device knows it (SBC-4
// 4.18.1): hosts take what comes before it for good.
func (u *Unit) badBlock(c sense.Code, req *block.Request) sense.Data {
	if !req.Located {
		return sense.Data{Code: c}
	}
	return c.WithInfo((req.Range.Start + req.Offset>>block.SectorShift) >> u.shift)
}

// outcome turns the status of a request into a SAM status and sense data. It is
// the only place that does.
func (u *Unit) outcome(req *block.Request) (byte, sense.Data) {
	check := func(c sense.Code) (byte, sense.Data) { return sense.StatusCheckCondition, sense.Data{Code: c} }
	switch req.Status {
	case block.OK:
		return sense.StatusGood, sense.Data{}
	case block.Miscompare:
		return sense.StatusCheckCondition, sense.MiscompareVerify.WithInfo(req.Offset)
	case block.OutOfRange:
		return check(sense.LBAOutOfRange)
	case block.NoSpace:
		return check(sense.AllocationFailed)
	case block.MediumRead:
		return sense.StatusCheckCondition, u.badBlock(sense.MediumReadError, req)
	case block.MediumWrite:
		return sense.StatusCheckCondition, u.badBlock(sense.MediumWriteError, req)
	case block.Cancelled:
		if u.removed {
			return check(sense.LUNNotSupported)
		}
		return sense.StatusTaskAborted, sense.Data{}
	case block.Gone:
		return check(sense.LUNNotSupported)
	case block.ReadOnly:
		return check(sense.WriteProtected)
	case block.Offline:
		return check(sense.UnitNotReady)
	case block.Resources:
		return sense.StatusBusy, sense.Data{}
	case block.Unsupported:
		return check(sense.InvalidOpcode)
	default: // Hardware, and what this layer does not know
		return check(sense.InternalFailure)
	}
}
