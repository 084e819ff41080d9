package scsitest

import (
	"bytes"
	"encoding/binary"
)

func unmapCDB(n int) []byte {
	b := make10(0x42)
	binary.BigEndian.PutUint16(b[7:], uint16(n))
	return b
}

// unmapList makes a parameter list of pairs of LBA and length.
func unmapList(pairs ...uint64) []byte {
	be := binary.BigEndian
	b := make([]byte, 8)
	for i := 0; i < len(pairs); i += 2 {
		b = be.AppendUint64(b, pairs[i])
		b = be.AppendUint32(b, uint32(pairs[i+1]))
		b = append(b, 0, 0, 0, 0)
	}
	be.PutUint16(b, uint16(len(b)-2))
	be.PutUint16(b[2:], uint16(len(b)-8))
	return b
}

func (s *Session) unmap(lun uint64, pairs ...uint64) {
	s.Helper()
	l := unmapList(pairs...)
	s.good(lun, unmapCDB(len(l)), l, 0)
}

// lbaStatus returns {LBA, blocks, status} of each descriptor.
func (s *Session) lbaStatus(lun, lba uint64, n int) [][3]uint64 {
	s.Helper()
	be := binary.BigEndian
	cdb := CDB16(0x9E, 0x12, 8+16*n)
	be.PutUint64(cdb[2:], lba)
	b := s.good(lun, cdb, nil, 8+16*n)
	s.equal("parameter data length", int(be.Uint32(b)), len(b)-4)
	var out [][3]uint64
	for d := b[8:]; len(d) >= 16; d = d[16:] {
		out = append(out, [3]uint64{be.Uint64(d), uint64(be.Uint32(d[8:])), uint64(d[12] & 0x0F)})
	}
	return out
}

// ws32 makes a WRITE SAME(32).
func ws32(lba uint64, n int, flags byte) []byte {
	b := make([]byte, 32)
	b[0], b[7], b[9], b[10] = 0x7F, 0x18, 0x0D, flags
	binary.BigEndian.PutUint64(b[12:], lba)
	binary.BigEndian.PutUint32(b[28:], uint32(n))
	return b
}

// writeSame makes each kind of WRITE SAME. flags are those of WRITE SAME(16).
func writeSame(lba uint64, n int, flags byte) [][]byte {
	all := [][]byte{with(CDB(0x93, lba, n), 1, flags), ws32(lba, n, flags)}
	if flags&1 == 0 {
		all = append(all, with(CDB(0x41, lba, n), 1, flags))
	}
	return all
}

func provisionCases() []Case {
	return []Case{
		{"write_same/pattern", func(s *Session) {
			for i, cdb := range writeSame(20, 9, 0) {
				one := pattern(byte(i+1), 512)
				s.write(Thin, 16, make([]byte, 32*512), 512)
				s.good(Thin, cdb, one, 0)
				s.holds(Thin, 20, bytes.Repeat(one, 9), 512)
				s.holds(Thin, 29, make([]byte, 512), 512)
				s.holds(Thin, 19, make([]byte, 512), 512)
			}
			one := pattern(7, 4096)
			s.good(Large, CDB(0x93, 3, 4), one, 0)
			s.holds(Large, 3, bytes.Repeat(one, 4), 4096)
		}},
		{"write_same/zeros", func(s *Session) {
			for _, cdb := range writeSame(20, 9, 0) {
				s.write(Thin, 16, pattern(1, 32*512), 512)
				s.good(Thin, cdb, make([]byte, 512), 0)
				s.holds(Thin, 20, make([]byte, 9*512), 512)
				s.equal("status", s.lbaStatus(Thin, 20, 1)[0][2], 0) // zeroed is mapped
			}
		}},
		{"write_same/unmap", func(s *Session) {
			for _, cdb := range writeSame(24, 8, 0x08) {
				s.write(Thin, 16, pattern(1, 32*512), 512)
				s.good(Thin, cdb, make([]byte, 512), 0)
				s.equal("status", s.lbaStatus(Thin, 24, 1), [][3]uint64{{24, 8, 1}})
				s.write(Thin, 16, pattern(1, 32*512), 512)
				s.good(Thin, cdb, pattern(5, 512), 0) // UNMAP of what is not zero writes
				s.holds(Thin, 24, bytes.Repeat(pattern(5, 512), 8), 512)
				s.equal("status", s.lbaStatus(Thin, 24, 1)[0][2], 0)
			}
		}},
		{"write_same/anchor", func(s *Session) {
			for _, cdb := range writeSame(24, 8, 0x18) {
				s.write(Thin, 16, pattern(1, 32*512), 512)
				s.good(Thin, cdb, make([]byte, 512), 0)
				s.equal("status", s.lbaStatus(Thin, 24, 1), [][3]uint64{{24, 8, 2}})
			}
			for _, cdb := range writeSame(24, 8, 0x10) {
				s.check(Thin, cdb, make([]byte, 512), 0x052400)
			}
		}},
		{"write_same/ndob", func(s *Session) {
			for _, cdb := range writeSame(24, 8, 0x01) {
				s.write(Thin, 16, pattern(1, 32*512), 512)
				s.good(Thin, cdb, nil, 0)
				s.holds(Thin, 24, make([]byte, 8*512), 512)
			}
			s.good(Thin, with(CDB(0x93, 24, 8), 1, 0x09), nil, 0)
			s.equal("status", s.lbaStatus(Thin, 24, 1), [][3]uint64{{0: 24, 1: 8, 2: 1}})
		}},
		{"write_same/0blocks", func(s *Session) {
			for _, cdb := range writeSame(Sectors-4, 0, 0) {
				s.write(Thin, Sectors-5, pattern(1, 5*512), 512)
				s.good(Thin, cdb, pattern(9, 512), 0)
				s.holds(Thin, Sectors-4, bytes.Repeat(pattern(9, 512), 4), 512)
				s.holds(Thin, Sectors-5, pattern(1, 512), 512)
			}
			for _, cdb := range writeSame(Sectors, 0, 0) {
				s.check(Thin, cdb, make([]byte, 512), 0x052100)
			}
		}},
		{"write_same/refused", func(s *Session) {
			for _, cdb := range writeSame(Sectors-1, 2, 0) {
				s.check(Thin, cdb, make([]byte, 512), 0x052100)
			}
			for _, cdb := range writeSame(0, 1, 0x20) {
				s.check(Thin, cdb, make([]byte, 512), 0x052400)
			}
			for _, cdb := range writeSame(0, 1, 0x08) {
				s.check(Thick, cdb, make([]byte, 512), 0x052400)
			}
			// LBDATA and PBDATA ask for blocks that hold their own address: not for this pattern everywhere.
			for _, flags := range []byte{0x02, 0x04, 0x06} {
				for i, cdb := range writeSame(40, 2, flags) {
					sense := s.check(Thin, cdb, pattern(3, 512), 0x052400)
					s.equal("field pointer", sense[15:18], []byte{0xC8 | flags>>2 + 1, 0, []byte{1, 10, 1}[i]})
				}
			}
			s.holds(Thin, 40, make([]byte, 1024), 512)
			s.check(Thin, CDB(0x93, 0, 1), make([]byte, 100), 0x050E03)
			s.check(Thin, CDB(0x41, 0, 1), make([]byte, 1024), 0x050E03)
		}},
		{"unmap/simple", func(s *Session) {
			s.write(Thin, 0, pattern(1, 64*512), 512)
			s.unmap(Thin, 8, 8, 32, 16)
			s.holds(Thin, 8, make([]byte, 8*512), 512)
			s.equal("status", s.lbaStatus(Thin, 0, 5),
				[][3]uint64{{0, 8, 0}, {8, 8, 1}, {16, 16, 0}, {32, 16, 1}, {48, 16, 0}})
			s.write(Large, 0, pattern(1, 8*4096), 4096)
			s.unmap(Large, 2, 3)
			s.equal("status", s.lbaStatus(Large, 0, 3), [][3]uint64{{0, 2, 0}, {2, 3, 1}, {5, 3, 0}})
		}},
		{"unmap/0blocks", func(s *Session) {
			s.unmap(Thin)
			s.unmap(Thin, 5, 0)
			s.good(Thin, unmapCDB(0), nil, 0)
		}},
		{"unmap/anchor", func(s *Session) {
			s.write(Thin, 0, pattern(1, 16*512), 512)
			l := unmapList(0, 8)
			s.good(Thin, with(unmapCDB(len(l)), 1, 1), l, 0)
			s.equal("status", s.lbaStatus(Thin, 0, 1), [][3]uint64{{0, 8, 2}})
		}},
		{"unmap/refused", func(s *Session) {
			s.check(Thin, unmapCDB(24), unmapList(Sectors-1, 2), 0x052100)
			s.check(Thin, unmapCDB(24), unmapList(1<<63, 1), 0x052100)
			s.check(Thin, unmapCDB(7), make([]byte, 7), 0x051A00)
			var many []uint64
			for i := range uint64(1025) {
				many = append(many, i, 1)
			}
			s.check(Thin, unmapCDB(8+16*1025), unmapList(many...), 0x052600)
			s.check(Thick, unmapCDB(24), unmapList(0, 1), 0x052000)
			// One bad descriptor and nothing is unmapped.
			s.write(Thin, 0, pattern(1, 8*512), 512)
			s.check(Thin, unmapCDB(40), unmapList(0, 8, Sectors, 1), 0x052100)
			s.holds(Thin, 0, pattern(1, 8*512), 512)
		}},
		{"get_lba_status/limits", func(s *Session) {
			s.check(Thin, with(CDB16(0x9E, 0x12, 24), 3, 1), nil, 0x052100)
			s.check(Thin, CDB16(0x9E, 0x12, 23), nil, 0x052400)
			s.write(Thin, 100, pattern(1, 512), 512)
			s.equal("starts where asked", s.lbaStatus(Thin, 50, 1), [][3]uint64{{50, 50, 1}})
			s.equal("to the end", s.lbaStatus(Thin, 100, 4), [][3]uint64{{100, 1, 0}, {101, Sectors - 101, 1}})
			s.equal("thick is mapped", s.lbaStatus(Thick, 0, 4), [][3]uint64{{0, Sectors, 0}})
		}},
	}
}
