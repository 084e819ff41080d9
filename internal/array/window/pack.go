// How a packed leaf is written: by runs of windows, so that what lies in sequence takes a few bytes,
// and each window of 4 KiB pages anywhere some eight. It is read back as it was, with the layers of
// each window in their order.

package window

import (
	"encoding/binary"
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// A packed leaf, all of uvarints but for masks and flags:
//
//	zero, anchored, data, promised     the sums of the leaf
//	n<<3 | kind                        n windows that are unmapped, zero or anchored
//	n<<3 | KindData, step              n windows of data, one behind the other
//	n<<3 | runApart, step              the same
//	n<<4 | states<<3 | KindDetail      a window of n layers, and with states the masks of zero and anchored:
//	    {flags, step, mask} x n        a layer
//
// A step leads from where the last run or layer would have gone on to where this one begins, in
// grains, or in sectors where flagApart, or the kind, says so. A mask has two bytes, a bit for each 4 KiB, or 16
// where a flag says that it has parts of one.
const (
	runApart = KindChild // no leaf has children

	flagApart = 1 // of a layer: the step is in sectors
	flagFine  = 2 // the mask has 16 bytes; of states: that of zero, and
	flagFine2 = 4 // that of anchored
)

// packing is a packed leaf that is being written.
type packing struct {
	b    []byte
	next uint64 // where data would go on
}

func (p *packing) uint(v uint64) { p.b = binary.AppendUvarint(p.b, v) }

// step appends the step to a physical sector, with what tells its unit before it.
func (p *packing) step(to uint64, grains, sectors uint64) {
	d := int64(to - p.next)
	if Aligned(uint64(d)) {
		p.uint(grains)
		d >>= layout.WindowShift
	} else {
		p.uint(sectors)
	}
	p.b = binary.AppendVarint(p.b, d)
}

// mask appends a mask in the form that isFine has said.
func (p *packing) mask(m layout.Mask) {
	if isFine(m) {
		p.b = le.AppendUint64(le.AppendUint64(p.b, m[0]), m[1])
		return
	}
	for _, w := range m { // bit 0 of each byte, side by side
		p.b = append(p.b, byte(w&eachByte*0x0102040810204080>>56))
	}
}

const eachByte = 0x0101010101010101

// isFine reports whether a mask has parts of 4 KiB.
func isFine(m layout.Mask) bool {
	return m[0]&eachByte*0xff != m[0] || m[1]&eachByte*0xff != m[1]
}

// flagIf returns a flag if a mask is fine.
func flagIf(m layout.Mask, flag uint64) uint64 {
	if isFine(m) {
		return flag
	}
	return 0
}

// pack appends a leaf to b, which it returns, and false if that would be larger than any place for it.
func (ws *Slab) pack(b []byte, leaf *Leaf, sums Sums) ([]byte, bool) {
	p := packing{b: b}
	for _, n := range [...]int64{sums.Zero, sums.Anchored, sums.Data, sums.Promised} {
		p.uint(uint64(n))
	}
	for i := 0; i < len(leaf); {
		s, n := leaf[i], 1
		switch s.Kind() {
		case KindDetail:
			p.window(ws, uint32(s.Value()))
		case KindData:
			for i+n < len(leaf) && leaf[i+n] == s.behind(n) {
				n++
			}
			p.step(s.Value(), uint64(n)<<kindBits|uint64(KindData), uint64(n)<<kindBits|uint64(runApart))
			p.next = s.behind(n-1).Value() + layout.WindowSectors
		default:
			for i+n < len(leaf) && leaf[i+n] == s {
				n++
			}
			p.uint(uint64(n)<<kindBits | uint64(s))
		}
		if i += n; len(p.b) > maxPacked {
			return p.b, false
		}
	}
	return p.b, true
}

// behind returns the slot of the n-th window behind one of data, where data goes on.
func (s Slot) behind(n int) Slot { return s + Slot(n)*layout.WindowSectors<<kindBits }

// window appends a window that is not of one piece.
func (p *packing) window(ws *Slab, head uint32) {
	layers, st := uint64(0), ws.statesOf(ws.at(head))
	for i := head; i != 0; i = ws.at(i).next {
		layers++
	}
	token := layers<<(kindBits+1) | uint64(KindDetail)
	if !st.empty() {
		token |= 1 << kindBits
	}
	p.uint(token)
	if !st.empty() {
		p.uint(flagIf(st.zero, flagFine) | flagIf(st.anchored, flagFine2))
		p.mask(st.zero)
		p.mask(st.anchored)
	}
	for i := head; i != 0; i = ws.at(i).next {
		d := ws.at(i)
		flags := flagIf(d.mask, flagFine)
		p.step(d.phys, flags, flags|flagApart)
		p.mask(d.mask)
		p.next = d.phys + layout.WindowSectors
	}
}

// unpacking is a packed leaf that is being read. What pack has written needs no checks.
type unpacking struct {
	b    []byte
	next uint64 // where data would go on
}

func (u *unpacking) uint() uint64 {
	v, n := binary.Uvarint(u.b)
	u.b = u.b[n:]
	return v
}

// step returns the physical sector that a step leads to.
func (u *unpacking) step(apart bool) uint64 {
	d, n := binary.Varint(u.b)
	u.b = u.b[n:]
	if !apart {
		d <<= layout.WindowShift
	}
	return u.next + uint64(d)
}

func (u *unpacking) mask(fine bool) (m layout.Mask) {
	if fine {
		m[0], m[1] = le.Uint64(u.b), le.Uint64(u.b[8:])
		u.b = u.b[16:]
		return m
	}
	for i, c := range u.b[:len(m)] {
		for ; c != 0; c &= c - 1 {
			m[i] |= 0xff << (8 * bits.TrailingZeros8(c))
		}
	}
	u.b = u.b[len(m):]
	return m
}

func (u *unpacking) sums() Sums {
	return Sums{Zero: int64(u.uint()), Anchored: int64(u.uint()), Data: int64(u.uint()), Promised: int64(u.uint())}
}

// unpack makes an empty leaf what pack has written, and returns its sums.
func (ws *Slab) unpack(leaf *Leaf, b []byte) Sums {
	u := unpacking{b: b}
	sums := u.sums()
	for i := 0; i < len(leaf); {
		kind, n := u.token()
		switch kind {
		case KindDetail:
			leaf[i] = u.window(ws, n)
			i++
			continue
		case KindData, runApart:
			first := u.run(kind, n)
			for k := range n {
				leaf[i+k] = first.behind(k)
			}
		default:
			for k := range n {
				leaf[i+k] = kind
			}
		}
		i += n
	}
	return sums
}

// layers calls fn for each layer of what pack has written, until it returns false. It makes no window.
func (u *unpacking) layers(fn func(base uint64, mask layout.Mask) bool) {
	u.sums()
	for i := 0; i < LeafWindows; {
		kind, n := u.token()
		switch kind {
		case KindDetail:
			u.states(n)
			for range n >> 1 {
				if base, mask := u.layer(); !mask.Empty() && !fn(base, mask) {
					return
				}
			}
			i++
			continue
		case KindData, runApart:
			first := u.run(kind, n)
			for k := range n {
				if !fn(first.behind(k).Value(), layout.MaskOf(0, layout.WindowSectors)) {
					return
				}
			}
		}
		i += n
	}
}

// token returns what comes next: the kind of windows, and how many; of one that is not of one piece,
// twice its layers, and one more where it has states.
func (u *unpacking) token() (kind Slot, n int) {
	t := u.uint()
	return Slot(t).Kind(), int(t >> kindBits)
}

// run returns the first of n windows of data.
func (u *unpacking) run(kind Slot, n int) Slot {
	first := Data(u.step(kind == runApart))
	u.next = first.behind(n-1).Value() + layout.WindowSectors
	return first
}

// states returns which sectors of a window are zero or anchored; n is its token's.
func (u *unpacking) states(n int) (st states) {
	if n&1 != 0 {
		flags := u.uint()
		st.zero = u.mask(flags&flagFine != 0)
		st.anchored = u.mask(flags&flagFine2 != 0)
	}
	return st
}

func (u *unpacking) layer() (base uint64, mask layout.Mask) {
	flags := u.uint()
	base = u.step(flags&flagApart != 0)
	u.next = base + layout.WindowSectors
	return base, u.mask(flags&flagFine != 0)
}

// window makes the details of a window; n is its token's.
func (u *unpacking) window(ws *Slab, n int) Slot {
	st := u.states(n)
	head, last := uint32(0), uint32(0)
	for range n >> 1 {
		id, d := ws.alloc()
		d.phys, d.mask = u.layer()
		if head == 0 {
			head = id
			ws.setStates(d, st)
		} else {
			ws.at(last).next = id
		}
		last = id
	}
	return detailOf(head)
}
