package scsi

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

func TestSenseEncoding(t *testing.T) {
	for _, c := range []struct {
		name              string
		s                 sense
		fixed, descriptor string
	}{
		{"code only", sense{code: invalidOpcode},
			"7000 05 00000000 0a 00000000 2000 00 000000", "72052000 00000000"},
		{"information", lbaOutOfRange.withInfo(0x1234),
			"f000 05 00001234 0a 00000000 2100 00 000000", "72052100 0000000c 000a8000 0000000000001234"},
		{"information that fixed format cannot hold", lbaOutOfRange.withInfo(1 << 32),
			"7000 05 00000000 0a 00000000 2100 00 000000", "72052100 0000000c 000a8000 0000000100000000"},
		{"pointer into the CDB", inCDB(13, 7),
			"7000 05 00000000 0a 00000000 2400 00 cf000d", "72052400 00000008 02060000 cf000d00"},
		{"pointer into the list", inList(invalidFieldInList, 0x102),
			"7000 05 00000000 0a 00000000 2600 00 800102", "72052600 00000008 02060000 80010200"},
		{"forwarded from the destination", sense{code: copyDeviceFailure, specific: 7, hasSpecific: true, from: 2, fwdStatus: 2, fwd: writeProtected},
			"7000 0a 00000000 1d 00120007 0d01 00 000000 02 7000 07 00000000 0a 00000000 2700 00 000000",
			"720a0d01 00000018 010a0000 0000000000000007 0c0a 0202 72072700 00000000"},
		{"forwarded status of the source", sense{code: copyDeviceFailure, hasSpecific: true, from: 1, fwdStatus: StatusReservationConflict},
			"7000 0a 00000000 0b 12000000 0d01 00 000000 18",
			"720a0d01 00000010 010a0000 0000000000000000 0c02 0118"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var buf [64]byte
			for i, want := range []string{c.fixed, c.descriptor} {
				want = strings.ReplaceAll(want, " ", "")
				if got := hex.EncodeToString(c.s.encode(buf[:], i == 1)); got != want {
					t.Errorf("descriptor=%v\n got %s\nwant %s", i == 1, got, want)
				}
			}
		})
	}
}

func TestOutcome(t *testing.T) {
	u := &Unit{shift: 3}
	for _, c := range []struct {
		in     block.Status
		status byte
		code   code
		info   uint64
	}{
		{block.OK, StatusGood, noSense, 0},
		{block.Miscompare, StatusCheckCondition, 0x0E1D00, 99},
		{block.OutOfRange, StatusCheckCondition, 0x052100, 0},
		{block.NoSpace, StatusCheckCondition, 0x072707, 0},
		{block.MediumRead, StatusCheckCondition, 0x031100, 7}, // sector 40 + 17, in blocks of 8
		{block.MediumWrite, StatusCheckCondition, 0x030C00, 7},
		{block.Hardware, StatusCheckCondition, 0x044400, 0},
		{block.Cancelled, StatusTaskAborted, noSense, 0},
		{block.Gone, StatusCheckCondition, 0x052500, 0},
		{block.ReadOnly, StatusCheckCondition, 0x072700, 0},
		{block.Resources, StatusBusy, noSense, 0},
		{block.Unsupported, StatusCheckCondition, 0x052000, 0},
		{block.Status(200), StatusCheckCondition, 0x044400, 0},
	} {
		req := &block.Request{Status: c.in, Offset: 99, Located: true, Range: block.Range{Start: 40, Count: 80}}
		medium := c.in == block.MediumRead || c.in == block.MediumWrite
		if medium {
			req.Offset = 17 * 512
		}
		status, s := u.outcome(req)
		if status != c.status || s.code != c.code || s.info != c.info {
			t.Errorf("%v: status %02x sense %06x info %d", c.in, status, s.code, s.info)
		}
		if req.Located = false; medium { // what is not known is not said to be the first block
			if _, s = u.outcome(req); s.hasInfo {
				t.Errorf("%v: INFORMATION is valid, and says %d", c.in, s.info)
			}
		}
	}
}

// TestTable checks what init cannot know: that every command is found by its own
// usage data, and is counted as what it is.
func TestTable(t *testing.T) {
	for _, c := range table {
		cdb := make([]byte, len(c.usage))
		cdb[0] = c.op
		switch {
		case c.op == opVariable:
			cdb[8], cdb[9] = byte(c.sa>>8), byte(c.sa)
			if c.usage[8] != cdb[8] || c.usage[9] != cdb[9] || int(c.usage[7]) != len(c.usage)-8 {
				t.Errorf("%s: usage data of the service action", c.name)
			}
		case c.sa != none:
			cdb[1] = byte(c.sa)
		}
		if lookup(cdb) != c {
			t.Errorf("%s: not found by its CDB", c.name)
		}
		if c.flags&writes != 0 && (c.kind == opOther || c.kind == opRead) {
			t.Errorf("%s: a write counted as %s", c.name, opNames[c.kind])
		}
	}
	if len(table) < 50 {
		t.Errorf("only %d commands", len(table))
	}
}
