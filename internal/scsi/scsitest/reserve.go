package scsitest

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi"
)

func prOut(sa, kind byte) []byte {
	b := make10(0x5F)
	b[1], b[2], b[8] = sa, kind, 24
	return b
}

// prList is the parameter list of PERSISTENT RESERVE OUT.
func prList(key, action uint64) []byte {
	b := make([]byte, 24)
	binary.BigEndian.PutUint64(b, key)
	binary.BigEndian.PutUint64(b[8:], action)
	return b
}

func prIn(sa byte) []byte { return with(with(make10(0x5E), 1, sa), 7, 4) }

// Service actions and types.
const (
	register, reserve, release, prClear, preempt, preemptAbort, registerIgnore = 0, 1, 2, 3, 4, 5, 6

	keyA, keyB, keyC = 0xA, 0xB, 0xC
)

func (s *Session) pr(i Initiator, sa, kind byte, key, action uint64) {
	s.Helper()
	s.goodFrom(i, Thin, prOut(sa, kind), prList(key, action), 0)
}

// reservation returns type and key, type 0 when there is none.
func (s *Session) reservation(i Initiator) (kind byte, key uint64) {
	s.Helper()
	b := s.goodFrom(i, Thin, prIn(1), nil, 1024)
	if len(b) < 24 {
		return 0, 0
	}
	return b[21], binary.BigEndian.Uint64(b[8:])
}

// three returns initiators b and c beside s: a and b are registered, c is not.
func (s *Session) three() (b, c Initiator) {
	s.Helper()
	b, c = s.Login("iqn.2026-11.org.example:host-b"), s.Login("iqn.2026-11.org.example:host-c")
	s.pr(s, registerIgnore, 0, 0, keyA)
	s.pr(b, registerIgnore, 0, 0, keyB)
	return b, c
}

func reserveCases() []Case {
	be := binary.BigEndian
	read, write, data := CDB(0x28, 0, 1), CDB(0x2A, 0, 1), make([]byte, 512)
	return []Case{
		{"persistent_reserve/capabilities", func(s *Session) {
			b := s.good(Thin, prIn(2), nil, 1024)
			s.equal("data", b, []byte{0, 8, 0x0C, 0x80, 0xEA, 1, 0, 0}) // SIP_C, ATP_C; without a place to save no PTPL_C
		}},
		{"persistent_reserve/service_action", func(s *Session) {
			s.good(Thin, prIn(3), nil, 1024)
			for sa := byte(4); sa < 0x20; sa++ {
				s.check(Thin, prIn(sa), nil, 0x052400)
			}
			s.check(Thin, prOut(8, 1), prList(0, 0), 0x052400)
		}},
		{"persistent_reserve/register", func(s *Session) {
			keys := func() []byte { return s.good(Thin, prIn(0), nil, 1024) }
			gen := be.Uint32(keys())
			s.pr(s, register, 0, 0, keyA)
			s.equal("generation", be.Uint32(keys()), gen+1)
			s.equal("key", be.Uint64(keys()[8:]), keyA)
			s.conflict(s, Thin, prOut(register, 0), prList(0x77, keyB)) // wrong key
			s.pr(s, register, 0, keyA, keyB)
			s.equal("key", be.Uint64(keys()[8:]), keyB)
			full := s.good(Thin, prIn(3), nil, 1024)
			s.equal("full status: key", be.Uint64(full[8:]), keyB)
			s.equal("full status: protocol", full[32]&0x0F, 5)
			s.pr(s, register, 0, keyB, 0)
			s.equal("no keys", len(keys()), 8)
			s.pr(s, register, 0, 0, 0) // nothing to do
			s.conflict(s, Thin, prOut(register, 0), prList(keyA, keyA))
		}},
		{"persistent_reserve/list", func(s *Session) {
			s.check(Thin, with(prOut(register, 0), 8, 23), prList(0, keyA)[:23], 0x051A00)
			s.check(Thin, prOut(register, 0), with(prList(0, keyA), 20, 1), 0x052600)       // APTPL without a place to save
			s.check(Thin, prOut(register, 0), with(prList(0, keyA), 20, 8), 0x051A00)       // SPEC_I_PT without a list
			s.check(Thin, prOut(registerIgnore, 0), with(prList(0, keyA), 20, 8), 0x052600) // SPEC_I_PT
			s.pr(s, register, 0, 0, keyA)
			s.check(Thin, prOut(reserve, 2), prList(keyA, 0), 0x052400)    // no such type
			s.check(Thin, prOut(reserve, 0x11), prList(keyA, 0), 0x052400) // no such scope
		}},
		{"persistent_reserve/access", func(s *Session) {
			b, c := s.three()
			for _, kind := range []byte{1, 3, 5, 6, 7, 8} {
				s.pr(s, reserve, kind, keyA, 0)
				exclusive, regs := kind == 3 || kind == 6 || kind == 8, kind >= 5
				s.good(Thin, write, data, 0)
				s.good(Thin, read, nil, 512)
				try := func(i Initiator, cdb, out []byte, allowed bool) {
					s.Helper()
					if allowed {
						s.goodFrom(i, Thin, cdb, out, 512)
					} else {
						s.conflict(i, Thin, cdb, out)
					}
				}
				try(b, read, nil, !exclusive || regs)
				try(b, write, data, regs)
				try(c, read, nil, !exclusive)
				try(c, write, data, false)
				try(c, CDB(0x93, 0, 1), data, false)
				try(c, inquiry(0xFF, 255), nil, true)
				try(c, make([]byte, 6), nil, true)
				s.pr(s, release, kind, keyA, 0)
				s.clearUA(b, Thin)
				try(c, write, data, true)
			}
		}},
		{"persistent_reserve/reserve", func(s *Session) {
			b, c := s.three()
			s.conflict(c, Thin, prOut(reserve, 1), prList(keyC, 0)) // not registered
			s.conflict(s, Thin, prOut(reserve, 1), prList(keyB, 0)) // not its key
			s.pr(s, reserve, 1, keyA, 0)
			s.pr(s, reserve, 1, keyA, 0) // again
			s.conflict(s, Thin, prOut(reserve, 3), prList(keyA, 0))
			s.conflict(b, Thin, prOut(reserve, 1), prList(keyB, 0))
			s.pr(b, release, 1, keyB, 0) // not the holder: nothing happens
			kind, key := s.reservation(b)
			s.equal("reservation", []uint64{uint64(kind), key}, []uint64{1, keyA})
			s.check(Thin, prOut(release, 3), prList(keyA, 0), 0x052604)
			s.pr(s, release, 1, keyA, 0)
			s.goodFrom(b, Thin, make([]byte, 6), nil, 0) // this type tells nobody
		}},
		{"persistent_reserve/ownership", func(s *Session) {
			for _, kind := range []byte{1, 3, 5, 6, 7, 8} {
				b, c := s.three()
				s.pr(s, reserve, kind, keyA, 0)
				s.pr(s, register, 0, keyA, 0) // the holder leaves
				got, _ := s.reservation(s)
				if kind >= 7 {
					s.equal("the others still hold it", got, kind)
					s.pr(b, release, kind, keyB, 0)
				} else {
					s.equal("reservation", got, 0)
					if kind >= 5 {
						s.checkFrom(b, Thin, make([]byte, 6), nil, 0x062A04)
					}
				}
				s.goodFrom(b, Thin, make([]byte, 6), nil, 0)
				s.goodFrom(c, Thin, make([]byte, 6), nil, 0) // c is not concerned
				s.pr(b, register, 0, keyB, 0)
				b.Close()
				c.Close()
			}
		}},
		{"persistent_reserve/released", func(s *Session) {
			b, c := s.three()
			s.pr(s, reserve, 5, keyA, 0)
			s.pr(s, release, 5, keyA, 0)
			s.checkFrom(b, Thin, make([]byte, 6), nil, 0x062A04)
			s.goodFrom(c, Thin, make([]byte, 6), nil, 0)
			s.good(Thin, make([]byte, 6), nil, 0)
		}},
		{"persistent_reserve/clear", func(s *Session) {
			b, _ := s.three()
			s.pr(s, reserve, 3, keyA, 0)
			s.pr(b, prClear, 0, keyB, 0)
			s.check(Thin, make([]byte, 6), nil, 0x062A03)
			s.equal("no keys", len(s.good(Thin, prIn(0), nil, 1024)), 8)
			kind, _ := s.reservation(s)
			s.equal("reservation", kind, 0)
		}},
		{"persistent_reserve/preempt", func(s *Session) {
			b, c := s.three()
			s.pr(c, registerIgnore, 0, 0, keyC)
			s.pr(s, reserve, 1, keyA, 0)
			s.conflict(b, Thin, prOut(preempt, 1), prList(keyB, 0x99)) // nobody has that key
			s.checkFrom(b, Thin, prOut(preempt, 1), prList(keyB, 0), 0x052600)
			s.pr(b, preempt, 1, keyB, keyC) // a registration only
			s.checkFrom(c, Thin, make([]byte, 6), nil, 0x062A05)
			kind, key := s.reservation(b)
			s.equal("reservation", []uint64{uint64(kind), key}, []uint64{1, keyA})
			s.pr(b, preempt, 3, keyB, keyA) // the reservation
			kind, key = s.reservation(b)
			s.equal("reservation", []uint64{uint64(kind), key}, []uint64{3, keyB})
			s.conflict(s, Thin, write, data)
			s.check(Thin, make([]byte, 6), nil, 0x062A05)
			s.equal("keys", len(s.goodFrom(b, Thin, prIn(0), nil, 1024)), 16)
			s.pr(b, preempt, 1, keyB, keyB) // its own: only the type changes
			kind, key = s.reservation(b)
			s.equal("reservation", []uint64{uint64(kind), key}, []uint64{1, keyB})
		}},
		{"persistent_reserve/preempt_all", func(s *Session) {
			b, c := s.three()
			s.pr(c, registerIgnore, 0, 0, keyC)
			s.pr(s, reserve, 7, keyA, 0)
			s.pr(b, preempt, 7, keyB, keyC) // registrants leave one by one
			kind, _ := s.reservation(s)
			s.equal("reservation", kind, 7)
			s.pr(b, preemptAbort, 3, keyB, 0) // all others
			s.check(Thin, make([]byte, 6), nil, 0x062A05)
			kind, key := s.reservation(b)
			s.equal("reservation", []uint64{uint64(kind), key}, []uint64{3, keyB})
			s.equal("keys", len(s.goodFrom(b, Thin, prIn(0), nil, 1024)), 16)
		}},
		{"persistent_reserve/survives", func(s *Session) {
			b, _ := s.three()
			s.pr(s, reserve, 3, keyA, 0)
			s.Reset(Thin)
			s.clearUA(s, Thin)
			s.clearUA(b, Thin)
			s.conflict(b, Thin, read, nil)
			s.Close()
			s.conflict(b, Thin, read, nil)
			s.Initiator = s.Login("iqn.2026-11.org.example:host-a")
			s.good(Thin, read, nil, 512) // the same port holds it again
		}},
		{"reserve/two_initiators", func(s *Session) {
			b := s.Login("iqn.2026-11.org.example:host-b")
			for _, ops := range [][2]byte{{0x16, 0x17}, {0x56, 0x57}} {
				reserve, release := short(ops[0]), short(ops[1])
				s.good(Thin, reserve, nil, 0)
				s.good(Thin, reserve, nil, 0)
				for _, cdb := range [][]byte{reserve, read, write, make([]byte, 6), {0x1A, 0, 0x3F, 0, 255, 0}, prIn(0)} {
					s.conflict(b, Thin, cdb, data)
				}
				s.goodFrom(b, Thin, release, nil, 0) // no effect
				s.conflict(b, Thin, read, nil)
				s.goodFrom(b, Thin, inquiry(0xFF, 255), nil, 255)
				s.goodFrom(b, Other, read, nil, 512)
				s.conflict(s, Thin, prOut(register, 0), prList(0, keyA))
				s.good(Thin, release, nil, 0)
				s.goodFrom(b, Thin, reserve, nil, 0)
				s.conflict(s, Thin, read, nil)
				s.goodFrom(b, Thin, release, nil, 0)
			}
		}},
		{"reserve/ends", func(s *Session) {
			b := s.Login("iqn.2026-11.org.example:host-b")
			s.good(Thin, short(0x16), nil, 0)
			b.Reset(Thin)
			s.clearUA(b, Thin)
			s.goodFrom(b, Thin, read, nil, 512)
			s.clearUA(s, Thin)
			s.good(Thin, short(0x16), nil, 0)
			s.Close()
			s.goodFrom(b, Thin, read, nil, 512)
			s.Initiator = s.Login("iqn.2026-11.org.example:host-a")
		}},
		{"reserve/with_registrations", func(s *Session) {
			s.pr(s, register, 0, 0, keyA)
			s.conflict(s, Thin, short(0x16), nil)
			s.conflict(s, Thin, short(0x17), nil)
			if r := s.Do(Command{Thin, prOut(register, 0), prList(keyA, 0), 0}); r.Status != scsi.StatusGood {
				s.Fatal("cannot unregister")
			}
			s.good(Thin, short(0x16), nil, 0)
		}},
	}
}

// short makes a CDB that is nothing but its operation code.
func short(op byte) []byte {
	if op < 0x20 {
		return append([]byte{op}, make([]byte, 5)...)
	}
	return make10(op)
}
