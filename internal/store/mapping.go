package store

import (
	"math"
	"math/bits"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// Files in memory are also mapped, so that a transfer of what they hold already is a copy and no call. A call costs more than
// the copy of 4 KiB: the kernel looks the page up in a tree that is in none of the processor's caches, and moves it in its
// lists of pages used lately.
//
// Holes stay as they are: a page that is read by the mapping gets memory. So an mdisk keeps note of the pages that it has
// written, or has read with checksums, and everything else goes by calls. A note that is wrong costs a page of memory. Where
// there is no memory, or where somebody has cut the file, the access is a SIGBUS: the transfer is then done by calls, which say
// what is wrong.

// viewer is a DataFile that may be mapped as it is.
type viewer interface {
	// View maps the first size bytes; nil if it is no file in memory, or cannot be mapped. The file's Close ends it.
	View(size int64) []byte
}

// View implements viewer. With one processor nothing is mapped: that may be User Mode Linux, which hands each page to its host
// at its first use, for longer than 20 calls take.
func (o *osFile) View(size int64) []byte {
	if !o.memory || alone || bits.UintSize < 64 || o.view != nil || !reserveViews(size) {
		return o.view
	}
	b, err := unix.Mmap(o.fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		viewBytes.Add(-size)
		return nil
	}
	_ = unix.Madvise(b, unix.MADV_DONTDUMP)
	o.view = b
	return b
}

// unview ends the mapping.
func (o *osFile) unview() error {
	if o.view == nil {
		return nil
	}
	b := o.view
	o.view = nil
	defer viewBytes.Add(-int64(len(b)))
	return unix.Munmap(b)
}

// viewBytes is what all mappings of the process take of its address space.
var viewBytes atomic.Int64

// mostViews returns what they may take: an eighth of what a process has, which is 128 TiB on amd64, and may be 512 GiB elsewhere.
// Files are sparse, and may be larger than that together: what goes by calls loses time, and a heap that finds no room ends the
// process.
var mostViews = func() int64 {
	if runtime.GOARCH == "amd64" {
		return 16 << 40
	}
	return 64 << 30
}

// reserveViews takes so many bytes of the address space for a mapping, if there are so many. Where it is limited (ulimit -v)
// all of it is the heap's.
func reserveViews(size int64) bool {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &l); err != nil || l.Cur != unix.RLIM_INFINITY {
		return false
	}
	if viewBytes.Add(size) > mostViews() {
		viewBytes.Add(-size)
		return false
	}
	return true
}

const viewPage = 4096

// view is both files of an mdisk in memory, and which pages of its data are there.
type view struct {
	data, sums []byte   // nil: they are not mapped
	held       pageBits // only touched on the executor
}

// openView maps the files where that is possible.
func (m *fileMedium) openView() {
	data, ok := m.f.(viewer)
	sums, ok2 := m.sums.(viewer)
	if !ok || !ok2 || !m.s.instant || m.size > math.MaxInt-sumHeader {
		return
	}
	d, c := data.View(int64(m.size)), sums.View(sumAt(m.size))
	if d != nil && c != nil {
		m.view = view{data: d, sums: c, held: makePageBits(m.size)}
	}
}

// inView tells whether a transfer may be done by the mapping. Preconditions: the executor is held.
func (m *fileMedium) inView(io *block.IO) bool {
	return m.view.data != nil && io.N > 0 && io.Off+io.N <= m.size && m.view.held.all(io.Off/viewPage, (io.Off+io.N-1)/viewPage)
}

// hold notes that a transfer has found its pages in memory, or put them there: sums are its checksums, of which a read's say what
// was written. Preconditions: the executor is held.
func (m *fileMedium) hold(io *block.IO, sums []byte) {
	if m.view.data == nil || io.N == 0 || io.Off+io.N > m.size {
		return
	}
	first, last := io.Off/viewPage, (io.Off+io.N-1)/viewPage
	if io.Write {
		m.view.held.set(first, last)
		return
	}
	for page := first; page <= last; page++ {
		from, to := max(page*viewPage, io.Off), min((page+1)*viewPage, io.Off+io.N)
		for at := from; at < to; at += block.SectorSize {
			if le.Uint32(sums[(at-io.Off)/block.SectorSize*sumBytes:]) != 0 {
				m.view.held.set(page, page)
				break
			}
		}
	}
}

// loosen forgets the pages of a range that is discarded. Preconditions: the executor is held.
func (m *fileMedium) loosen(off, n uint64) {
	if end := min(off+n, m.size); m.view.data != nil && off < end {
		m.view.held.clear(off/viewPage, (end-1)/viewPage)
	}
}

// transferInView does one operation by the mapping; false: it has to be done by calls, which say why. It may be called beside
// the executor, by who keeps the medium open.
func (m *fileMedium) transferInView(io *block.IO, own *scratch) (ok bool) {
	at := sumAt(io.Off)
	sums := m.view.sums[at : at+int64(io.N/block.SectorSize*sumBytes)]
	data := m.view.data[io.Off : io.Off+io.N]
	if !io.Write {
		list := own.sized(io.N)
		return m.copyView(io.Vec, data, list[0], sums, false) && m.verify(io, list[0]) == nil
	}
	list := own.of(io)
	return m.copyView(io.Vec, data, list[0], sums, true)
}

// copyView copies between a transfer's buffers and the mapping: data, then its checksums. false: a page could not be had.
func (m *fileMedium) copyView(vec [][]byte, data, own, sums []byte, write bool) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, fault := r.(interface{ Addr() uintptr }); !fault {
				panic(r)
			}
		}
	}()
	if write {
		touch(data)
	}
	for _, b := range vec {
		if write {
			data = data[copy(data, b):]
		} else {
			data = data[copy(b, data):]
		}
	}
	if write {
		copy(sums, own)
	} else {
		copy(own, sums)
	}
	return true
}

// touch reads a byte of each page. A page that is not in the process's tables is put there by that, with its neighbours, for writes
// too; a write would put it there alone.
//
//go:noinline
func touch(b []byte) (sum byte) {
	for ; len(b) > viewPage; b = b[viewPage:] {
		sum += b[0]
	}
	return sum + b[0] + b[len(b)-1]
}

// pageBits is a set of pages; parts without any are nil.
type pageBits []*[partWords]uint64

// partWords are the words of a part: 4 KiB, for 128 MiB of data.
const (
	partWords = 512
	partPages = 64 * partWords
)

// makePageBits returns an empty set for the pages of so many bytes.
func makePageBits(bytes uint64) pageBits {
	return make(pageBits, (bytes+partPages*viewPage-1)/(partPages*viewPage))
}

// has tells whether the pages of a word that a mask means are all in the set.
func (p pageBits) has(page, mask uint64) bool {
	part := p[page/partPages]
	return part != nil && part[page/64%partWords]&mask == mask
}

// maskOf returns which pages of the word of page are from page to last.
func maskOf(page, last uint64) uint64 {
	mask := ^uint64(0) << (page & 63)
	if last|63 == page|63 {
		mask &= ^uint64(0) >> (63 - last&63)
	}
	return mask
}

// all tells whether pages first to last are all in the set.
func (p pageBits) all(first, last uint64) bool {
	for page := first; page <= last; page = page&^63 + 64 {
		if !p.has(page, maskOf(page, last)) {
			return false
		}
	}
	return true
}

// set adds pages first to last.
func (p pageBits) set(first, last uint64) {
	for page := first; page <= last; page = page&^63 + 64 {
		part := &p[page/partPages]
		if *part == nil {
			*part = new([partWords]uint64)
		}
		(*part)[page/64%partWords] |= maskOf(page, last)
	}
}

// clear takes pages first to last out.
func (p pageBits) clear(first, last uint64) {
	for page := first; page <= last; page = page&^63 + 64 {
		if part := p[page/partPages]; part != nil {
			part[page/64%partWords] &^= maskOf(page, last)
		}
	}
}
