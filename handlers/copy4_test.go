package handlers

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi/scsitest"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// copyList4 is copyList for EXTENDED COPY(LID4).
func copyList4(src, dst []byte, from, to, blocks int) (cdb, list []byte) {
	_, lid1 := copyList(src, dst, from, to, blocks)
	list = scsitest.CopyList4(1, 0, 0, [][]byte{lid1[16:48], lid1[48:80]}, [][]byte{lid1[80:]})
	return scsitest.CopyCDB4(list), list
}

// TestReservationsOfOthersLID4 is TestReservationsOfOthers for the other list format.
func TestReservationsOfOthersLID4(t *testing.T) {
	a := NewArray(newHost(t), nil)
	x := mustOpen(t, a, "gold/x", tcmutest.Options{})
	y := mustOpen(t, a, "gold/y", tcmutest.Options{})
	xn, yn := x.naa(), y.naa()
	data := bytes.Repeat([]byte{1}, 4096)
	x.write(0, data)
	cdb, list := copyList4(xn, yn, 0, 100, 8)
	x.do(cdb, list, 0)
	y.holds(100, data)
	y.SetAttribute("pr/res_holder", "SPC-3 Reservation: iSCSI Initiator: iqn.2026-01.org.example:a")
	y.SetAttribute("pr/res_pr_type", "SPC-3 Reservation Type: Write Exclusive Access")
	x.fails(0x0A, 0x0D01, cdb, list, 0)
	cdb, list = copyList4(yn, xn, 0, 100, 8) // reading it is allowed
	x.do(cdb, list, 0)
	x.close()
	y.close()
}

// TestTokens: a token reaches the units of its copy domain, and no others.
func TestTokens(t *testing.T) {
	a := NewArray(newHost(t), nil)
	x := mustOpen(t, a, "gold/x", tcmutest.Options{})
	y := mustOpen(t, a, "gold/y", tcmutest.Options{})
	z := mustOpen(t, a, "silver/z", tcmutest.Options{})
	data := bytes.Repeat([]byte{7}, 4096)
	x.write(8, data)
	list := scsitest.PopulateList(0, 0, 0, scsitest.Extent{LBA: 8, Blocks: 8})
	x.do(scsitest.TokenCDB(0x10, 5, list), list, 0)
	info := x.do(scsitest.ReceiveCDB(0x84, 7, 5), nil, 1024)
	if n := binary.BigEndian.Uint32(info); n != 546 {
		t.Fatalf("token information of %d bytes", n)
	}
	token := slices.Clone(info[38 : 38+512])
	list = scsitest.WriteTokenList(0, 0, token, scsitest.Extent{LBA: 200, Blocks: 8})
	y.do(scsitest.TokenCDB(0x11, 6, list), list, 0)
	y.holds(200, data)
	z.fails(0x05, 0x2304, scsitest.TokenCDB(0x11, 6, list), list, 0)
	x.close()
	y.close()
	z.close()
}
