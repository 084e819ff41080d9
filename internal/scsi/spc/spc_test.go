package spc

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copymgr"
	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// still is a device to which nothing may go: primary commands do not.
type still struct{ t testing.TB }

func (still) Info() block.Info {
	return block.Info{Name: "disk", Serial: "S1", Sectors: 1 << 20, BlockSize: 512, Thin: true}
}
func (d still) Submit(r []*block.Request) { d.t.Errorf("%d requests for the device", len(r)) }
func (still) Cancel(*block.Request)       {}
func (still) Notify(func(e block.Event))  {}

type heap struct{}

func (heap) Get(n int) []byte { return make([]byte, n) }

func row(op byte, sa, n int, run func(*server.Task)) *server.Command {
	usage := bytes.Repeat([]byte{0xFF}, n)
	if usage[0] = op; sa != server.NoAction {
		usage[1] = byte(sa)
	}
	return &server.Command{Name: "test", Op: op, ServiceAction: sa, Usage: usage, Run: run, Flags: server.PassReserve}
}

// table is what the targets of these tests serve, and nothing else.
func table() *server.Commands {
	return server.NewCommands([]*server.Command{
		row(0x12, server.NoAction, 6, Inquiry), row(0x16, server.NoAction, 6, Reserve), row(0x17, server.NoAction, 6, Release),
		row(0x5E, 1, 10, ReadReservation), row(0x5F, PRRegister, 10, PersistentReserveOut), row(0x5F, PRReserve, 10, PersistentReserveOut),
		row(0x5F, PRPreempt, 10, PersistentReserveOut), row(0xA0, server.NoAction, 12, ReportLUNs), row(0xA3, 0x0C, 12, ReportOpcodes),
	}, []server.VPD{{Code: 0x00, Add: SupportedPage}, {Code: 0x80, Add: SerialNumberPage}}, WithoutUnit)
}

type rig struct {
	t    testing.TB
	exec *block.Virtual
	tg   *server.Target
	u    *server.Unit
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, exec: &block.Virtual{}}
	r.tg = server.NewTarget(server.Options{Name: "iqn.2026-11.org.example:array", Vendor: "VENDOR", Exec: r.exec}, table(), func(t *server.Target) server.CopyManager { return copymgr.NewManager(t) })
	r.u = r.tg.AddUnit(still{t}, server.UnitOptions{})
	if err := r.tg.Map("", 3, r.u); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) login(name string) *server.Nexus {
	n := r.tg.OpenNexus(name, name+",i,0x1", 1)
	n.ITLs()[3].Attentions().Clear(1<<32 - 1)
	return n
}

// send carries out a command and returns its Data-In, its status, and its sense code.
func (r *rig) send(n *server.Nexus, lun uint64, cdb, out []byte) (in []byte, status byte, code int) {
	r.t.Helper()
	ended := false
	t := &server.Task{LUN: lun << 48, CDB: cdb, MaxIn: 4096, Bufs: heap{}, Done: func(*server.Task) { ended = true }}
	if out != nil {
		t.DataOut = [][]byte{out[:len(out)/3], out[len(out)/3:]}
	}
	n.Submit([]*server.Task{t})
	if r.exec.Run(); !ended {
		r.t.Fatalf("cdb % x does not end", cdb)
	}
	if t.Status == sam.StatusCheckCondition {
		code = int(t.Sense[2])<<16 | int(t.Sense[12])<<8 | int(t.Sense[13])
	}
	return bytes.Join(t.DataIn, nil), t.Status, code
}

// TestTheTableIsWhatIsServed: what is asked of supported commands and pages is answered from the
// table that the target was given.
func TestTheTableIsWhatIsServed(t *testing.T) {
	r := newRig(t)
	n := r.login("a")
	all, _, _ := r.send(n, 3, []byte{0xA3, 0x0C, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0}, nil)
	if rows := len(table().Rows()); len(all) != 4+8*rows || int(binary.BigEndian.Uint32(all)) != 8*rows {
		t.Errorf("%d bytes tell of %d commands", len(all), rows)
	}
	one, _, _ := r.send(n, 3, []byte{0xA3, 0x0C, 2, 0x5F, 0, PRPreempt, 0, 0, 16, 0, 0, 0}, nil)
	if len(one) != 14 || one[1] != supportStandard || one[4] != 0x5F || one[5] != PRPreempt {
		t.Errorf("PREEMPT is % x", one)
	}
	if none, _, _ := r.send(n, 3, []byte{0xA3, 0x0C, 2, 0x5F, 0, PRClear, 0, 0, 16, 0, 0, 0}, nil); len(none) != 4 || none[1] != supportNo {
		t.Errorf("CLEAR, which is not in the table, is % x", none)
	}
	if pages, _, _ := r.send(n, 3, []byte{0x12, 1, 0, 0, 255, 0}, nil); !bytes.Equal(pages, []byte{0, 0, 0, 2, 0x00, 0x80}) {
		t.Errorf("pages % x", pages)
	}
	if serial, _, _ := r.send(n, 3, []byte{0x12, 1, 0x80, 0, 255, 0}, nil); string(serial[4:]) != "S1" {
		t.Errorf("serial number % x", serial)
	}
	if _, _, code := r.send(n, 3, []byte{0x12, 1, 0x83, 0, 255, 0}, nil); code != 0x052400 {
		t.Errorf("a page that is not in the table: %06x", code)
	}
	if _, _, code := r.send(n, 3, make([]byte, 6), nil); code != 0x052000 {
		t.Errorf("a command that is not in the table: %06x", code)
	}
}

// TestWithoutUnit: what a LUN without a unit answers.
func TestWithoutUnit(t *testing.T) {
	r := newRig(t)
	n := r.login("a")
	if in, _, _ := r.send(n, 0, []byte{0x12, 0, 0, 0, 96, 0}, nil); len(in) != 96 || in[0] != 0x7F || string(in[8:16]) != "VENDOR  " {
		t.Errorf("INQUIRY: % x", in)
	}
	if in, _, _ := r.send(n, 7, []byte{0x03, 0, 0, 0, 64, 0}, nil); len(in) != 18 || in[12] != 0x25 {
		t.Errorf("REQUEST SENSE: % x", in)
	}
	if in, _, _ := r.send(n, 0, []byte{0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, nil); !bytes.Equal(in, append([]byte{0, 0, 0, 8, 0, 0, 0, 0}, names.AppendLUN(nil, 3)...)) {
		t.Errorf("REPORT LUNS: % x", in)
	}
	if _, _, code := r.send(n, 7, []byte{0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, nil); code != 0x052500 {
		t.Errorf("REPORT LUNS to another LUN: %06x", code)
	}
	if _, _, code := r.send(n, 7, []byte{0x12, 1, 0, 0, 96, 0}, nil); code != 0x052500 {
		t.Errorf("a page of INQUIRY: %06x", code)
	}
}

// TestReservations: reservations of SPC-2 and persistent ones exclude each other, and what a
// PREEMPT takes is told to who had it.
func TestReservations(t *testing.T) {
	r := newRig(t)
	a, b := r.login("a"), r.login("b")
	pr := func(n *server.Nexus, sa, kind byte, key, action uint64) byte {
		list := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, key), action)
		_, status, _ := r.send(n, 3, []byte{0x5F, sa, kind, 0, 0, 0, 0, 0, prListLen, 0}, append(list, make([]byte, 8)...))
		return status
	}
	reserve, release := []byte{0x16, 0, 0, 0, 0, 0}, []byte{0x17, 0, 0, 0, 0, 0}
	spc2 := func(n *server.Nexus, cdb []byte) byte { _, status, _ := r.send(n, 3, cdb, nil); return status }
	for i, c := range []struct {
		got, want byte
	}{
		{spc2(a, reserve), sam.StatusGood},
		{spc2(b, reserve), sam.StatusReservationConflict},
		{pr(a, PRRegister, 0, 0, 1), sam.StatusReservationConflict},
		{spc2(a, release), sam.StatusGood},
		{pr(a, PRRegister, 0, 0, 1), sam.StatusGood},
		{spc2(b, reserve), sam.StatusReservationConflict},
		{pr(b, PRReserve, byte(reservation.ExclusiveAccess), 0, 0), sam.StatusReservationConflict},
		{pr(b, PRRegister, 0, 0, 2), sam.StatusGood},
		{pr(b, PRReserve, byte(reservation.ExclusiveAccess), 2, 0), sam.StatusGood},
		{pr(a, PRReserve, byte(reservation.ExclusiveAccess), 1, 0), sam.StatusReservationConflict},
		{pr(a, PRPreempt, byte(reservation.WriteExclusive), 1, 2), sam.StatusGood},
	} {
		if c.got != c.want {
			t.Errorf("command %d: status %02x, want %02x", i, c.got, c.want)
		}
	}
	if in, _, _ := r.send(a, 3, []byte{0x5E, 1, 0, 0, 0, 0, 0, 1, 0, 0}, nil); len(in) != 24 || in[15] != 1 || in[21] != byte(reservation.WriteExclusive) {
		t.Errorf("the reservation is % x", in)
	}
	if ua := *b.ITLs()[3].Attentions(); ua != sense.UARegistrationsPreempted {
		t.Errorf("who was preempted is told %x", ua)
	}
}

// TestTransportIDLists: the list of a REGISTER with SPEC_I_PT=1, right and wrong.
func TestTransportIDLists(t *testing.T) {
	list := func(extra int, ids ...string) []byte {
		b := make([]byte, prListLen+4)
		for _, id := range ids {
			b = append(b, names.TransportID(id)...)
		}
		binary.BigEndian.PutUint32(b[prListLen:], uint32(len(b)-prListLen-4+extra))
		return b
	}
	const x, y = "iqn.2026-01.a:x,i,0x000000000001", "iqn.2026-01.a:y,i,0x000000000001"
	for _, c := range []struct {
		name  string
		b     []byte
		ports int
		why   sense.Code
	}{
		{"none", list(0), 0, 0},
		{"two", list(0, x, y), 2, 0},
		{"one twice", list(0, x, x), 1, 0},
		{"a length that is too large", list(4, x), 0, sense.ParameterListLength},
		{"no length", make([]byte, prListLen), 0, sense.ParameterListLength},
		{"no port", list(0, x, "iqn.2026-01.a:y"), 0, sense.InvalidFieldInList},
		{"a name that is too long", list(0, x, strings.Repeat("x", 240)+y), 0, sense.InvalidFieldInList},
	} {
		ports, s := transportIDs(c.b)
		if len(ports) != c.ports || s.Code != c.why {
			t.Errorf("%s: %q, sense %06x", c.name, ports, s.Code)
		}
	}
}
