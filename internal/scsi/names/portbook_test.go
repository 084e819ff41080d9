package names

import (
	"fmt"
	"testing"
)

func TestPortBook(t *testing.T) {
	b := NewPortBook()
	left := func(port string) bool { _, ok := b.Left(port); return ok }
	one, two := b.Number("a"), b.Number("b")
	if one == 0 || one == two || b.Number("a") != one || left("a") {
		t.Fatalf("two ports have the numbers %d and %d", one, two)
	}
	b.Leave("a", []uint16{7})
	if !left("a") || left("b") || b.Number("a") != one {
		t.Error("a port that has gone is forgotten")
	}
	lost := b.PowerOn()
	a, _ := b.Left("a")
	if !a.Missed(7, 0) || a.Missed(8, 0) || !a.Missed(8, lost) {
		t.Errorf("of what it has missed %+v is kept", a)
	}
	b.Leave("a", make([]uint16, maxUnheard+1))
	if left("a") {
		t.Error("more is remembered of a port than there is room for")
	}
	// Whoever comes, no number is given twice, and the memory is bounded.
	seen := map[uint32]bool{one: true, two: true}
	for i := range 3 * maxPorts {
		p := fmt.Sprint("port ", i)
		n := b.Number(p)
		if seen[n] {
			t.Fatalf("%s has the number %d of another one", p, n)
		}
		seen[n] = true
		b.Leave(p, nil)
		if len(b.left) > maxPorts || len(b.numbers) > maxPorts {
			t.Fatalf("%d ports are remembered", max(len(b.left), len(b.numbers)))
		}
	}
}
