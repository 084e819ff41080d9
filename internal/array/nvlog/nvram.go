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
// number. Who writes says so first (touch), so that tests can make the process die within the
// update.
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
// no tombstones and no state block; it is read and becomes version 2 in place. The rest of the
// header's page holds what is known to be durable: see state.go. All integers are little endian.
const (
	magic   = "ARRSIMNV"
	Version = 2 // of the format that this package writes

	headerBytes = 4096
	headerSum   = 24 // where the header's checksum is
	rowsOffset  = headerBytes

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

// Size returns the bytes of a region with this layout.
func (l Layout) Size() int {
	n := rowsOffset + l.Rows*rowBytes + l.LogBytes
	if !l.Payload { // nothing to recover: neither data nor descriptors
		return n
	}
	n += l.Pages * descBytes
	return pageAligned(n) + l.Pages*layout.PageBytes
}

func pageAligned(n int) int { return (n + layout.PageBytes - 1) &^ (layout.PageBytes - 1) }

// NVRAM is a region with its layout.
type NVRAM struct {
	Layout
	region  block.Region
	b       []byte
	version uint32 // of the format in the region
	descOff int
	logOff  int
	dataOff int
	// OnWrite is for tests: it is called before bytes of a part are written, counter rows apart.
	OnWrite func(part Part, b []byte)
}

// Part says which part of the region is written.
type Part uint8

// The parts.
const (
	PartHeader Part = iota // and the state block
	PartDescriptor
	PartLog
	PartData
)

// Open opens or creates the region of a store and lays it out; fresh reports that it holds nothing
// yet. A region of the first format keeps its number of rows. An error is one line that says how to
// mend it.
func Open(store block.Store, name string, l Layout) (n *NVRAM, fresh bool, err error) {
	region, fresh, err := store.Region(name, l.Size())
	if errors.Is(err, block.ErrSize) {
		old := l
		old.Rows = rowsV1
		if r, f, e := store.Region(name, old.Size()); e == nil {
			region, fresh, err, l = r, f, nil, old
		}
	}
	if err != nil {
		return nil, false, err
	}
	// A power cut may have come before the first flush.
	fresh = fresh || [24]byte(region.Bytes()[:24]) == [24]byte{}
	n, err = open(region, fresh, l)
	return n, fresh, err
}

// open lays out a fresh region or checks the layout of one that was used.
func open(r block.Region, fresh bool, l Layout) (*NVRAM, error) {
	n := &NVRAM{Layout: l, region: r, b: r.Bytes(), version: Version}
	n.descOff = rowsOffset + l.Rows*rowBytes
	n.logOff = n.descOff
	if l.Payload {
		n.logOff += l.Pages * descBytes
	}
	n.dataOff = pageAligned(n.logOff + l.LogBytes)
	if fresh {
		n.writeHeader()
		return n, nil
	}
	if le.Uint32(n.b[8:]) == 1 && le.Uint32(n.b[20:]) == crc32.Checksum(n.b[:20], castagnoli) {
		n.version = 1
	}
	return n, n.checkHeader()
}

// checkHeader compares the header of a region that was used with the layout.
func (n *NVRAM) checkHeader() error {
	v2 := n.version == Version
	whole := !v2 || le.Uint32(n.b[headerSum:]) == crc32.Checksum(n.b[:headerSum], castagnoli) || repairBlock(n.b, headerSum)
	pages := int(le.Uint32(n.b[12:]))
	switch {
	case !whole || string(n.b[:8]) != magic:
		return fmt.Errorf("the write cache file is not one of arraysim's, or its header is damaged; restore it from a copy, or remove the data folder to start empty")
	case v2 && le.Uint32(n.b[8:]) != Version:
		return fmt.Errorf("the write cache file has format %d, this program reads format %d; use the version that wrote it", le.Uint32(n.b[8:]), Version)
	case v2 && int(le.Uint32(n.b[20:])) != n.Rows || pages != n.Pages || int(le.Uint32(n.b[16:])) != n.LogBytes:
		return fmt.Errorf("the write cache was made with another size (%d MiB); set cache size back to it", pages/(1<<20/layout.PageBytes))
	}
	return nil
}

// writeHeader writes the header of the present format.
func (n *NVRAM) writeHeader() {
	copy(n.b, magic)
	le.PutUint32(n.b[8:], Version)
	le.PutUint32(n.b[12:], uint32(n.Pages))
	le.PutUint32(n.b[16:], uint32(n.LogBytes))
	le.PutUint32(n.b[20:], uint32(n.Rows))
	le.PutUint32(n.b[headerSum:], crc32.Checksum(n.b[:headerSum], castagnoli))
	n.version = Version
}

// Format returns the version of the format that the region has.
func (n *NVRAM) Format() uint32 { return n.version }

// touch announces that k bytes from an offset on are about to be written.
func (n *NVRAM) touch(part Part, off, k int) {
	if n.OnWrite != nil {
		n.announce(part, off, k)
	}
}

func (n *NVRAM) announce(part Part, off, k int) { n.OnWrite(part, n.b[off:off+k:off+k]) }

// ring returns the bytes of the log.
func (n *NVRAM) ring() []byte { return n.b[n.logOff : n.logOff+n.LogBytes] }

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
