package scsi

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func FuzzTransportID(f *testing.F) {
	f.Add([]byte("\x45\x00\x00\x10iqn.a:b,i,0x12\x00\x00"))
	f.Add([]byte("\x05\x00\x00\x08iqn.a:b\x00"))
	f.Add(transportID("iqn.2026-01.io.example:a,i,0x800000110000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		port, size, ok := parseTransportID(b)
		if !ok {
			return
		}
		if size > len(b) || size < 8 || !strings.Contains(port, ",i,0x") || strings.ContainsRune(port, 0) {
			t.Fatalf("%q, %d bytes of %d", port, size, len(b))
		}
		// What we say of a port is what we take for it.
		again, n, ok := parseTransportID(transportID(port))
		if !ok || again != port || n%4 != 0 {
			t.Fatalf("%q becomes %q", port, again)
		}
	})
}

func TestTransportIDs(t *testing.T) {
	const good = "\x45\x00\x00\x10iqn.a:B,i,0xAb\x00\x00"
	for _, c := range []struct {
		name, in, port string
	}{
		{"a port", good, "iqn.a:b,i,0x0000000000ab"},
		{"a device", "\x05" + good[1:], ""},
		{"another protocol", "\x40" + good[1:], ""},
		{"cut off", good[:len(good)-1], ""},
		{"an odd length", good[:3] + "\x0F" + good[4:], ""},
		{"no ISID", "\x45\x00\x00\x08iqn.a:b\x00", ""},
		{"an ISID of other signs", good[:17] + "g" + good[18:], ""},
		{"nothing", "", ""},
	} {
		port, _, ok := parseTransportID([]byte(c.in))
		if port != c.port || ok != (c.port != "") {
			t.Errorf("%s: %q %v", c.name, port, ok)
		}
	}
}

// Names are cut and filled by characters, whatever bytes they are made of.
func TestPad(t *testing.T) {
	for _, s := range []string{"", "A", "ARRAYSIM", "ARRAYSIM and more", "Gerät", "ä", "ääääääää", "äääääääää", "\xff\xfe", "\xff23456789"} {
		for _, n := range []int{0, 4, 8, 16} {
			if got, want := string(pad(s, n)), fmt.Sprintf("%-*.*s", n, n, s); got != want {
				t.Errorf("pad(%q, %d) is %q, want %q", s, n, got, want)
			}
		}
	}
}

// clip and split agree, wherever the parts of a list and the cut are.
func TestSplit(t *testing.T) {
	all := []byte("abcdefgh")
	for _, v := range [][][]byte{{all}, {all[:3], all[3:]}, {nil, all[:1], nil, all[1:4], all[4:], nil}} {
		for n := range uint64(len(all) + 1) {
			first, rest := split(v, n)
			if got, want := string(bytes.Join(first, nil)), string(all[:n]); got != want {
				t.Errorf("the first %d of %q are %q", n, v, got)
			}
			if got, want := string(bytes.Join(rest, nil)), string(bytes.Join(clip(v, n, uint64(len(all))-n), nil)); got != want {
				t.Errorf("behind the first %d of %q is %q, want %q", n, v, got, want)
			}
		}
	}
}
