package names

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func FuzzTransportID(f *testing.F) {
	f.Add([]byte("\x45\x00\x00\x18iqn.2026-01.a:b,i,0x12\x00\x00"))
	f.Add([]byte("\x05\x00\x00\x08iqn.a:b\x00"))
	f.Add(TransportID("iqn.2026-01.io.example:a,i,0x800000110000"))
	f.Add([]byte("iqn.a:\u0130\u0130\u0130\u0130\u0130\u0130\u0130\u0130,i,0x1"))
	f.Add(TransportID("iqn.2026-01.a:\u0130,i,0x1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if port, ok := CanonicalPort(string(b)); ok {
			if again, _ := CanonicalPort(port); again != port {
				t.Fatalf("%q becomes %q, and that %q", b, port, again)
			}
		}
		port, size, ok := ParseTransportID(b)
		if !ok {
			return
		}
		if size > len(b) || size < 8 || !strings.Contains(port, ",i,0x") || strings.ContainsRune(port, 0) {
			t.Fatalf("%q, %d bytes of %d", port, size, len(b))
		}
		if len(port) > maxNameLen*3/2+len(isidMark)+isidDigits {
			t.Fatalf("a port of %d bytes", len(port))
		}
		// What we say of a port is what we take for it. In small letters some names are longer than they may be.
		again, n, ok := ParseTransportID(TransportID(port))
		if long := len(port) > maxNameLen+len(isidMark)+isidDigits; !long && !ok || ok && again != port || n%4 != 0 {
			t.Fatalf("%q becomes %q", port, again)
		}
	})
}

func TestTransportIDs(t *testing.T) {
	const good = "\x45\x00\x00\x18iqn.2026-01.a:B,i,0xAb\x00\x00"
	of := func(name string) string { return string(TransportID(name + ",i,0x000000000001")) }
	long := "iqn.2026-01.a:" + strings.Repeat("x", maxNameLen-14)
	for _, c := range []struct {
		name, in, port string
	}{
		{"a port", good, "iqn.2026-01.a:b,i,0x0000000000ab"},
		{"a device", "\x05" + good[1:], ""},
		{"another protocol", "\x40" + good[1:], ""},
		{"cut off", good[:len(good)-1], ""},
		{"an odd length", good[:3] + "\x17" + good[4:], ""},
		{"no ISID", "\x45\x00\x00\x10iqn.2026-01.a:b\x00", ""},
		{"an ISID of other signs", good[:25] + "g" + good[26:], ""},
		{"nothing", "", ""},
		// What is registered is saved: a name is one by which an initiator can log in.
		{"the longest name", of(long), long + ",i,0x000000000001"},
		{"a name that is longer", of(long + "x"), ""},
		{"a name of many pages", of("iqn.2026-01.a:" + strings.Repeat("\x01", 8000)), ""},
		{"a control character", of("iqn.2026-01.a:\x01"), ""},
		{"no UTF-8", of("iqn.2026-01.a:\xff"), ""},
		{"a character that JSON writes as six", of("iqn.2026-01.a:<"), ""},
		{"an ISID in the name", of("iqn.2026-01.a:b,i,0x1"), ""},
		{"a name without a kind", of("a"), ""},
	} {
		port, _, ok := ParseTransportID([]byte(c.in))
		if port != c.port || ok != (c.port != "") {
			t.Errorf("%s: %.80q %v", c.name, port, ok)
		}
	}
	if port, _, ok := ParseTransportID([]byte("\x45\x00\x00\x08,i,0x1\x00\x00")); ok {
		t.Errorf("no name: %q", port)
	}
}

// TestCanonicalPort: the ISID is found in whatever bytes the name has, some of which have lower case of another length.
func TestCanonicalPort(t *testing.T) {
	for in, want := range map[string]string{
		"iqn.a:b,i,0x1": "iqn.a:b,i,0x000000000001", "iqn.a:b,I,0Xab": "iqn.a:b,i,0x0000000000ab", "iqn.a:,i,0x2,i,0x3": "iqn.a:,i,0x2,i,0x000000000003",
		strings.Repeat("\u0130", 9) + ",i,0x1": strings.Repeat("\u0130", 9) + ",i,0x000000000001",
		strings.Repeat("\xff", 9) + ",i,0x1":   strings.Repeat("\xff", 9) + ",i,0x000000000001",
		"":                                     "", ",i,0x1": "", "a,i,0x": "", "a,i,0x1000000000000": "", ",i,0": "", "\u212a,i,0x": "",
	} {
		got, ok := CanonicalPort(in)
		if want == "" {
			want = in
		}
		if got != want || ok != (got != in) {
			t.Errorf("%q becomes %q, %v; want %q", in, got, ok, want)
		}
	}
}

// Names are cut and filled by characters, whatever bytes they are made of.
func TestPad(t *testing.T) {
	for _, s := range []string{"", "A", "ARRAYSIM", "ARRAYSIM and more", "Gerät", "ä", "ääääääää", "äääääääää", "\xff\xfe", "\xff23456789"} {
		for _, n := range []int{0, 4, 8, 16} {
			if got, want := string(Pad(s, n)), fmt.Sprintf("%-*.*s", n, n, s); got != want {
				t.Errorf("pad(%q, %d) is %q, want %q", s, n, got, want)
			}
		}
	}
}

// TestUnitDesignators: every name of a unit fits a CSCD descriptor, names of the same company, and
// differs from all names of another unit.
func TestUnitDesignators(t *testing.T) {
	naa := [16]byte{0x60, 0x12, 0x34, 0x56, 15: 1}
	seen := map[string]bool{}
	for last, serial := range []string{"SERIAL-1", "", "a serial number that is too long"} {
		naa[15] = byte(last)
		list := UnitDesignators(naa, serial, "ARRAYSIM")
		if len(list) != 4 {
			t.Fatalf("%d names", len(list))
		}
		for _, d := range list {
			wire := d.AppendTo(nil, true)
			if key := string(wire); len(d.ID) > 20 || int(wire[3]) != len(d.ID) || wire[1]>>4 != 0 || seen[key] {
				t.Errorf("serial %q: name % x", serial, wire)
			} else {
				seen[key] = true
			}
		}
		if !bytes.Equal(list[0].ID, naa[:]) {
			t.Errorf("the first name is % x", list[0].ID)
		}
		if id := string(list[1].ID); !strings.HasPrefix(id, "ARRAYSIM") || (serial == "SERIAL-1") != (id == "ARRAYSIMSERIAL-1") {
			t.Errorf("serial %q: the T10 name is %q", serial, id)
		}
		if eui := list[2].ID; !bytes.Equal(eui[:3], []byte{0x01, 0x23, 0x45}) {
			t.Errorf("the EUI-64 name is % x, not of the company 012345h", eui)
		}
		if list[3].ID[0]>>4 != 3 {
			t.Errorf("the NAA-3 name is % x", list[3].ID)
		}
	}
}

// TestPortDesignators: only the names of iSCSI say that they are, and a fabric's port has none.
func TestPortDesignators(t *testing.T) {
	if got := len(PortDesignators("iqn.a:t", 1, 2, false)); got != 2 {
		t.Errorf("a port of a fabric has %d names", got)
	}
	list := PortDesignators("iqn.a:t", 0x10, 2, true)
	if got := strings.TrimRight(string(list[2].ID), "\x00"); got != "iqn.a:t,t,0x0010" || len(list) != 4 {
		t.Errorf("%d names, that of the port is %q", len(list), got)
	}
	for _, d := range list {
		if wire := d.AppendTo(nil, true); wire[0]>>4 != protocolISCSI || wire[1]&designatorPIV == 0 {
			t.Errorf("% x does not say that it is one of iSCSI", wire)
		}
		if wire := d.AppendTo(nil, false); wire[0]>>4 != 0 || wire[1]&designatorPIV != 0 {
			t.Errorf("% x says that it is one of iSCSI", wire)
		}
	}
}
