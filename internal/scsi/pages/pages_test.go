package pages

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestStandardInquiry(t *testing.T) {
	p := Product{"VENDOR", "A PRODUCT OF TOO LONG A NAME", "1"}
	var none, unit, all [InquiryLen]byte
	p.NoUnit(none[:])
	p.Standard(unit[:], Unit{})
	p.Standard(all[:], Unit{Removable: true, SetsGroups: true, SeveralPorts: true})
	if got := string(unit[8:36]); got != "VENDOR  A PRODUCT OF TOO1   " || int(unit[4])+5 != len(unit) {
		t.Errorf("names %q, length %d", got, unit[4])
	}
	if !bytes.Equal(none[8:], unit[8:]) || !bytes.Equal(all[8:], unit[8:]) {
		t.Error("the names are not those of all units")
	}
	for name, got := range map[string][]byte{"no unit": none[:8], "a unit": unit[:8], "all flags": all[:8]} {
		want := map[string][]byte{"no unit": {0x7F, 0, 6, 0x12, 91, 0, 0, 0}, "a unit": {0, 0, 6, 0x12, 91, 0x18, 0, 2},
			"all flags": {0, 0x80, 6, 0x12, 91, 0x38, 0x10, 2}}[name]
		if !bytes.Equal(got, want) {
			t.Errorf("%s: % x, want % x", name, got, want)
		}
	}
}

func TestVPD(t *testing.T) {
	limits := Limits{Compare: 1, Granularity: 2, Transfer: 3, Optimal: 4, Unmap: 5, UnmapRanges: 6, Granule: 7, WriteSame: 8, Atomic: 9}
	page := EndVPD(AppendLimits(BeginVPD(0xB0), limits))
	if be := binary.BigEndian; len(page) != 64 || page[5] != 1 || be.Uint16(page[6:]) != 2 || be.Uint32(page[8:]) != 3 ||
		be.Uint32(page[12:]) != 4 || be.Uint64(page[36:]) != 8 || be.Uint32(page[44:]) != 9 {
		t.Errorf("limits % x", page)
	}
	if !bytes.Equal(page[20:36], make([]byte, 16)) {
		t.Errorf("a thick unit has limits of UNMAP: % x", page[20:36])
	}
	limits.Thin = true
	if page = EndVPD(AppendLimits(BeginVPD(0xB0), limits)); !bytes.Equal(page[20:36], []byte{0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0x80, 0, 0, 0}) {
		t.Errorf("a thin unit's limits of UNMAP are % x", page[20:36])
	}
	for code, page := range map[byte][]byte{0x86: AppendExtended(BeginVPD(0x86)), 0xB1: AppendCharacteristics(BeginVPD(0xB1))} {
		if page = EndVPD(page); len(page) != 64 || page[1] != code || page[3] != 60 {
			t.Errorf("page %02x has %d bytes: % x", code, len(page), page)
		}
	}
	if thin, thick := AppendProvisioning(nil, true, 13), AppendProvisioning(nil, false, 13); thin[0] != 13 || thin[2] != 2 || !bytes.Equal(thick, make([]byte, 4)) {
		t.Errorf("thin % x, thick % x", thin, thick)
	}
}

// TestModesRoundTrip: what MODE SENSE says can be sent back by MODE SELECT and changes nothing; of
// all that can be changed, exactly the changeable bits can.
func TestModesRoundTrip(t *testing.T) {
	seed := testkit.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		d := Modes{Current: Mode{DSense: rng.IntN(2) == 0, SWP: rng.IntN(2) == 0}, Saves: rng.IntN(2) == 0, HasThreshold: rng.IntN(2) == 0,
			Threshold: rng.Uint32(), Blocks: rng.Uint64() >> rng.IntN(40), BlockSize: 4096}
		short, long := rng.IntN(2) == 0, rng.IntN(2) == 0
		long = long && !short
		body, fault := d.Sense(Current, pageAll, subpageAll)
		head := d.Header(short, rng.IntN(2) == 0, long, len(body))
		list := append(bytes.Clone(head), body...)
		list[0] = 0
		if next, s := d.Select(list, short); fault != (sense.Data{}) || s != (sense.Data{}) || next != d.Current {
			t.Fatalf("%+v: % x\nsense %06x %06x, becomes %+v", d, list, fault.Code, s.Code, next)
		}
		mask, _ := d.Sense(Changeable, pageAll, subpageAll)
		at := rng.IntN(len(body))
		bit := byte(1) << rng.IntN(8)
		list[len(head)+at] ^= bit
		next, s := d.Select(list, short)
		may := mask[at]&bit != 0 && !inHeader(body, at)
		if may != (s.Code == sense.NoSense && next != d.Current) {
			t.Fatalf("%+v: byte %d, bit %02x, mask %02x: sense %06x, becomes %+v", d, at, bit, mask[at], s.Code, next)
		}
	}
}

// inHeader reports whether a byte of mode pages is in the header of one.
func inHeader(pages []byte, at int) bool {
	for start := 0; start <= at; {
		head, size := 2, 2+int(pages[start+1])
		if pages[start]&modeSPF != 0 {
			head, size = 4, 4+int(binary.BigEndian.Uint16(pages[start+2:]))
		}
		if at < start+head {
			return true
		}
		start += size
	}
	return false
}

func TestModePagesThatAreNotThere(t *testing.T) {
	d := Modes{}
	for _, c := range []struct{ code, subpage, at byte }{{0x3E, 0, 2}, {pageControl, 7, 3}, {pageExceptions, subpageProvisioning, 3}, {pageAll, 7, 3}} {
		if body, s := d.Sense(Current, c.code, c.subpage); body != nil || s.Code != sense.InvalidFieldInCDB || s.KeySpecific[2] != c.at {
			t.Errorf("page %02x, %02x: % x, sense %+v", c.code, c.subpage, body, s)
		}
	}
	d.HasThreshold = true
	if body, _ := d.Sense(Saved, pageExceptions, subpageProvisioning); len(body) != 24 {
		t.Errorf("the threshold page has %d bytes", len(body))
	}
}

// TestLogPages: the list of pages is that of the pages that there are, parameters are in the order
// of their codes, and a parameter pointer leaves out what stands before it.
func TestLogPages(t *testing.T) {
	be := binary.BigEndian
	changes := func() Changes {
		return Changes{Generation: 3, Since: 1, Base: 1 << 32, Shift: 3, List: []block.Change{{Range: block.Range{Start: 9, Count: 8}, Generation: 2, Host: 7}}}
	}
	for _, d := range []Logs{{}, {Provisioned: true, Used: 5, Available: 6}, {Changes: changes, Cycles: 4}, {Provisioned: true, Changes: changes}} {
		list, s := d.Page(logSupported, 0, 0)
		if s.Code != sense.NoSense || !slices.IsSorted(list[4:]) {
			t.Fatalf("pages % x, sense %06x", list, s.Code)
		}
		for code := range byte(64) {
			page, s := d.Page(code, 0, 0)
			if there := slices.Contains(list[4:], code); there != (s.Code == sense.NoSense) {
				t.Errorf("page %02x is listed: %v, sense %06x", code, there, s.Code)
			} else if !there || code == logSupported {
				continue
			}
			var codes []uint16
			for rest := page[4:]; len(rest) > 0; rest = rest[4+int(rest[3]):] {
				codes = append(codes, be.Uint16(rest))
			}
			if int(be.Uint16(page[2:])) != len(page)-4 || !slices.IsSorted(codes) || len(codes) == 0 {
				t.Errorf("page %02x: % x", code, page)
			}
			for i, first := range codes {
				if part, s := d.Page(code, 0, first); s.Code != sense.NoSense || be.Uint16(part[4:]) != first || !bytes.HasSuffix(page, part[4:]) {
					t.Errorf("page %02x from parameter %d (%d): % x", code, first, i, part)
				}
			}
			if _, s := d.Page(code, 0, codes[len(codes)-1]+1); s.Code != sense.InvalidFieldInCDB {
				t.Errorf("page %02x behind its last parameter: %06x", code, s.Code)
			}
		}
	}
	page, _ := (&Logs{Changes: changes}).Page(logChanges, 0, 1)
	// Sectors 9 to 16 are of blocks 1 and 2.
	if want := []byte{0, 1, 3, 32, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0}; !bytes.Equal(page[4:], want) {
		t.Errorf("changes\n% x, want\n% x", page[4:], want)
	}
}
