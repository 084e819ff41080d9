package storetest

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
)

// differences are the pages of the NVRAM that may not be the same for programs and on the medium; all others are.
// A kernel has an MMU for that. The simulated one has to be told, or to compare everything.
type differences struct {
	pages []uint64 // a bit for each
	// blind: a program maps it that does not tell what it writes.
	blind bool
	// The program that maps it never tells of [untold, untoldEnd).
	untold, untoldEnd int
	asked             int // how often somebody took the program's word
}

// auditEvery is how often all pages are compared although the program tells what it writes.
const auditEvery = 64

func (d *differences) add(off, end int) {
	for i := off / page; i*page < end; i++ {
		for i/64 >= len(d.pages) {
			d.pages = append(d.pages, 0)
		}
		d.pages[i/64] |= 1 << (i % 64)
	}
}

func (d *differences) not(i int) { d.pages[i/64] &^= 1 << (i % 64) }

func (d *differences) has(i int) bool {
	return i/64 < len(d.pages) && d.pages[i/64]>>(i%64)&1 > 0
}

// of brings the set up to date for a file.
func (d *differences) of(n *inode) *differences {
	seen := n.seen()
	if d.blind {
		d.add(0, len(seen))
		return d
	}
	d.add(d.untold, d.untoldEnd)
	if d.asked++; d.asked%auditEvery > 0 {
		return d
	}
	for i := range len(seen) / page {
		if at := i * page; !d.has(i) && string(seen[at:at+page]) != string(n.medium[at:at+page]) {
			// A region that is not local would lose it.
			panic(fmt.Sprintf("storetest: page %d of the NVRAM was written to without an announcement", i))
		}
	}
	return d
}

// in returns the pages of [off, end) of a file, in their order. They may be removed meanwhile.
func (d *differences) in(n *inode, off, end int) iter.Seq[int] {
	d.of(n)
	return func(yield func(int) bool) {
		for w := off / page / 64; w < len(d.pages); w++ {
			for left := d.pages[w]; left != 0; left &= left - 1 {
				i := w*64 + bits.TrailingZeros64(left)
				if i < off/page {
					continue
				}
				if i*page >= min(end, len(n.medium)) || !yield(i) {
					return
				}
			}
		}
	}
}

// copyOf returns the set for a file that nobody maps, with the same contents.
func (d *differences) copyOf(n *inode) differences {
	return differences{pages: slices.Clone(d.of(n).pages)}
}
