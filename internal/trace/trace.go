// Package trace reads block I/O traces: what was recorded of a workload, to be
// replayed. It knows the formats of [Formats], finds out by itself which one a file has and how it
// is compressed (gzip, Zstandard, xz), and reads in constant memory.
//
// A [Reader] is a source of requests:
//
//	r, err := trace.Open("vm1.vscsi.zst", trace.Options{})
//	var rec trace.Record
//	for r.Next(&rec) == nil { ... }
//	err = r.Err()
//
// Records that make no sense are left out, counted and kept with their place
// ([Reader.Bad]); too large a share of them ends the trace with an error.
//
// A Reader is not safe for concurrent use.
package trace

import (
	"fmt"
	"strings"
)

// Op is what a request does.
type Op uint8

// Operations. Formats that do not say give reads.
const (
	Read Op = iota
	Write
)

func (o Op) String() string {
	if o == Write {
		return "write"
	}
	return "read"
}

// Record is one request.
type Record struct {
	// Time is nanoseconds since the first record; it never goes back. 0 if the
	// format has no times.
	Time int64
	Op   Op
	Disk uint16 // see Reader.Disks
	// Offset and Length in bytes. In a trace of objects Offset is the object's
	// identifier and Length its size.
	Offset uint64
	Length uint32
}

// SectorSize is the unit of formats that count in sectors.
const SectorSize = 512

// maxLength bounds a request: longer ones are bad records.
const maxLength = 1 << 30

// maxOffset bounds the end of a request, so that no address arithmetic overflows.
const maxOffset = 1 << 60

// format is one that a Reader knows.
type format struct {
	name, about string
	// detect tells whether the beginning of a trace looks like it. The whole
	// trace is shorter than the usual beginning if eof.
	detect func(head []byte, eof bool) bool
	// size of a binary record; 0 is text, by lines.
	size int
	// parse fills rec from a record; it reports false for what is no request and
	// no error either, such as a header.
	parse func(r *Reader, b []byte, rec *Record) (bool, error)
	times bool // records have times
	// unit in bytes of a list of block numbers, 0 for other formats.
	unit    int64
	objects bool
	wholeID bool // Offset is an identifier of 64 bits
	// tail is how many bytes follow a binary record that are not read.
	tail   func(b []byte) int
	custom bool // made for one reader
}

// formats in the order of detection: the stricter ones first.
var formats []*format

func init() {
	formats = []*format{blktrace, vscsi1, vscsi2, cloudPhysics, fioLog, blkparse, msr, spc, alibaba, tencent, arcList, textList, oracleGeneral, binaryList}
}

// FormatNames returns the names for Options.Format, each with what it is.
func FormatNames() [][2]string {
	var out [][2]string
	for _, f := range formats {
		out = append(out, [2]string{f.name, f.about})
	}
	return out
}

func formatByName(name string) (*format, error) {
	var names []string
	for _, f := range formats {
		if f.name == name {
			return f, nil
		}
		names = append(names, f.name)
	}
	return nil, fmt.Errorf("no trace format is named %q; choose from %s", name, strings.Join(names, ", "))
}

// check finds what cannot be right in a request.
func (rec *Record) check(f *format) error {
	switch {
	case rec.Length == 0:
		return errBad("its length is 0")
	case rec.Length > maxLength:
		return errBad("its length is more than 1 GiB")
	case !f.wholeID && rec.Offset > maxOffset-uint64(rec.Length):
		return errBad("it ends beyond 1 EiB")
	}
	return nil
}

// errBad is why a record is bad. A constant costs nothing to make.
type errBad string

func (e errBad) Error() string { return string(e) }
