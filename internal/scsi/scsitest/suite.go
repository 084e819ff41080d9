package scsitest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// Initiator is one I_T nexus to the target that NewTarget makes.
type Initiator interface {
	// Do sends a command and waits for its end.
	Do(Command) Result
	// Reset sends LOGICAL UNIT RESET.
	Reset(lun uint64)
	// Close ends the nexus.
	Close()
}

// Command is a SCSI command.
type Command struct {
	LUN uint64 // as a number
	CDB []byte
	Out []byte
	In  int // bytes of Data-In that the initiator takes
}

// Result is how a command ended.
type Result struct {
	Status byte
	Sense  []byte
	In     []byte
	// Residual is positive when the command had more data for the initiator, or
	// wanted more from it, than the initiator's buffer has; negative when less.
	Residual int
}

// The LUNs of the target that NewTarget makes.
const (
	Thin      = 0 // 512-byte blocks, thin
	Large     = 1 // 4096-byte blocks, thin
	Other     = 2 // like Thin, to copy to
	Removable = 3
	Protected = 4 // write protected
	Thick     = 5 // 512-byte blocks, not thin
	Masked    = 6 // not mapped to any initiator
	Distant   = 300
	// Sectors is the size of each of them.
	Sectors = 2048
)

// NewTarget makes the target that the cases expect, every LUN but Masked mapped to
// every initiator. Devices are in the order of the LUNs; Distant is the last.
func NewTarget(exec block.Executor) (*scsi.Target, []*Device) {
	t := scsi.NewTarget(scsi.Options{Name: "iqn.2026-11.org.example:array", Vendor: "ARRAYSIM", Product: "VOLUME", Revision: "0001", Exec: exec, Random: guessable(),
		SetGroups: func(string) bool { return true }})
	var devs []*Device
	for i, lun := range []uint16{Thin, Large, Other, Removable, Protected, Thick, Masked, Distant} {
		size := uint32(block.SectorSize)
		if lun == Large {
			size = 4096
		}
		d := NewDevice(exec, Ready(uint32(i+1), Sectors, size, lun != Thick))
		devs = append(devs, d)
		u := t.AddUnit(d, scsi.UnitOptions{Removable: lun == Removable, WriteProtect: lun == Protected})
		if lun == Masked {
			continue
		}
		if err := t.Map("", lun, u); err != nil {
			panic(err)
		}
	}
	return t, devs
}

// guessable is a source of bytes that are the same in every test.
func guessable() func([]byte) {
	g := rand.NewChaCha8([32]byte{1})
	return func(b []byte) { _, _ = g.Read(b) }
}

// Session is what a case works with: an initiator whose unit attentions are
// cleared, and the means to get more of them.
type Session struct {
	testing.TB
	Initiator
	Open func(name string) Initiator
}

// Case is one conformance case, named command/facet.
type Case struct {
	Name string
	Run  func(*Session)
}

// Run runs every case as a subtest. open makes an initiator of a fresh target that
// NewTarget made; further calls in one subtest make further initiators of it.
func Run(t *testing.T, open func(t *testing.T) func(name string) Initiator) {
	for _, c := range All() {
		t.Run(c.Name, func(t *testing.T) {
			dial := open(t)
			s := &Session{TB: t, Open: dial}
			s.Initiator = s.Login("iqn.2026-11.org.example:host-a")
			defer s.Initiator.Close()
			c.Run(s)
		})
	}
}

// Login opens an initiator and clears its unit attentions on all LUNs.
func (s *Session) Login(name string) Initiator {
	s.Helper()
	i := s.Open(name)
	for _, lun := range []uint64{Thin, Large, Other, Removable, Protected, Thick, Distant} {
		s.clearUA(i, lun)
	}
	return i
}

func (s *Session) clearUA(i Initiator, lun uint64) {
	s.Helper()
	for range 8 {
		r := i.Do(Command{LUN: lun, CDB: make([]byte, 6)})
		if r.Status == scsi.StatusGood {
			return
		}
		if k, _, _ := SenseCode(r.Sense); r.Status != scsi.StatusCheckCondition || k != 6 {
			s.Fatalf("LUN %d: TEST UNIT READY: status %02x sense %x", lun, r.Status, r.Sense)
		}
	}
	s.Fatalf("LUN %d: endless unit attentions", lun)
}

// SenseCode returns sense key, additional sense code and qualifier of sense data
// in either format.
func SenseCode(b []byte) (key, asc, ascq byte) {
	switch {
	case len(b) >= 4 && b[0]&0x7F >= 0x72:
		return b[1] & 0x0F, b[2], b[3]
	case len(b) >= 14:
		return b[2] & 0x0F, b[12], b[13]
	}
	return 0, 0, 0
}

// good sends a command that must succeed.
func (s *Session) good(lun uint64, cdb, out []byte, in int) []byte {
	s.Helper()
	return s.goodFrom(s.Initiator, lun, cdb, out, in)
}

func (s *Session) goodFrom(i Initiator, lun uint64, cdb, out []byte, in int) []byte {
	s.Helper()
	r := i.Do(Command{lun, cdb, out, in})
	if r.Status != scsi.StatusGood {
		s.Fatalf("LUN %d cdb %x: status %02x sense %x, want GOOD", lun, cdb, r.Status, r.Sense)
	}
	return r.In
}

// check sends a command that must end with CHECK CONDITION and this sense code,
// 0xKKAAQQ.
func (s *Session) check(lun uint64, cdb, out []byte, want int) []byte {
	s.Helper()
	return s.checkFrom(s.Initiator, lun, cdb, out, want)
}

func (s *Session) checkFrom(i Initiator, lun uint64, cdb, out []byte, want int) []byte {
	s.Helper()
	r := i.Do(Command{lun, cdb, out, 1 << 20})
	k, a, q := SenseCode(r.Sense)
	if got := int(k)<<16 | int(a)<<8 | int(q); r.Status != scsi.StatusCheckCondition || got != want {
		s.Fatalf("LUN %d cdb %x: status %02x sense %06x (%x), want CHECK CONDITION %06x", lun, cdb, r.Status, got, r.Sense, want)
	}
	return r.Sense
}

func (s *Session) conflict(i Initiator, lun uint64, cdb, out []byte) {
	s.Helper()
	if r := i.Do(Command{lun, cdb, out, 4096}); r.Status != scsi.StatusReservationConflict {
		s.Fatalf("LUN %d cdb %x: status %02x sense %x, want RESERVATION CONFLICT", lun, cdb, r.Status, r.Sense)
	}
}

func (s *Session) equal(what string, got, want any) {
	s.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// CDB makes a block command: op decides the format.
func CDB(op byte, lba uint64, n int) []byte {
	be := binary.BigEndian
	switch op >> 5 {
	case 0:
		return []byte{op, byte(lba >> 16), byte(lba >> 8), byte(lba), byte(n), 0}
	case 1, 2:
		b := make([]byte, 10)
		b[0] = op
		be.PutUint32(b[2:], uint32(lba))
		be.PutUint16(b[7:], uint16(n))
		return b
	case 5:
		b := make([]byte, 12)
		b[0] = op
		be.PutUint32(b[2:], uint32(lba))
		be.PutUint32(b[6:], uint32(n))
		return b
	}
	b := make([]byte, 16)
	b[0] = op
	be.PutUint64(b[2:], lba)
	be.PutUint32(b[10:], uint32(n))
	return b
}

// with returns cdb with one byte changed.
func with(cdb []byte, at int, v byte) []byte {
	cdb = slices.Clone(cdb)
	cdb[at] = v
	return cdb
}

// pattern is n bytes that differ from place to place.
func pattern(seed byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i) + byte(i>>8)*7
	}
	return b
}

func (s *Session) write(lun, lba uint64, data []byte, blockSize int) {
	s.Helper()
	s.good(lun, CDB(0x8A, lba, len(data)/blockSize), data, 0)
}

func (s *Session) read(lun, lba uint64, n, blockSize int) []byte {
	s.Helper()
	return s.good(lun, CDB(0x88, lba, n), nil, n*blockSize)
}

func (s *Session) holds(lun, lba uint64, want []byte, blockSize int) {
	s.Helper()
	got := s.read(lun, lba, len(want)/blockSize, blockSize)
	if !bytes.Equal(got, want) {
		i := 0
		for i < len(got) && got[i] == want[i] {
			i++
		}
		s.Fatalf("LUN %d LBA %d: read differs at byte %d", lun, lba, i)
	}
}

// All returns every case, in the order of their names' commands.
func All() []Case {
	all := slices.Concat(informCases(), blockCases(), provisionCases(), eraseCases(), tokenCases(), copyCases(), copy4Cases(), reserveCases(), prMoveCases(), portCases(), probeCases(), stateCases())
	slices.SortStableFunc(all, func(a, b Case) int { return strings.Compare(a.Name, b.Name) })
	return all
}
