// Where everything lies in NVRAM, and its header: how a region is opened, checked and formatted.
// Nobody else computes an offset.

package nvlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/block"
)

// The region and its header. NVRAM alone knows where something lies; all others ask for it by
// number. Who writes says so first (touch), so that a region that is not local memory hears of it.
// A region in one piece, such as a mapped file, has the parts in this order:
//
//	+----------+----------------+---------------------+-----------+----------------+
//	| header   | counter rows   | page descriptors    | log ring  | data pages     |
//	| 4 KiB    | rows x 64 B    | pages x 64 B        | logBytes  | pages x 4 KiB  |
//	+----------+----------------+---------------------+-----------+----------------+
//
// Over a store that keeps no payload there are neither descriptors nor data pages.
//
// Header: 0 magic "ARRSIMNV" | 8 version u32 | 12 pages u32 | 16 logBytes u32 | 20 rows u32 | 24
// crc32c u32 of bytes 0..23. Version 1 had 16384 rows, its checksum at 20, no pages in log records,
// no tombstones and no state block; it is read and becomes version 3 in place. Version 2 has the same
// layout, and a meta store without an account of space; see package metadata. The rest of the
// header's page holds what is known to be durable: see state.go. All integers are little endian.
const (
	magic   = "ARRSIMNV"
	Version = 3 // of the format that this package writes

	headerBytes = 4096
	headerSum   = 24 // where the header's checksum is

	// DefaultRows is the usual number of counter rows.
	DefaultRows = 65536
	rowsV1      = 16384
	// MinLogBytes is the length of the shortest ring: two records of the longest kind and some.
	MinLogBytes = 64 << 10
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// Layout is the sizes of a region's parts.
type Layout struct {
	Rows     int // counter rows
	Pages    int // data pages, each with a descriptor
	LogBytes int // of the ring, a multiple of 8
	// Payload: the store keeps bytes, so that there are data pages and descriptors.
	Payload bool
}

// Region returns what of it a store has to know.
func (l Layout) Region() block.RegionLayout {
	r := block.RegionLayout{State: headerBytes, Counters: l.Rows * rowBytes, Log: l.LogBytes}
	if l.Payload { // else there is nothing to recover: neither data nor descriptors
		r.Descriptors, r.Pages = l.Pages*descBytes, l.Pages*layout.PageBytes
	}
	return r
}

// NVRAM is a region with its layout.
type NVRAM struct {
	Layout
	memory
	version uint32 // of the format in the region
}

// Open opens or creates the region of a store and lays it out; fresh reports that it holds nothing
// yet. A region of the first format keeps its number of rows. An error is one line that says how to
// mend it.
func Open(store block.Store, name string, l Layout) (n *NVRAM, fresh bool, err error) {
	region, fresh, err := store.Region(name, l.Region())
	if errors.Is(err, block.ErrSize) {
		old := l
		old.Rows = rowsV1
		if r, f, e := store.Region(name, old.Region()); e == nil {
			region, fresh, err, l = r, f, nil, old
		}
	}
	if err != nil {
		return nil, false, err
	}
	// The first start may have died before it had written the magic, or the power have failed before its first flush.
	fresh = fresh || le.Uint64(region.Memory().State) == 0
	n, err = open(region, fresh, l)
	return n, fresh, err
}

// open lays out a fresh region or checks the layout of one that was used.
func open(r block.Region, fresh bool, l Layout) (*NVRAM, error) {
	n := &NVRAM{Layout: l, memory: memoryOf(r), version: Version}
	if fresh {
		n.writeHeader()
		return n, nil
	}
	if h, old := n.header, le.Uint32(n.header[8:]); old == 1 || old == 2 {
		if old == 1 && le.Uint32(h[20:]) == crc32.Checksum(h[:20], castagnoli) {
			n.version = 1
		} else {
			for _, v := range [...]uint32{2, Version} { // it died before the last word of writeHeader
				if le.Uint32(h[headerSum:]) == headerOf(v, h) {
					n.touch(block.PartState, 8, 4)
					le.PutUint32(h[8:], v)
				}
			}
		}
	}
	return n, n.checkHeader()
}

// headerOf returns the checksum that a header would have with another version.
func headerOf(version uint32, h []byte) uint32 {
	b := [headerSum]byte(h)
	le.PutUint32(b[8:], version)
	return crc32.Checksum(b[:], castagnoli)
}

// checkHeader compares the header of a region that was used with the layout.
func (n *NVRAM) checkHeader() error {
	h := n.header
	v2 := n.version >= 2
	whole := !v2 || le.Uint32(h[headerSum:]) == crc32.Checksum(h[:headerSum], castagnoli) || n.repairState(0, headerSum)
	pages := int(le.Uint32(h[12:]))
	if v2 && le.Uint32(h[8:]) == 2 {
		n.version = 2
	}
	switch {
	case !whole || string(h[:8]) != magic:
		return fmt.Errorf("the write cache file is not one of arraysim's, or its header is damaged; restore it from a copy, or remove the data folder to start empty")
	case v2 && le.Uint32(h[8:]) != n.version:
		return fmt.Errorf("the write cache file has format %d, this program reads format %d; use the version that wrote it", le.Uint32(h[8:]), Version)
	case v2 && int(le.Uint32(h[20:])) != n.Rows || pages != n.Pages || int(le.Uint32(h[16:])) != n.LogBytes:
		return fmt.Errorf("the write cache was created with a different size (%d MiB); set the cache size back to it", pages/(1<<20/layout.PageBytes))
	}
	return nil
}

// headerWords are where the header's words are in the order in which they are written, but for the
// checksum, which is first, and the magic, which is last.
var headerWords = [...]int{20, 16, 12, 8}

// writeHeader writes the header of the present format, over one of an older format or over none. The
// process may die behind any of its words: a header without magic is none, and one of an older version
// whose checksum is that of the present one only lacks that. A processor does not tear the words.
func (n *NVRAM) writeHeader() {
	h := n.header
	n.touch(block.PartState, 0, headerSum+4)
	var b [headerSum]byte
	copy(b[:], magic)
	le.PutUint32(b[8:], Version)
	le.PutUint32(b[12:], uint32(n.Pages))
	le.PutUint32(b[16:], uint32(n.LogBytes))
	le.PutUint32(b[20:], uint32(n.Rows))
	le.PutUint32(h[headerSum:], crc32.Checksum(b[:], castagnoli))
	for _, at := range headerWords {
		le.PutUint32(h[at:], le.Uint32(b[at:]))
	}
	le.PutUint64(h, le.Uint64(b[:]))
	n.version = Version
}

// Format returns the version of the format that the region has.
func (n *NVRAM) Format() uint32 { return n.version }

// repairState repairs a block of the state part, whose checksum is behind its first bytes.
func (n *NVRAM) repairState(at, bytes int) bool {
	n.touch(block.PartState, at, bytes+4)
	return repairBlock(n.header[at:], bytes)
}

// repairBlock looks for the one bit whose flip makes a block agree with the checksum behind its
// first n bytes, and flips it.
func repairBlock(b []byte, n int) bool {
	for bit := range (n + 4) * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		if le.Uint32(b[n:]) == crc32.Checksum(b[:n], castagnoli) {
			return true
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	return false
}
