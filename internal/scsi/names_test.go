package scsi_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestISIDsCompareAsNumbers: 0x23D and 0x00023d are one ISID, in a TransportID as in the name of
// the port that logs in.
func TestISIDsCompareAsNumbers(t *testing.T) {
	const host = "iqn.2026-11.org.example:host-c"
	for _, row := range []struct {
		login, listed string
		same          bool
	}{
		{host + ",i,0x00023d000001", host + ",i,0x00023d000001", true},
		{host + ",i,0x00023d000001", host + ",i,0x23D000001", true},
		{host + ",i,0x00023d000001", host + ",i,0X00023D000001", true},
		{host + ",i,0x1", host + ",i,0x000000000001", true},
		{host + ",i,0x00023d000001", host + ",i,0x23d000002", false},
	} {
		r := newRig(t)
		c := r.tg.OpenNexus(host, row.login, 1)
		for range 3 {
			r.run(c, scsitest.Thin, make([]byte, 6), nil)
		}
		name := append([]byte(row.listed), 0)
		for len(name)%4 != 0 {
			name = append(name, 0)
		}
		list := make([]byte, 28, 64)
		binary.BigEndian.PutUint64(list[8:], 0xAA)
		list[20] = 0x08 // SPEC_I_PT
		binary.BigEndian.PutUint32(list[24:], uint32(4+len(name)))
		list = append(append(list, 0x45, 0, 0, byte(len(name))), name...)
		_, got := r.run(r.a, scsitest.Thin, []byte{0x5F, 0, 0, 0, 0, 0, 0, 0, byte(len(list)), 0}, list)
		r.wants("REGISTER", got, 0)
		list = append(binary.BigEndian.AppendUint64(nil, 0xAA), make([]byte, 16)...)
		_, got = r.run(r.a, scsitest.Thin, []byte{0x5F, 1, 5, 0, 0, 0, 0, 0, 24, 0}, list)
		r.wants("RESERVE", got, 0)
		// Registrants only: whoever is registered may write.
		_, got = r.run(c, scsitest.Thin, scsitest.CDB(0x2A, 0, 1), make([]byte, 512))
		if want := map[bool]int{true: 0, false: scsi.StatusReservationConflict << 24}[row.same]; got != want {
			t.Errorf("%s, listed as %s: a write ends with %08x, want %08x", row.login, row.listed, got, want)
		}
	}
}

// portsTarget is a target with n ports, in a group each; the second is preferred.
func portsTarget(t *testing.T, n int) *rig {
	r := &rig{TB: t, exec: &block.Virtual{}}
	opt := scsi.Options{Name: "iqn.2026-11.org.example:array", Exec: r.exec}
	for i := range n {
		opt.Ports = append(opt.Ports, scsi.Port{ID: uint16(1 + i), Group: uint16(1 + i), Preferred: i == 1})
	}
	r.tg = scsi.NewTarget(opt)
	u := r.tg.AddUnit(scsitest.NewDevice(r.exec, scsitest.Ready(1, scsitest.Sectors, block.SectorSize, true)), scsi.UnitOptions{})
	if err := r.tg.Map("", 0, u); err != nil {
		t.Fatal(err)
	}
	r.a = r.login(initiatorA)
	return r
}

// TestPortsShow: MULTIP says that there are several ports, PREF which of their groups is preferred.
func TestPortsShow(t *testing.T) {
	for n := 1; n <= 3; n++ {
		r := portsTarget(t, n)
		k, c := r.run(r.a, 0, []byte{0x12, 0, 0, 0, 96, 0}, nil)
		r.wants("INQUIRY", c, 0)
		if multip := bytes.Join(k.DataIn, nil)[6]&0x10 != 0; multip != (n > 1) {
			t.Errorf("%d ports: MULTIP is %v", n, multip)
		}
		k, c = r.run(r.a, 0, []byte{0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, nil)
		r.wants("REPORT TARGET PORT GROUPS", c, 0)
		d := bytes.Join(k.DataIn, nil)[4:]
		for i := range n {
			if pref := d[12*i]&0x80 != 0; pref != (i == 1) || d[12*i]&0x0F != 0 {
				t.Errorf("%d ports: group %d says %02x", n, 1+i, d[12*i])
			}
		}
	}
}

// TestFabricNexus: behind a fabric whose ports are not the target's own, a unit names itself and no
// port of iSCSI.
func TestFabricNexus(t *testing.T) {
	r := portsTarget(t, 2)
	n := r.tg.OpenFabricNexus("fabric/gold")
	r.run(n, 0, make([]byte, 6), nil)
	page := func(n *scsi.Nexus) []byte {
		k, c := r.run(n, 0, []byte{0x12, 1, 0x83, 4, 0, 0}, nil)
		r.wants("VPD 83h", c, 0)
		return bytes.Join(k.DataIn, nil)
	}
	if own := page(r.a); !bytes.Contains(own, []byte("iqn.2026-11.org.example:array,t,0x0001\x00")) {
		t.Errorf("the portal's own names are gone: %q", own)
	}
	got := page(n)
	units := 0
	for d := got[4:]; len(d) >= 4; d = d[4+int(d[3]):] {
		if d[1]&0x80 != 0 {
			t.Errorf("a designator claims protocol %d: % x", d[0]>>4, d[:4+int(d[3])])
		}
		if d[1]&0x30 == 0 {
			units++
		}
	}
	if units != 4 || bytes.Contains(got, []byte("iqn.")) {
		t.Errorf("%d names of the unit in %q", units, got)
	}
}
