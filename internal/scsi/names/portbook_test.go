package names

import (
	"fmt"
	"testing"
)

func TestPortBook(t *testing.T) {
	b := NewPortBook()
	one, two := b.Number("a"), b.Number("b")
	if one == 0 || one == two || b.Number("a") != one || b.Left("a") {
		t.Fatalf("two ports have the numbers %d and %d", one, two)
	}
	b.Leave("a")
	if !b.Left("a") || b.Left("b") || b.Number("a") != one {
		t.Error("a port that has gone is forgotten")
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
		b.Leave(p)
		if len(b.left) > maxPorts || len(b.numbers) > maxPorts {
			t.Fatalf("%d ports are remembered", max(len(b.left), len(b.numbers)))
		}
	}
}
