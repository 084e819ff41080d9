package scsitest

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Extent is a block device range descriptor: an LBA and a number of blocks.
type Extent struct {
	LBA    uint64
	Blocks uint32
}

func extents(list []Extent) []byte {
	be := binary.BigEndian
	var b []byte
	for _, e := range list {
		b = be.AppendUint64(b, e.LBA)
		b = be.AppendUint32(b, e.Blocks)
		b = append(b, 0, 0, 0, 0)
	}
	return b
}

// PopulateList makes the parameter list of POPULATE TOKEN (SBC-3 5.8.2).
func PopulateList(flags byte, timeout, rodType uint32, list ...Extent) []byte {
	be := binary.BigEndian
	d := extents(list)
	b := be.AppendUint16(nil, uint16(14+len(d)))
	b = append(b, flags, 0)
	b = be.AppendUint32(b, timeout)
	b = be.AppendUint32(b, rodType)
	b = append(b, 0, 0)
	return append(be.AppendUint16(b, uint16(len(d))), d...)
}

// WriteTokenList makes the parameter list of WRITE USING TOKEN (SBC-3 5.58.2).
func WriteTokenList(flags byte, offset uint64, token []byte, list ...Extent) []byte {
	be := binary.BigEndian
	d := extents(list)
	b := be.AppendUint16(nil, uint16(534+len(d)))
	b = append(b, flags, 0, 0, 0, 0, 0)
	b = be.AppendUint64(b, offset)
	b = append(append(b, token...), 0, 0, 0, 0, 0, 0)
	return append(be.AppendUint16(b, uint16(len(d))), d...)
}

// TokenCDB makes the CDB of POPULATE TOKEN (10h) or WRITE USING TOKEN (11h).
func TokenCDB(sa byte, id uint32, list []byte) []byte {
	b := CDB16(0x83, sa, len(list))
	binary.BigEndian.PutUint32(b[6:], id)
	return b
}

// ReceiveCDB makes the CDB of a RECEIVE COPY command with a 4-byte list identifier,
// or of COPY OPERATION ABORT (op 83h).
func ReceiveCDB(op, sa byte, id uint32) []byte {
	n := 2048
	if op == 0x83 {
		n = 0
	}
	b := CDB16(op, sa, n)
	binary.BigEndian.PutUint32(b[2:], id)
	return b
}

// Populate makes a token and returns it.
func (s *Session) Populate(lun uint64, id uint32, list ...Extent) []byte {
	s.Helper()
	l := PopulateList(0, 0, 0, list...)
	s.good(lun, TokenCDB(0x10, id, l), l, 0)
	r := s.information(lun, id)
	s.equal("status", r[5], 1)
	at := 32 + int(r[13])
	s.equal("ROD token descriptors length", binary.BigEndian.Uint32(r[at:]), 514)
	return r[at+6 : at+6+512]
}

// information returns what RECEIVE ROD TOKEN INFORMATION says.
func (s *Session) information(lun uint64, id uint32) []byte {
	s.Helper()
	r := s.good(lun, ReceiveCDB(0x84, 7, id), nil, 2048)
	s.equal("available data", int(binary.BigEndian.Uint32(r)), len(r)-4)
	return r
}

func (s *Session) writeToken(lun uint64, id uint32, list []byte) {
	s.Helper()
	s.good(lun, TokenCDB(0x11, id, list), list, 0)
}

func (s *Session) writeTokenFails(lun uint64, list []byte, want int) []byte {
	s.Helper()
	return s.check(lun, TokenCDB(0x11, 77, list), list, want)
}

// zeroToken is the block device zero ROD token (SBC-3 4.28.4), by hand.
var zeroToken = append([]byte{0xFF, 0xFF, 0x00, 0x01, 0x00, 0x00, 0x01, 0xF8}, make([]byte, 504)...)

func tokenCases() []Case {
	be := binary.BigEndian
	return []Case{
		{"populate_token/bytes", func(s *Session) {
			// The parameter list and the CDB, byte by byte: 2 ranges, timeout 60 s.
			list := []byte{
				0x00, 0x2E, 0x00, 0x00, 0x00, 0x00, 0x00, 0x3C, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x20,
				0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00,
				0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00,
			}
			cdb := []byte{0x83, 0x10, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0x30, 0, 0}
			s.equal("the list", PopulateList(0, 60, 0, Extent{8, 4}, Extent{256, 2}), list)
			s.equal("the CDB", TokenCDB(0x10, 0x12345678, list), cdb)
			s.good(Thin, cdb, list, 0)
			r := s.good(Thin, []byte{0x84, 0x07, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0x04, 0, 0, 0}, nil, 1024)
			s.equal("header", r[:32], []byte{0, 0, 0x02, 0x22, 0x10, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xF1,
				0, 0, 0, 0, 0, 0, 0, 6, 0, 2, 0, 0, 0, 0, 0, 0})
			s.equal("descriptor", r[32:38], []byte{0, 0, 0x02, 0x02, 0, 0})
			k := r[38:]
			s.equal("ROD type and length", k[:8], []byte{0x00, 0x80, 0x00, 0x00, 0, 0, 0x01, 0xF8})
			s.equal("creator", k[16:48], s.NAA6(Thin, 512))
			s.equal("bytes represented", k[48:64], []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0C, 0x00})
			s.equal("block length, physical blocks, provisioning", k[96:104], []byte{0, 0, 2, 0, 0, 3, 0xC0, 0})
			if bytes.Equal(k[128:192], make([]byte, 64)) {
				s.Fatal("nothing in the token is random")
			}
		}},
		{"write_using_token/copy", func(s *Session) {
			data := pattern(1, 64*512)
			s.write(Thin, 100, data, 512)
			k := s.Populate(Thin, 1, Extent{100, 40}, Extent{140, 24})
			s.write(Thin, 90, make([]byte, 128*512), 512) // a token is a point in time
			s.writeToken(Other, 2, WriteTokenList(0, 0, k, Extent{7, 10}, Extent{500, 54}))
			s.holds(Other, 7, data[:10*512], 512)
			s.holds(Other, 500, data[10*512:], 512)
			r := s.information(Other, 2)
			s.equal("header", r[4:26], []byte{0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xF1, 0, 0, 0, 0, 0, 0, 0, 64, 0, 2})
			s.equal("no token", r[32:36], []byte{0, 0, 0, 0})
			s.writeToken(Thin, 3, WriteTokenList(0, 0, k, Extent{100, 64})) // once more, home
			s.holds(Thin, 100, data, 512)
		}},
		{"write_using_token/offset", func(s *Session) {
			data := pattern(2, 32*512)
			s.write(Thin, 0, data, 512)
			k := s.Populate(Thin, 1, Extent{0, 32})
			s.writeToken(Thin, 2, WriteTokenList(0, 30, k, Extent{1000, 2}))
			s.holds(Thin, 1000, data[30*512:], 512)
			s.equal("a part of the ROD was used", s.information(Thin, 2)[5], 3)
			s.write(Thin, 1002, pattern(9, 512), 512)
			s.writeToken(Thin, 3, WriteTokenList(0, 31, k, Extent{1001, 1}, Extent{1002, 5}))
			s.holds(Thin, 1001, data[31*512:], 512)
			s.holds(Thin, 1002, pattern(9, 512), 512)
			r := s.information(Thin, 3)
			s.equal("the ROD was too short", r[5], 4)
			s.equal("transfer count", be.Uint64(r[16:]), 1)
			s.writeTokenFails(Thin, WriteTokenList(0, 32, k, Extent{0, 1}), 0x052600)
			s.writeTokenFails(Thin, WriteTokenList(0, 1<<63, k, Extent{0, 1}), 0x052600)
		}},
		{"write_using_token/zero", func(s *Session) {
			s.write(Thin, 10, pattern(1, 10*512), 512)
			s.writeToken(Thin, 1, WriteTokenList(0, 0, zeroToken, Extent{11, 3}, Extent{16, 2}))
			want := pattern(1, 10*512)
			clear(want[512 : 4*512])
			clear(want[6*512 : 8*512])
			s.holds(Thin, 10, want, 512)
			s.equal("transfer count", be.Uint64(s.information(Thin, 1)[16:]), 5)
			s.write(Large, 1, pattern(1, 4096), 4096)
			s.writeToken(Large, 1, WriteTokenList(0, 5, zeroToken, Extent{1, 1}))
			s.holds(Large, 1, make([]byte, 4096), 4096)
		}},
		{"write_using_token/delete", func(s *Session) {
			k := s.Populate(Thin, 1, Extent{0, 8})
			s.writeToken(Thin, 2, WriteTokenList(2, 0, k, Extent{8, 8}))
			s.writeTokenFails(Thin, WriteTokenList(0, 0, k, Extent{8, 8}), 0x052309)
		}},
		{"write_using_token/token", func(s *Session) {
			k := s.Populate(Thin, 1, Extent{0, 8})
			fails := func(at int, v byte, want int) {
				s.Helper()
				sense := s.writeTokenFails(Thin, WriteTokenList(0, 0, with(k, at, v), Extent{8, 8}), want)
				s.equal("the field pointer is into the list", sense[15], 0x80)
			}
			fails(1, 0x81, 0x052301)       // another ROD type
			fails(7, 0xF7, 0x05230A)       // another length
			fails(15, k[15]^1, 0x052304)   // identifier
			fails(191, k[191]^1, 0x052304) // secret
			fails(511, 1, 0x052304)
			s.writeTokenFails(Large, WriteTokenList(0, 0, k, Extent{8, 8}), 0x052300) // other blocks
			s.writeTokenFails(Thin, WriteTokenList(0, 0, make([]byte, 512), Extent{8, 8}), 0x05230A)
			s.writeToken(Thin, 2, WriteTokenList(0, 0, k, Extent{8, 8}))
		}},
		{"write_using_token/masked", func(s *Session) {
			// A token of a unit that another initiator sees resolves for him too; the
			// list identifier is of the nexus.
			other := s.Login("iqn.2026-11.org.example:host-b")
			defer other.Close()
			data := pattern(7, 512)
			s.write(Thin, 0, data, 512)
			k := s.Populate(Thin, 1, Extent{0, 1})
			l := WriteTokenList(0, 0, k, Extent{3, 1})
			s.goodFrom(other, Other, TokenCDB(0x11, 5, l), l, 0)
			s.holds(Other, 3, data, 512)
			s.checkFrom(other, Thin, ReceiveCDB(0x84, 7, 1), nil, 0x052400)
			s.check(Other, ReceiveCDB(0x84, 7, 5), nil, 0x052400)
		}},
		{"populate_token/list", func(s *Session) {
			good := PopulateList(0, 0, 0, Extent{0, 8})
			fails := func(l []byte, want int) {
				s.Helper()
				s.check(Thin, TokenCDB(0x10, 3, l), l, want)
			}
			s.good(Thin, TokenCDB(0x10, 3, nil), nil, 0) // no list, no token
			s.check(Thin, ReceiveCDB(0x84, 7, 3), nil, 0x052400)
			fails(good[:15], 0x051A00)
			fails(good[:31], 0x051A00)
			fails(with(good, 1, 0x1D), 0x052600) // shorter than one range
			fails(with(good, 15, 0), 0x052600)
			fails(with(good, 15, 17), 0x052600)
			fails(with(good, 15, 32), 0x051A00)
			fails(PopulateList(0, 3601, 0, Extent{0, 8}), 0x052600)
			fails(PopulateList(2, 0, 0x00010000, Extent{0, 8}), 0x052600) // access upon reference
			fails(PopulateList(2, 0, 0xFFFF0001, Extent{0, 8}), 0x052600)
			fails(PopulateList(0, 0, 0, Extent{0, 8}, Extent{7, 1}), 0x052600) // overlap
			fails(PopulateList(0, 0, 0, Extent{Sectors, 1}), 0x052100)
			fails(PopulateList(0, 0, 0, Extent{Sectors - 1, 2}), 0x052100)
			fails(PopulateList(0, 0, 0, Extent{1 << 63, 1}), 0x052100)
			var many []Extent
			for i := range uint64(129) {
				many = append(many, Extent{i, 1})
			}
			fails(PopulateList(0, 0, 0, many...), 0x052608)
			for _, kind := range []uint32{0x00800000, 0x0080FFFF} {
				l := PopulateList(2, 3600, kind, many[:128]...)
				s.good(Thin, TokenCDB(0x10, 3, l), l, 0)
				s.equal("transfer count", be.Uint64(s.information(Thin, 3)[16:]), 128)
			}
			wl := WriteTokenList(0, 0, zeroToken, Extent{0, 8})
			s.writeTokenFails(Thin, wl[:535], 0x051A00)
			s.writeTokenFails(Thin, with(wl, 535, 8), 0x052600)
			s.writeTokenFails(Thin, WriteTokenList(0, 0, zeroToken, Extent{0, 8}, Extent{3, 1}), 0x052600)
			s.writeTokenFails(Protected, wl, 0x072700)
		}},
		{"populate_token/reserved", func(s *Session) {
			other := s.Login("iqn.2026-11.org.example:host-b")
			defer other.Close()
			k := s.Populate(Thin, 1, Extent{0, 1})
			s.goodFrom(other, Thin, prOut(0, 0), prList(0, 0xB), 0)
			s.goodFrom(other, Thin, prOut(1, 1), prList(0xB, 0), 0) // Write Exclusive
			l := PopulateList(0, 0, 0, Extent{0, 8})
			s.good(Thin, TokenCDB(0x10, 2, l), l, 0)
			w := WriteTokenList(0, 0, k, Extent{3, 1})
			s.conflict(s, Thin, TokenCDB(0x11, 3, w), w)
			s.goodFrom(other, Thin, prOut(2, 1), prList(0xB, 0), 0)
			s.goodFrom(other, Thin, prOut(1, 3), prList(0xB, 0), 0) // Exclusive Access
			s.conflict(s, Thin, TokenCDB(0x10, 2, l), l)
		}},
		{"report_all_rod_tokens/simple", func(s *Session) {
			s.equal("none", s.good(Thin, CDB16(0x84, 8, 1024), nil, 1024), []byte{0, 0, 0, 4, 0, 0, 0, 0})
			a, b := s.Populate(Thin, 1, Extent{0, 8}), s.Populate(Other, 1, Extent{3, 4})
			want := slices.Concat([]byte{0, 0, 0, 196, 0, 0, 0, 0}, a[:96], b[:96])
			s.equal("two", s.good(Removable, CDB16(0x84, 8, 1024), nil, 1024), want)
			s.good(Thin, sanitizeCDB(2, 0), nil, 0) // what is erased must not live on
			s.equal("one", s.good(Thin, CDB16(0x84, 8, 1024), nil, 1024), slices.Concat([]byte{0, 0, 0, 100, 0, 0, 0, 0}, b[:96]))
			s.writeTokenFails(Thin, WriteTokenList(0, 0, a, Extent{0, 1}), 0x052306)
		}},
		{"third_party_copy/descriptors", func(s *Session) {
			p := s.good(Thin, inquiry(0x8F, 4096), nil, 4096)
			var kinds []uint16
			for d := p[4:]; len(d) >= 4; d = d[4+be.Uint16(d[2:]):] {
				kinds = append(kinds, be.Uint16(d))
			}
			s.equal("descriptor types", kinds, []uint16{0, 1, 4, 8, 0xC, 0x106, 0x108, 0x8001})
			// What Windows looks at first (WINDOWS_BLOCK_DEVICE_TOKEN_LIMITS_DESCRIPTOR).
			s.equal("block device ROD limits", p[4:40], []byte{0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 128, 0, 0, 0x0E, 0x10, 0, 0, 0x01, 0x2C,
				0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0})
		}},
	}
}
