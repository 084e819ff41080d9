// Packed leaves, and their memory. A leaf that is packed is the same leaf, with its sums, in few bytes.

package window

// LeafWindows is how many windows a leaf has.
const LeafWindows = 256

// Leaf is the windows of a leaf of a map, a node of the lowest level.
type Leaf = [LeafWindows]Slot

// Pack packs a leaf, gives back the memory of its windows, and returns the slot that leads to the
// packed one. It returns false, and changes nothing, if that would be too large: then the leaf is of
// windows of very many layers. What the windows refer to stays taken.
func (ws *Slab) Pack(leaf *Leaf, sums Sums) (Slot, bool) {
	ok := false
	if ws.buf, ok = ws.pack(ws.buf[:0], leaf, sums); !ok {
		return 0, false
	}
	ws.Forget(leaf)
	return ws.packed.put(ws.buf), true
}

// Unpack makes a leaf, which was empty, what a packed one is, gives back the memory of that, and
// returns its sums.
func (ws *Slab) Unpack(s Slot, leaf *Leaf) Sums {
	sums := ws.Copy(s, leaf)
	ws.packed.release(s)
	return sums
}

// Copy makes a leaf, which was empty, what a packed one is, and returns its sums. Who has it only
// looks at it, and gives it back with Forget.
func (ws *Slab) Copy(s Slot, leaf *Leaf) Sums { return ws.unpack(leaf, ws.packed.at(s)) }

// Forget gives back the memory of a leaf's windows, not what they refer to. The slots mean nothing
// any more.
func (ws *Slab) Forget(leaf *Leaf) {
	for _, s := range leaf {
		ws.forget(s)
	}
}

// Release forgets a packed leaf and gives back its memory, not what its windows refer to.
func (ws *Slab) Release(s Slot) { ws.packed.release(s) }

// Packed returns how many leaves are packed.
func (ws *Slab) Packed() int { return ws.packed.live }

// PackedBytes returns the memory that packed leaves are in.
func (ws *Slab) PackedBytes() uint64 { return ws.packed.used }

// packedSizes are the sizes that packed leaves are kept in. A leaf that would be larger is of windows
// of very many layers.
var packedSizes = [...]int{16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, maxPacked}

const (
	maxPacked       = 8192
	packedChunk     = 64 << 10
	packedClassBits = 5
)

// places is the memory of packed leaves, which are found by the slots that lead to them. It holds
// pointers to chunks alone.
type places struct {
	classes [len(packedSizes)]placeClass
	live    int
	used    uint64 // bytes of the places that are in use
	bytes   uint64 // of all chunks
}

// placeClass is the places of one size.
type placeClass struct {
	chunks [][]byte
	made   uint32 // places that were handed out once
	free   uint32 // 1 + one of these that is free, which leads to the next
}

// class returns the class of a slot, and the bytes of its place.
func (p *places) class(s Slot) (*placeClass, []byte) {
	n := s.Value() & (1<<packedClassBits - 1)
	c := &p.classes[n]
	return c, c.place(uint32(s.Value()>>packedClassBits), packedSizes[n])
}

func (c *placeClass) place(i uint32, size int) []byte {
	per := packedChunk / size
	return c.chunks[int(i)/per][int(i)%per*size:][:size]
}

// at returns a packed leaf, and what else its place has.
func (p *places) at(s Slot) []byte {
	_, b := p.class(s)
	return b
}

// sumsAt returns the sums of a packed leaf.
func (p *places) sumsAt(s Slot) Sums {
	u := unpacking{b: p.at(s)}
	return u.sums()
}

// put keeps a packed leaf, of maxPacked bytes at the most, and returns the slot that leads to it.
func (p *places) put(b []byte) Slot {
	n := 0
	for packedSizes[n] < len(b) {
		n++
	}
	c, size := &p.classes[n], packedSizes[n]
	i := c.made
	if c.free != 0 {
		i = c.free - 1
		c.free = le.Uint32(c.place(i, size))
	} else {
		if int(i) == len(c.chunks)*(packedChunk/size) {
			c.chunks = append(c.chunks, make([]byte, packedChunk))
			p.bytes += packedChunk
		}
		c.made++
	}
	copy(c.place(i, size), b)
	p.live++
	p.used += uint64(size)
	return Slot(i)<<(packedClassBits+kindBits) | Slot(n)<<kindBits | KindPacked
}

// release gives the place of a packed leaf back.
func (p *places) release(s Slot) {
	c, b := p.class(s)
	le.PutUint32(b, c.free)
	c.free = uint32(s.Value()>>packedClassBits) + 1
	p.live--
	p.used -= uint64(len(b))
}
