package scsitest

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi"
)

func inquiry(page byte, n int) []byte {
	evpd := byte(1)
	if page == 0xFF {
		evpd, page = 0, 0
	}
	return []byte{0x12, evpd, page, byte(n >> 8), byte(n), 0}
}

// informCases are about commands that describe units.
func informCases() []Case {
	be := binary.BigEndian
	return []Case{
		{"inquiry/standard", func(s *Session) {
			b := s.good(Thin, inquiry(0xFF, 255), nil, 255)
			s.equal("length", len(b), int(b[4])+5)
			s.equal("type and qualifier", b[0], 0)
			s.equal("RMB", b[1], 0)
			s.equal("3PC", b[5]&0x08, 0x08)
			s.equal("CMDQUE", b[7]&0x02, 0x02)
			s.equal("product", string(b[16:32]), "VOLUME          ")
			s.equal("RMB of the removable unit", s.good(Removable, inquiry(0xFF, 255), nil, 255)[1], 0x80)
		}},
		{"inquiry/alloc_length", func(s *Session) {
			s.equal("length", len(s.good(Thin, inquiry(0xFF, 5), nil, 255)), 5)
			s.equal("length", len(s.good(Thin, inquiry(0x83, 0), nil, 255)), 0)
		}},
		{"inquiry/evpd", func(s *Session) {
			s.check(Thin, []byte{0x12, 0, 0x83, 0, 255, 0}, nil, 0x052400)
			s.check(Thin, inquiry(0x42, 255), nil, 0x052400)
		}},
		{"inquiry/pages_sorted", func(s *Session) {
			b := s.good(Thin, inquiry(0, 255), nil, 255)[4:]
			if !slices.IsSorted(b) {
				s.Fatalf("pages are not in order: %x", b)
			}
			for _, page := range b {
				p := s.good(Thin, inquiry(page, 4096), nil, 4096)
				s.equal("page code", p[1], page)
				s.equal("page length", int(be.Uint16(p[2:])), len(p)-4)
			}
		}},
		{"inquiry/identification", func(s *Session) {
			kinds := map[byte]int{}
			ids(s, Thin, func(kind byte, d []byte) { kinds[kind]++ })
			for _, kind := range []byte{0x01, 0x02, 0x03, 0x14, 0x15, 0x28} {
				if kinds[kind] == 0 {
					s.Errorf("no designator of association and type %02x", kind)
				}
			}
		}},
		{"inquiry/no_unit", func(s *Session) {
			b := s.good(77, inquiry(0xFF, 255), nil, 255)
			s.equal("qualifier and type", b[0], 0x7F)
			s.check(77, make([]byte, 6), nil, 0x052500)
			s.check(77, CDB(0x28, 0, 1), nil, 0x052500)
			s.check(Masked, CDB(0x28, 0, 1), nil, 0x052500)
			b = s.good(77, []byte{0x03, 0, 0, 0, 18, 0}, nil, 18)
			s.equal("sense key of REQUEST SENSE", b[2], 5)
		}},
		{"inquiry/block_limits", func(s *Session) {
			b := s.good(Thin, inquiry(0xB0, 255), nil, 255)
			s.equal("length", len(b), 64)
			if b[5] == 0 || be.Uint32(b[20:]) == 0 || be.Uint32(b[24:]) == 0 || be.Uint64(b[36:]) == 0 {
				s.Fatalf("limits missing: %x", b)
			}
			b = s.good(Thick, inquiry(0xB0, 255), nil, 255)
			s.equal("UNMAP limits of a thick unit", be.Uint64(b[20:]), 0)
		}},
		{"read_capacity/simple", func(s *Session) {
			b := s.good(Thin, make10(0x25), nil, 8)
			s.equal("last LBA", be.Uint32(b), Sectors-1)
			s.equal("block length", be.Uint32(b[4:]), 512)
			b = s.good(Large, CDB16(0x9E, 0x10, 32), nil, 32)
			s.equal("last LBA", be.Uint64(b), Sectors/8-1)
			s.equal("block length", be.Uint32(b[8:]), 4096)
			s.equal("LBPPBE", b[13], 0)
			s.equal("LBPME, LBPRZ", b[14], 0xC0)
			b = s.good(Thin, CDB16(0x9E, 0x10, 32), nil, 32)
			s.equal("LBPPBE", b[13], 3)
			s.equal("LBPME of a thick unit", s.good(Thick, CDB16(0x9E, 0x10, 32), nil, 32)[14], 0)
			s.equal("allocation length", len(s.good(Thin, CDB16(0x9E, 0x10, 12), nil, 32)), 12)
		}},
		{"report_luns/select", func(s *Session) {
			list := func(sel byte) []byte { return s.good(0, []byte{0xA0, 0, sel, 0, 0, 0, 0, 0, 4, 0, 0, 0}, nil, 1024) }
			b := list(0)
			s.equal("list length", int(be.Uint32(b)), len(b)-8)
			s.equal("units", (len(b)-8)/8, 7)
			s.equal("last LUN, flat space addressing", be.Uint64(b[len(b)-8:]), uint64(0x4000|Distant)<<48)
			s.equal("well known units", len(list(1)), 8)
			s.equal("all", bytes.Equal(list(2), b), true)
			s.check(0, []byte{0xA0, 0, 0x7F, 0, 0, 0, 0, 0, 4, 0, 0, 0}, nil, 0x052400)
			s.check(0, []byte{0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 15, 0, 0}, nil, 0x052400)
		}},
		{"report_opcodes/all", func(s *Session) {
			all := s.good(Thin, []byte{0xA3, 0x0C, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0}, nil, 16384)
			s.equal("length", int(be.Uint32(all)), len(all)-4)
			timed := s.good(Thin, []byte{0xA3, 0x0C, 0x80, 0, 0, 0, 0, 0, 0x40, 0, 0, 0}, nil, 16384)
			n := (len(all) - 4) / 8
			s.equal("with timeouts", len(timed), 4+n*20)
			for i := range n {
				d := timed[4+i*20:]
				s.equal("CTDP", d[5]&2, 2)
				s.equal("timeouts descriptor", be.Uint16(d[8:]), 10)
			}
			for i := range n { // every command describes itself
				d := all[4+i*8:]
				opt := byte(1)
				if d[5]&1 != 0 {
					opt = 2
				}
				one := s.good(Thin, []byte{0xA3, 0x0C, opt, d[0], d[2], d[3], 0, 0, 1, 0, 0, 0}, nil, 256)
				s.equal("SUPPORT", one[1]&7, 3)
				s.equal("CDB size", be.Uint16(one[2:]), be.Uint16(d[6:]))
				s.equal("usage data", one[4], d[0])
			}
		}},
		{"report_opcodes/one", func(s *Session) {
			one := func(opt, op, sa byte) []byte {
				return []byte{0xA3, 0x0C, opt, op, 0, sa, 0, 0, 1, 0, 0, 0}
			}
			s.equal("unknown", s.good(Thin, one(1, 0xC1, 0), nil, 256)[1]&7, 1)
			s.equal("UNMAP of a thick unit", s.good(Thick, one(1, 0x42, 0), nil, 256)[1]&7, 1)
			s.check(Thin, one(1, 0x9E, 0), nil, 0x052400)
			s.check(Thin, one(2, 0x28, 0), nil, 0x052400)
			s.check(Thin, one(7, 0x28, 0), nil, 0x052400)
			s.equal("either, service action", s.good(Thin, one(3, 0x9E, 0x10), nil, 256)[1]&7, 3)
			s.equal("either, plain", s.good(Thin, one(3, 0x28, 0), nil, 256)[1]&7, 3)
			s.equal("unknown service action", s.good(Thin, one(3, 0x9E, 0x1F), nil, 256)[1]&7, 1)
			s.equal("CTDP", s.good(Thin, one(0x81, 0x28, 0), nil, 256)[1]&0x80, 0x80)
		}},
		{"report_tmfs/simple", func(s *Session) {
			// No front end has a code for I_T NEXUS RESET or the queries, so none is promised.
			b := s.good(Thin, []byte{0xA3, 0x0D, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0}, nil, 4)
			s.equal("functions", b, []byte{0xD8, 0, 0, 0})
			b = s.good(Thin, []byte{0xA3, 0x0D, 0x80, 0, 0, 0, 0, 0, 0, 16, 0, 0}, nil, 16)
			s.equal("functions, extended", b[:4], []byte{0xD8, 0, 0, 12})
		}},
		{"command/unknown", func(s *Session) {
			s.check(Thin, []byte{0xC0, 0, 0, 0, 0, 0}, nil, 0x052000)
			s.check(Thin, CDB16(0x9E, 0x1F, 32), nil, 0x052400)
			s.check(Thin, with(CDB(0x28, 0, 1), 9, 0x04), nil, 0x052400) // NACA
		}},
		{"mode_sense/pages", func(s *Session) {
			b := s.good(Thin, []byte{0x1A, 0, 0x3F, 0, 255, 0}, nil, 255)
			s.equal("length", int(b[0]), len(b)-1)
			s.equal("block descriptor", be.Uint32(b[4:]), Sectors)
			s.equal("block length", be.Uint32(b[8:]), 512)
			var codes []byte
			for p := b[4+b[3]:]; len(p) > 0; p = p[2+p[1]:] {
				codes = append(codes, p[0])
			}
			s.equal("pages", codes, []byte{1, 8, 0x0A, 0x1C})
			b = s.good(Thin, []byte{0x1A, 8, 8, 0, 255, 0}, nil, 255)
			s.equal("WCE", b[4+2]&4, 4)
			b = s.good(Thin, []byte{0x5A, 0x10, 0x0A, 0, 0, 0, 0, 0, 255, 0}, nil, 255)
			s.equal("LONGLBA", b[4], 1)
			s.equal("blocks", be.Uint64(b[8:]), Sectors)
			s.check(Thin, []byte{0x1A, 0, 0xC8, 0, 255, 0}, nil, 0x053900)
			s.check(Thin, []byte{0x1A, 0, 0x02, 0, 255, 0}, nil, 0x052400)
			s.check(Thin, []byte{0x1A, 0, 0x0A, 0x02, 255, 0}, nil, 0x052400) // no such subpage
			s.check(Thin, []byte{0x1A, 0, 0x3F, 0x02, 255, 0}, nil, 0x052400)
			s.equal("all subpages", s.good(Thin, []byte{0x1A, 8, 0x3F, 0xFF, 255, 0}, nil, 255)[4], 1)
			s.equal("WP", s.good(Protected, []byte{0x1A, 8, 8, 0, 255, 0}, nil, 255)[2]&0x80, 0x80)
		}},
		{"mode_select/swp", func(s *Session) {
			other := s.Login("iqn.2026-11.org.example:host-b")
			defer other.Close()
			s.modeSelect(Thin, 4, 0x08)
			s.check(Thin, CDB(0x2A, 0, 1), make([]byte, 512), 0x072700)
			s.checkFrom(other, Thin, make([]byte, 6), nil, 0x062A01)
			s.check(Thin, CDB(0x41, 0, 1), make([]byte, 512), 0x072700)
			s.modeSelect(Thin, 4, 0)
			s.good(Thin, CDB(0x2A, 0, 1), make([]byte, 512), 0)
		}},
		{"mode_select/d_sense", func(s *Session) {
			s.modeSelect(Thin, 2, 0x06)
			sense := s.check(Thin, CDB(0x88, 1<<40, 1), nil, 0x052100)
			s.equal("response code", sense[0], 0x72)
			s.equal("information", be.Uint64(sense[12:]), uint64(1<<40))
			s.modeSelect(Thin, 2, 0x02)
			sense = s.check(Thin, CDB(0x88, 1<<40, 1), nil, 0x052100)
			s.equal("response code and VALID", sense[0], 0x70)
			sense = s.check(Thin, CDB(0x28, Sectors, 1), nil, 0x052100)
			s.equal("response code and VALID", sense[0], 0xF0)
			s.equal("information", be.Uint32(sense[3:]), Sectors)
		}},
		{"mode_select/refused", func(s *Session) {
			page := s.good(Thin, []byte{0x1A, 8, 8, 0, 255, 0}, nil, 255)[4:]
			list := func(p []byte) []byte { return append([]byte{0, 0, 0, 0}, p...) }
			sel := func(n int) []byte { return []byte{0x15, 0x10, 0, 0, byte(n), 0} }
			s.good(Thin, sel(24), list(page), 0)
			s.check(Thin, sel(24), list(with(page, 2, 0)), 0x052600)    // WCE is not changeable
			s.check(Thin, sel(20), list(page)[:20], 0x051A00)           // truncated page
			s.check(Thin, sel(3), list(page)[:3], 0x051A00)             // truncated header
			s.check(Thin, with(sel(24), 1, 0x11), list(page), 0x052400) // SP
			s.check(Thin, with(sel(24), 1, 0x00), list(page), 0x052400) // PF=0
			s.good(Thin, sel(0), nil, 0)
		}},
		{"request_sense/formats", func(s *Session) {
			s.equal("fixed", s.good(Thin, []byte{3, 0, 0, 0, 252, 0}, nil, 252)[0], 0x70)
			s.equal("descriptor", s.good(Thin, []byte{3, 1, 0, 0, 252, 0}, nil, 252)[0], 0x72)
			i := s.Open("iqn.2026-11.org.example:host-c")
			defer i.Close()
			b := s.goodFrom(i, Thin, []byte{3, 0, 0, 0, 252, 0}, nil, 252)
			s.equal("unit attention as data", b[2], 6)
			if r := i.Do(Command{LUN: Thin, CDB: make([]byte, 6)}); r.Status != scsi.StatusGood {
				s.Fatalf("the unit attention is still there: %x", r.Sense)
			}
		}},
	}
}

func make10(op byte) []byte { return append([]byte{op}, make([]byte, 9)...) }

// CDB16 makes a 16-byte CDB with a service action and an allocation length.
func CDB16(op, sa byte, n int) []byte {
	b := make([]byte, 16)
	b[0], b[1] = op, sa
	binary.BigEndian.PutUint32(b[10:], uint32(n))
	return b
}

// modeSelect sets one byte of the control mode page.
func (s *Session) modeSelect(lun uint64, at int, v byte) {
	s.Helper()
	b := s.good(lun, []byte{0x1A, 8, 0x0A, 0, 255, 0}, nil, 255)
	b = slices.Clone(b)
	b[0], b[2] = 0, 0
	b[4+at] = v
	s.good(lun, []byte{0x15, 0x10, 0, 0, byte(len(b)), 0}, b, 0)
}

// ids calls fn for each designator of VPD page 83h.
func ids(s *Session, lun uint64, fn func(kind byte, desc []byte)) {
	s.Helper()
	b := s.good(lun, inquiry(0x83, 4096), nil, 4096)[4:]
	for len(b) >= 4 {
		n := 4 + int(b[3])
		fn(b[1]&0x3F, b[:n])
		b = b[n:]
	}
}
