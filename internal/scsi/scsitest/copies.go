package scsitest

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// NAA6 is the E4 CSCD descriptor that names the LUN by its NAA-6 identifier.
func (s *Session) NAA6(lun uint64, blockSize int) []byte {
	s.Helper()
	var d []byte
	ids(s, lun, func(kind byte, desc []byte) {
		if kind == 3 && desc[3] == 16 {
			d = desc
		}
	})
	return cscd(d, blockSize)
}

// cscd makes an E4 CSCD descriptor of a designation descriptor.
func cscd(d []byte, blockSize int) []byte {
	b := make([]byte, 32)
	b[0] = 0xE4
	copy(b[4:28], d)
	binary.BigEndian.PutUint32(b[28:], uint32(blockSize))
	return b
}

// Segment02 makes a block to block segment descriptor.
func Segment02(src, dst, n int, srcLBA, dstLBA uint64, dc bool) []byte {
	be := binary.BigEndian
	b := make([]byte, 28)
	b[0], b[3] = 0x02, 0x18
	if dc {
		b[1] = 2
	}
	be.PutUint16(b[4:], uint16(src))
	be.PutUint16(b[6:], uint16(dst))
	be.PutUint16(b[10:], uint16(n))
	be.PutUint64(b[12:], srcLBA)
	be.PutUint64(b[20:], dstLBA)
	return b
}

// Segment0A makes a segment descriptor with byte offsets.
func Segment0A(src, dst, n int, srcLBA, dstLBA uint64, srcOff, dstOff int) []byte {
	be := binary.BigEndian
	b := make([]byte, 32)
	b[0], b[3] = 0x0A, 0x1C
	be.PutUint16(b[4:], uint16(src))
	be.PutUint16(b[6:], uint16(dst))
	be.PutUint32(b[8:], uint32(n))
	be.PutUint64(b[12:], srcLBA)
	be.PutUint64(b[20:], dstLBA)
	be.PutUint16(b[28:], uint16(srcOff))
	be.PutUint16(b[30:], uint16(dstOff))
	return b
}

// CopyList makes the parameter list of EXTENDED COPY(LID1).
func CopyList(id, usage byte, cscds, segments [][]byte) []byte {
	be := binary.BigEndian
	b := make([]byte, 16)
	c, g := slices.Concat(cscds...), slices.Concat(segments...)
	b[0], b[1] = id, usage<<3
	be.PutUint16(b[2:], uint16(len(c)))
	be.PutUint32(b[8:], uint32(len(g)))
	return slices.Concat(b, c, g)
}

// CopyCDB makes the CDB of EXTENDED COPY(LID1).
func CopyCDB(list []byte) []byte { return CDB16(0x83, 0, len(list)) }

func (s *Session) copy(lun uint64, list []byte) { s.Helper(); s.good(lun, CopyCDB(list), list, 0) }

func (s *Session) copyFails(lun uint64, list []byte, want int) []byte {
	s.Helper()
	return s.check(lun, CopyCDB(list), list, want)
}

func results(sa, id byte) []byte { return with(CDB16(0x84, sa, 1024), 2, id) }

func copyCases() []Case {
	be := binary.BigEndian
	type l = [][]byte
	return []Case{
		{"extended_copy/one_unit", func(s *Session) {
			data := pattern(4, 100*512)
			s.write(Thin, 10, data, 512)
			s.copy(Thin, CopyList(1, 2, l{s.NAA6(Thin, 512)}, l{Segment02(0, 0, 100, 10, 1500, false)}))
			s.holds(Thin, 1500, data, 512)
		}},
		{"extended_copy/two_units", func(s *Session) {
			data := pattern(4, 100*512)
			s.write(Thin, 10, data, 512)
			list := CopyList(0, 3, l{s.NAA6(Thin, 512), s.NAA6(Other, 512)}, l{Segment02(0, 1, 100, 10, 3, true)})
			s.copy(Other, list)
			s.holds(Other, 3, data, 512)
			s.write(Other, 3, make([]byte, len(data)), 512)
			s.copy(Thin, list)
			s.holds(Other, 3, data, 512)
		}},
		{"extended_copy/empty", func(s *Session) {
			s.good(Thin, CDB16(0x83, 0, 0), nil, 0)
			s.copy(Thin, CopyList(1, 0, nil, nil))
			s.copy(Thin, CopyList(1, 0, l{s.NAA6(Thin, 512)}, l{Segment02(0, 0, 0, 10, 20, false)}))
		}},
		{"extended_copy/designators", func(s *Session) {
			n := 0
			ids(s, Other, func(kind byte, d []byte) {
				if kind > 3 {
					return
				}
				n++
				data := pattern(byte(n), 512)
				s.write(Thin, 0, data, 512)
				s.copy(Thin, CopyList(1, 2, l{s.NAA6(Thin, 512), cscd(d, 512)}, l{Segment02(0, 1, 1, 0, uint64(n), false)}))
				s.holds(Other, uint64(n), data, 512)
			})
			s.equal("designators of the unit", n, 4)
		}},
		{"extended_copy/many_segments", func(s *Session) {
			data := pattern(4, 256*512)
			s.write(Thin, 0, data, 512)
			var segs [][]byte
			want := make([]byte, len(data))
			for i := range 256 {
				segs = append(segs, Segment02(0, 1, 1, uint64(i), uint64(255-i), false))
				copy(want[(255-i)*512:], data[i*512:(i+1)*512])
			}
			s.copy(Thin, CopyList(1, 2, l{s.NAA6(Thin, 512), s.NAA6(Other, 512)}, segs))
			s.holds(Other, 0, want, 512)
		}},
		{"extended_copy/segments_in_order", func(s *Session) {
			s.write(Thin, 0, pattern(4, 512), 512)
			var segs [][]byte
			for i := range uint64(20) { // each copies what the one before made
				segs = append(segs, Segment02(0, 0, 1, i, i+1, false))
			}
			s.copy(Thin, CopyList(1, 2, l{s.NAA6(Thin, 512)}, segs))
			s.holds(Thin, 20, pattern(4, 512), 512)
		}},
		{"extended_copy/overlap", func(s *Session) {
			data := pattern(4, 64*512)
			for _, to := range []uint64{103, 97} {
				s.write(Thin, 100, data, 512)
				s.copy(Thin, CopyList(1, 2, l{s.NAA6(Thin, 512)}, l{Segment02(0, 0, 64, 100, to, false)}))
				s.holds(Thin, to, data, 512)
			}
		}},
		{"extended_copy/block_sizes", func(s *Session) {
			data := pattern(4, 16*512)
			s.write(Thin, 8, data, 512)
			cs := l{s.NAA6(Thin, 512), s.NAA6(Large, 4096)}
			s.copy(Thin, CopyList(1, 2, cs, l{Segment02(0, 1, 16, 8, 1, false)}))
			s.holds(Large, 1, data, 4096)
			s.copy(Thin, CopyList(1, 2, cs, l{Segment02(0, 1, 2, 8, 5, true)}))
			s.holds(Large, 5, data, 4096)
			sense := s.copyFails(Thin, CopyList(1, 2, cs, l{Segment02(0, 1, 9, 8, 5, false)}), 0x0A260A)
			s.equal("field pointer", sense[15:18], []byte{0xA0, 0, 10})
		}},
		{"extended_copy/offsets", func(s *Session) {
			data := pattern(4, 16*512)
			s.write(Thin, 8, data, 512)
			cs := l{s.NAA6(Thin, 512), s.NAA6(Large, 4096)}
			s.write(Large, 0, make([]byte, 8*4096), 4096)
			s.copy(Thin, CopyList(1, 2, cs, l{Segment0A(0, 1, 6*512, 8, 1, 1024, 512)}))
			s.holds(Large, 1, slices.Concat(make([]byte, 512), data[1024:1024+6*512], make([]byte, 512)), 4096)
			for i, g := range (l{Segment0A(0, 1, 100, 8, 1, 0, 0), Segment0A(0, 1, 512, 8, 1, 1, 0), Segment0A(0, 1, 512, 8, 1, 0, 1)}) {
				sense := s.copyFails(Thin, CopyList(1, 2, cs, l{g}), 0x0A260D)
				s.equal("field pointer", sense[17], []int{8, 28, 30}[i])
			}
		}},
		{"extended_copy/param_header", func(s *Session) {
			c, g := s.NAA6(Thin, 512), Segment02(0, 0, 1, 0, 9, false)
			list := CopyList(1, 0, l{c}, l{g})
			s.copyFails(Thin, list[:15], 0x051A00)
			s.copyFails(Thin, list[:16+31], 0x051A00)
			s.copyFails(Thin, list[:len(list)-1], 0x051A00)
			s.copyFails(Thin, with(list, 1, 1<<3), 0x052600) // reserved LIST ID USAGE
			s.copyFails(Thin, with(list, 1, 3<<3), 0x052600) // no list id, but one is given
			s.copyFails(Thin, with(list, 15, 4), 0x05260B)   // inline data
		}},
		{"extended_copy/limits", func(s *Session) {
			c, g := s.NAA6(Thin, 512), Segment02(0, 0, 1, 0, 9, false)
			p := s.good(Thin, results(3, 0), nil, 1024)
			cscds, segs := int(be.Uint16(p[8:])), int(be.Uint16(p[10:]))
			s.copyFails(Thin, CopyList(1, 0, slices.Repeat(l{c}, cscds+1), l{g}), 0x052606)
			s.copyFails(Thin, CopyList(1, 0, l{c}, slices.Repeat(l{g}, segs+1)), 0x052608)
			s.copyFails(Thin, CopyList(1, 0, slices.Repeat(l{c}, cscds+1), slices.Repeat(l{g}, segs+100)), 0x051A00)
			s.copy(Thin, CopyList(1, 0, slices.Repeat(l{c}, cscds), slices.Repeat(l{g}, segs)))
		}},
		{"extended_copy/descriptor_type", func(s *Session) {
			c, g := s.NAA6(Thin, 512), Segment02(0, 0, 1, 0, 9, false)
			s.copyFails(Thin, CopyList(1, 0, l{with(c, 0, 0xE0)}, l{g}), 0x052607)
			s.copyFails(Thin, CopyList(1, 0, l{c}, l{with(g, 0, 0x03)}), 0x052609)
			s.copyFails(Thin, CopyList(1, 0, l{c}, l{with(g, 3, 0x17)}), 0x052600)
		}},
		{"extended_copy/target_descriptor", func(s *Session) {
			c, g := s.NAA6(Thin, 512), Segment02(0, 0, 1, 0, 9, false)
			s.copy(Thin, CopyList(1, 0, l{with(c, 1, 0xC0)}, l{g})) // LU ID TYPE is ignored
			sense := s.copyFails(Thin, CopyList(1, 0, l{with(c, 1, 0x20)}, l{g}), 0x0A0D02)
			s.equal("field pointer", sense[15:18], []byte{0x80, 0, 16})
			s.copyFails(Thin, CopyList(1, 0, l{with(c, 1, 0x05)}, l{g}), 0x0A0D03)
			s.copyFails(Thin, CopyList(1, 0, l{with(c, 20, c[20]^1)}, l{g}), 0x0A0D02)
			s.copyFails(Thin, CopyList(1, 0, l{with(c, 30, 0x10)}, l{g}), 0x052600) // block length 4096
			s.copyFails(Thin, CopyList(1, 0, l{with(c, 5, 2)}, l{g}), 0x0A0D02)     // the NAA name as another type
			s.copyFails(Thin, CopyList(1, 0, l{with(c, 5, 0x13)}, l{g}), 0x0A0D02)  // of a port
			s.copyFails(Thin, CopyList(1, 0, l{with(c, 7, 21)}, l{g}), 0x052600)    // longer than its field
			// What no segment uses need not be reachable.
			s.copy(Thin, CopyList(1, 0, l{c, with(c, 20, c[20]^1)}, l{g}))
		}},
		{"extended_copy/segment_descriptor", func(s *Session) {
			c := s.NAA6(Thin, 512)
			ok := Segment02(0, 0, 1, 0, 9, false)
			sense := s.copyFails(Thin, CopyList(1, 0, l{c}, l{ok, ok, Segment02(0, 1, 1, 0, 9, false)}), 0x0A0D02)
			s.equal("segment", be.Uint32(sense[8:]), 2)
			s.equal("field pointer", sense[15:18], []byte{0xA0, 0, 6})
			for _, g := range (l{Segment02(0, 0, 9, 0, Sectors-8, false), Segment02(0, 0, 1, 0, 1<<63, false)}) {
				sense = s.copyFails(Thin, CopyList(1, 0, l{c}, l{ok, g}), 0x0A0000)
				s.equal("segment", be.Uint16(sense[10:]), 1)
				s.equal("where the destination's status stands", sense[8:10], []byte{0, 18})
				s.equal("destination's status", sense[18], 2)
				k, a, q := SenseCode(sense[19:])
				s.equal("destination's sense", []byte{k, a, q}, []byte{5, 0x21, 0})
			}
			sense = s.copyFails(Thin, CopyList(1, 0, l{c}, l{Segment02(0, 0, 9, Sectors-8, 0, false)}), 0x0A0000)
			s.equal("where the source's status stands", sense[8:10], []byte{18, 0})
		}},
		{"extended_copy/masked", func(s *Session) {
			naa := Ready(Masked+1, Sectors, block.SectorSize, true).NAA
			hidden := cscd(append([]byte{1, 3, 0, 16}, naa[:]...), 512)
			c := s.NAA6(Thin, 512)
			s.copyFails(Thin, CopyList(1, 0, l{c, hidden}, l{Segment02(0, 1, 1, 0, 0, false)}), 0x0A0D02)
			s.copyFails(Thin, CopyList(1, 0, l{c, hidden}, l{Segment02(1, 0, 1, 0, 0, false)}), 0x0A0D02)
		}},
		{"extended_copy/write_protect", func(s *Session) {
			cs := l{s.NAA6(Thin, 512), s.NAA6(Protected, 512)}
			sense := s.copyFails(Thin, CopyList(1, 0, cs, l{Segment02(0, 1, 1, 0, 0, false)}), 0x0A0D01)
			k, a, q := SenseCode(sense[19:])
			s.equal("destination's sense", []byte{k, a, q}, []byte{7, 0x27, 0})
			s.copy(Thin, CopyList(1, 0, cs, l{Segment02(1, 0, 1, 0, 0, false)}))
		}},
		{"extended_copy/reserved", func(s *Session) {
			other := s.Login("iqn.2026-11.org.example:host-b")
			defer other.Close()
			s.goodFrom(other, Other, prOut(0, 0), prList(0, 0xB), 0)
			s.goodFrom(other, Other, prOut(1, 1), prList(0xB, 0), 0) // Write Exclusive
			cs := l{s.NAA6(Thin, 512), s.NAA6(Other, 512)}
			sense := s.copyFails(Thin, CopyList(1, 0, cs, l{Segment02(0, 1, 1, 0, 0, false)}), 0x0A0D01)
			s.equal("destination's status", sense[18], 0x18)
			s.copy(Thin, CopyList(1, 0, cs, l{Segment02(1, 0, 1, 0, 0, false)})) // reading is allowed
			s.goodFrom(other, Other, prOut(2, 1), prList(0xB, 0), 0)
			s.goodFrom(other, Other, prOut(1, 3), prList(0xB, 0), 0) // Exclusive Access
			sense = s.copyFails(Thin, CopyList(1, 0, cs, l{Segment02(1, 0, 1, 0, 0, false)}), 0x0A0D01)
			s.equal("where the source's status stands", sense[8], 18)
			s.equal("source's status", sense[18], 0x18)
		}},
		{"receive_copy_results/parameters", func(s *Session) {
			p := s.good(Thin, results(3, 0), nil, 1024)
			s.equal("available data", int(be.Uint32(p)), len(p)-4)
			s.equal("SNLID", p[4]&1, 1)
			s.equal("descriptors", p[44:44+p[43]], []byte{0x02, 0x0A, 0xE4})
			if be.Uint16(p[8:]) == 0 || be.Uint16(p[10:]) == 0 || be.Uint32(p[12:]) == 0 || be.Uint32(p[16:]) == 0 {
				s.Fatalf("limits missing: %x", p)
			}
			v := s.good(Thin, inquiry(0x8F, 4096), nil, 4096)
			if !bytes.Contains(v, []byte{0x83, 5, 0x00, 0x01, 0x10, 0x11, 0x1C, 0x84, 8, 0, 1, 3, 4, 5, 6, 7, 8}) {
				s.Fatalf("VPD page 8Fh does not list EXTENDED COPY: %x", v)
			}
		}},
		{"receive_copy_results/status", func(s *Session) {
			s.check(Thin, results(0, 7), nil, 0x052400)
			c := s.NAA6(Thin, 512)
			s.copy(Thin, CopyList(7, 0, l{c}, l{Segment02(0, 0, 3, 0, 9, false), Segment02(0, 0, 2, 0, 20, false)}))
			p := s.good(Thin, results(0, 7), nil, 1024)
			s.equal("status", p, []byte{0, 0, 0, 8, 1, 0, 2, 0, 0, 0, 2560 >> 8, 2560 & 0xFF})
			s.equal("no failure", s.good(Thin, results(4, 7), nil, 1024), []byte{0, 0, 0, 0})
			s.check(Other, results(0, 7), nil, 0x052400) // kept by logical unit
			s.copy(Thin, CopyList(8, 2, l{c}, l{Segment02(0, 0, 3, 0, 9, false)}))
			s.check(Thin, results(0, 8), nil, 0x052400) // to be discarded
			other := s.Login("iqn.2026-11.org.example:host-b")
			defer other.Close()
			s.checkFrom(other, Thin, results(0, 7), nil, 0x052400) // kept by nexus
		}},
		{"receive_copy_results/failure", func(s *Session) {
			c := s.NAA6(Thin, 512)
			list := CopyList(9, 0, l{c}, l{Segment02(0, 0, 3, 0, 9, false), Segment02(0, 1, 2, 0, 20, false)})
			sense := s.copyFails(Thin, list, 0x0A0D02)
			p := s.good(Thin, results(0, 9), nil, 1024)
			s.equal("status", p[4], 2)
			s.equal("segments", be.Uint16(p[5:]), 1)
			p = s.good(Thin, results(4, 9), nil, 1024)
			s.equal("command status", p[56], 2)
			s.equal("sense", p[60:60+be.Uint16(p[58:])], sense)
			s.check(Thin, results(4, 10), nil, 0x052400)
		}},
	}
}
