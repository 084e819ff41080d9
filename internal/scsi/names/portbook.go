package names

import "slices"

// maxPorts bounds the memory of initiator ports that were here before.
const maxPorts = 4096

// PortBook is what a target remembers of initiator ports, by their names. It belongs to the
// target's executor.
type PortBook struct {
	left     map[string]Absence // those that logged in before and are gone
	numbers  map[string]uint32  // by which devices tell who changed what
	last     uint32
	powerOns uint64 // losses of power that were counted
}

// NewPortBook returns an empty one.
func NewPortBook() PortBook {
	return PortBook{left: make(map[string]Absence), numbers: make(map[string]uint32)}
}

// Number returns the number of an initiator port, from 1 on. Sessions of a port that come one after
// the other have the same one, unless very many others came between: then it is a new one, and the
// port is taken for another.
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

// PowerOn counts a unit's loss of power and returns its number, from 1 on.
func (b *PortBook) PowerOn() uint64 {
	b.powerOns++
	return b.powerOns
}

// Absence is what a port that has gone had heard of losses of power. The zero value has heard of
// none.
type Absence struct {
	powerOns uint64   // it was there until this one
	unheard  []uint16 // LUNs that had one of which it had not heard
}

// Missed reports whether the port has yet to hear of a unit's last loss of power, by its number; 0
// is none since the target was made.
func (a Absence) Missed(lun uint16, powerOn uint64) bool {
	return powerOn > a.powerOns || slices.Contains(a.unheard, lun)
}

// maxUnheard bounds the LUNs of an Absence; a port with more counts as one that was never here.
const maxUnheard = 1024

// Leave notes that a port has gone, and at which LUNs a power-on was pending for it.
func (b *PortBook) Leave(port string, unheard []uint16) {
	if len(b.left) >= maxPorts {
		clear(b.left)
	}
	if delete(b.left, port); len(unheard) <= maxUnheard {
		b.left[port] = Absence{b.powerOns, unheard}
	}
}

// Left reports whether a port was here and has gone since the target was made, and what it had
// heard then.
func (b *PortBook) Left(port string) (a Absence, left bool) {
	a, left = b.left[port]
	return a, left
}
