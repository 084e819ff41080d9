// Books in the meta store: an entry for each extent that has references.

package account

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
)

// How books stand in the meta store:
//
//	a pool u16 extent u32   flags u8, grains with references u64, a bit each, then
//	                        their owner u32, or with flag 1 the owner of each, uvarint,
//	                        with flag 2 the references of each less one, uvarint
//	a                       1 u8: what the books say is not known to be right
//	                        2 u8: they have references that no page has, and are right but for these
//
// Integers in keys are big endian, in values little endian.

// Prefix is that of the keys.
const Prefix = "a"

const (
	keyBytes   = 7
	headBytes  = 9
	manyOwners = 1
	manyRefs   = 2
)

var le = binary.LittleEndian

func keyOf(pool uint16, extent uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16([]byte(Prefix), pool), extent)
}

// touch notes that the entry of a grain's extent is another one, unless PutDerived comes there yet.
func (a *Account) touch(b *Book, grain uint64) {
	e := uint32(grain / layout.ExtentGrains)
	if a.Derived && (a.at.book < b.number || a.at.book == b.number && a.at.extent <= e) {
		return
	}
	if n, was := b.most(e), b.touched[e]; n > was {
		b.touched[e] = n
		b.bytes += int(n - was)
	}
}

// most returns how many bytes the entry of an extent has at the most, as long as no tenant is new to it.
func (b *Book) most(extent uint32) uint16 {
	const perGrain = layout.ExtentGrains * binary.MaxVarintLen32
	n := uint16(keyBytes + headBytes + 4)
	if b.space.SeveralOwners(extent) {
		n += perGrain
	}
	if _, several := b.refs.Extent(extent); several {
		n += perGrain
	}
	return n
}

// Touched returns how many bytes the entries have at the most that the batch still needs: a store takes no batch that
// is larger than its limit.
func (a *Account) Touched() (bytes int) {
	if a.Derived {
		return 0
	}
	for _, b := range a.books {
		bytes += b.bytes
	}
	return bytes
}

// Unsure says that a book is not known to be right, or has references that nobody knows: the next start reads all leaves.
func (a *Account) Unsure() { a.unsure = !a.Off }

// Mark is what the store says of its account beside the entries.
type Mark uint8

const (
	Right    Mark = iota // nothing
	NotKnown             // it is not known to be right
	TooMuch              // it has references that no page has: what it says is free is free
)

// MarkOf returns what the value of the entry with the key Prefix says; nil: there is none.
func MarkOf(value []byte) Mark {
	switch {
	case value == nil:
		return Right
	case len(value) == 1 && Mark(value[0]) == TooMuch:
		return TooMuch
	}
	return NotKnown
}

// Over says that the store has marked its account as one that has TooMuch, and that it is used as it is.
func (a *Account) Over() { a.over, a.said = true, true }

// HasTooMuch reports whether the books have references that no page has. They stay until the account is derived.
func (a *Account) HasTooMuch() bool { return a.over }

// Derive says that the books are derived from all leaves. Where unmarked, the next batch says that what the store has is
// not known to be right.
func (a *Account) Derive(unmarked bool) { a.Derived, a.unmarked = true, unmarked }

// EndBatch puts the entries of what has changed since the last batch. Everything that was put before has to be in the same
// one.
func (a *Account) EndBatch(put func(key, value []byte)) {
	switch {
	case a.unmarked || a.unsure && !a.Derived:
		a.unmarked, a.unsure, a.said = false, a.unsure && a.Derived, true
		put([]byte(Prefix), []byte{byte(NotKnown)})
	case a.over && !a.said && !a.Derived:
		a.said = true
		put([]byte(Prefix), []byte{byte(TooMuch)})
	}
	if a.Derived {
		return
	}
	a.putTouched(put)
}

func (a *Account) putTouched(put func(key, value []byte)) {
	for _, b := range a.books {
		for _, e := range slices.Sorted(maps.Keys(b.touched)) {
			put(keyOf(b.pool, e), b.encode(e))
		}
		clear(b.touched)
		b.bytes = 0
		b.forget()
	}
}

// What one call of PutDerived does: it looks at some extents, and puts a few entries at the most.
const (
	derivedLooks = 4096
	derivedPuts  = 64
)

// PutDerived puts some of the entries of what was derived from all leaves. When the store has them all, Derived ends, and
// the store knows that they are right, unless one is Unsure since.
func (a *Account) PutDerived(put func(key, value []byte)) {
	for looks, puts := 0, 0; a.at.book < len(a.books); a.at.extent++ {
		b := a.books[a.at.book]
		if int64(a.at.extent)*layout.ExtentGrains >= b.space.Grains() {
			a.at.book, a.at.extent = a.at.book+1, ^uint32(0)
			continue
		}
		if looks++; looks > derivedLooks || puts == derivedPuts {
			return
		}
		if v := b.encode(a.at.extent); v != nil {
			put(keyOf(b.pool, a.at.extent), v)
			b.bytes -= int(b.touched[a.at.extent])
			delete(b.touched, a.at.extent)
			puts++
		}
	}
	a.putTouched(put) // what there was and is no more
	a.Derived, a.unmarked, a.said = false, false, false
	put([]byte(Prefix), nil)
}

// encode returns the entry of an extent, nil if it has no references.
func (b *Book) encode(extent uint32) []byte {
	grains, several := b.refs.Extent(extent)
	if grains == 0 {
		return nil
	}
	first := uint64(extent) * layout.ExtentGrains
	owner, many := b.space.Owner(first+uint64(bits.TrailingZeros64(grains))), uint8(0)
	for left := grains; left != 0; left &= left - 1 {
		if b.space.Owner(first+uint64(bits.TrailingZeros64(left))) != owner {
			many |= manyOwners
			break
		}
	}
	for left := grains; several && left != 0; left &= left - 1 {
		if b.refs.Of(first+uint64(bits.TrailingZeros64(left))) > 1 {
			many |= manyRefs
			break
		}
	}
	v := le.AppendUint64([]byte{many}, grains)
	if many&manyOwners == 0 {
		v = le.AppendUint32(v, owner)
	}
	for left := grains; many&manyOwners != 0 && left != 0; left &= left - 1 {
		v = binary.AppendUvarint(v, uint64(b.space.Owner(first+uint64(bits.TrailingZeros64(left)))))
	}
	for left := grains; many&manyRefs != 0 && left != 0; left &= left - 1 {
		v = binary.AppendUvarint(v, uint64(b.refs.Of(first+uint64(bits.TrailingZeros64(left)))-1))
	}
	return v
}

// Load takes an entry with Prefix into the book of its pool and into the space, which count nothing of its extent yet.
// known is false for one of a pool that there is not; then it is to be removed. An error says that it means nothing.
func (a *Account) Load(key, value []byte) (known bool, err error) {
	bad := fmt.Errorf("an entry of the account of space is damaged")
	if len(key) != keyBytes || len(value) < headBytes {
		return false, bad
	}
	b := a.bookOf(binary.BigEndian.Uint16(key[1:]))
	if b == nil {
		return false, nil
	}
	extent := binary.BigEndian.Uint32(key[3:])
	many, grains, rest := value[0], le.Uint64(value[1:]), value[headBytes:]
	if uint64(extent) >= uint64(b.space.Grains())/layout.ExtentGrains {
		return true, fmt.Errorf("the account of space goes beyond the end of its pool; the data folder mixes files of two arrays")
	}
	var owners, refs [layout.ExtentGrains]uint32
	read := func(into *[layout.ExtentGrains]uint32, plus uint32) {
		for left := grains; left != 0; left &= left - 1 {
			x, n := binary.Uvarint(rest)
			if n <= 0 || x > uint64(^uint32(0)-plus) {
				err = bad
				return
			}
			into[bits.TrailingZeros64(left)], rest = uint32(x)+plus, rest[n:]
		}
	}
	if many&manyOwners != 0 {
		read(&owners, 0)
	} else if len(rest) < 4 {
		return true, bad
	} else {
		for i := range owners {
			owners[i] = le.Uint32(rest)
		}
		rest = rest[4:]
	}
	for i := range refs {
		refs[i] = 1
	}
	if many&manyRefs != 0 {
		read(&refs, 1)
	}
	if err != nil || len(rest) > 0 {
		return true, bad
	}
	for left := grains; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		g := uint64(extent)*layout.ExtentGrains + uint64(i)
		b.refs.Put(g, refs[i])
		b.space.Restore(g, refs[i], owners[i])
	}
	return true, nil
}

// Leftover says that the store has an entry that is not known to be right: it is put again, or removed.
func (a *Account) Leftover(key []byte) (known bool) {
	if len(key) != keyBytes {
		return false
	}
	b := a.bookOf(binary.BigEndian.Uint16(key[1:]))
	extent := binary.BigEndian.Uint32(key[3:])
	if b == nil || uint64(extent) >= uint64(b.space.Grains())/layout.ExtentGrains {
		return false
	}
	b.touched[extent] = 0
	return true
}

// bookOf returns the book of a pool, nil if there is none.
func (a *Account) bookOf(pool uint16) *Book {
	for _, b := range a.books {
		if b.pool == pool {
			return b
		}
	}
	return nil
}

// OpenPool opens the book of a pool, be it without volumes.
func (a *Account) OpenPool(pool uint16, space *alloc.Space) { a.open(pool, space) }

// OpenGone puts a volume that is no more in the book of its pool, and returns the space of that; nil: there is no such pool.
func (a *Account) OpenGone(vol uint32, pool uint16) *alloc.Space {
	b := a.bookOf(pool)
	if b == nil {
		return nil
	}
	a.Open(vol, pool, b.space)
	return b.space
}

// Pool returns the pool that a volume's data lies in, 0 if nothing is stored. Preconditions: Open.
func (a *Account) Pool(vol uint32) uint16 {
	if a.Off {
		return 0
	}
	return a.book(vol).pool
}
