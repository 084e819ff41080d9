package saved

import (
	"reflect"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi/erase"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/reservation"
)

// TestRoundTrip: what a unit keeps comes back as it was, and what is not there takes no room.
func TestRoundTrip(t *testing.T) {
	var pr reservation.State
	n := reservation.Nexus{Port: "a,i,0x000000000001", TargetPort: 1}
	pr.Register(reservation.Registering{By: n, Ports: []uint16{1}, Key: 1<<63 + 1, APTPL: true})
	pr.Reserve(pr.Of(n), reservation.ExclusiveAccess)
	full := State{PR: pr.Save(), Ident: []byte("label"), Info: []byte("text"), Failed: &erase.Parameters{Format: true},
		Erasing: &erase.Parameters{Passes: 2, Invert: true, Pattern: []byte{1, 2}, Unrestricted: true}}
	full.SetModes(pages.Mode{SWP: true})
	for _, s := range []State{{}, full} {
		got, err := Parse(s.Encode())
		if err != nil || !reflect.DeepEqual(got, s) || got.Modes() != s.Modes() {
			t.Errorf("%s became %s, error %v", s.Encode(), got.Encode(), err)
		}
	}
	var fresh State
	if fresh.SetModes(pages.Mode{}); string(fresh.Encode()) != "{}" {
		t.Errorf("a new unit keeps %s", fresh.Encode())
	}
	if s, err := Parse(nil); err != nil || !reflect.DeepEqual(s, State{}) {
		t.Errorf("nothing is %+v, error %v", s, err)
	}
	if full.Modes() != (pages.Mode{SWP: true}) {
		t.Errorf("modes %+v", full.Modes())
	}
}

// TestDamaged: what is damaged is nothing, and the error says whose and what.
func TestDamaged(t *testing.T) {
	for in, want := range map[string]string{
		"[": "unexpected end", `{"pr":{"type":9}}`: "type 9", `{"erasing":{"passes":1}}`: "1 passes", `{"failed":{"passes":2}}`: "2 passes",
	} {
		s, err := Parse([]byte(in))
		if err == nil || !strings.HasPrefix(err.Error(), "saved state of a unit: ") || !strings.Contains(err.Error(), want) || !reflect.DeepEqual(s, State{}) {
			t.Errorf("%s: %+v, error %v", in, s, err)
		}
	}
}
