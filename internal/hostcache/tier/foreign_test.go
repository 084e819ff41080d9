package tier

import (
	"bytes"
	"strings"
	"testing"
)

// TestPeerWithAnotherCacheIsLeftAlone: at a start that has nobody to leave out, too, and when it is added later; stopped in good
// order or not. It is said why, and how to mend it. A format gives up what has nothing dirty, and says what that was.
func TestPeerWithAnotherCacheIsLeftAlone(t *testing.T) {
	for _, row := range []struct {
		name                 string
		copied, stopped, lun bool   // a peer's copy; in good order; of another LUN
		why, format          string // why it is left alone; why a format is refused, "" if it is not
	}{
		{"killed", false, false, false, "the flash of cache 4d of LUN 6000", "perhaps with dirty data"},
		{"killed, of another LUN", false, false, true, "of LUN 6001", "start that cache and stop it"},
		{"stopped", false, true, false, "nothing dirty; give another one, or start with --format", ""},
		{"stopped, of another LUN", false, true, true, "nothing dirty", ""},
		{"a copy of another LUN's", true, false, true, "a peer's copy of cache 4d", "clear its first 8 KiB"},
	} {
		t.Run(row.name, func(t *testing.T) {
			from := 0
			other := newLab(t, func(w *world) {
				if row.lun {
					w.a.naa = 1
				}
				if w.opt.ID = 77; row.copied {
					withPeers(1)(w)
					from = 1
				}
				if !row.stopped {
					withoutDestager(w)
				}
			})
			other.write(0, 8, 7)
			if row.stopped {
				other.stop()
			}
			other.crash()
			was := other.cards[from].b
			l := newLab(t, withoutDestager)
			l.write(64, 8, 1)
			l.crash()
			foreign := newCard(l.v, l.r, len(was))
			copy(foreign.b, was)
			mine := l.cards
			left := func() {
				t.Helper()
				l.v.RunUntil(l.v.Now() + 1_000_000_000)
				l.want(64, 8, 1)
				if !bytes.Equal(foreign.b, was) {
					t.Fatal("the flash of another cache was written over")
				}
				s := l.d.State()
				if len(s.LeftAlone) != 1 || len(s.LostPeers) != 1 || !strings.Contains(s.LeftAlone[0], row.why) {
					t.Errorf("it is said that %q; want %q", s.LeftAlone, row.why)
				}
				l.crash()
			}
			if err := l.try(0, func(o *Options) { o.Policy.Peers = 1 }); err != nil {
				t.Fatal(err)
			}
			if err := l.d.AddPeer(Peer{Name: "later", Medium: &slot{card: foreign}}); err != nil {
				t.Fatal(err)
			}
			left()
			l.cards = append(mine, foreign)
			if err := l.try(0, func(o *Options) { o.Policy.Peers = 1 }); err != nil {
				t.Fatal(err)
			}
			left()
			err := l.try(0, func(o *Options) { o.Policy.Peers, o.Format = 1, true })
			if row.format != "" {
				if err == nil || !strings.Contains(err.Error(), row.format) || !bytes.Equal(foreign.b, was) {
					t.Errorf("a format ends with %v, want %q", err, row.format)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			given := strings.Join(l.d.Recovery().GivenUp, "\n")
			if !strings.Contains(given, "the flash device had the flash of cache ") || !strings.Contains(given, "peer p1 had the flash of cache 4d") {
				t.Errorf("given up is %q", given)
			}
			l.wait(func() bool { return l.d.State().Why == "" })
			if s := l.d.State(); len(s.LeftAlone) > 0 || len(s.Peers) != 1 {
				t.Errorf("behind the format it is %+v", s)
			}
		})
	}
}

// TestAddedPeerJoins: one that is offered to a cache that is at work.
func TestAddedPeerJoins(t *testing.T) {
	l := newLab(t, nil)
	l.d.SetPolicy(Policy{Mode: WriteBack, Peers: 1}, nil)
	if err := l.d.AddPeer(Peer{Name: "later", Medium: &slot{card: newCard(l.v, l.r, len(l.cards[0].b))}}); err != nil {
		t.Fatal(err)
	}
	l.v.RunUntil(l.v.Now() + 1_000_000_000)
	if s := l.d.State(); s.Why != "" || len(s.Peers) != 1 {
		t.Errorf("it does not join: %+v", s)
	}
}

// TestPeerThatGotAnotherCacheWhileItWasSpareIsLeftAlone: it was empty when it was offered, and nobody needed it; when it is
// needed it has another LUN's copy.
func TestPeerThatGotAnotherCacheWhileItWasSpareIsLeftAlone(t *testing.T) {
	for _, added := range []bool{false, true} {
		other := newLab(t, func(w *world) {
			w.a.naa = 1
			withPeers(1)(w)
		})
		other.write(0, 8, 7)
		other.crash()
		was := other.cards[1].b
		l := newLab(t, withoutDestager)
		lent := newCard(l.v, l.r, len(was))
		if added {
			if err := l.d.AddPeer(Peer{Name: "later", Medium: &slot{card: lent}}); err != nil {
				t.Fatal(err)
			}
		} else {
			l.crash()
			l.cards = append(l.cards, lent)
			if err := l.try(0, nil); err != nil {
				t.Fatal(err)
			}
		}
		l.v.RunUntil(l.v.Now() + 1_000_000_000)
		copy(lent.b, was)
		l.d.SetPolicy(Policy{Mode: WriteBack, Peers: 1}, nil)
		l.v.RunUntil(l.v.Now() + 1_000_000_000)
		l.write(0, 8, 1)
		if !bytes.Equal(lent.b, was) {
			t.Errorf("added %v: what another host keeps there was written over", added)
		}
		if s := l.d.State(); len(s.LeftAlone) != 1 || !strings.Contains(s.LeftAlone[0], "a peer's copy") {
			t.Errorf("added %v: it is said that %q", added, s.LeftAlone)
		}
	}
}

// TestFormatLeavesAnUnreadableLabelAlone: of a peer's flash whose label this version cannot read nobody can say that nothing is dirty
// on it. A format is refused, and changes nothing there.
func TestFormatLeavesAnUnreadableLabelAlone(t *testing.T) {
	for name, spoil := range map[string]func(b []byte){
		"damaged": func(b []byte) { b[20] ^= 1; b[labelCopy+20] ^= 1 },
		"newer":   func(b []byte) { b[labelDigit]++; b[labelCopy+labelDigit]++ },
	} {
		l := newLab(t, withPeers(1))
		l.write(0, 8, 1)
		l.crash()
		spoil(l.cards[1].b)
		was := bytes.Clone(l.cards[1].b)
		_, err := l.open(func(o *Options) {
			o.Format, o.Peers = true, []Peer{{Name: "p1", Medium: &slot{card: l.cards[1]}}}
		})
		if err == nil || !strings.Contains(err.Error(), "p1") {
			t.Errorf("%s: the format ends with %v", name, err)
		}
		if !bytes.Equal(l.cards[1].b, was) {
			t.Errorf("%s: the peer's flash was changed", name)
		}
	}
}
