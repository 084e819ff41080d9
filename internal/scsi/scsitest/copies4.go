package scsitest

import (
	"encoding/binary"
	"slices"
)

// Immed4 is IMMED in the flags of CopyList4; GSense4 is G_SENSE.
const (
	Immed4  = 0x01
	GSense4 = 0x02
)

// CopyList4 makes the parameter list of EXTENDED COPY(LID4) (SPC-4 6.4.4). flags
// are those of byte 15.
func CopyList4(id uint32, usage, flags byte, cscds, segments [][]byte) []byte {
	be := binary.BigEndian
	b := make([]byte, 48)
	c, g := slices.Concat(cscds...), slices.Concat(segments...)
	b[0], b[1], b[3], b[15], b[16] = 1, usage<<3, 0x20, flags, 0xFF
	be.PutUint32(b[20:], id)
	be.PutUint16(b[42:], uint16(len(c)))
	be.PutUint16(b[44:], uint16(len(g)))
	return slices.Concat(b, c, g)
}

// CopyCDB4 makes the CDB of EXTENDED COPY(LID4).
func CopyCDB4(list []byte) []byte { return CDB16(0x83, 1, len(list)) }

func copy4Cases() []Case {
	be := binary.BigEndian
	type l = [][]byte
	return []Case{
		{"extended_copy_lid4/bytes", func(s *Session) {
			// One segment of 3 blocks from LBA 4 to LBA 9 of the unit itself, list
			// identifier A1B2C3D4h, priority 1, STR, kept.
			head := []byte{0x01, 0x21, 0x00, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x00,
				0xFF, 0, 0, 0, 0xA1, 0xB2, 0xC3, 0xD4, 0, 0, 0, 0, 0, 0, 0, 0,
				0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x00, 0x00, 0x1C, 0x00, 0x00}
			segment := []byte{0x02, 0x00, 0x00, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0x00, 0x03,
				0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9}
			list := slices.Concat(head, segment)
			data := pattern(4, 3*512)
			s.write(Thin, 4, data, 512)
			s.good(Thin, []byte{0x83, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 76, 0, 0}, list, 0)
			s.holds(Thin, 9, data, 512)
			r := s.good(Thin, []byte{0x84, 0x05, 0xA1, 0xB2, 0xC3, 0xD4, 0, 0, 0, 0, 0, 0, 0x01, 0, 0, 0}, nil, 256)
			s.equal("status", r, []byte{0, 0, 0, 28, 0x01, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x06, 0, 0, 1, 0, 0, 0, 0, 0, 0})
			s.equal("held data", s.good(Thin, ReceiveCDB(0x84, 6, 0xA1B2C3D4), nil, 256), []byte{0, 0, 0, 0})
			s.check(Thin, ReceiveCDB(0x84, 5, 0xA1B2C3D5), nil, 0x052400)
			s.check(Thin, ReceiveCDB(0x84, 6, 0xA1B2C3D5), nil, 0x052400)
		}},
		{"extended_copy_lid4/header", func(s *Session) {
			list := CopyList4(1, 0, 0, l{s.NAA6(Thin, 512)}, l{Segment02(0, 0, 1, 0, 9, false)})
			fails := func(list []byte, want, pointer int) {
				s.Helper()
				sense := s.check(Thin, CopyCDB4(list), list, want)
				if pointer >= 0 {
					s.equal("field pointer", sense[15:18], []byte{0x80, 0, byte(pointer)})
				}
			}
			fails(list[:47], 0x051A00, -1)
			fails(list[:len(list)-1], 0x051A00, -1)
			fails(with(list, 0, 0), 0x052600, 0)
			fails(with(list, 1, 1<<3), 0x052600, 1)
			fails(with(list, 1, 3<<3), 0x052600, 20)
			fails(with(list, 3, 0), 0x052600, 2)
			fails(with(list, 16, 0xE4), 0x052600, 16)
			fails(with(list, 47, 4), 0x05260B, 46)
			fails(with(list, 15, Immed4|GSense4), 0x052400, -1)
			anonymous := with(with(list, 1, 3<<3), 23, 0)
			fails(with(anonymous, 15, Immed4), 0x052400, -1) // its end could be asked for by nobody
			s.good(Thin, CopyCDB4(anonymous), anonymous, 0)
			s.good(Thin, CopyCDB4(list), list, 0)
		}},
		{"extended_copy_lid4/failure", func(s *Session) {
			c := s.NAA6(Thin, 512)
			list := CopyList4(7, 0, 0, l{c}, l{Segment02(0, 0, 3, 0, 9, false), Segment02(0, 5, 2, 0, 20, false)})
			sense := s.check(Thin, CopyCDB4(list), list, 0x0A0D02)
			s.equal("segment", be.Uint32(sense[8:]), 1)
			r := s.good(Thin, ReceiveCDB(0x84, 5, 7), nil, 256)
			s.equal("status", []byte{r[4], r[5], r[12], r[14], r[25]}, []byte{1, 2, 2, byte(len(sense)), 1})
			s.equal("sense", r[32:], sense)
			// The 1-byte identifiers are the same set.
			s.equal("status (LID1)", s.good(Thin, results(0, 7), nil, 64)[4], 2)
			s.equal("held data (LID1)", s.good(Thin, results(1, 7), nil, 64), []byte{0, 0, 0, 0})
		}},
		{"copy_operation_abort/unknown", func(s *Session) {
			s.check(Thin, ReceiveCDB(0x83, 0x1C, 9), nil, 0x052400)
			list := CopyList4(9, 0, 0, l{s.NAA6(Thin, 512)}, l{Segment02(0, 0, 3, 0, 9, false)})
			s.good(Thin, CopyCDB4(list), list, 0)
			s.check(Thin, ReceiveCDB(0x83, 0x1C, 9), nil, 0x052400) // it is over
		}},
	}
}
