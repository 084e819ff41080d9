package names

// maxPorts bounds the memory of initiator ports that were here before.
const maxPorts = 4096

// PortBook is what a target remembers of initiator ports, by their names. It belongs to the target's executor.
type PortBook struct {
	left    map[string]bool   // those that logged in before and are gone
	numbers map[string]uint32 // by which devices tell who changed what
	last    uint32
}

// NewPortBook returns an empty one.
func NewPortBook() PortBook {
	return PortBook{left: make(map[string]bool), numbers: make(map[string]uint32)}
}

// Number returns the number of an initiator port, from 1 on. Sessions of a port that come one after the other have the same
// one, unless very many others came between: then it is a new one, and the port is taken for another.
func (b *PortBook) Number(port string) uint32 {
	n := b.numbers[port]
	if n == 0 {
		if len(b.numbers) >= maxPorts {
			clear(b.numbers)
		}
		b.last++
		n = b.last
		b.numbers[port] = n
	}
	return n
}

// Leave notes that a port has gone, and Left reports whether it had.
func (b *PortBook) Leave(port string) {
	if len(b.left) >= maxPorts {
		clear(b.left)
	}
	b.left[port] = true
}

// Left reports whether a port was here and has gone since the target was made.
func (b *PortBook) Left(port string) bool { return b.left[port] }
