package scsitest

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// transportID is the TransportID of an initiator port (SPC-4 7.6.4.6).
func transportID(port string) []byte {
	n := (len(port) + 1 + 3) / 4 * 4
	b := append([]byte{0x45, 0, byte(n >> 8), byte(n)}, port...)
	return append(b, make([]byte, 4+n-len(b))...)
}

// portOf returns the name of the port that registered a key, from READ FULL STATUS.
func (s *Session) portOf(key uint64) string {
	s.Helper()
	be := binary.BigEndian
	full := s.good(Thin, prIn(3), nil, 4096)
	for d := full[8:]; len(d) >= 24; {
		id := d[24 : 24+be.Uint32(d[20:])]
		if be.Uint64(d) == key {
			name := id[4:]
			return string(name[:slices.Index(name, 0)])
		}
		d = d[24+len(id):]
	}
	s.Fatalf("no registration has the key %x", key)
	return ""
}

// moveList is the parameter list of REGISTER AND MOVE (SPC-4 6.16.4).
func moveList(key, action uint64, flags byte, port uint16, id []byte) []byte {
	b := prList(key, action)
	b[17] = flags
	binary.BigEndian.PutUint16(b[18:], port)
	binary.BigEndian.PutUint32(b[20:], uint32(len(id)))
	return append(b, id...)
}

func prOutN(sa, kind byte, n int) []byte {
	return with(with(prOut(sa, kind), 7, byte(n>>8)), 8, byte(n))
}

func prMoveCases() []Case {
	be := binary.BigEndian
	const registerMove = 7
	return []Case{
		{"persistent_reserve/register_and_move", func(s *Session) {
			b, c := s.three()
			defer b.Close()
			defer c.Close()
			s.pr(s, reserve, 3, keyA, 0)
			toB := s.portOf(keyB)
			move := moveList(keyA, 0xBB, 0, 1, transportID(toB))
			s.conflict(c, Thin, prOutN(registerMove, 0, len(move)), move)                               // not registered
			s.conflict(b, Thin, prOutN(registerMove, 0, len(move)), moveList(keyB, 1, 0, 1, move[24:])) // not the holder
			s.conflict(s, Thin, prOutN(registerMove, 0, len(move)), with(move, 7, 0x77))                // another key
			s.check(Thin, prOutN(registerMove, 0, len(move)), moveList(keyA, 0, 0, 1, move[24:]), 0x052600)
			s.check(Thin, prOutN(registerMove, 0, len(move)), with(move, 19, 9), 0x052600)    // no such port
			s.check(Thin, prOutN(registerMove, 0, len(move)), with(move, 24, 0x05), 0x052600) // a device, no port
			s.check(Thin, prOutN(registerMove, 0, len(move)), with(move, 24, 0x40), 0x052600) // another protocol
			s.check(Thin, prOutN(registerMove, 0, len(move)), with(move, 23, 4), 0x051A00)
			self := moveList(keyA, 0xBB, 0, 1, transportID(s.portOf(keyA)))
			s.check(Thin, prOutN(registerMove, 0, len(self)), self, 0x052600)
			s.good(Thin, prOutN(registerMove, 0, len(move)), move, 0)
			kind, key := s.reservation(s)
			s.equal("reservation", []uint64{uint64(kind), key}, []uint64{3, 0xBB})
			s.conflict(s, Thin, CDB(0x28, 0, 1), nil)
			s.goodFrom(b, Thin, CDB(0x28, 0, 1), nil, 512)
			// Back, and unregister; to a port that nobody has registered before.
			back := moveList(0xBB, keyC, 2, 1, transportID("iqn.2026-11.org.example:away,i,0x00023d000009"))
			s.goodFrom(b, Thin, prOutN(registerMove, 0, len(back)), back, 0)
			s.equal("keys", s.good(Thin, prIn(0), nil, 64)[8:], []byte{0, 0, 0, 0, 0, 0, 0, keyA, 0, 0, 0, 0, 0, 0, 0, keyC})
			s.conflict(b, Thin, CDB(0x28, 0, 1), nil)
			s.pr(s, preempt, 1, keyA, keyC)
			kind, key = s.reservation(s)
			s.equal("reservation", []uint64{uint64(kind), key}, []uint64{1, keyA})
		}},
		{"persistent_reserve/move_of_all_registrants", func(s *Session) {
			b, c := s.three()
			defer b.Close()
			defer c.Close()
			s.pr(s, reserve, 8, keyA, 0)
			move := moveList(keyA, 0xBB, 0, 1, transportID(s.portOf(keyB)))
			s.conflict(s, Thin, prOutN(registerMove, 0, len(move)), move)
		}},
		{"persistent_reserve/spec_i_pt", func(s *Session) {
			ids := slices.Concat(transportID("iqn.2026-11.org.example:one,i,0x1"), transportID("iqn.2026-11.org.example:two,i,0xAB"))
			list := func(ids []byte) []byte {
				return slices.Concat(with(prList(0, keyA), 20, 8), be.AppendUint32(nil, uint32(len(ids))), ids)
			}
			bad := list(slices.Concat(ids, []byte{0x05, 0, 0, 4, 'x', 0, 0, 0}))
			s.check(Thin, prOutN(register, 0, len(bad)), bad, 0x052600)
			s.equal("nothing is registered", len(s.good(Thin, prIn(0), nil, 64)), 8)
			l := list(ids)
			s.check(Thin, prOutN(register, 0, len(l)), with(l, 27, 4), 0x051A00)
			s.good(Thin, prOutN(register, 0, len(l)), l, 0)
			s.equal("keys", len(s.good(Thin, prIn(0), nil, 64)), 8+3*8)
			s.check(Thin, prOutN(register, 0, len(l)), with(l, 7, keyA), 0x052600) // it is registered
		}},
		{"persistent_reserve/all_target_ports", func(s *Session) {
			s.good(Thin, prOut(register, 0), with(prList(0, keyA), 20, 4), 0)
			s.equal("keys", s.good(Thin, prIn(0), nil, 64)[8:], []byte{0, 0, 0, 0, 0, 0, 0, keyA}) // there is one port
		}},
	}
}

// rtpg is REPORT TARGET PORT GROUPS, stpg SET TARGET PORT GROUPS.
func rtpg(format byte) []byte { return []byte{0xA3, format<<5 | 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0} }
func stpg(n byte) []byte      { return []byte{0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, n, 0, 0} }

func logSense(page, subpage byte) []byte {
	return []byte{0x4D, 0, 0x40 | page, subpage, 0, 0, 0, 1, 0, 0}
}

func portCases() []Case {
	tur := make([]byte, 6)
	return []Case{
		{"target_port_groups/simple", func(s *Session) {
			s.equal("TPGS", s.good(Thin, inquiry(0xFF, 96), nil, 96)[5]>>4&3, 3)
			one := []byte{0x00, 0x0F, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1}
			s.equal("data", s.good(Thin, rtpg(0), nil, 256), slices.Concat([]byte{0, 0, 0, 12}, one))
			s.equal("extended", s.good(Thin, rtpg(1), nil, 256), slices.Concat([]byte{0, 0, 0, 16, 0x10, 0, 0, 0}, one))
			s.check(Thin, rtpg(2), nil, 0x052400)
		}},
		{"target_port_groups/set", func(s *Session) {
			b := s.Login("iqn.2026-11.org.example:host-b")
			defer b.Close()
			s.good(Thin, stpg(0), nil, 0)
			s.check(Thin, stpg(3), []byte{0, 0, 0}, 0x051A00)
			s.check(Thin, stpg(8), []byte{0, 0, 0, 0, 0, 0, 0, 9}, 0x052600)
			s.check(Thin, stpg(8), []byte{0, 0, 0, 0, 0x0E, 0, 0, 1}, 0x052600) // offline
			s.check(Thin, stpg(8), []byte{0, 0, 0, 0, 2, 0, 0, 1}, 0x052600)    // no port would be left
			s.check(Thin, stpg(8), []byte{0, 0, 0, 0, 3, 0, 0, 1}, 0x052600)
			s.good(Thin, stpg(8), []byte{0, 0, 0, 0, 1, 0, 0, 1}, 0)
			s.equal("state, and what changed it", s.good(Thin, rtpg(0), nil, 256)[4:10], []byte{1, 0x0F, 0, 1, 0, 1})
			s.checkFrom(b, Thin, tur, nil, 0x062A06)
			s.good(Thin, CDB(0x28, 0, 1), nil, 512) // not optimized, but it works
			s.good(Thin, stpg(8), []byte{0, 0, 0, 0, 0, 0, 0, 1}, 0)
		}},
		{"log_sense/pages", func(s *Session) {
			s.equal("supported pages", s.good(Thin, logSense(0, 0), nil, 256), []byte{0, 0, 0, 4, 0, 0x0D, 0x0E, 0x2F})
			s.equal("and subpages", s.good(Thin, logSense(0, 0xFF), nil, 256), []byte{0x40, 0xFF, 0, 10, 0, 0, 0, 0xFF, 0x0D, 0, 0x0E, 0, 0x2F, 0})
			s.equal("temperature", s.good(Thin, logSense(0x0D, 0), nil, 256), []byte{0x0D, 0, 0, 12, 0, 0, 3, 2, 0, 0xFF, 0, 1, 3, 2, 0, 0xFF})
			s.equal("informational exceptions", s.good(Thin, logSense(0x2F, 0), nil, 256), []byte{0x2F, 0, 0, 8, 0, 0, 3, 4, 0, 0, 0xFF, 0xFF})
			s.check(Thin, logSense(0x0C, 0), nil, 0x052400) // the device knows of no pool
			s.check(Thin, logSense(0x0D, 1), nil, 0x052400)
			s.check(Thin, with(logSense(0x0D, 0), 1, 1), nil, 0x052400)    // SP
			s.check(Thin, with(logSense(0x0D, 0), 2, 0xCD), nil, 0x052400) // PC=11b
			s.equal("from a parameter on", s.good(Thin, with(logSense(0x0D, 0), 6, 1), nil, 256), []byte{0x0D, 0, 0, 6, 0, 1, 3, 2, 0, 0xFF})
			s.check(Thin, with(logSense(0x0D, 0), 6, 2), nil, 0x052400)
		}},
		{"log_sense/start_stop", func(s *Session) {
			cycles := func() byte { return s.good(Removable, logSense(0x0E, 0), nil, 256)[39] }
			s.equal("cycles", cycles(), 0)
			s.good(Removable, []byte{0x1B, 0, 0, 0, 2, 0}, nil, 0)
			s.good(Removable, []byte{0x1B, 0, 0, 0, 3, 0}, nil, 0)
			s.equal("cycles", cycles(), 1)
			s.good(Removable, []byte{0x4C, 2, 0, 0, 0, 0, 0, 0, 0, 0}, nil, 0) // LOG SELECT, PCR
			s.equal("cycles", cycles(), 0)
			s.check(Removable, []byte{0x4C, 0, 0, 0, 0, 0, 0, 0, 8, 0}, make([]byte, 8), 0x052400)
		}},
		{"identifying_information/simple", func(s *Session) {
			b := s.Login("iqn.2026-11.org.example:host-b")
			defer b.Close()
			get := func(kind byte) []byte {
				s.Helper()
				return s.good(Thin, []byte{0xA3, 5, 0, 0, 0, 0, 0, 0, 2, 0, kind, 0}, nil, 512)
			}
			set := func(kind byte, n int) []byte {
				return []byte{0xA4, 6, 0, 0, 0, 0, 0, 0, byte(n >> 8), byte(n), kind, 0}
			}
			s.equal("none", get(0), []byte{0, 0, 0, 0})
			s.equal("types", get(0xFE), []byte{0, 0, 0, 12, 0, 0, 0, 64, 4, 0, 1, 0, 0xFE, 0, 0, 0})
			s.good(Thin, set(0, 3), []byte("xyz"), 0)
			s.checkFrom(b, Thin, tur, nil, 0x063F05)
			s.equal("set", get(0), []byte("\x00\x00\x00\x03xyz"))
			s.good(Thin, set(4, 4), []byte("abc\x00"), 0)
			s.equal("text", get(4), []byte("\x00\x00\x00\x04abc\x00"))
			s.check(Thin, set(4, 3), []byte("abc"), 0x052600) // no NUL
			s.check(Thin, set(0, 65), make([]byte, 65), 0x052400)
			s.check(Thin, set(2, 1), []byte{0}, 0x052400)
			s.good(Thin, set(0, 0), nil, 0)
			s.equal("none", get(0), []byte{0, 0, 0, 0})
		}},
		{"timestamp/simple", func(s *Session) {
			b := s.Login("iqn.2026-11.org.example:host-b")
			defer b.Close()
			get := func() []byte { return s.good(Thin, []byte{0xA3, 0x0F, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, nil, 256) }
			s.equal("origin", get()[:4], []byte{0, 10, 0, 0})
			set := []byte{0xA4, 0x0F, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0}
			s.good(Thin, set, []byte{0, 0, 0, 0, 0x01, 0x8C, 0x25, 0x1E, 0, 0, 0, 0}, 0)
			s.checkFrom(b, Thin, tur, nil, 0x062A10)
			d := get()
			if fmt.Sprintf("%x", d[:8]) != "000a0200018c251e" { // 65 s pass before the last two bytes overflow
				s.Fatalf("timestamp %x", d)
			}
			s.check(Thin, with(set, 9, 11), make([]byte, 11), 0x051A00)
		}},
	}
}

// PoolDevice is a Device in a pool, whose use the test sets.
type PoolDevice struct {
	*Device
	Used, Available uint64 // sectors
}

// Provisioning returns what the test has set.
func (d *PoolDevice) Provisioning() (used, available uint64) { return d.Used, d.Available }

var _ block.Device = (*PoolDevice)(nil)
