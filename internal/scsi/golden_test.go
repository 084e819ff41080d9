package scsi_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// hexDump is data as lines of 16 bytes, the form that sg_vpd --inhex= reads.
func hexDump(comment string, data []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", comment)
	for i := 0; i < len(data); i += 16 {
		row := data[i:min(i+16, len(data))]
		fmt.Fprintf(&b, "% -47s", fmt.Sprintf("% x", row))
		text := bytes.Map(func(r rune) rune {
			if r < ' ' || r > '~' || r == '#' {
				return '.'
			}
			return r
		}, row)
		fmt.Fprintf(&b, "  # %02x  %s\n", i, text)
	}
	return b.String()
}

// parseHex is the inverse of hexDump.
func parseHex(s string) ([]byte, error) {
	var digits strings.Builder
	for line := range strings.Lines(s) {
		data, _, _ := strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(data), ""))
	}
	return hex.DecodeString(digits.String())
}

// TestGolden compares INQUIRY and other describing data with testdata/inquiry.
func TestGolden(t *testing.T) {
	exec := &block.Virtual{}
	tg, _ := scsitest.NewTarget(exec)
	s := &scsitest.Session{TB: t, Open: func(name string) scsitest.Initiator {
		return &direct{t, exec, tg.OpenNexus(name, name+",i,0x00023d000001", 1)}
	}}
	s.Initiator = s.Login(initiatorA)
	evpd := func(page byte) []byte { return []byte{0x12, 1, page, 2, 0, 0} }
	plain := []byte{0x12, 0, 0, 2, 0, 0}
	for _, c := range []struct {
		file, what string
		lun        uint64
		cdb        []byte
	}{
		{"standard", "Standard INQUIRY data (SPC-4 6.4.2)", scsitest.Thin, plain},
		{"standard-removable", "Standard INQUIRY data of a removable unit", scsitest.Removable, plain},
		{"standard-no-unit", "Standard INQUIRY data of a LUN without a unit", 77, plain},
		{"vpd-00", "Supported VPD Pages", scsitest.Thin, evpd(0x00)},
		{"vpd-80", "Unit Serial Number", scsitest.Thin, evpd(0x80)},
		{"vpd-83", "Device Identification", scsitest.Thin, evpd(0x83)},
		{"vpd-86", "Extended INQUIRY Data", scsitest.Thin, evpd(0x86)},
		{"vpd-8f", "Third-party Copy", scsitest.Thin, evpd(0x8F)},
		{"vpd-b0", "Block Limits, 512-byte blocks", scsitest.Thin, evpd(0xB0)},
		{"vpd-b0-4096", "Block Limits, 4096-byte blocks", scsitest.Large, evpd(0xB0)},
		{"vpd-b0-thick", "Block Limits of a unit that is not thin", scsitest.Thick, evpd(0xB0)},
		{"vpd-b1", "Block Device Characteristics", scsitest.Thin, evpd(0xB1)},
		{"vpd-b2", "Logical Block Provisioning", scsitest.Thin, evpd(0xB2)},
		{"vpd-b2-thick", "Logical Block Provisioning of a unit that is not thin", scsitest.Thick, evpd(0xB2)},
		{"readcap16", "READ CAPACITY(16)", scsitest.Thin, scsitest.CDB16(0x9E, 0x10, 32)},
		{"mode-current", "MODE SENSE(10), all pages, current values", scsitest.Thin, []byte{0x5A, 0, 0x3F, 0, 0, 0, 0, 2, 0, 0}},
		{"mode-changeable", "MODE SENSE(10), all pages, changeable values", scsitest.Thin, []byte{0x5A, 0, 0x7F, 0, 0, 0, 0, 2, 0, 0}},
		{"copy-parameters", "RECEIVE COPY OPERATING PARAMETERS", scsitest.Thin, scsitest.CDB16(0x84, 3, 512)},
	} {
		t.Run(c.file, func(t *testing.T) {
			r := s.Do(scsitest.Command{LUN: c.lun, CDB: c.cdb, In: 512})
			if r.Status != 0 {
				t.Fatalf("status %02x sense %x", r.Status, r.Sense)
			}
			got := hexDump(c.what, r.In)
			if back, err := parseHex(got); err != nil || !bytes.Equal(back, r.In) {
				t.Fatalf("the dump does not read back: %v", err)
			}
			path := filepath.Join("..", "..", "testdata", "inquiry", c.file+".hex")
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("differs from %s (-rewrite renews it)\n got\n%s\nwant\n%s", path, got, want)
			}
		})
	}
}
