package sense

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sam"
)

func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		in     block.Status
		status byte
		Code   Code
		info   uint64
	}{
		{block.OK, sam.StatusGood, NoSense, 0},
		{block.Miscompare, sam.StatusCheckCondition, 0x0E1D00, 99},
		{block.OutOfRange, sam.StatusCheckCondition, 0x052100, 0},
		{block.NoSpace, sam.StatusCheckCondition, 0x072707, 0},
		{block.MediumRead, sam.StatusCheckCondition, 0x031100, 7}, // sector 40 + 17, in blocks of 8
		{block.MediumWrite, sam.StatusCheckCondition, 0x030C00, 7},
		{block.Hardware, sam.StatusCheckCondition, 0x044400, 0},
		{block.Cancelled, sam.StatusTaskAborted, NoSense, 0},
		{block.Gone, sam.StatusCheckCondition, 0x052500, 0},
		{block.ReadOnly, sam.StatusCheckCondition, 0x072700, 0},
		{block.Resources, sam.StatusBusy, NoSense, 0},
		{block.Unsupported, sam.StatusCheckCondition, 0x052000, 0},
		{block.Status(200), sam.StatusCheckCondition, 0x044400, 0},
	} {
		req := &block.Request{Status: c.in, Offset: 99, Located: true, Range: block.Range{Start: 40, Count: 80}}
		medium := c.in == block.MediumRead || c.in == block.MediumWrite
		if medium {
			req.Offset = 17 * 512
		}
		status, s := Outcome(req, 3)
		if status != c.status || s.Code != c.Code || s.Information != c.info {
			t.Errorf("%v: status %02x sense %06x info %d", c.in, status, s.Code, s.Information)
		}
		if req.Located = false; medium { // what is not known is not said to be the first block
			if _, s = Outcome(req, 3); s.HasInformation {
				t.Errorf("%v: INFORMATION is valid, and says %d", c.in, s.Information)
			}
		}
	}
}
