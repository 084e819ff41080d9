// How the outcome of a request to a device becomes a SAM status and sense data. Nobody else looks at
// the status of a request but to see that it is OK.

package sense

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sam"
)

// badBlock is a medium error with the first bad block in INFORMATION, if the device knows it (SBC-4
// 4.18.1): hosts take what comes before it for good.
func badBlock(c Code, req *block.Request, shift uint8) Data {
	if !req.Located {
		return Data{Code: c}
	}
	return c.WithInfo((req.Range.Start + req.Offset>>block.SectorShift) >> shift)
}

// Outcome turns the status of a request into a SAM status and sense data. shift is log2 of sectors
// per logical block.
func Outcome(req *block.Request, shift uint8) (byte, Data) {
	check := func(c Code) (byte, Data) { return sam.StatusCheckCondition, Data{Code: c} }
	switch req.Status {
	case block.OK:
		return sam.StatusGood, Data{}
	case block.Miscompare:
		return sam.StatusCheckCondition, MiscompareVerify.WithInfo(req.Offset)
	case block.OutOfRange:
		return check(LBAOutOfRange)
	case block.NoSpace:
		return check(AllocationFailed)
	case block.MediumRead:
		return sam.StatusCheckCondition, badBlock(MediumReadError, req, shift)
	case block.MediumWrite:
		return sam.StatusCheckCondition, badBlock(MediumWriteError, req, shift)
	case block.Cancelled:
		return sam.StatusTaskAborted, Data{}
	case block.Gone:
		return check(LUNNotSupported)
	case block.ReadOnly:
		return check(WriteProtected)
	case block.Offline:
		return check(UnitNotReady)
	case block.Resources:
		return sam.StatusBusy, Data{}
	case block.Unsupported:
		return check(InvalidOpcode)
	default: // Hardware, and what this layer does not know
		return check(InternalFailure)
	}
}
