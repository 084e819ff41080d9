package trace

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

var le = binary.LittleEndian

// SCSI operation codes of reads and writes, and what they are.
var scsiOps = map[uint64]Op{
	0x08: Read, 0x28: Read, 0xa8: Read, 0x88: Read,
	0x0a: Write, 0x2a: Write, 0xaa: Write, 0x8a: Write, 0x2e: Write, 0xae: Write, 0x8e: Write,
}

// The vscsi traces of ESXi, little-endian. Version 1, 32 bytes: serial number u32, length u32
// in bytes, scatter-gather elements u32, operation code u16, version u16, first sector u64, time u64 in us.
// Version 2, 40 bytes: operation code and version first, then the same, then the response time u64.
var (
	vscsi1 = &format{
		name: "vscsi", about: "ESXi vscsi trace, version 1 (binary)", size: 32, times: true,
		detect: func(head []byte, eof bool) bool { return vscsiLike(head, eof, 32, 12, 1) },
		parse: func(_ *Reader, b []byte, rec *Record) (bool, error) {
			return vscsiRecord(rec, le.Uint16(b[12:]), le.Uint32(b[4:]), le.Uint64(b[16:]), le.Uint64(b[24:]))
		},
	}
	vscsi2 = &format{
		name: "vscsi2", about: "ESXi vscsi trace, version 2 (binary)", size: 40, times: true,
		detect: func(head []byte, eof bool) bool { return vscsiLike(head, eof, 40, 0, 2) },
		parse: func(_ *Reader, b []byte, rec *Record) (bool, error) {
			return vscsiRecord(rec, le.Uint16(b), le.Uint32(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]))
		},
	}
)

func vscsiRecord(rec *Record, cmd uint16, length uint32, lbn, us uint64) (bool, error) {
	op, ok := scsiOps[uint64(cmd)]
	switch {
	case !ok && cmd < 0x100: // another command, not a bad record
		return false, nil
	case !ok:
		return false, errBad("its operation code has more than 8 bits")
	case lbn > maxOffset/SectorSize:
		return false, errBad("it ends beyond 1 EiB")
	case us > math.MaxInt64/1000:
		return false, errBad("its time is out of range")
	}
	*rec = Record{Time: int64(us) * 1000, Op: op, Offset: lbn * SectorSize, Length: length}
	return true, nil
}

// vscsiLike tells whether the first records have a known version and an
// operation code of 8 bits at the given place.
func vscsiLike(head []byte, eof bool, size, cmdAt int, version uint16) bool {
	n := min(len(head)/size, 64)
	if n == 0 || eof && len(head)%size != 0 && n < 2 {
		return false
	}
	for i := range n {
		b := head[i*size+cmdAt:]
		if le.Uint16(b[2:])>>8 != version || le.Uint16(b) > 0xff {
			return false
		}
	}
	return true
}

// oracleGeneral is libCacheSim's format, 24 bytes little-endian: time u32 in seconds, object u64, size u32, and the number of
// the next reference to the object i64 (-1 or the largest number: none), which is not used.
var oracleGeneral = &format{
	name: "oracleGeneral", about: "libCacheSim oracleGeneral: objects with sizes (binary)", size: 24, times: true, objects: true, wholeID: true,
	detect: func(head []byte, eof bool) bool {
		n := min(len(head)/24, 1024)
		if n == 0 || eof && len(head)%24 != 0 || text(head) {
			return false
		}
		last := uint32(0)
		for i := range n {
			b := head[i*24:]
			t, size, next := le.Uint32(b), le.Uint32(b[12:]), int64(le.Uint64(b[16:]))
			if t < last || size > maxLength || next < -1 || next != math.MaxInt64 && next > 1<<40 {
				return false
			}
			last = t
		}
		return true
	},
	parse: func(_ *Reader, b []byte, rec *Record) (bool, error) {
		*rec = Record{Time: int64(le.Uint32(b)) * 1e9, Offset: le.Uint64(b[4:]), Length: le.Uint32(b[12:])}
		return true, nil
	},
}

// binaryList is bare block numbers, u32 little-endian.
var binaryList = &format{
	name: "u32", about: "list of block numbers, 32-bit little-endian (binary)", size: 4, unit: 4096,
	detect: func(head []byte, eof bool) bool {
		if len(head) < 4 || eof && len(head)%4 != 0 || text(head) {
			return false
		}
		for i := 0; i+4 <= len(head); i += 4 { // numbers with the top bits set are hashes, or no numbers
			if head[i+3]&0xf0 != 0 {
				return false
			}
		}
		return true
	},
	parse: func(r *Reader, b []byte, rec *Record) (bool, error) {
		u := r.Unit()
		*rec = Record{Offset: uint64(le.Uint32(b)) * uint64(u), Length: uint32(u)}
		return true, nil
	},
}

// text tells whether the beginning of a trace is: no control characters and no
// broken encoding.
func text(head []byte) bool {
	head = head[:min(len(head), 4096)]
	for _, c := range head {
		if c < 0x20 && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	for i := 0; i < utf8.UTFMax && i < len(head); i++ { // the last character may be cut
		if utf8.Valid(head[:len(head)-i]) {
			return true
		}
	}
	return utf8.Valid(head)
}
