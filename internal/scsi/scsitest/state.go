package scsitest

// stateCases are about unit attentions, the medium and resets.
func stateCases() []Case {
	tur := make([]byte, 6)
	eject, load := []byte{0x1B, 0, 0, 0, 2, 0}, []byte{0x1B, 0, 0, 0, 3, 0}
	prevent, allow := []byte{0x1E, 0, 0, 0, 1, 0}, []byte{0x1E, 0, 0, 0, 0, 0}
	return []Case{
		{"unit_attention/new_nexus", func(s *Session) {
			b := s.Open("iqn.2026-11.org.example:host-b")
			s.goodFrom(b, Thin, inquiry(0xFF, 255), nil, 255)
			s.goodFrom(b, Thin, []byte{0xA0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0}, nil, 1024)
			s.checkFrom(b, Thin, CDB(0x28, 0, 1), nil, 0x062900)
			s.goodFrom(b, Thin, CDB(0x28, 0, 1), nil, 512)
			s.checkFrom(b, Other, tur, nil, 0x062900)
			b.Close()
			b = s.Open("iqn.2026-11.org.example:host-b")
			defer b.Close()
			s.checkFrom(b, Thin, tur, nil, 0x062907)
		}},
		{"unit_attention/reset", func(s *Session) {
			b := s.Login("iqn.2026-11.org.example:host-b")
			defer b.Close()
			s.modeSelect(Thin, 4, 0x08)
			s.clearUA(b, Thin)
			s.Reset(Thin)
			s.check(Thin, tur, nil, 0x062903)
			s.checkFrom(b, Thin, tur, nil, 0x062903)
			s.goodFrom(b, Other, tur, nil, 0)
			s.good(Thin, CDB(0x2A, 0, 1), make([]byte, 512), 0) // SWP is gone
		}},
		{"start_stop/removable", func(s *Session) {
			b := s.Login("iqn.2026-11.org.example:host-b")
			defer b.Close()
			s.good(Removable, eject, nil, 0)
			for _, cdb := range [][]byte{tur, CDB(0x28, 0, 1), CDB(0x2A, 0, 1), CDB(0x35, 0, 1), make10(0x25), CDB16(0x9E, 0x10, 32),
				CDB16(0x9E, 0x12, 24), CDB(0x93, 0, 1), unmapCDB(24), caw(0, 1), CDB(0x8B, 0, 1), CDB(0x34, 0, 1), CDB(0x2F, 0, 1)} {
				s.check(Removable, cdb, make([]byte, 1024), 0x023A00)
			}
			s.good(Removable, inquiry(0xFF, 255), nil, 255)
			s.equal("REQUEST SENSE", s.good(Removable, []byte{3, 0, 0, 0, 18, 0}, nil, 18)[12], 0x3A)
			s.good(Removable, load, nil, 0)
			s.good(Removable, tur, nil, 0)
			s.checkFrom(b, Removable, tur, nil, 0x062800)
		}},
		{"start_stop/no_effect", func(s *Session) {
			for pc := byte(1); pc < 16; pc++ {
				s.good(Removable, []byte{0x1B, 0, 0, 0, pc<<4 | 2, 0}, nil, 0)
				s.good(Removable, tur, nil, 0)
			}
			s.good(Removable, []byte{0x1B, 0, 0, 0, 0, 0}, nil, 0)
			s.good(Removable, tur, nil, 0)
			s.check(Thin, eject, nil, 0x052400)
		}},
		{"send_diagnostic/self_test", func(s *Session) {
			for _, b1 := range []byte{0, 0x04, 0x14, 0x20, 0x40, 0x80, 0xA0, 0xC0} {
				s.good(Thin, []byte{0x1D, b1, 0, 0, 0, 0}, nil, 0)
			}
			for _, b1 := range []byte{0x24, 0x60, 0xE0} {
				s.check(Thin, []byte{0x1D, b1, 0, 0, 0, 0}, nil, 0x052400)
			}
			s.check(Thin, []byte{0x1D, 0x10, 0, 0, 4, 0}, make([]byte, 4), 0x052400)
		}},
		{"prevent_allow/simple", func(s *Session) {
			b := s.Login("iqn.2026-11.org.example:host-b")
			s.good(Removable, prevent, nil, 0)
			s.check(Removable, eject, nil, 0x055302)
			s.checkFrom(b, Removable, eject, nil, 0x055302)
			s.good(Removable, tur, nil, 0)
			s.check(Removable, load, nil, 0x055302)
			s.good(Removable, allow, nil, 0)
			s.goodFrom(b, Removable, prevent, nil, 0)
			s.check(Removable, eject, nil, 0x055302)
			b.Close() // nexus loss
			s.good(Removable, eject, nil, 0)
			s.good(Removable, load, nil, 0)
			s.check(Thin, prevent, nil, 0x052400)
		}},
		{"prevent_allow/reset", func(s *Session) {
			s.good(Removable, prevent, nil, 0)
			s.Reset(Removable)
			s.clearUA(s, Removable)
			s.good(Removable, eject, nil, 0)
			s.good(Removable, load, nil, 0)
		}},
	}
}
