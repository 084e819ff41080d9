package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi"
)

// Memory of TestTorture. A seed moves a hundred megabytes: buffers are used again as soon as their command has
// ended, which also shows who looks at one after that.

// tortureMemory is the buffers that nobody uses, by the logarithm of their size.
type tortureMemory [32][][]byte

const smallestBuffer = 512

// get returns a buffer with anything in it.
func (f *tortureMemory) get(n int) []byte {
	class := bits.Len(uint(max(n, smallestBuffer) - 1))
	if k := len(f[class]); k > 0 {
		b := f[class][k-1]
		f[class] = f[class][:k-1]
		return b[:n]
	}
	return make([]byte, n, 1<<class)
}

// put takes a buffer back, one of get's or any other that nobody uses any more, and spoils each of its sectors.
func (f *tortureMemory) put(b []byte) {
	b = b[:cap(b)]
	if len(b) < smallestBuffer || len(b)&(len(b)-1) != 0 {
		return
	}
	for at := 0; at < len(b); at += smallestBuffer {
		b[at] ^= 0xA5
	}
	class := bits.Len(uint(len(b) - 1))
	f[class] = append(f[class], b)
}

// taskBuffers is the memory of a task.
type taskBuffers struct {
	free *tortureMemory
	used [][]byte
}

// Get returns memory for Data-In.
func (t *taskBuffers) Get(n int) []byte {
	b := t.free.get(n)
	t.used = append(t.used, b)
	return b
}

// ended takes back what a task had.
func (t *taskBuffers) ended(out []byte) {
	for _, b := range t.used {
		t.free.put(b)
	}
	t.free.put(out)
	t.used = nil
}

// dataIn returns a task's Data-In in one piece. It is good until the task's Done returns.
func (m *torture) dataIn(t *scsi.Task) []byte {
	if len(t.DataIn) == 1 {
		return t.DataIn[0]
	}
	m.scratch = m.scratch[:0]
	for _, b := range t.DataIn {
		m.scratch = append(m.scratch, b...)
	}
	return m.scratch
}

// contents returns n units that carry a stamp.
func (m *torture) contents(stamp uint64, n uint64) []byte {
	b := m.memory.get(int(n * unitBytes))
	stampOn(b, stamp)
	return b
}

// stampOn has all sectors carry a stamp: all are the same.
func stampOn(b []byte, stamp uint64) {
	if stamp == 0 {
		clear(b)
		return
	}
	for k := range 64 {
		binary.LittleEndian.PutUint64(b[8*k:], stamp+uint64(k)<<40)
	}
	for done := 512; done < len(b); done *= 2 {
		copy(b[done:], b[:done])
	}
}

// stampOf returns the stamp of a sector, and whether the sector is whole.
func stampOf(b []byte) (uint64, bool) {
	stamp := binary.LittleEndian.Uint64(b)
	for k := range 64 {
		want := stamp
		if stamp != 0 {
			want += uint64(k) << 40
		}
		if binary.LittleEndian.Uint64(b[8*k:]) != want {
			return stamp, false
		}
	}
	return stamp, true
}

// event is a line of a seed's log. It is made a text when somebody reads it.
type event struct {
	at     int64
	format string
	args   []any
}

func (e event) String() string {
	return fmt.Sprintf("%12.6f ", float64(e.at)/1e9) + fmt.Sprintf(e.format, e.args...)
}

// stamps looks at sectors one after the other: most are the same as the one before.
type stamps struct {
	last  []byte
	stamp uint64
	whole bool
}

func (s *stamps) of(sector []byte) (stamp uint64, whole bool) {
	if s.last == nil || !bytes.Equal(s.last, sector) {
		s.stamp, s.whole = stampOf(sector)
		s.last = sector
	}
	return s.stamp, s.whole
}

// nvramChanges are the pages of NVRAM that may not be what the medium has.
type nvramChanges struct {
	of []bool
}

func (c *nvramChanges) add(off, n int) {
	for i := off / unitBytes; i*unitBytes < off+n; i++ {
		c.of = append(c.of, make([]bool, max(0, i+1-len(c.of)))...)
		c.of[i] = true
	}
}

func (c *nvramChanges) has(off int) bool { return off/unitBytes < len(c.of) && c.of[off/unitBytes] }

// picture is what a flush takes: some pages as they were when it began.
type picture struct {
	pages []int
	data  []byte
}

// take fills a picture with what has changed, which counts as not changed from now on.
func (p *picture) take(nvram []byte, changed *nvramChanges) {
	p.pages, p.data = p.pages[:0], p.data[:0]
	for i, yes := range changed.of {
		if yes {
			p.pages = append(p.pages, i)
			p.data = append(p.data, nvram[i*unitBytes:min(len(nvram), (i+1)*unitBytes)]...)
		}
	}
	clear(changed.of)
}

// put has a medium take it.
func (p *picture) put(medium []byte) {
	at := 0
	for _, i := range p.pages {
		at += copy(medium[i*unitBytes:min(len(medium), (i+1)*unitBytes)], p.data[at:])
	}
}

// back says that its pages have not got there.
func (p *picture) back(changed *nvramChanges) {
	for _, i := range p.pages {
		changed.add(i*unitBytes, unitBytes)
	}
}

func noted(log []event) (lines []string) {
	for e := range slices.Values(log) {
		lines = append(lines, e.String())
	}
	return lines
}
