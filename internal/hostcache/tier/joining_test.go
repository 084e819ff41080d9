package tier

import "testing"

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
