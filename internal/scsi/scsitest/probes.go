package scsitest

import (
	"bytes"
	"encoding/binary"
)

// probeCases are what operating systems ask of a unit before they use an offload,
// in the order in which their documents say so: each answer that turns one on.
func probeCases() []Case {
	be := binary.BigEndian
	tur := make([]byte, 6)
	return []Case{
		// VMware ESXi: ATS, XCOPY, WRITE SAME, UNMAP by the T10 commands, without a
		// plug-in (esxcli storage core device vaai status get: all four supported).
		{"probe/esxi", func(s *Session) {
			s.good(Thin, tur, nil, 0)
			std := s.good(Thin, inquiry(0xFF, 96), nil, 96)
			s.equal("type, version SPC-4, format 2, 3PC, CMDQUE",
				[]byte{std[0], std[2], std[3] & 0x0F, std[5] & 0x08, std[7] & 2}, []byte{0, 6, 2, 8, 2})
			listed := s.good(Thin, inquiry(0x00, 255), nil, 255)[4:]
			for _, page := range []byte{0x80, 0x83, 0x8F, 0xB0, 0xB1, 0xB2} {
				if !bytes.Contains(listed, []byte{page}) {
					s.Fatalf("VPD page %02x is not listed", page)
				}
			}
			naa := 0
			ids(s, Thin, func(kind byte, d []byte) {
				if kind == 3 && d[0]&0x0F == 1 && d[1]&0x30 == 0 && d[3] == 16 && d[4]>>4 == 6 {
					naa++
				}
			})
			s.equal("NAA-6 names of the unit", naa, 1)
			limits := s.good(Thin, inquiry(0xB0, 64), nil, 64)
			// ATS of VMFS is one block; ESXi zeroes by WRITE SAME of 1 MiB and unmaps by 1 MiB.
			if limits[5] < 1 || be.Uint64(limits[36:]) < 1<<20/512 || be.Uint32(limits[20:]) < 1<<20/512 || be.Uint32(limits[24:]) < 1 ||
				be.Uint32(limits[28:]) > 1<<20/512 {
				s.Fatalf("block limits % x", limits)
			}
			rc := s.good(Thin, CDB16(0x9E, 0x10, 32), nil, 32)
			s.equal("LBPME, LBPRZ", rc[14]&0xC0, 0xC0)
			s.equal("thin, LBPU, LBPWS", s.good(Thin, inquiry(0xB2, 8), nil, 8)[5:7], []byte{0xE6, 2})
			// XCOPY: 4 MB by default, up to 16 MB, several segments when the array says so.
			p := s.good(Thin, results(3, 0), nil, 1024)
			if be.Uint16(p[10:]) < 2 || be.Uint32(p[16:]) < 16<<20 || !bytes.Contains(p[44:], []byte{0x02, 0x0A, 0xE4}) {
				s.Fatalf("copy operating parameters % x", p)
			}
			// And the commands themselves, as the data mover and VMFS send them.
			lock := pattern(1, 512)
			s.good(Thin, caw(8, 1), append(make([]byte, 512), lock...), 0)
			sense := s.check(Thin, caw(8, 1), append(make([]byte, 512), lock...), 0x0E1D00)
			differs := uint32(bytes.IndexFunc(lock, func(b rune) bool { return b != 0 }))
			s.equal("VALID and the offset of the difference", sense[:7], be.AppendUint32([]byte{0xF0, 0, 0x0E}, differs))
			s.good(Thin, CDB(0x93, 16, 1024), make([]byte, 512), 0)
			clone := CopyList(0, 3, [][]byte{s.NAA6(Thin, 512), s.NAA6(Other, 512)}, [][]byte{Segment02(0, 1, 1, 8, 8, false)})
			s.copy(Thin, clone)
			s.holds(Other, 8, lock, 512)
			s.unmap(Thin, 16, 1024)
		}},
		// Windows: thin provisioning (UNMAP by VPD B2 and B0, slabs by GET LBA STATUS
		// and LOG SENSE), ODX by VPD 8F.
		{"probe/windows", func(s *Session) {
			std := s.good(Thin, inquiry(0xFF, 36), nil, 36)
			s.equal("3PC", std[5]&8, 8)
			listed := s.good(Thin, inquiry(0x00, 255), nil, 255)[4:]
			for _, page := range []byte{0x83, 0x8F, 0xB0, 0xB2} {
				if !bytes.Contains(listed, []byte{page}) {
					s.Fatalf("VPD page %02x is not listed", page)
				}
			}
			s.equal("thin by UNMAP", s.good(Thin, inquiry(0xB2, 8), nil, 8)[5:7], []byte{0xE6, 2})
			limits := s.good(Thin, inquiry(0xB0, 64), nil, 64)
			s.equal("UGAVALID", limits[32]&0x80, 0x80)
			s.equal("LBPME", s.good(Thin, CDB16(0x9E, 0x10, 32), nil, 32)[14]&0x80, 0x80)
			s.equal("GET LBA STATUS", s.lbaStatus(Thin, 0, 8), [][3]uint64{{0, Sectors, 1}})
			s.equal("LOG SENSE, supported pages", s.good(Thin, logSense(0, 0), nil, 255)[0], 0)
			// ODX: a page of 24h bytes or more with one limits descriptor.
			tpc := s.good(Thin, inquiry(0x8F, 4096), nil, 4096)
			if n := be.Uint16(tpc[2:]); n < 0x24 || be.Uint16(tpc[4:]) != 0 || be.Uint16(tpc[6:]) != 0x20 {
				s.Fatalf("third-party copy page % x", tpc[:40])
			}
			if be.Uint16(tpc[14:]) == 0 || be.Uint32(tpc[20:]) == 0 || be.Uint64(tpc[24:]) == 0 {
				s.Fatalf("ROD limits % x", tpc[4:40])
			}
			// The copy engine: offload read, its result, offload write, its result; a
			// token may be used by another host; then the well-known zero token.
			data := pattern(3, 256*512)
			s.write(Thin, 512, data, 512)
			k := s.Populate(Thin, 0x10000001, Extent{512, 256})
			s.writeToken(Other, 0x10000002, WriteTokenList(0, 0, k, Extent{0, 256}))
			s.equal("status", s.information(Other, 0x10000002)[5], 1)
			s.holds(Other, 0, data, 512)
			s.writeToken(Other, 0x10000003, WriteTokenList(0, 0, zeroToken, Extent{0, 256}))
			s.holds(Other, 0, make([]byte, 256*512), 512)
			s.unmap(Thin, 512, 256)
		}},
		// Linux sd and multipath: which command discards and which zeroes, whether
		// paths can be told apart.
		{"probe/linux", func(s *Session) {
			std := s.good(Thin, inquiry(0xFF, 36), nil, 36)
			if std[2] < 5 {
				s.Fatalf("INQUIRY version %d: READ CAPACITY(16) is not tried first", std[2])
			}
			s.equal("LBPME, LBPRZ", s.good(Thin, CDB16(0x9E, 0x10, 32), nil, 32)[14]&0xC0, 0xC0)
			limits := s.good(Thin, inquiry(0xB0, 64), nil, 64)
			if len(limits) < 64 || be.Uint32(limits[20:]) == 0 || be.Uint32(limits[24:]) == 0 || be.Uint64(limits[36:]) <= 65535 {
				s.Fatalf("block limits % x", limits)
			}
			one := func(op byte) byte {
				return s.good(Thin, []byte{0xA3, 0x0C, 1, op, 0, 0, 0, 0, 0, 32, 0, 0}, nil, 32)[1]
			}
			s.equal("WRITE SAME(16), (10), UNMAP", []byte{one(0x93), one(0x41), one(0x42)}, []byte{3, 3, 3})
			s.equal("TPGS", std[5]>>4&3, 3)
			groups := s.good(Thin, rtpg(1), nil, 255)
			s.equal("the path is optimized", groups[8]&0x0F, 0)
			s.good(Thin, []byte{0x5E, 2, 0, 0, 0, 0, 0, 0, 8, 0}, nil, 8) // mpathpersist
			s.good(Thin, []byte{0x1A, 0, 0x3F, 0, 255, 0}, nil, 255)
			s.good(Thin, []byte{0x1A, 0, 0x08, 0, 255, 0}, nil, 255)
		}},
	}
}
