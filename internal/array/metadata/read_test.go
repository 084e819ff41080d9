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
}

func (p *pair) of(i int) *fake   { return []*fake{p.fake, p.other}[i] }
func (p *pair) Copies() int      { return 2 }
func (p *pair) Choose(i int)     { p.chosen = i }
func (p *pair) Chosen() int      { return p.chosen }
func (p *pair) Behind() bool     { return false }
func (p *pair) Renew(int, error) {}
func (p *pair) Get(key []byte) ([]byte, error) {
	if p.fails[p.chosen] {
		return nil, errFake
	}
	return p.of(p.chosen).Get(key)
}

func (p *pair) Read(key []byte, done func([]byte, error)) { p.ReadFrom(p.chosen, key, done) }

func (p *pair) ReadFrom(i int, key []byte, done func([]byte, error)) {
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
