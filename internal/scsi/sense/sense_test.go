package sense

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi/sam"
)

func TestSenseEncoding(t *testing.T) {
	for _, c := range []struct {
		name              string
		s                 Data
		fixed, descriptor string
	}{
		{"code only", Data{Code: InvalidOpcode},
			"7000 05 00000000 0a 00000000 2000 00 000000", "72052000 00000000"},
		{"information", LBAOutOfRange.WithInfo(0x1234),
			"f000 05 00001234 0a 00000000 2100 00 000000", "72052100 0000000c 000a8000 0000000000001234"},
		{"information that fixed format cannot hold", LBAOutOfRange.WithInfo(1 << 32),
			"7000 05 00000000 0a 00000000 2100 00 000000", "72052100 0000000c 000a8000 0000000100000000"},
		{"pointer into the CDB", InCDB(13, 7),
			"7000 05 00000000 0a 00000000 2400 00 cf000d", "72052400 00000008 02060000 cf000d00"},
		{"pointer into the list", InList(InvalidFieldInList, 0x102),
			"7000 05 00000000 0a 00000000 2600 00 800102", "72052600 00000008 02060000 80010200"},
		{"forwarded from the destination", Data{Code: CopyDeviceFailure, Specific: 7, HasSpecific: true, ForwardedFrom: 2, ForwardedStatus: 2, Forwarded: WriteProtected},
			"7000 0a 00000000 1d 00120007 0d01 00 000000 02 7000 07 00000000 0a 00000000 2700 00 000000",
			"720a0d01 00000018 010a0000 0000000000000007 0c0a 0202 72072700 00000000"},
		{"forwarded status of the source", Data{Code: CopyDeviceFailure, HasSpecific: true, ForwardedFrom: 1, ForwardedStatus: sam.StatusReservationConflict},
			"7000 0a 00000000 0b 12000000 0d01 00 000000 18",
			"720a0d01 00000010 010a0000 0000000000000000 0c02 0118"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var buf [64]byte
			for i, want := range []string{c.fixed, c.descriptor} {
				want = strings.ReplaceAll(want, " ", "")
				if got := hex.EncodeToString(c.s.Encode(buf[:], i == 1)); got != want {
					t.Errorf("descriptor=%v\n got %s\nwant %s", i == 1, got, want)
				}
			}
		})
	}
}
