package metrics

import (
	"encoding/binary"
	"errors"
	"math"
)

// The compact protocol of Apache Thrift, as far as the metadata of Parquet files has it.

// Types of fields and of elements.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftI32    = 5
	thriftI64    = 6
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

// thriftWriter appends values. last is the number of the field before, of each open struct.
type thriftWriter struct {
	b    []byte
	last []int
}

func (w *thriftWriter) open()  { w.last = append(w.last, 0) }
func (w *thriftWriter) close() { w.b, w.last = append(w.b, 0), w.last[:len(w.last)-1] }

func (w *thriftWriter) field(id int, kind byte) {
	last := &w.last[len(w.last)-1]
	w.b = append(w.b, byte(id-*last)<<4|kind) // numbers are never more than 15 apart
	*last = id
}

func (w *thriftWriter) i32(id int, v int64) {
	w.field(id, thriftI32)
	w.b = binary.AppendVarint(w.b, v) // a varint of Go's is zigzag too
}

func (w *thriftWriter) i64(id int, v int64) {
	w.field(id, thriftI64)
	w.b = binary.AppendVarint(w.b, v)
}

func (w *thriftWriter) text(id int, s string) {
	w.field(id, thriftBinary)
	w.bytes(s)
}

func (w *thriftWriter) bytes(s string) {
	w.b = append(binary.AppendUvarint(w.b, uint64(len(s))), s...)
}

// in opens a struct that is a field.
func (w *thriftWriter) in(id int) {
	w.field(id, thriftStruct)
	w.open()
}

func (w *thriftWriter) list(id, n int, kind byte) {
	w.field(id, thriftList)
	if n < 15 {
		w.b = append(w.b, byte(n)<<4|kind)
		return
	}
	w.b = binary.AppendUvarint(append(w.b, 0xf0|kind), uint64(n))
}

var errThrift = errors.New("its metadata is damaged")

// thriftReader reads values. After an error all it reads is nothing.
type thriftReader struct {
	b   []byte
	err error
}

func (r *thriftReader) fail() {
	r.b, r.err = nil, errThrift
}

func (r *thriftReader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *thriftReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *thriftReader) int() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *thriftReader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail()
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// fields calls fn for each field of a struct; fn reads the field, or returns false and it is
// passed over. A boolean is in its kind and has nothing to be read.
func (r *thriftReader) fields(fn func(id int, kind byte) bool) {
	id := 0
	for r.err == nil {
		head := r.byte()
		kind := head & 15
		if r.err != nil || kind == 0 {
			return
		}
		if delta := int(head >> 4); delta > 0 {
			id += delta
		} else {
			id = int(r.int())
		}
		if !fn(id, kind) {
			r.skip(kind, 0)
		}
	}
}

// list calls fn for each element of a list.
func (r *thriftReader) list(fn func()) {
	n, _ := r.listHead()
	for i := 0; i < n && r.err == nil; i++ {
		fn()
	}
}

func (r *thriftReader) listHead() (n int, kind byte) {
	head := r.byte()
	size := uint64(head >> 4)
	if size == 15 {
		size = r.uvarint()
	}
	if size > uint64(len(r.b)) { // an element has a byte at the least
		r.fail()
		return 0, 0
	}
	return int(size), head & 15
}

// skip passes over a value. Structures that are nested deeper than any of Parquet's are damage.
func (r *thriftReader) skip(kind byte, depth int) {
	if depth > 16 {
		r.fail()
	}
	switch kind {
	case thriftTrue, thriftFalse:
	case 3:
		r.byte()
	case 4, thriftI32, thriftI64:
		r.uvarint()
	case 7:
		if len(r.b) < 8 {
			r.fail()
			return
		}
		r.b = r.b[8:]
	case thriftBinary:
		r.text()
	case thriftList, 10:
		n, of := r.listHead()
		for i := 0; i < n && r.err == nil; i++ {
			if of == thriftTrue || of == thriftFalse {
				r.byte()
				continue
			}
			r.skip(of, depth+1)
		}
	case thriftStruct:
		for r.err == nil {
			head := r.byte()
			if head&15 == 0 {
				return
			}
			if head>>4 == 0 {
				r.int()
			}
			r.skip(head&15, depth+1)
		}
	default: // Parquet has no maps
		r.fail()
	}
}

// size is a number that is a length or a place in a file.
func (r *thriftReader) size() int64 {
	n := r.int()
	if n < 0 || n > math.MaxInt64/4 {
		r.fail()
		return 0
	}
	return n
}
