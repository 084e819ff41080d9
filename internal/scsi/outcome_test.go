package scsi

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

func TestOutcome(t *testing.T) {
	u := &Unit{shift: 3}
	for _, c := range []struct {
		in     block.Status
		status byte
		Code   sense.Code
		info   uint64
	}{
		{block.OK, sense.StatusGood, sense.NoSense, 0},
		{block.Miscompare, sense.StatusCheckCondition, 0x0E1D00, 99},
		{block.OutOfRange, sense.StatusCheckCondition, 0x052100, 0},
		{block.NoSpace, sense.StatusCheckCondition, 0x072707, 0},
		{block.MediumRead, sense.StatusCheckCondition, 0x031100, 7}, // sector 40 + 17, in blocks of 8
		{block.MediumWrite, sense.StatusCheckCondition, 0x030C00, 7},
		{block.Hardware, sense.StatusCheckCondition, 0x044400, 0},
		{block.Cancelled, sense.StatusTaskAborted, sense.NoSense, 0},
		{block.Gone, sense.StatusCheckCondition, 0x052500, 0},
		{block.ReadOnly, sense.StatusCheckCondition, 0x072700, 0},
		{block.Resources, sense.StatusBusy, sense.NoSense, 0},
		{block.Unsupported, sense.StatusCheckCondition, 0x052000, 0},
		{block.Status(200), sense.StatusCheckCondition, 0x044400, 0},
	} {
		req := &block.Request{Status: c.in, Offset: 99, Located: true, Range: block.Range{Start: 40, Count: 80}}
		medium := c.in == block.MediumRead || c.in == block.MediumWrite
		if medium {
			req.Offset = 17 * 512
		}
		status, s := u.outcome(req)
		if status != c.status || s.Code != c.Code || s.Information != c.info {
			t.Errorf("%v: status %02x sense %06x info %d", c.in, status, s.Code, s.Information)
		}
		if req.Located = false; medium { // what is not known is not said to be the first block
			if _, s = u.outcome(req); s.HasInformation {
				t.Errorf("%v: INFORMATION is valid, and says %d", c.in, s.Information)
			}
		}
	}
}
