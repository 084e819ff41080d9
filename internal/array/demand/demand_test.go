package demand

import (
	"errors"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var errPage = errors.New("input/output error")

// pages is a source that answers when a test wants.
type pages struct{ answers []func([]byte, error) }

func (p *pages) Read(_ []byte, done func([]byte, error)) { p.answers = append(p.answers, done) }
func (p *pages) ReadNow([]byte) ([]byte, error)          { return nil, errPage }

// TestReads: a leaf that several want is read once; all go on when it has come, or could not, and hear why; who comes back
// has it read again.
func TestReads(t *testing.T) {
	src, heard, put := &pages{}, 0, 0
	tab := Table{From: src, Hooks: Hooks{Name: func(k Key) []byte { return fmt.Append(nil, k) },
		Put: func(_ Key, _ []byte, err error) error { put++; return err }, Heard: func() { heard++ }}}
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
