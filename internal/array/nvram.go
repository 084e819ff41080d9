package array

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/block"
)

// The NVRAM region:
//
//	+----------+----------------+---------------------+-----------+----------------+
//	| header   | counter rows   | page descriptors    | log ring  | data pages     |
//	| 4 KiB    | rows x 64 B    | pages x 64 B        | logBytes  | pages x 4 KiB  |
//	+----------+----------------+---------------------+-----------+----------------+
//
// Over a store that keeps no payload there are neither descriptors nor data pages.
//
// A data page is written, then its descriptor, then the log record whose sequence
// number the descriptor carries: a page counts only if that record is in the log
// or older than the checkpoint. Nothing that counts is ever overwritten in place.
// The rest of the header's page holds what is known to be durable: see durable.go.
//
// Header: 0 magic "ARRSIMNV" | 8 version u32 | 12 pages u32 | 16 logBytes u32 | 20 rows u32 | 24 crc32c u32 of
// bytes 0..23. Version 1 had 16384 rows, its checksum at 20, no pages in log records, no burial
// and no state block; it is read and becomes version 2 in place.
//
// Page descriptor, little endian:
//
//	 0 seq u64 (0: free) | 8 pool u16<<48 + physical page | 16 volume u32 | 20 valid sectors u8 | 21 marks u8, 0 u8 x2
//	24 crc32c of each sector u32 x8 | 56 origin of each sector, 4 bits x8 | 60 crc32c of bytes 0..59
//
// Counter row: 0 kind u8, key u8, pool u16, id u32 | 8.. counters u64 x7.
const (
	nvMagic      = "ARRSIMNV"
	nvVersion    = 2
	headerBytes  = 4096
	rowCount     = 65536
	rowCountV1   = 16384
	rowBytes     = 64
	descBytes    = 64
	rowsOffset   = headerBytes
	minLogBytes  = 64 << 10
	minCachePage = 256
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// nvram is the layout over a Region.
type nvram struct {
	region  block.Region
	b       []byte
	version uint32
	rows    int
	pages   int
	descOff int
	logOff  int
	logLen  int
	dataOff int
	payload bool // data pages are there
	// writing is for tests: it is called before bytes [off, off+n) are written, counters apart.
	writing func(off, n int)
}

func (n *nvram) touch(off, k int) {
	if n != nil && n.writing != nil {
		n.writing(off, k)
	}
}

func nvramSize(rows, pages, logBytes int, payload bool) int {
	n := rowsOffset + rows*rowBytes + logBytes
	if !payload { // nothing to recover: neither data nor descriptors
		return n
	}
	n += pages * descBytes
	n = (n + pageBytes - 1) &^ (pageBytes - 1)
	return n + pages*pageBytes
}

// openNVRAM lays out a fresh region or checks the layout of one that was used.
func openNVRAM(r block.Region, fresh bool, rows, pages, logBytes int, payload bool) (*nvram, error) {
	n := &nvram{region: r, b: r.Bytes(), version: nvVersion, rows: rows, pages: pages, logLen: logBytes, payload: payload}
	n.descOff = rowsOffset + rows*rowBytes
	n.logOff = n.descOff
	if payload {
		n.logOff += pages * descBytes
	}
	n.dataOff = (n.logOff + logBytes + pageBytes - 1) &^ (pageBytes - 1)
	if fresh {
		n.writeHeader()
		return n, nil
	}
	if le.Uint32(n.b[8:]) == 1 && le.Uint32(n.b[20:]) == crc32.Checksum(n.b[:20], castagnoli) {
		n.version = 1
	}
	switch {
	case n.version == nvVersion && le.Uint32(n.b[24:]) != crc32.Checksum(n.b[:24], castagnoli) && !mendBits(n.b, 24) || string(n.b[:8]) != nvMagic:
		return nil, fmt.Errorf("the write cache file is not one of arraysim's, or its header is damaged; restore it from a copy, or remove the data folder to start empty")
	case n.version == nvVersion && le.Uint32(n.b[8:]) != nvVersion:
		return nil, fmt.Errorf("the write cache file has format %d, this program reads format %d; use the version that wrote it", le.Uint32(n.b[8:]), nvVersion)
	case n.version == nvVersion && int(le.Uint32(n.b[20:])) != rows || int(le.Uint32(n.b[12:])) != pages || int(le.Uint32(n.b[16:])) != logBytes:
		return nil, fmt.Errorf("the write cache was made with another size (%d MiB); set cache size back to it", int(le.Uint32(n.b[12:]))/(1<<20/pageBytes))
	}
	return n, nil
}

// writeHeader writes the header of the present version.
func (n *nvram) writeHeader() {
	copy(n.b, nvMagic)
	le.PutUint32(n.b[8:], nvVersion)
	le.PutUint32(n.b[12:], uint32(n.pages))
	le.PutUint32(n.b[16:], uint32(n.logLen))
	le.PutUint32(n.b[20:], uint32(n.rows))
	le.PutUint32(n.b[24:], crc32.Checksum(n.b[:24], castagnoli))
	n.version = nvVersion
}

func (n *nvram) dataAt(page uint32) int { return n.dataOff + int(page)*pageBytes }

func (n *nvram) data(page uint32) []byte {
	o := n.dataAt(page)
	return n.b[o : o+pageBytes : o+pageBytes]
}

func (n *nvram) descAt(page uint32) int { return n.descOff + int(page)*descBytes }

func (n *nvram) desc(page uint32) []byte {
	o := n.descAt(page)
	return n.b[o : o+descBytes : o+descBytes]
}

func (n *nvram) log() []byte { return n.b[n.logOff : n.logOff+n.logLen] }

// descView reads and writes a page descriptor.
type descView []byte

func (d descView) seq() uint64            { return le.Uint64(d) }
func (d descView) key() pageKey           { return pageKey(le.Uint64(d[8:])) }
func (d descView) vol() uint32            { return le.Uint32(d[16:]) }
func (d descView) mask() uint8            { return d[20] }
func (d descView) crc(i int) uint32       { return le.Uint32(d[24+4*i:]) }
func (d descView) origins() uint32        { return le.Uint32(d[56:]) }
func (d descView) valid() bool            { return le.Uint32(d[60:]) == crc32.Checksum(d[:60], castagnoli) }
func (d descView) setCRC(i int, c uint32) { le.PutUint32(d[24+4*i:], c) }

func originAt(origins uint32, i int) block.Origin { return block.Origin(origins >> (4 * i) & 15) }

// seal writes all of a descriptor but the sector checksums, which are there already.
func (d descView) seal(seq uint64, k pageKey, vol uint32, mask uint8, origins uint32) {
	le.PutUint64(d, seq)
	le.PutUint64(d[8:], uint64(k))
	le.PutUint32(d[16:], vol)
	le.PutUint32(d[20:], uint32(mask))
	le.PutUint32(d[56:], origins)
	le.PutUint32(d[60:], crc32.Checksum(d[:60], castagnoli))
}

// Marks of a buried descriptor.
const (
	markHome = 1 // its sectors are on the back end, and so is all that is older of its address
	markVoid = 2 // it was replaced or dropped; of what is older it says nothing
)

func (d descView) bury(mark byte) {
	d[21] |= mark
	le.PutUint32(d[60:], crc32.Checksum(d[:60], castagnoli))
}

func (d descView) buried() bool { return d[21] != 0 }

// bury marks the descriptor of a page.
func (n *nvram) bury(page uint32, mark byte) {
	n.touch(n.descAt(page), descBytes)
	descView(n.desc(page)).bury(mark)
}

// clear makes the descriptor of a page one that was never used.
func (n *nvram) clear(page uint32) {
	n.touch(n.descAt(page), descBytes)
	clear(n.desc(page))
}
