// Who a unit is: the designators of VPD page 83h (SPC-5 7.7.6). A cache tells its LUN from others
// by block.Info.NAA, so that has the designator of 16 bytes where there is one, and else a number
// made of the one that is most likely to be the unit's own. EXTENDED COPY names the unit by the
// designator itself.

package lun

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"
)

// Types of designators of a logical unit.
const (
	designT10     = 1
	designEUI64   = 2
	designNAA     = 3
	designName    = 8
	designUUID    = 10
	vendorLen     = 8
	maxCopyName   = 20 // of a designator in an EXTENDED COPY descriptor (SPC-4 6.4.4.3)
	uuidHead      = 2  // what comes before the UUID itself
	identityMark  = 0x60
	identityOwner = 4 // bytes before the hash: NAA 6 of no company
)

// designator is a name of the unit.
type designator struct {
	codeSet, kind byte
	id            []byte
}

// rank orders designators by how sure it is that no other unit has the same one; -1 is none that
// could be used. product is the product identification of the standard inquiry data.
func (n designator) rank(product string) int {
	if len(bytes.Trim(n.id, "\x00")) == 0 {
		return -1
	}
	switch size := len(n.id); n.kind {
	case designNAA:
		switch n.id[0] >> 4 {
		case 6:
			if size == 16 {
				return 8
			}
		case 5, 2:
			if size == 8 {
				return 7
			}
		case 3: // assigned locally
			if size == 8 {
				return 3
			}
		}
	case designEUI64:
		if size == 8 || size == 12 || size == 16 {
			return 6
		}
	case designUUID:
		if size == uuidHead+16 && len(bytes.Trim(n.id[uuidHead:], "\x00")) > 0 {
			return 5
		}
	case designName:
		return 4
	case designT10:
		// Vendor and product alone are those of every unit of the array.
		if size > vendorLen {
			if own := strings.TrimSpace(string(bytes.Trim(n.id[vendorLen:], "\x00"))); own != "" && own != product {
				return 2
			}
		}
	}
	return -1
}

// unitName chooses the designator of a device identification page that names the logical unit best;
// none has no id. The order of the page does not matter.
func unitName(page []byte, product string) (best designator) {
	var names []designator
	for p := page[min(4, len(page)):]; len(p) >= 4 && len(p) >= 4+int(p[3]); p = p[4+int(p[3]):] {
		n := designator{p[0] & 0x0f, p[1] & 0x0f, p[4 : 4+int(p[3])]}
		if p[1]>>4&3 == 0 && n.rank(product) >= 0 { // of the logical unit
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return best
	}
	return slices.MinFunc(names, func(a, b designator) int {
		return cmp.Or(cmp.Compare(b.rank(product), a.rank(product)), bytes.Compare(a.id, b.id))
	})
}

// identity is the 16 bytes that tell the unit from others: its NAA designator of 16 bytes, or a
// hash of another one in the same form. Zero: it has none.
func (n designator) identity() (id [16]byte) {
	switch {
	case len(n.id) == 0:
	case n.kind == designNAA && len(n.id) == 16:
		copy(id[:], n.id)
	default:
		sum := sha256.Sum256(append([]byte{n.codeSet, n.kind}, n.id...))
		id[0] = identityMark
		copy(id[identityOwner:], sum[:])
	}
	return id
}

// copies reports whether an EXTENDED COPY can name the unit by this.
func (n designator) copies() bool { return len(n.id) > 0 && len(n.id) <= maxCopyName }
