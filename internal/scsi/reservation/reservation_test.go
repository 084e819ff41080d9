package reservation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/testkit"
)

// nexuses are those of the tests: two initiator ports by two target ports.
var nexuses = []Nexus{{"a,i,0x000000000001", 1}, {"a,i,0x000000000001", 2}, {"b,i,0x000000000001", 1}, {"b,i,0x000000000001", 2}}

// TestExcludes is the table of SPC-5 5.14: whom a reservation of each type keeps from what.
func TestExcludes(t *testing.T) {
	holder, registered, stranger := nexuses[0], nexuses[2], nexuses[3]
	for _, c := range []struct {
		kind                              Type
		regRead, regWrite, oRead, oWrites bool // excluded: the other registrant, and the stranger
	}{
		{WriteExclusive, false, true, false, true},
		{ExclusiveAccess, true, true, true, true},
		{WriteExclusiveRegistrants, false, false, false, true},
		{ExclusiveAccessRegistrants, false, false, true, true},
		{WriteExclusiveAllRegistrants, false, false, false, true},
		{ExclusiveAccessAll, false, false, true, true},
	} {
		var s State
		for i, n := range []Nexus{holder, registered} {
			s.Register(Registering{By: n, Ports: []uint16{n.TargetPort}, Key: uint64(i + 1)})
		}
		if s.Excludes(stranger, false) {
			t.Error("there is no reservation")
		}
		if !s.Reserve(s.Of(holder), c.kind) {
			t.Fatalf("type %d is refused", c.kind)
		}
		got := []bool{s.Excludes(registered, true), s.Excludes(registered, false), s.Excludes(stranger, true), s.Excludes(stranger, false)}
		if want := []bool{c.regRead, c.regWrite, c.oRead, c.oWrites}; !slices.Equal(got, want) {
			t.Errorf("type %d excludes %v, want %v", c.kind, got, want)
		}
		if s.Excludes(holder, true) || s.Excludes(holder, false) {
			t.Errorf("type %d excludes its holder", c.kind)
		}
	}
	for k := range 256 {
		if want := k != 0 && k != 2 && k != 4 && k < 9; Type(k).Valid() != want {
			t.Errorf("type %d: valid is %v", k, !want)
		}
	}
}

// text is all of a state that can be compared.
func text(s *State) string {
	out := fmt.Sprintf("generation %d, type %d, APTPL %v:", s.generation, s.Type(), s.aptpl)
	for _, r := range s.regs {
		out += fmt.Sprintf(" %v key %d holds %v;", r.Nexus, r.Key, s.Holds(r))
	}
	return out
}

// act does something random to the state and says what; refused means that nothing may change.
func act(rng *rand.Rand, s *State) (what string, c Change, refused bool) {
	n := nexuses[rng.IntN(len(nexuses))]
	r, key, kind := s.Of(n), rng.Uint64N(4), Type(1<<rng.IntN(4))
	if kind == 2 || kind == 4 {
		kind += 3
	}
	ok := true
	switch rng.IntN(7) {
	case 0, 1:
		q := Registering{By: n, Ports: []uint16{n.TargetPort}, Key: key, Ignore: rng.IntN(2) == 0, APTPL: rng.IntN(2) == 0}
		if rng.IntN(3) == 0 {
			q.Ports = []uint16{1, 2}
		}
		if rng.IntN(3) == 0 && r == nil && key != 0 {
			q.Others = []string{nexuses[2].Port}
		}
		if r == nil && key == 0 {
			return "nothing", c, true
		}
		what = fmt.Sprintf("register %+v", q)
		c, ok = s.Register(q)
	case 2:
		if r == nil {
			return "nothing", c, true
		}
		what = fmt.Sprintf("reserve %v type %d", n, kind)
		ok = s.Reserve(r, kind)
	case 3:
		if !s.Holds(r) {
			return "nothing", c, true
		}
		what = fmt.Sprintf("release %v", n)
		c = s.Release(r)
	case 4:
		to := nexuses[rng.IntN(len(nexuses))]
		if r == nil || s.Holder() != r || to == n {
			return "nothing", c, true
		}
		what = fmt.Sprintf("move %v to %v", n, to)
		c, ok = s.Move(r, to, key+1, rng.IntN(2) == 0, rng.IntN(2) == 0)
	case 5:
		if r == nil || key == 0 && !s.AllRegistrants() {
			return "nothing", c, true
		}
		what = fmt.Sprintf("preempt by %v of key %d type %d", n, key, kind)
		c, ok = s.Preempt(r, key, kind)
	default:
		if r == nil || rng.IntN(4) > 0 {
			return "nothing", c, true
		}
		what = fmt.Sprintf("clear by %v", n)
		c = s.Clear(r)
	}
	return what, c, !ok
}

// broken says which law of a state does not hold.
func broken(s *State) string {
	switch {
	case s.reserved && len(s.regs) == 0:
		return "a reservation without a registration"
	case s.reserved && !s.kind.Valid():
		return "a reservation of no type"
	case s.reserved && s.kind.all() != (s.holder == nil), !s.reserved && s.holder != nil:
		return "a wrong holder"
	case s.holder != nil && !slices.Contains(s.regs, s.holder):
		return "a holder that is not registered"
	}
	for i, r := range s.regs {
		if r.Key == 0 {
			return "a registration without a key"
		}
		if s.Of(r.Nexus) != s.regs[i] {
			return "a nexus that is registered twice"
		}
		if s.Holds(r) && (s.Excludes(r.Nexus, true) || s.Excludes(r.Nexus, false)) {
			return "a holder that is excluded"
		}
	}
	return ""
}

// TestRandomChanges holds the laws of a state after random changes: what is refused changes
// nothing, who loses a registration to another is told, the generation never goes back, and what
// is saved comes back as it was, after a power-on without the generation and with APTPL alone.
func TestRandomChanges(t *testing.T) {
	base := testkit.Seed(t)
	for seed := base; seed < base+200; seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		var s State
		for range 60 {
			before, generation, had := text(&s), s.generation, slices.Clone(s.regs)
			what, c, refused := act(rng, &s)
			fail := func(why string) {
				t.Fatalf("seed %d: %s\n%s\nbecame\n%s: %s", seed, what, before, text(&s), why)
			}
			if refused && (text(&s) != before || len(c.Notices)+len(c.Lost) > 0) {
				fail("refused, but something has changed")
			}
			if why := broken(&s); why != "" {
				fail(why)
			}
			if s.generation < generation {
				fail("the generation went back")
			}
			for _, n := range c.Lost {
				if s.Of(n) != nil || !slices.ContainsFunc(had, func(r *Registration) bool { return r.Nexus == n }) {
					fail(fmt.Sprint("lost is said to be ", n))
				}
			}
			for _, notice := range c.Notices {
				if notice.UA == sense.UARegistrationsPreempted && !slices.Contains(c.Lost, notice.To) {
					fail("preempted is said to be who is not")
				}
			}
			if saved := s.Save(); saved != nil {
				b, err := json.Marshal(saved)
				var again Saved
				if err == nil {
					err = json.Unmarshal(b, &again)
				}
				if err != nil || again.Check() != nil || !reflect.DeepEqual(*saved, again) {
					fail(fmt.Sprintf("saved as %s, %v, %v", b, err, again.Check()))
				}
				if back := Restore(&again, false); text(&back) != text(&s) {
					fail("restored as " + text(&back))
				}
				left := State{}
				if s.aptpl {
					left = s
					left.generation = 0
				}
				if back := Restore(&again, true); text(&back) != text(&left) {
					fail("after a power-on restored as " + text(&back))
				}
			} else if text(&s) != text(&State{}) {
				fail("not saved")
			}
		}
	}
}

// TestRegistrationsAreBounded: what does not fit is refused as a whole.
func TestRegistrationsAreBounded(t *testing.T) {
	var s State
	for i := range MaxRegistrations - 1 {
		n := Nexus{fmt.Sprint("port", i), 1}
		if _, ok := s.Register(Registering{By: n, Ports: []uint16{1}, Key: 1}); !ok {
			t.Fatalf("registration %d is refused", i)
		}
	}
	before := text(&s)
	if _, ok := s.Register(Registering{By: nexuses[0], Ports: []uint16{1, 2}, Key: 1}); ok || text(&s) != before {
		t.Error("two more are taken where one fits")
	}
	s.Reserve(s.regs[0], WriteExclusive)
	for i, want := range []bool{true, false} {
		if _, ok := s.Move(s.Holder(), nexuses[i], 7, false, false); ok != want {
			t.Errorf("move %d: %v", i, ok)
		}
	}
}
