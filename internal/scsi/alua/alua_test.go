package alua

import (
	"bytes"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

func three() Groups {
	return New([]Port{{ID: 1, Group: 7}, {ID: 2, Group: 8, Preferred: true}, {ID: 3, Group: 7}})
}

func TestGroups(t *testing.T) {
	all := three()
	if got := all.Ports(); !slices.Equal(got, []uint16{1, 3, 2}) || !all.Several() {
		t.Errorf("ports %v", got)
	}
	for port, want := range map[uint16]uint16{1: 7, 2: 8, 3: 7, 4: 7} {
		if got := all.OfPort(port).ID; got != want {
			t.Errorf("port %d is in group %d, want %d", port, got, want)
		}
	}
	if all.Group(1) != nil || all.Group(8) != all[1] {
		t.Error("groups are not found by their numbers")
	}
	if all := New(nil); all.Several() || all.OfPort(1).ID != 1 {
		t.Errorf("without ports there are %v", all.Ports())
	}
	if all := New([]Port{{ID: 1, Group: 1}, {ID: 2, Group: 1}}); !all.Several() {
		t.Error("two ports of one group are not several")
	}
}

func TestReport(t *testing.T) {
	all := three()
	if g := all.Group(8); !g.Set(Standby, Implicitly) || g.Set(Standby, ByCommand) {
		t.Error("a change is not told from none")
	}
	groups := []byte{0, 0x0F, 0, 7, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 0x82, 0x0F, 0, 8, 0, 2, 0, 1, 0, 0, 0, 2}
	for f, head := range [][]byte{{0, 0, 0, byte(len(groups))}, {0, 0, 0, byte(4 + len(groups)), 0x10, 0, 0, 0}} {
		b, ok := all.Report(byte(f))
		if want := append(head, groups...); !ok || !bytes.Equal(b, want) {
			t.Errorf("format %d:\n% x, want\n% x", f, b, want)
		}
	}
	if _, ok := all.Report(2); ok {
		t.Error("there is a format 2")
	}
}

func TestParse(t *testing.T) {
	set := func(pairs ...byte) []byte {
		b := make([]byte, 4)
		for i := 0; i < len(pairs); i += 2 {
			b = append(b, pairs[i], 0, 0, pairs[i+1])
		}
		return b
	}
	for _, c := range []struct {
		name  string
		list  []byte
		wants int
		at    int // where it is wrong
	}{
		{"nothing", set(), 0, 0},
		{"both", set(1, 7, 3, 8), 2, 0},
		{"one stays reachable", set(2, 7), 1, 0},
		{"none stays reachable", set(2, 7, 3, 8), 0, 4},
		{"the last word counts", set(2, 8, 2, 7, 1, 7), 3, 0},
		{"a state that does not exist", set(1, 7, 4, 8), 0, 8},
		{"a group that does not exist", set(1, 7, 1, 9), 0, 10},
	} {
		all := three()
		got, s := all.Parse(c.list)
		if len(got) != c.wants || all[0].State()|all[1].State() != Optimized {
			t.Errorf("%s: %d wishes, states %d and %d", c.name, len(got), all[0].State(), all[1].State())
		}
		if want := sense.InList(sense.InvalidFieldInList, c.at); c.at > 0 && s != want || c.at == 0 && s.Code != sense.NoSense {
			t.Errorf("%s: sense %+v", c.name, s)
		}
	}
	for n, want := range map[uint32]bool{0: false, 3: false, 4: true, 7: false, 8: true, 4 + 4*256: true, 8 + 4*256: false} {
		if ListFits(n) != want {
			t.Errorf("a list of %d bytes fits: %v", n, !want)
		}
	}
}
