package tier

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestPeersThatJoinOneAfterTheOther: the second begins to join while the first is being labelled. A peer that is said to be present
// has a label that says so, or its copy could not be taken over.
func TestPeersThatJoinOneAfterTheOther(t *testing.T) {
	for later := int64(0); later < 8_000_000; later += 20_000 {
		l := newLab(t, nil)
		l.d.SetPolicy(Policy{Mode: WriteBack, Peers: 2}, nil)
		for _, name := range []string{"p", "q"} {
			c := newCard(l.v, l.r, len(l.cards[0].b))
			c.delay = 1_000_000
			if err := l.d.AddPeer(Peer{Name: name, Medium: &slot{card: c}}); err != nil {
				t.Fatal(err)
			}
			l.v.RunUntil(l.v.Now() + later)
		}
		check := func() (present int) {
			for _, m := range l.d.members[1:] {
				if m.state != memberPresent {
					continue
				}
				present++
				if at, found := decodeLabel(m.medium.(*slot).b); found != labelOurs || at.state != labelMember || at.cache != l.d.cache || !l.d.marks.busy && at.generation != l.d.marks.generation {
					t.Fatalf("%s joins %d ns later: it is present, and its label is %v, %+v", m.peer.Name, later, found, at)
				}
			}
			return present
		}
		for end := l.v.Now() + 1_000_000_000; check() < 2; {
			if l.v.Now() > end || !l.v.Step() {
				t.Fatalf("%d ns later: they do not join: %+v", later, l.d.State())
			}
		}
	}
}

// TestPeerThatIsLostBehindItsLabel: two peers join at once, and one is gone when it has its label and the other one is being labelled. What
// is acknowledged from then on only the other one has: the first one must not be taken over.
func TestPeerThatIsLostBehindItsLabel(t *testing.T) {
	for name, lose := range map[string]func(*lab, *card){
		"somebody says so": func(l *lab, _ *card) { l.d.LosePeer("p") },
		"it takes no record": func(l *lab, p *card) {
			p.tired = true
			l.d.j.ranged(recIntent, block.Range{})
			l.d.j.kick()
		},
		"its second label fails": nil,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, withoutDestager)
			l.d.SetPolicy(Policy{Mode: WriteBack, Peers: 2}, nil)
			p, q := newCard(l.v, l.r, len(l.cards[0].b)), newCard(l.v, l.r, len(l.cards[0].b))
			if lose == nil {
				p.faults = []fault{{what: faultWrite, lo: labelCopy, hi: labelBytes, times: 1 << 30}}
			}
			l.cards[0].delay = 100_000_000 // the journal is busy until both are wanted
			l.d.j.ranged(recIntent, block.Range{})
			l.d.j.kick()
			for i, c := range []*card{p, q} {
				if err := l.d.AddPeer(Peer{Name: string(rune('p' + i)), Medium: &slot{card: c}}); err != nil {
					t.Fatal(err)
				}
			}
			l.wait(func() bool { return l.d.members[1].state == memberWanted && l.d.members[2].state == memberWanted })
			l.cards[0].delay = cardDelay
			l.wait(func() bool { return l.d.marks.busy })
			q.delay = 1_000_000_000
			present := func(name string) bool { return slices.Contains(l.d.State().Peers, name) }
			l.wait(func() bool {
				at, found := decodeLabel(p.b)
				return found == labelOurs && at.state == labelMember && at.generation == l.d.marks.generation
			})
			if present("p") || present("q") {
				t.Fatalf("%v are present", l.d.State().Peers)
			}
			if lose != nil {
				lose(l, p)
			}
			l.wait(func() bool { return present("q") && slices.Contains(l.d.State().LostPeers, "p") })
			l.d.SetPolicy(Policy{Mode: WriteBack, Peers: 1}, nil) // the operator goes on with one
			l.wait(func() bool { return l.d.State().Why == "" })
			l.dirty(0, 8, 1)
			l.crash()
			p.mend()
			p.closed()
			_, err := l.open(func(o *Options) {
				o.Flash, o.TakeOver, o.Policy = &slot{card: p}, true, Policy{Mode: WriteThrough}
				o.Witness = &witness{w: l.world, path: l.path}
			})
			if err == nil {
				l.want(0, 8, 1)
				t.Fatal("a peer that was lost is taken over")
			}
			if !strings.Contains(err.Error(), "left out of the cache") {
				t.Error(err)
			}
		})
	}
}

// TestLabelsOfPeersThatComeAndGo: peers are offered, lost, take no writes for a while, and are asked for or not, at random times. As long as
// nobody is being labelled, those that are present have the generation of the cache, and no other one has.
func TestLabelsOfPeersThatComeAndGo(t *testing.T) {
	seed := testkit.Seed(t)
	for run := range uint64(300) {
		l := newLab(t, nil)
		l.r = rand.New(rand.NewPCG(seed, run))
		d := l.d
		var cards []*card
		check := func() {
			if k := &d.marks; k.busy || k.due || k.owed {
				return
			}
			for i, m := range d.members[1:] {
				at, found := decodeLabel(cards[i].b)
				if second, ok := decodeLabel(cards[i].b[labelCopy:]); ok == labelOurs && (found != labelOurs || second.revision > at.revision) {
					at, found = second, ok
				}
				newest := found == labelOurs && at.state == labelMember && at.cache == d.cache && at.generation >= d.marks.generation
				if newest != (m.state == memberPresent) {
					t.Fatalf("run %d: %s is in state %d, and its label is %v, %+v; the cache has generation %d", run, m.peer.Name, m.state, found, at, d.marks.generation)
				}
			}
		}
		for range 40 {
			switch n := l.r.IntN(8); {
			case n < 3 && len(cards) < 8:
				c := newCard(l.v, l.r, len(l.cards[0].b))
				c.delay = 1 + l.r.Int64N(2_000_000)
				cards = append(cards, c)
				if err := d.AddPeer(Peer{Name: fmt.Sprint("p", len(cards)), Medium: &slot{card: c}}); err != nil {
					t.Fatal(err)
				}
			case n < 5 && len(cards) > 0:
				d.LosePeer(fmt.Sprint("p", 1+l.r.IntN(len(cards))))
			case n == 5 && len(cards) > 0:
				c := cards[l.r.IntN(len(cards))]
				c.faults = append(c.faults, fault{what: faultKind(2 * l.r.IntN(2)), hi: labelBytes, skip: l.r.IntN(4), times: 1 + l.r.IntN(6)})
			case n == 6:
				d.SetPolicy(Policy{Mode: WriteBack, Peers: l.r.IntN(4)}, nil)
			default:
				l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Start: l.r.Uint64N(64) * 8, Count: 8}, Data: [][]byte{pattern(1, 8)}})
			}
			for end := l.v.Now() + l.r.Int64N(6_000_000); l.v.Now() < end; check() {
				if !l.v.Step() {
					break
				}
			}
		}
	}
}
