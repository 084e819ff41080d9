package admin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// registrations: on a unit that the honest host uses too, as many as it keeps.
func (h *hostile) registrations() error {
	be := binary.BigEndian
	for range 40 {
		s := h.session().ready(lunMine)
		list := make([]byte, 28, 8192)
		be.PutUint64(list[8:], 1)
		list[20] = 0x08 // SPEC_I_PT
		for i := range 100 {
			name := fmt.Appendf(nil, "iqn.2026-01.host:r%03d%03d,i,0x000000000001\x00", h.n, i)
			for len(name)%4 != 0 {
				name = append(name, 0)
			}
			list = append(append(list, 0x45, 0, 0, byte(len(name))), name...)
		}
		be.PutUint32(list[24:], uint32(len(list)-28))
		cdb := []byte{0x5F, 0, 0, 0, 0, 0, 0, byte(len(list) >> 8), byte(len(list)), 0}
		switch status, code, _ := s.do(lunMine, cdb, list, 0); {
		case status == 2 && code == 0x055504:
			return nil
		case status != 0:
			return fmt.Errorf("REGISTER ends with %02x, %06x", status, code)
		}
	}
	return errors.New("the unit keeps them all")
}

// copyList: EXTENDED COPY with more descriptors than there may be.
func (h *hostile) copyList() error {
	s := h.session().ready(lunTheirs)
	list := make([]byte, 16+65*32)
	list[1] = 0x18
	binary.BigEndian.PutUint16(list[2:], 65*32)
	for range 100 {
		status, code, _ := s.do(lunTheirs, copyCDB(0, list), list, 0)
		if err := want("65 CSCDs", int(status)<<24|code, 2<<24|0x052606); err != nil {
			return err
		}
	}
	return nil
}

func copyCDB(sa byte, list []byte) []byte {
	cdb := make([]byte, 16)
	cdb[0], cdb[1] = 0x83, sa
	binary.BigEndian.PutUint32(cdb[10:], uint32(len(list)))
	return cdb
}

// cscd names a LUN by its NAA name.
func (s *raw) cscd(lun int) []byte {
	_, _, page := s.ready(lun).do(lun, []byte{0x12, 1, 0x83, 2, 0, 0}, nil, 512)
	d := make([]byte, 32)
	d[0], d[29], d[30] = 0xE4, 0, 2
	copy(d[4:24], page[4:24])
	return d
}

// copies: as many as an initiator may have, into a pool that takes its time. Each goes to where nothing is in the cache:
// what replaces dirty data needs no room, and does not wait.
func (h *hostile) copies() error {
	const each, ofNexus, ofHost, blocks, filled = 70, 32, 64, 2048, 64 * 512
	if _, err := h.fillSlow(); err != nil {
		return err
	}
	taken := 0
	for _, lun := range []int{lunMine, lunTheirs, lunOver} {
		s := h.session().ready(lunTheirs)
		for i := range uint64(4) { // what was never written is copied in no time
			if status, _, _ := s.do(lunTheirs, rwCDB(0x8A, 512*i, 512), filler[:segment], 0); status != 0 {
				return fmt.Errorf("a write ends with %02x", status)
			}
		}
		from, to := s.cscd(lunTheirs), s.cscd(lunSlow)
		s.ready(lun)
		for i := range uint64(each) {
			segment := make([]byte, 28)
			segment[0], segment[3], segment[7] = 2, 24, 1
			binary.BigEndian.PutUint16(segment[10:], blocks)
			binary.BigEndian.PutUint64(segment[20:], filled+i%48*blocks)
			list := append(append(make([]byte, 16), from...), to...)
			list = append(list, segment...)
			list[1], list[3], list[11] = 0x18, 64, 28
			s.command(pduCommand, 1, lun, copyCDB(0, list), len(list), 0, list)
		}
		// Those that are refused are answered, the others wait. A ping would tell nothing: its answer does not wait for
		// the commands before it.
		waiting := min(ofNexus, ofHost-taken)
		taken += waiting
		for n := range each - waiting {
			b, data, err := s.next(10 * time.Second)
			if err != nil {
				return fmt.Errorf("%d of %d copies on LUN %d are refused, %d should be: %w", n, each, lun, each-waiting, err)
			}
			if b[0] != pduAnswer || b[3] != 8 {
				return fmt.Errorf("a copy ends with PDU %02x, status %02x, % x", b[0], b[3], data)
			}
		}
	}
	return nil
}

// tokens: as many as an initiator may have.
func (h *hostile) tokens() error {
	s := h.session().ready(lunTheirs)
	list := scsitest.PopulateList(0, 10, 0, scsitest.Extent{Blocks: 8})
	cdb := scsitest.TokenCDB(0x10, 1, list)
	for range 300 {
		switch status, code, _ := s.do(lunTheirs, cdb, list, 0); {
		case status == 2 && code == 0x0A550D:
			return nil
		case status != 0:
			return fmt.Errorf("POPULATE TOKEN ends with %02x, %06x", status, code)
		}
	}
	return errors.New("no token is refused")
}

// verify: more VERIFY commands than there is memory for, of which the first wait: the medium's data
// is read at the rate of its disk.
func (h *hostile) verify() error {
	filled, err := h.fillSlow()
	if err != nil {
		return err
	}
	for range 8 {
		s := h.session()
		for range 128 {
			s.command(pduCommand, 1, lunSlow, rwCDB(0x8F, 0, 131072), 0, 0, nil)
		}
	}
	filled.ping()
	for {
		if b, _, err := filled.next(10 * time.Second); err != nil || b[0] == 0x20 {
			return err
		}
	}
}

// space: all of a pool.
func (h *hostile) space() error {
	s := h.session().ready(lunOver)
	for i := range uint64(256) {
		switch status, code, _ := s.do(lunOver, rwCDB(0x8A, 512*i, 512), filler[:segment], 0); {
		case status == 2 && code == 0x072707:
			return nil
		case status != 0 && code>>16 != 6: // unit attention: the threshold is passed
			return fmt.Errorf("a write ends with %02x, %06x", status, code)
		}
	}
	return errors.New("the pool takes more than it has")
}

// discards: space that is written and unmapped again and again, for as long as a few rounds of discards take.
func (h *hostile) discards() error {
	s := h.session().ready(lunTheirs)
	for until := time.Now().Add(2500 * time.Millisecond); time.Now().Before(until); {
		for i := range uint64(32) {
			if status, code, _ := s.do(lunTheirs, rwCDB(0x8A, 512*i, 512), filler[:segment], 0); status != 0 {
				return fmt.Errorf("write %d ends with %02x, %06x", i, status, code)
			}
		}
		same := rwCDB(0x93, 0, 512*32)
		same[1] = 0x08 // UNMAP
		if status, code, _ := s.do(lunTheirs, same, make([]byte, 512), 0); status != 0 {
			return fmt.Errorf("WRITE SAME ends with %02x, %06x", status, code)
		}
	}
	return nil
}

// mapEntries: writes that the map cannot put together.
func (h *hostile) mapEntries() error {
	s := h.session().ready(lunTheirs)
	for i := range uint64(4000) {
		if status, code, _ := s.do(lunTheirs, rwCDB(0x8A, 32*i%131064, 1), filler[:512], 0); status != 0 {
			return fmt.Errorf("write %d ends with %02x, %06x", i, status, code)
		}
	}
	return nil
}
