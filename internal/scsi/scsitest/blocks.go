package scsitest

import (
	"bytes"
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi"
)

// reads, writes and their kind by operation code, with the block size of Thin.
var (
	readOps        = []byte{0x08, 0x28, 0xA8, 0x88}
	writeOps       = []byte{0x0A, 0x2A, 0xAA, 0x8A}
	writeVerifyOps = []byte{0x2E, 0xAE, 0x8E}
	verifyOps      = []byte{0x2F, 0xAF, 0x8F}
)

func blockCases() []Case {
	be := binary.BigEndian
	return []Case{
		{"read_write/simple", func(s *Session) {
			for i, op := range writeOps {
				data := pattern(byte(i), 5*512)
				s.good(Thin, CDB(op, 40, 5), data, 0)
				for _, r := range readOps {
					if got := s.good(Thin, CDB(r, 40, 5), nil, 5*512); !bytes.Equal(got, data) {
						s.Fatalf("write %02x read %02x: data differ", op, r)
					}
				}
			}
			data := pattern(9, 3*4096)
			s.write(Large, 7, data, 4096)
			s.holds(Large, 7, data, 4096)
		}},
		{"read_write/6_byte_length_0", func(s *Session) {
			data := pattern(3, 256*512)
			s.good(Thin, CDB(0x0A, 1000, 0), data, 0)
			if got := s.good(Thin, CDB(0x08, 1000, 0), nil, 256*512); !bytes.Equal(got, data) {
				s.Fatal("256 blocks differ")
			}
		}},
		{"read_write/beyond_eol", func(s *Session) {
			for _, op := range append(readOps, writeOps...) {
				s.check(Thin, CDB(op, Sectors, 1), make([]byte, 512), 0x052100)
				s.check(Thin, CDB(op, Sectors-1, 2), make([]byte, 1024), 0x052100)
			}
			sense := s.check(Thin, CDB(0x28, Sectors-3, 9), nil, 0x052100)
			s.equal("INFORMATION, the first block that is not there", be.Uint32(sense[3:]), Sectors)
			for _, lba := range []uint64{1 << 63, 1<<64 - 1, 1 << 61} {
				s.check(Thin, CDB(0x88, lba, 1), nil, 0x052100)
				s.check(Thin, CDB(0x8A, lba, 2), make([]byte, 1024), 0x052100)
				s.check(Large, CDB(0x8A, lba, 2), make([]byte, 8192), 0x052100)
			}
		}},
		{"read_write/0blocks", func(s *Session) {
			for _, op := range append(readOps[1:], writeOps[1:]...) {
				s.good(Thin, CDB(op, 0, 0), nil, 0)
				s.good(Thin, CDB(op, Sectors-1, 0), nil, 0)
				s.check(Thin, CDB(op, Sectors, 0), nil, 0x052100)
			}
		}},
		{"read_write/protect", func(s *Session) {
			for _, op := range append(readOps[1:], writeOps[1:]...) {
				for p := byte(1); p < 8; p++ {
					s.check(Thin, with(CDB(op, 0, 1), 1, p<<5), make([]byte, 512), 0x052400)
				}
			}
		}},
		{"read_write/dpo_fua", func(s *Session) {
			for _, op := range append(readOps[1:], writeOps[1:]...) {
				s.good(Thin, with(CDB(op, 0, 1), 1, 0x18), make([]byte, 512), 512)
			}
		}},
		{"read_write/too_long", func(s *Session) {
			limit := int(be.Uint32(s.good(Thin, inquiry(0xB0, 64), nil, 64)[8:]))
			if limit >= Sectors {
				// Then the LBA is out of range first.
				s.check(Thin, CDB(0x88, 0, limit+1), nil, 0x052100)
				return
			}
			s.check(Thin, CDB(0x88, 0, limit+1), nil, 0x052400)
		}},
		{"read_write/residual", func(s *Session) {
			data := pattern(1, 2*512)
			s.write(Thin, 10, data, 512)
			r := s.Do(Command{Thin, CDB(0x28, 10, 2), nil, 700})
			s.equal("status", r.Status, scsi.StatusGood)
			s.equal("data", bytes.Equal(r.In, data[:700]), true)
			s.equal("residual", r.Residual, 1024-700)
			r = s.Do(Command{Thin, CDB(0x28, 10, 1), nil, 700})
			s.equal("residual", r.Residual, 512-700)
			// Half a block is none: nothing is written.
			s.check(Thin, CDB(0x2A, 10, 2), pattern(5, 1000), 0x050E03)
			r = s.Do(Command{Thin, CDB(0x2A, 10, 2), pattern(5, 1000), 0})
			s.equal("residual", r.Residual, 24)
			s.holds(Thin, 10, data, 512)
			r = s.Do(Command{Thin, CDB(0x2A, 10, 2), pattern(5, 512), 0})
			s.equal("status", r.Status, scsi.StatusGood)
			s.equal("residual", r.Residual, 512)
			s.holds(Thin, 10, append(pattern(5, 512), data[512:]...), 512)
			r = s.Do(Command{Thin, CDB(0x2A, 10, 1), pattern(6, 1024), 0})
			s.equal("residual", r.Residual, -512)
			s.holds(Thin, 10, append(pattern(6, 512), data[512:]...), 512)
		}},
		{"write_protect/all", func(s *Session) {
			block := make([]byte, 512)
			for _, op := range append(append(writeOps, writeVerifyOps...), 0x41, 0x93, 0x8B) {
				s.check(Protected, CDB(op, 0, 1), block, 0x072700)
			}
			s.check(Protected, caw(0, 1), make([]byte, 1024), 0x072700)
			s.check(Protected, unmapCDB(24), unmapList(0, 1), 0x072700)
			s.good(Protected, CDB(0x28, 0, 1), nil, 512)
		}},
		{"verify/simple", func(s *Session) {
			data := pattern(8, 4*512)
			s.write(Thin, 100, data, 512)
			for _, op := range verifyOps {
				s.good(Thin, CDB(op, 100, 4), nil, 0)
				s.good(Thin, with(CDB(op, 100, 4), 1, 2), data, 0)
				s.good(Thin, with(CDB(op, 100, 0), 1, 2), nil, 0)
				s.check(Thin, with(CDB(op, 100, 4), 1, 4), data, 0x052400)
				s.check(Thin, with(CDB(op, 100, 4), 1, 0x20), data, 0x052400)
				s.check(Thin, CDB(op, Sectors, 1), nil, 0x052100)
			}
		}},
		{"verify/mismatch", func(s *Session) {
			data := pattern(8, 4*512)
			s.write(Thin, 100, data, 512)
			for _, op := range verifyOps {
				sense := s.check(Thin, with(CDB(op, 100, 4), 1, 2), with(data, 1234, data[1234]^1), 0x0E1D00)
				s.equal("INFORMATION", be.Uint32(sense[3:]), 1234)
			}
		}},
		{"verify/one_block", func(s *Session) {
			one := pattern(8, 512)
			s.write(Thin, 100, bytes.Repeat(one, 4), 512)
			for _, op := range verifyOps {
				s.good(Thin, with(CDB(op, 100, 4), 1, 6), one, 0)
				sense := s.check(Thin, with(CDB(op, 99, 3), 1, 6), one, 0x0E1D00)
				s.equal("INFORMATION", be.Uint32(sense[3:]), 0)
				sense = s.check(Thin, with(CDB(op, 101, 4), 1, 6), one, 0x0E1D00)
				s.equal("INFORMATION", be.Uint32(sense[3:]), 3*512)
			}
		}},
		{"write_verify/simple", func(s *Session) {
			for i, op := range writeVerifyOps {
				data := pattern(byte(i), 4*512)
				s.good(Thin, CDB(op, 50, 4), data, 0)
				s.holds(Thin, 50, data, 512)
				s.good(Thin, with(CDB(op, 52, 4), 1, 2), data, 0)
				s.holds(Thin, 52, data, 512)
				s.check(Thin, with(CDB(op, 52, 4), 1, 6), data, 0x052400)
			}
		}},
		{"orwrite/simple", func(s *Session) {
			s.write(Thin, 5, bytes.Repeat([]byte{0x0F}, 1024), 512)
			s.good(Thin, CDB(0x8B, 5, 2), bytes.Repeat([]byte{0x81}, 1024), 0)
			s.holds(Thin, 5, bytes.Repeat([]byte{0x8F}, 1024), 512)
			s.check(Thin, CDB(0x8B, Sectors-1, 2), make([]byte, 1024), 0x052100)
		}},
		{"compare_and_write/simple", func(s *Session) {
			old, data := pattern(1, 1024), pattern(2, 1024)
			s.write(Thin, 60, old, 512)
			s.good(Thin, caw(60, 2), append(old, data...), 0)
			s.holds(Thin, 60, data, 512)
			s.good(Thin, caw(60, 0), nil, 0)
		}},
		{"compare_and_write/miscompare", func(s *Session) {
			old, data := pattern(1, 1024), pattern(2, 1024)
			s.write(Thin, 60, old, 512)
			sense := s.check(Thin, caw(60, 2), append(with(old, 777, old[777]^1), data...), 0x0E1D00)
			s.equal("INFORMATION", be.Uint32(sense[3:]), 777)
			s.equal("VALID", sense[0], 0xF0)
			s.holds(Thin, 60, old, 512)
		}},
		{"compare_and_write/refused", func(s *Session) {
			limit := int(s.good(Thin, inquiry(0xB0, 64), nil, 64)[5])
			s.check(Thin, caw(0, limit+1), make([]byte, 2*512*(limit+1)), 0x052400)
			s.check(Thin, caw(Sectors-1, 2), make([]byte, 2048), 0x052100)
			s.check(Thin, with(caw(0, 1), 1, 0x20), make([]byte, 1024), 0x052400)
			s.check(Thin, caw(0, 2), make([]byte, 1536), 0x052400)
			s.check(Thin, caw(0, 1), make([]byte, 1536), 0x052400)
			s.check(Thin, caw(0, 0), make([]byte, 512), 0x052400)
		}},
		{"prefetch/simple", func(s *Session) {
			for _, op := range []byte{0x34, 0x90} {
				s.good(Thin, CDB(op, 0, 8), nil, 0)
				s.good(Thin, with(CDB(op, 0, 0), 1, 2), nil, 0)
				s.check(Thin, CDB(op, Sectors, 1), nil, 0x052100)
			}
		}},
		{"synchronize_cache/simple", func(s *Session) {
			for _, op := range []byte{0x35, 0x91} {
				s.good(Thin, CDB(op, 0, 0), nil, 0)
				s.good(Thin, with(CDB(op, 8, 8), 1, 2), nil, 0)
				s.check(Thin, CDB(op, Sectors, 1), nil, 0x052100)
			}
		}},
	}
}

// caw makes a COMPARE AND WRITE.
func caw(lba uint64, n int) []byte {
	b := make([]byte, 16)
	b[0], b[13] = 0x89, byte(n)
	binary.BigEndian.PutUint64(b[2:], lba)
	return b
}
