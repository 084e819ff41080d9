// Package layout has the sizes that the firmware's parts agree on, the names of physical addresses,
// and sets of sectors. It holds no state: constants and arithmetic only. Whoever changes a size
// here changes the format on disk.
//
// # Units
//
// A sector is 512 bytes. A page is 4 KiB: what one page of the write cache holds. A window is 64
// KiB of a volume's address space, aligned: what one entry of the extent map describes. A grain is
// 64 KiB of a pool's physical space, aligned: the unit of allocation and of reference counting. An
// extent is 64 grains (4 MiB) and lies on one mdisk. A piece is up to 256 KiB of a write: what one
// log record commits.
//
// A physical address is a sector of a pool, counted over its extents; see alloc.Space.Locate.
package layout

import "github.com/arraysim/arraysim/internal/block"

// Windows and grains have the same size, so that a window whose data lies in one grain needs no
// more than the grain's number.
const (
	WindowShift   = 7 // log2 of sectors per window and per grain
	WindowSectors = 1 << WindowShift
	GrainBytes    = WindowSectors * block.SectorSize
)

// Pages.
const (
	PageSectors    = 8
	PageBytes      = PageSectors * block.SectorSize
	GrainPageShift = 4 // log2 of pages per grain
	GrainPages     = 1 << GrainPageShift
)

// Extents.
const (
	ExtentGrains  = 64
	ExtentSectors = ExtentGrains * WindowSectors
	ExtentBytes   = ExtentSectors * block.SectorSize
)

// A write that is longer than a piece is admitted and committed piece by piece, as SBC allows. A
// piece need not be aligned: hence one page and one window more than it is long.
const (
	PieceSectors = 512
	PiecePages   = PieceSectors/PageSectors + 1
	PieceWindows = PieceSectors/WindowSectors + 1
)

// PageKey names 4 KiB of the array's physical space: a pool in the upper 16 bits, and the page of
// that pool. Sixteen keys in a row, from a multiple of sixteen on, are the pages of one grain.
type PageKey uint64

const poolShift = 48

// KeyOf returns the key of the page that a physical sector of a pool lies in.
func KeyOf(pool uint16, phys uint64) PageKey {
	return PageKey(uint64(pool)<<poolShift | phys/PageSectors)
}

// Pool returns the number of the key's pool.
func (k PageKey) Pool() uint16 { return uint16(k >> poolShift) }

// Phys returns the physical sector that the page begins at.
func (k PageKey) Phys() uint64 { return uint64(k&(1<<poolShift-1)) * PageSectors }

// PagesOf returns the number of pages that n sectors from one on touch.
func PagesOf(first, n uint64) int {
	return int((first+n+PageSectors-1)/PageSectors - first/PageSectors)
}
