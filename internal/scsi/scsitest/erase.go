package scsitest

import (
	"bytes"
	"slices"
)

// sanitizeCDB makes a SANITIZE; b1 is byte 1.
func sanitizeCDB(b1 byte, n int) []byte {
	return []byte{0x48, b1, 0, 0, 0, 0, 0, byte(n >> 8), byte(n), 0}
}

// overwriteList makes the parameter list of SANITIZE, OVERWRITE (SBC-4 5.30.2.2).
func overwriteList(count byte, pattern []byte) []byte {
	return slices.Concat([]byte{count, 0, byte(len(pattern) >> 8), byte(len(pattern))}, pattern)
}

// eraseCases are about what makes the whole medium new, defects and atomic writes.
func eraseCases() []Case {
	return []Case{
		{"sanitize/erase", func(s *Session) {
			for _, sa := range []byte{2, 3} {
				s.write(Thin, 0, pattern(1, 512), 512)
				s.write(Thin, Sectors-1, pattern(2, 512), 512)
				s.good(Thin, sanitizeCDB(sa, 0), nil, 0)
				s.holds(Thin, 0, make([]byte, 512), 512)
				s.holds(Thin, Sectors-1, make([]byte, 512), 512)
				s.equal("status", s.lbaStatus(Thin, 0, 4), [][3]uint64{{0, Sectors, 1}})
				s.check(Thin, sanitizeCDB(sa, 8), make([]byte, 8), 0x052400)
			}
			s.write(Thick, 5, pattern(1, 512), 512)
			s.good(Thick, sanitizeCDB(2, 0), nil, 0)
			s.holds(Thick, 5, make([]byte, 512), 512)
		}},
		{"sanitize/overwrite", func(s *Session) {
			for _, n := range []int{1, 4, 256, 511, 512} {
				p := pattern(byte(n), n)
				l := overwriteList(1, p)
				s.good(Thin, sanitizeCDB(1, len(l)), l, 0)
				want := bytes.Repeat(p, 512/n+1)[:512]
				s.holds(Thin, 0, want, 512)
				s.holds(Thin, Sectors-1, want, 512)
			}
			l := overwriteList(0x80|3, []byte{0x0F}) // INVERT: the last pass is not
			s.good(Thin, sanitizeCDB(1, len(l)), l, 0)
			s.holds(Thin, 7, bytes.Repeat([]byte{0x0F}, 512), 512)
			s.equal("status", s.lbaStatus(Thin, 0, 4), [][3]uint64{{0, Sectors, 0}})
		}},
		{"sanitize/overwrite_list", func(s *Session) {
			good := overwriteList(1, make([]byte, 512))
			for n := range 5 {
				s.check(Thin, sanitizeCDB(1, n), good[:n], 0x052400)
			}
			long := overwriteList(1, make([]byte, 513))
			s.check(Thin, sanitizeCDB(1, len(long)), long, 0x052400)
			s.check(Thin, sanitizeCDB(1, len(good)), with(good, 0, 0), 0x052600)
			s.check(Thin, sanitizeCDB(1, len(good)), with(good, 2, 0), 0x052600)
			s.check(Thin, sanitizeCDB(1, len(good)), good[:100], 0x051A00)
		}},
		{"sanitize/service_actions", func(s *Session) {
			for sa := range byte(32) {
				switch sa {
				case 1, 2, 3:
				case 0x1F:
					s.good(Thin, sanitizeCDB(sa, 0), nil, 0)
					s.check(Thin, sanitizeCDB(sa, 8), make([]byte, 8), 0x052400)
				default:
					s.check(Thin, sanitizeCDB(sa, 0), nil, 0x052400)
				}
			}
		}},
		{"sanitize/reserved", func(s *Session) {
			s.write(Thin, 0, pattern(1, 512), 512)
			for i := 1; i < 7; i++ {
				sense := s.check(Thin, with(sanitizeCDB(2, 0), i, 0x42), nil, 0x052400)
				s.equal("field pointer", sense[15:18], []byte{0xCE, 0, byte(i)})
			}
			s.holds(Thin, 0, pattern(1, 512), 512)
		}},
		{"sanitize/protected", func(s *Session) {
			l := overwriteList(1, make([]byte, 512))
			s.check(Protected, sanitizeCDB(1, len(l)), l, 0x072700)
			s.check(Protected, sanitizeCDB(2, 0), nil, 0x072700)
			other := s.Login("iqn.2026-11.org.example:host-b")
			defer other.Close()
			s.goodFrom(other, Thin, []byte{0x16, 0, 0, 0, 0, 0}, nil, 0)
			s.conflict(s, Thin, sanitizeCDB(3, 0), nil)
			s.conflict(s, Thin, []byte{4, 0, 0, 0, 0, 0}, nil)
		}},
		{"format_unit/simple", func(s *Session) {
			s.write(Thin, 3, pattern(1, 512), 512)
			s.good(Thin, []byte{4, 0, 0, 0, 0, 0}, nil, 0)
			s.equal("status", s.lbaStatus(Thin, 0, 4), [][3]uint64{{0, Sectors, 1}})
			s.good(Thin, []byte{4, 0x10, 0, 0, 0, 0}, []byte{0, 0, 0, 0}, 0)             // short header
			s.good(Thin, []byte{4, 0x30, 0, 0, 0, 0}, []byte{0, 0, 0, 0, 0, 0, 0, 0}, 0) // long header
			s.good(Thin, []byte{4, 0x10, 0, 0, 0, 0}, []byte{0, 0x88, 0, 0, 0, 1, 0, 2, 0xAB, 0xCD}, 0)
			s.holds(Thin, Sectors-1, bytes.Repeat([]byte{0xAB, 0xCD}, 256), 512)
		}},
		{"format_unit/list", func(s *Session) {
			s.check(Thin, []byte{4, 0x90, 0, 0, 0, 0}, []byte{0, 0, 0, 0}, 0x052400) // FMTPINFO
			s.check(Thin, []byte{4, 0x10, 0, 0, 0, 0}, []byte{0, 0, 0}, 0x051A00)
			s.check(Thin, []byte{4, 0x10, 0, 0, 0, 0}, []byte{1, 0, 0, 0}, 0x052600) // PROTECTION FIELD USAGE
			s.check(Thin, []byte{4, 0x10, 0, 0, 0, 0}, []byte{0, 0, 0, 8}, 0x052600) // a defect list
			for bit := 2; bit <= 6; bit++ {                                          // DSP, IP, STPF, DCRT, DPRY without FOV
				sense := s.check(Thin, []byte{4, 0x10, 0, 0, 0, 0}, []byte{0, 1 << bit, 0, 0, 0, 1, 0, 2, 0xAB, 0xCD}, 0x052600)
				s.equal("field pointer", sense[15:18], []byte{0x88 | byte(bit), 0, 1})
			}
			for _, x := range [][2]byte{{0x40, 7}, {0x80, 7}, {0xC0, 7}, {0xE0, 7}, {0x20, 5}, {0x01, 0}} { // IP MODIFIER, SI, reserved
				sense := s.check(Thin, []byte{4, 0x10, 0, 0, 0, 0}, []byte{0, 0x88, 0, 0, x[0], 1, 0, 2, 0xAB, 0xCD}, 0x052600)
				s.equal("field pointer", sense[15:18], []byte{0x88 | x[1], 0, 4})
			}
			s.check(Thin, []byte{4, 0x10, 0, 0, 0, 0}, []byte{0, 0x88, 0, 0, 0, 1, 0, 0}, 0x052600)
			s.check(Thin, []byte{4, 0x10, 0, 0, 0, 0}, []byte{0, 0x88, 0, 0, 0, 1, 0, 3, 1}, 0x051A00)
			s.check(Protected, []byte{4, 0, 0, 0, 0, 0}, nil, 0x072700)
		}},
		{"read_defect_data/empty", func(s *Session) {
			s.equal("(10)", s.good(Thin, []byte{0x37, 0, 0x1D, 0, 0, 0, 0, 0, 255, 0}, nil, 255), []byte{0, 0x1D, 0, 0})
			s.equal("(12)", s.good(Thin, []byte{0xB7, 0x1D, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0}, nil, 255), []byte{0, 0x1D, 0, 0, 0, 0, 0, 0})
			s.equal("(10), 2 bytes", s.good(Thin, []byte{0x37, 0, 0x0D, 0, 0, 0, 0, 0, 2, 0}, nil, 255), []byte{0, 0x0D})
		}},
		{"write_atomic/simple", func(s *Session) {
			atomic := func(lba uint64, n int) []byte { return CDB(0x9C, lba, n) }
			data := pattern(3, 64*512)
			s.good(Thin, atomic(9, 64), data, 0)
			s.holds(Thin, 9, data, 512)
			s.good(Thin, with(atomic(0, 1), 1, 0x18), data[:512], 0) // DPO, FUA
			s.good(Thin, atomic(0, 0), nil, 0)
			s.check(Thin, atomic(0, 65), make([]byte, 65*512), 0x052400)     // longer than MAXIMUM ATOMIC TRANSFER LENGTH
			s.check(Thin, with(atomic(0, 8), 11, 4), data[:8*512], 0x052400) // ATOMIC BOUNDARY
			s.check(Thin, with(atomic(0, 1), 1, 0x20), data[:512], 0x052400) // WRPROTECT
			s.check(Thin, atomic(Sectors-1, 2), data[:1024], 0x052100)
			s.check(Thin, atomic(1<<63, 1), data[:512], 0x052100)
			s.check(Thin, atomic(Sectors+1, 0), nil, 0x052100)
			s.check(Protected, atomic(0, 1), data[:512], 0x072700)
			s.check(Thin, atomic(100, 2), pattern(9, 512), 0x052400) // only half of it came
			s.holds(Thin, 100, make([]byte, 1024), 512)
			s.good(Large, atomic(1, 8), pattern(5, 8*4096), 0)
			s.check(Large, atomic(1, 9), pattern(5, 9*4096), 0x052400)
			s.equal("MAXIMUM ATOMIC TRANSFER LENGTH", s.good(Large, inquiry(0xB0, 64), nil, 64)[44:48], []byte{0, 0, 0, 8})
		}},
	}
}
