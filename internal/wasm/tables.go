package wasm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxTable is the most entries of a table. The runtime bounds memories and not tables, which a module may grow up to the
// maximum that it states itself, if it states one.
const maxTable = 1 << 20

// tableSection is the number of the section of tables (WebAssembly Core Specification 2.0, 5.5.7).
const tableSection = 4

// boundTables returns a module whose tables have a maximum of maxTable at most. Other sections stay as they are; the
// runtime checks them.
func boundTables(code []byte) ([]byte, error) {
	const header = 8
	if len(code) < header {
		return nil, errors.New("it is shorter than a header")
	}
	out := append([]byte(nil), code[:header]...)
	for r := (&reader{code[header:], nil}); len(r.rest) > 0; {
		id := r.byte()
		body := r.bytes(r.number())
		if r.err != nil {
			return nil, r.err
		}
		if id == tableSection {
			var err error
			if body, err = boundSection(body); err != nil {
				return nil, err
			}
		}
		out = binary.AppendUvarint(append(out, id), uint64(len(body)))
		out = append(out, body...)
	}
	return out, nil
}

// boundSection is boundTables for the content of the section.
func boundSection(body []byte) ([]byte, error) {
	r := &reader{body, nil}
	n := r.number()
	out := binary.AppendUvarint(nil, uint64(n))
	for i := uint32(0); i < n && r.err == nil; i++ {
		kind, flags, least, most := r.byte(), r.byte(), r.number(), uint32(maxTable)
		if flags&1 != 0 {
			most = min(most, r.number())
		}
		if r.err == nil && least > maxTable {
			return nil, fmt.Errorf("a table has %d entries, of %d at most", least, maxTable)
		}
		out = binary.AppendUvarint(append(out, kind, flags|1), uint64(least))
		out = binary.AppendUvarint(out, uint64(most))
	}
	return append(out, r.rest...), r.err
}

// reader reads numbers of a module; the first that is not there is an error.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) bytes(n uint32) []byte {
	if r.err != nil || uint64(n) > uint64(len(r.rest)) {
		r.err = errors.New("it ends in the middle of a section")
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// number reads an unsigned number of 32 bits in LEB128.
func (r *reader) number() uint32 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || n > 5 || v > 1<<32-1 {
		r.err = errors.New("a number in it is not valid")
		return 0
	}
	r.bytes(uint32(n))
	return uint32(v)
}
