package demand

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var errPage = errors.New("input/output error")

// pages is a source that answers when a test wants.
type pages struct {
	answers []func([]byte, error)
	hurried int
}

func (p *pages) Read(_ []byte, done func([]byte, error)) { p.answers = append(p.answers, done) }
func (p *pages) Hurry([]byte)                            { p.hurried++ }
func (p *pages) ReadNow([]byte) ([]byte, error)          { return nil, errPage }

// TestReads: a leaf that several want is read once; all go on when it has come, or could not, and hear why; who comes back
// has it read again.
func TestReads(t *testing.T) {
	src, heard, put := &pages{}, 0, 0
	tab := Table{From: src, Hooks: Hooks{Name: func(k Key) []byte { return fmt.Append(nil, k) },
		Put: func(_ Key, _ []byte, err error) error { put++; return err }, Heard: func() { heard++ }, Asked: func() {},
		Now: func() int64 { return 0 }}}
	k := Key{3, 4}
	var said []error
	for range 3 {
		tab.Call(tab.Read(k), func(err error) { said = append(said, err) })
	}
	tab.Call(tab.Read(Key{3, 5}), func(err error) {
		if said = append(said, err); tab.Failing() != err {
			t.Errorf("it fails with %v, not %v", tab.Failing(), err)
		}
		tab.Call(tab.Read(Key{3, 5}), func(error) {})
	})
	if len(src.answers) != 2 || tab.Reads() != 2 || tab.Reading(k) == nil {
		t.Fatalf("%d reads, %d of them under way", len(src.answers), tab.Reads())
	}
	src.answers[0](nil, nil)
	if len(said) != 3 || errors.Join(said...) != nil || tab.Reading(k) != nil || heard != 1 || put != 1 {
		t.Errorf("%v, %d heard of, %d put", said, heard, put)
	}
	src.answers[1](nil, errPage)
	if len(said) != 4 || !errors.Is(said[3], errPage) || tab.Failed() != 1 || tab.Failing() != nil || tab.Reads() != 1 || heard != 2 {
		t.Errorf("%v, %d failed, %d under way", said, tab.Failed(), tab.Reads())
	}
}

// TestNeeded: what is pinned, or may not be durable, does not leave.
func TestNeeded(t *testing.T) {
	var tab Table
	var p, q Pins
	tab.Keep(&p, 1, 3, 5)
	tab.Keep(&q, 1, 5, 5)
	tab.Keep(&p, 2, 0, 0)
	tab.Written(Key{1, 9})
	needed := func(want bool, list ...Key) {
		t.Helper()
		for _, k := range list {
			if tab.Needed(k) != want {
				t.Errorf("%+v is needed: %v", k, !want)
			}
		}
	}
	needed(true, Key{1, 3}, Key{1, 4}, Key{1, 5}, Key{2, 0}, Key{1, 9})
	needed(false, Key{1, 2}, Key{1, 6}, Key{2, 3}, Key{2, 9})
	p.Release()
	p.Release()
	if tab.Settle(); tab.Kept() != 1 || !p.Empty() || q.Empty() {
		t.Errorf("%d keep leaves", tab.Kept())
	}
	needed(true, Key{1, 5})
	needed(false, Key{1, 3}, Key{2, 0}, Key{1, 9})
	tab.Keep(&p, 7, 7, 7)
	q.Release()
	needed(true, Key{7, 7})
	p.Release()
	if needed(false, Key{7, 7}); tab.Kept() != 0 {
		t.Errorf("%d keep leaves", tab.Kept())
	}
}

// TestManyPins: whoever of many keeps a leaf, it is found, however spans lie in one another; what it takes does not grow with
// how many there are.
func TestManyPins(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	var tab Table
	pins := make([]Pins, 40)
	spans := make([][]span, len(pins))
	for step := range 4000 {
		i := rnd.IntN(len(pins))
		if n := len(spans[i]); n > 0 && rnd.IntN(3) == 0 {
			pins[i].Release()
			spans[i] = nil
		} else if n < 3 && (step/400%2 == 0 || i < fewPins) {
			x := span{volume: uint32(rnd.IntN(3)), first: rnd.Uint64N(100)}
			x.last = x.first + []uint64{0, 1, rnd.Uint64N(60)}[rnd.IntN(3)]
			tab.Keep(&pins[i], x.volume, x.first, x.last)
			spans[i] = append(spans[i], x)
		}
		for range 5 {
			k, want := Key{uint32(rnd.IntN(3)), rnd.Uint64N(170)}, false
			for _, list := range spans {
				for _, x := range list {
					want = want || x.volume == k.Volume && x.first <= k.Leaf && k.Leaf <= x.last
				}
			}
			if got := tab.Needed(k); got != want {
				t.Fatalf("step %d: %+v is needed: %v", step, k, got)
			}
		}
	}
	var many Table
	for i := range uint64(1 << 12) {
		many.Keep(new(Pins), 1, 2*i, 2*i)
	}
	looked := testing.AllocsPerRun(1, func() {
		for leaf := range uint64(1 << 18) { // one by one these are 2^30 comparisons
			if many.Needed(Key{1, leaf}) != (leaf%2 == 0 && leaf < 1<<13) {
				t.Fatalf("leaf %d", leaf)
			}
		}
	})
	if looked > 0 {
		t.Errorf("%v allocations", looked)
	}
}

// TestLate: who waits for a leaf for too long ends with that, in the order in which they were asked for; the leaf is not read
// twice, and has been late until it comes.
func TestLate(t *testing.T) {
	src, now, turned, asked := &pages{}, int64(1), 0, 0
	tab := Table{From: src, Hooks: Hooks{Name: func(k Key) []byte { return fmt.Append(nil, k) },
		Put: func(_ Key, _ []byte, err error) error { return err }, Heard: func() {},
		Asked: func() { asked++ }, Turned: func() { turned++ }, Now: func() int64 { return now }}}
	var said []string
	wait := func(k Key) {
		tab.Call(tab.Read(k), func(err error) { said = append(said, fmt.Sprint(k, err)) })
	}
	for leaf := range uint64(4) {
		wait(Key{1, 9 - leaf})
		now++
	}
	tab.Hurry(0)
	if src.hurried != 0 || tab.Timely() != 4 {
		t.Errorf("%d are hurried, %d are in time", src.hurried, tab.Timely())
	}
	for range 2 { // the source hears of each once
		if tab.Hurry(2); src.hurried != 2 {
			t.Errorf("%d are hurried, not 2", src.hurried)
		}
	}
	if tab.Late(0) || turned != 0 || len(said) != 0 || asked != 4 || tab.Since() != 1 {
		t.Fatalf("%v, turned %d times, asked %d times", said, turned, asked)
	}
	if want := fmt.Sprint([]string{fmt.Sprint(Key{1, 9}, ErrLate), fmt.Sprint(Key{1, 8}, ErrLate), fmt.Sprint(Key{1, 7}, ErrLate)}); !tab.Late(3) || fmt.Sprint(said) != want || turned != 3 {
		t.Errorf("%v, not %v, turned %d times", said, want, turned)
	}
	said = nil
	if tab.Timely() != 1 {
		t.Errorf("%d are in time, not 1", tab.Timely())
	}
	wait(Key{1, 9})
	if !tab.Late(3) || len(said) != 1 || turned != 3 || len(src.answers) != 4 || tab.Reads() != 4 {
		t.Errorf("%v, turned %d times, %d reads", said, turned, len(src.answers))
	}
	wait(Key{1, 9})
	src.answers[0](nil, nil)
	src.answers[3](nil, nil)
	if len(said) != 3 || said[1] != fmt.Sprint(Key{1, 9}, nil) || turned != 4 || tab.Since() != 2 || tab.Failed() != 0 {
		t.Errorf("%v, turned %d times, the oldest of %d", said, turned, tab.Since())
	}
}
