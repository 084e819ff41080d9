package metadata

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// pair is a meta store of two copies, of which each can be damaged for itself.
type pair struct {
	*fake
	other  *fake
	chosen int
	fails  [2]bool
	behind bool
	hangs  [2]bool
	asked  [2]int
	hung   []func() // answers of those that hang
}

func (p *pair) of(i int) *fake { return []*fake{p.fake, p.other}[i] }
func (p *pair) Copies() int    { return 2 }
func (p *pair) Choose(i int)   { p.chosen = i }
func (p *pair) Chosen() int    { return p.chosen }
func (p *pair) Behind() bool   { return p.behind }

func (p *pair) Renew(int, error, func(func(key, value []byte) error) error) {}

func (p *pair) Get(key []byte) ([]byte, error) {
	if p.fails[p.chosen] {
		return nil, errFake
	}
	return p.of(p.chosen).Get(key)
}

func (p *pair) Read(key []byte, done func([]byte, error)) { p.ReadFrom(p.chosen, key, done) }

func (p *pair) ReadFrom(i int, key []byte, done func([]byte, error)) {
	if p.asked[i]++; p.hangs[i] {
		p.hung = append(p.hung, func() { p.of(i).Read(key, done) })
		return
	}
	if p.fails[i] {
		p.exec.Post(func() { done(nil, errFake) })
		return
	}
	p.of(i).Read(key, done)
}

// TestReadFindsTheGoodCopy: an entry that one copy has not as the books say, or cannot be read there, comes from the other one;
// one that neither has so is an error.
func TestReadFindsTheGoodCopy(t *testing.T) {
	for n := range 32 {
		damaged, fails, chosen := [2]bool{n&1 != 0, n&2 != 0}, [2]bool{n&4 != 0, n&8 != 0}, n>>4
		exec := &block.Virtual{}
		make := func() *fake {
			return &fake{kv: map[string][]byte{"a": []byte("value"), "b": []byte("other")}, exec: exec, limit: 1 << 20, rnd: rand.New(rand.NewPCG(1, 1))}
		}
		p := &pair{fake: make(), other: make(), chosen: chosen}
		l := New(p, exec, Hooks{})
		if err := l.Load("", func(_, _ []byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
		p.fails = fails
		for i, yes := range damaged {
			if yes {
				p.of(i).kv["a"] = []byte("value of another time")
			}
		}
		want := !damaged[0] && !fails[0] || !damaged[1] && !fails[1]
		said := func(how string, value []byte, err error) {
			if (err == nil) != want || want && string(value) != "value" {
				t.Errorf("damaged %v, failing %v, copy %d: %s says %q, %v", damaged, fails, chosen, how, value, err)
			}
			if p.chosen != chosen {
				t.Errorf("copy %d is chosen behind it, not %d", p.chosen, chosen)
			}
		}
		value, err := l.ReadNow([]byte("a"))
		said("ReadNow", value, err)
		ended, inside := 0, true
		l.Read([]byte("a"), func(value []byte, err error) {
			if ended++; inside {
				t.Error("done is called from inside")
			}
			said("Read", value, err)
		})
		inside = false
		for exec.Step() {
		}
		if ended != 1 {
			t.Errorf("a read has ended %d times", ended)
		}
	}
}

// TestReadOfACopyThatHangs: an entry whose copy does not answer comes from the other one, which is asked first from then on, until
// the first one answers. That changes nothing of what was read, whatever it says; and nobody answers twice.
func TestReadOfACopyThatHangs(t *testing.T) {
	exec := &block.Virtual{}
	make := func() *fake {
		return &fake{kv: map[string][]byte{"a": []byte("value"), "b": []byte("other")}, exec: exec, limit: 1 << 20, rnd: rand.New(rand.NewPCG(1, 1))}
	}
	p := &pair{fake: make(), other: make(), chosen: 1, hangs: [2]bool{false, true}}
	l := New(p, exec, Hooks{})
	if err := l.Load("", func(_, _ []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	answers := ""
	read := func(key string) {
		l.Read([]byte(key), func(value []byte, err error) { answers += fmt.Sprintf("%s %v, ", value, err) })
	}
	step := func(want string, asked [2]int, silent bool) {
		t.Helper()
		for exec.Step() {
		}
		if answers != want || p.asked != asked || l.Silent() != silent {
			t.Errorf("%q, not %q; %d were asked, not %d; silent: %v", answers, want, p.asked, asked, l.Silent())
		}
		answers = ""
	}
	read("a")
	step("", [2]int{0, 1}, false)
	l.Hurry([]byte("a"))
	l.Hurry([]byte("b")) // nobody reads it
	step("value <nil>, ", [2]int{1, 1}, true)
	read("b")
	step("other <nil>, ", [2]int{2, 1}, true)
	p.fake.kv["b"] = []byte("damaged")
	read("b") // the one that hangs may have it
	step("", [2]int{3, 2}, true)
	p.hangs[1] = false
	p.other.kv["a"] = []byte("of another time")
	for _, fn := range p.hung {
		fn()
	}
	step("other <nil>, ", [2]int{3, 2}, false)
	read("b")
	step("other <nil>, ", [2]int{3, 3}, false)
	p.hangs[1] = true
	p.fake.kv["a"] = nil
	read("a")
	l.Hurry([]byte("a"))
	step("", [2]int{4, 4}, true) // the other one has it not, and this one may
	p.hung[len(p.hung)-1]()
	step(" copy 1: an entry of the checkpoints is damaged, ", [2]int{4, 4}, false)
	if len(l.lookups) != 0 {
		t.Errorf("%d are still looked for", len(l.lookups))
	}
}

// TestReadOfOneCopy: where there is one copy alone, what it has is held against the books all the same.
func TestReadOfOneCopy(t *testing.T) {
	exec := &block.Virtual{}
	f := &fake{kv: map[string][]byte{"a": []byte("value")}, exec: exec, limit: 1 << 20, rnd: rand.New(rand.NewPCG(1, 1))}
	l := New(f, exec, Hooks{})
	if err := l.Load("", func(_, _ []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"value", "of another time", ""} {
		if f.kv["a"] = []byte(value); value == "" {
			delete(f.kv, "a")
		}
		want := value == "value"
		got, err := l.ReadNow([]byte("a"))
		if (err == nil) != want || want && string(got) != value {
			t.Errorf("%q is read as %q, %v", value, got, err)
		}
		again := l.LoadAgain([]byte("a"), func(_, _ []byte) error { return nil })
		if value != "" && (again == nil) != want {
			t.Errorf("%q is loaded again with %v", value, again)
		}
		var late error = errors.New("it has not ended")
		l.Read([]byte("a"), func(value []byte, err error) { got, late = value, err })
		for exec.Step() {
		}
		if fmt.Sprint(late == nil, late == nil && string(got) == value) != fmt.Sprint(want, want) {
			t.Errorf("%q is read later as %q, %v", value, got, late)
		}
	}
}

// TestReadBesideACopyThatHasFailed: an entry that comes from the other copy because the loaded one has failed says nothing of damage.
// One that the loaded one has otherwise does, whatever has failed.
func TestReadBesideACopyThatHasFailed(t *testing.T) {
	for n := range 4 {
		one, keys := withLeaves(t, 10)
		two, _ := withLeaves(t, 10)
		two.exec = one.exec
		p := &pair{fake: one, other: two, behind: n&1 != 0}
		l := loadedLedger(t, p, one.exec, Hooks{})
		if n&2 != 0 {
			one.kv[keys[0]] = []byte("damage")
		} else {
			p.fails[0] = true
		}
		var value []byte
		l.Read([]byte(keys[0]), func(v []byte, _ error) { value = v })
		for one.exec.Step() {
		}
		if string(value) != fmt.Sprintf("page %x", keys[0]) {
			t.Errorf("case %d: it reads %q", n, value)
		}
		if damaged, _ := l.Damaged(); damaged != (n != 1) {
			t.Errorf("case %d: a copy is said to be damaged: %v", n, damaged)
		}
	}
}
