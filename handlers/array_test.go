package handlers

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/testkit"
	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

func TestRegistry(t *testing.T) {
	var r Registry
	for _, row := range []struct {
		name string
		ok   bool
	}{
		{"array", true}, {"array", false}, {"hostcache", true}, {"rbd", false}, {"rb", false}, {"fileserver", false}, {"zbc2", false}, {"ram", true},
	} {
		if err := r.Add(subtype{row.name}); (err == nil) != row.ok {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	if got := fmt.Sprint(r.Subtypes()); got != "[{array} {hostcache} {ram}]" {
		t.Errorf("subtypes: %s", got)
	}
}

type subtype struct{ name string }

func (s subtype) Name() string                          { return s.name }
func (subtype) Describe() string                        { return "" }
func (subtype) Check(string) error                      { return nil }
func (subtype) Open(*tcmu.Device) (tcmu.Handler, error) { return nil, nil }

func TestParseVolume(t *testing.T) {
	for _, row := range []struct {
		config string
		want   VolumeSpec
		says   string
	}{
		{"gold/db1", VolumeSpec{Pool: "gold", Volume: "db1", Domain: "gold"}, ""},
		{"gold/db1/provisioning=thick", VolumeSpec{Pool: "gold", Volume: "db1", Domain: "gold", Thick: true}, ""},
		{"gold/db1/provisioning=thin/create=no/write_protect=yes/domain=esx",
			VolumeSpec{Pool: "gold", Volume: "db1", Domain: "esx", MustExist: true, WriteProtect: true}, ""},
		{"", VolumeSpec{}, "names no volume"},
		{"gold", VolumeSpec{}, "names no volume"},
		{"gold/", VolumeSpec{}, "names no volume"},
		{"/db1", VolumeSpec{}, "names no volume"},
		{"-gold/db1", VolumeSpec{}, "pool name"},
		{"gold/db 1", VolumeSpec{}, "volume name"},
		{"gold/" + strings.Repeat("x", 64), VolumeSpec{}, "volume name"},
		{"gold/db1/", VolumeSpec{}, "not a valid option"},
		{"gold/db1/thick", VolumeSpec{}, "KEY=VALUE"},
		{"gold/db1/size=1", VolumeSpec{}, `"size" is not a valid option`},
		{"gold/db1/create=maybe", VolumeSpec{}, "yes or no"},
		{"gold/db1/provisioning=", VolumeSpec{}, "thin or thick"},
		{"gold/db1/domain=", VolumeSpec{}, "domain is"},
		{"gold/db1/create=no/create=no", VolumeSpec{}, "twice"},
	} {
		got, err := parseVolume(row.config)
		if row.says == "" && (err != nil || got != row.want) {
			t.Errorf("%q: got %+v, %v; want %+v", row.config, got, err, row.want)
		}
		if row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
			t.Errorf("%q: got %v, want something about %q", row.config, err, row.says)
		}
	}
}

func FuzzParseVolume(f *testing.F) {
	for _, s := range []string{"gold/db1", "gold/db1/provisioning=thick/domain=x", "//==/", "a/b/create=no"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, config string) {
		s, err := parseVolume(config)
		if err == nil && (!nameRE.MatchString(s.Pool) || !nameRE.MatchString(s.Volume) || !nameRE.MatchString(s.Domain)) {
			t.Errorf("%q gave %+v", config, s)
		}
	})
}

// TestFirstCommands: initiators see none of what happens between arraysim and itself.
func TestFirstCommands(t *testing.T) {
	a := NewArray(newHost(t), nil)
	x := mustOpen(t, a, "gold/x", tcmutest.Options{})
	x.do(testUnitReady, nil, 0) // no POWER ON
	y := mustOpen(t, a, "gold/y", tcmutest.Options{})
	x.do(testUnitReady, nil, 0) // no REPORTED LUNS DATA HAS CHANGED
	y.do(testUnitReady, nil, 0)
	y.close()
	x.do(testUnitReady, nil, 0)
	if v, err := x.Attribute("attrib/emulate_write_cache"); err != nil || v != "1" {
		t.Errorf("the write cache attribute is %q, %v", v, err)
	}
	x.close()
	// A domain that comes again.
	x = mustOpen(t, a, "gold/x", tcmutest.Options{})
	x.do(testUnitReady, nil, 0)
	x.close()
}

// TestData goes through the ring in pieces and in one, and back.
func TestData(t *testing.T) {
	s := testkit.Seed(t)
	for _, row := range []struct {
		name string
		o    tcmutest.Options
	}{
		{"in one piece", tcmutest.Options{Blocks: 300}},
		{"in pieces", tcmutest.Options{Blocks: 300, Scatter: true, Seed: s}},
	} {
		t.Run(row.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(s, 5))
			l := mustOpen(t, NewArray(newHost(t), nil), "gold/x", row.o)
			model := make([]byte, lunSize)
			for range 150 {
				n := 1 + random.IntN(400)
				lba := uint32(random.IntN(lunSize/512 - n))
				part := model[int(lba)*512:][:n*512]
				if random.IntN(2) == 0 {
					for i := 0; i < len(part); i += 8 {
						binary.NativeEndian.PutUint64(part[i:], random.Uint64())
					}
					l.write(lba, part)
				} else {
					l.holds(lba, part)
				}
			}
			l.close()
		})
	}
}

func TestTransfersOfOtherLengths(t *testing.T) {
	l := mustOpen(t, NewArray(newHost(t), nil), "gold/x", tcmutest.Options{})
	data := bytes.Repeat([]byte{0xA7}, 1024)
	l.write(0, data)
	for _, row := range []struct {
		name string
		cdb  []byte
		in   int
		want []byte
	}{
		{"read with more room than the command needs", cdb10(0x28, 0, 1), 1024, data[:512]},
		{"read with less", cdb10(0x28, 0, 2), 512, data[:512]},
		{"read of nothing with room: no old bytes", cdb10(0x28, 0, 0), 512, make([]byte, 512)},
		{"inquiry with a short allocation length", []byte{0x12, 0, 0, 0, 5, 0}, 96, []byte{0, 0, 6, 0x12, 91}},
		{"test unit ready with room", testUnitReady, 64, make([]byte, 64)},
	} {
		r := l.send(row.cdb, nil, row.in).Wait()
		if r.Status != 0 || !bytes.Equal(r.Data, row.want) {
			t.Errorf("%s: status %#x, % x; want % x", row.name, r.Status, r.Data, row.want)
		}
	}
	l.fails(5, 0x2100, cdb10(0x28, lunSize/512, 1), nil, 512)
	l.fails(5, 0x2000, []byte{0xC0, 9: 0}, nil, 0)
	l.close()
}

// TestBatch: a portion of commands is one entry of the executor and one notification.
func TestBatch(t *testing.T) {
	h := newHost(t)
	a := NewArray(h, nil)
	l := mustOpen(t, a, "gold/x", tcmutest.Options{})
	l.do(testUnitReady, nil, 0)
	h.exec.Lock() // the first command waits here; the others gather
	calls := []*tcmutest.Call{l.send(testUnitReady, nil, 0)}
	time.Sleep(20 * time.Millisecond) // or it gathers with them
	for range 20 {
		calls = append(calls, l.send(testUnitReady, nil, 0))
	}
	before := l.Notifications()
	h.exec.Unlock()
	for _, c := range calls {
		if r := c.Wait(); r.Status != 0 {
			t.Fatalf("status %#x", r.Status)
		}
	}
	if n := l.Notifications() - before; n > 4 {
		t.Errorf("%d notifications for one command and a batch of 20, want 4", n)
	}
	l.close()
}

// copyList makes an EXTENDED COPY of blocks from src to dst.
func copyList(src, dst []byte, from, to, blocks int) (cdb, list []byte) {
	be := binary.BigEndian
	list = make([]byte, 16+2*32+28)
	list[1] = 0x18 // LIST ID USAGE 11b
	be.PutUint16(list[2:], 64)
	be.PutUint32(list[8:], 28)
	for i, naa := range [][]byte{src, dst} {
		d := list[16+32*i:]
		d[0], d[4], d[5], d[7] = 0xE4, 1, 3, 16
		copy(d[8:], naa)
		d[30] = 2 // 512 bytes
	}
	s := list[16+64:]
	s[0] = 2
	be.PutUint16(s[2:], 24)
	be.PutUint16(s[6:], 1)
	be.PutUint16(s[10:], uint16(blocks))
	be.PutUint64(s[12:], uint64(from))
	be.PutUint64(s[20:], uint64(to))
	cdb = make([]byte, 16)
	cdb[0] = 0x83
	be.PutUint32(cdb[10:], uint32(len(list)))
	return cdb, list
}

// TestCopyDomains: a copy finds the units of its own domain.
func TestCopyDomains(t *testing.T) {
	a := NewArray(newHost(t), nil)
	x := mustOpen(t, a, "gold/x", tcmutest.Options{})
	y := mustOpen(t, a, "gold/y", tcmutest.Options{})
	z := mustOpen(t, a, "silver/z", tcmutest.Options{})
	far := mustOpen(t, a, "silver/far/domain=gold", tcmutest.Options{})
	data := bytes.Repeat([]byte("copy"), 1024)
	x.write(8, data)
	for _, row := range []struct {
		name string
		dst  *lun
		ok   bool
	}{
		{"onto itself", x, true},
		{"in the pool", y, true},
		{"to another pool", z, false},
		{"to another pool, in the domain", far, true},
	} {
		cdb, list := copyList(x.naa(), row.dst.naa(), 8, 100, 8)
		if !row.ok {
			x.fails(0x0A, 0x0D02, cdb, list, 0)
			continue
		}
		x.do(cdb, list, 0)
		row.dst.holds(100, data)
	}
	for _, l := range []*lun{x, y, z, far} {
		l.close()
	}
}

// TestReservationsOfOthers: what the kernel reserved for somebody is not copied to.
func TestReservationsOfOthers(t *testing.T) {
	a := NewArray(newHost(t), nil)
	x := mustOpen(t, a, "gold/x", tcmutest.Options{})
	y := mustOpen(t, a, "gold/y", tcmutest.Options{})
	xn, yn := x.naa(), y.naa()
	x.write(0, bytes.Repeat([]byte{1}, 4096))
	for _, row := range []struct {
		name, holder, kind string
		to, from           bool
	}{
		{"nobody", "No SPC-3 Reservation holder", "No SPC-3 Reservation holder", true, true},
		{"write exclusive", "SPC-3 Reservation: iSCSI Initiator: iqn.2026-01.org.example:a", "SPC-3 Reservation Type: Write Exclusive Access", false, true},
		{"exclusive", "SPC-3 Reservation: iSCSI Initiator: iqn.2026-01.org.example:a", "SPC-3 Reservation Type: Exclusive Access", false, false},
		{"SPC-2", "SPC-2 Reservation: iSCSI Initiator: iqn.2026-01.org.example:a", "", false, false},
	} {
		y.SetAttribute("pr/res_holder", row.holder)
		y.SetAttribute("pr/res_pr_type", row.kind)
		for _, dir := range []struct {
			name     string
			src, dst []byte
			ok       bool
		}{{"to it", xn, yn, row.to}, {"from it", yn, xn, row.from}} {
			cdb, list := copyList(dir.src, dir.dst, 0, 0, 8)
			if dir.ok {
				x.do(cdb, list, 0)
			} else {
				x.fails(0x0A, 0x0D01, cdb, list, 0)
			}
		}
		// The unit's own commands are the kernel's business.
		cdb, list := copyList(yn, yn, 0, 64, 8)
		y.do(cdb, list, 0)
	}
	x.close()
	y.close()
}

// TestReservationsOfOneHost: where the unit that got the copy is reserved too, the kernel
// let only those send it who hold that reservation.
func TestReservationsOfOneHost(t *testing.T) {
	a := NewArray(newHost(t), nil)
	x := mustOpen(t, a, "gold/x", tcmutest.Options{})
	y := mustOpen(t, a, "gold/y", tcmutest.Options{})
	cdb, list := copyList(x.naa(), y.naa(), 0, 0, 8)
	const (
		holdA = "SPC-3 Reservation: iSCSI Initiator: iqn.2026-01.org.example:a,i,0x00023d000001\n"
		holdB = "SPC-3 Reservation: iSCSI Initiator: iqn.2026-01.org.example:b,i,0x00023d000001\n"
		regA  = "iSCSI Node: iqn.2026-01.org.example:a,i,0x00023d000001 Key: 0x0000000000000abc PRgen: 0x00000001\n"
		regB  = "iSCSI Node: iqn.2026-01.org.example:b,i,0x00023d000001 Key: 0x0000000000000def PRgen: 0x00000002\n"
		only  = "SPC-3 Reservation Type: Exclusive Access"
		all   = "SPC-3 Reservation Type: Exclusive Access, All Registrants"
		head  = "SPC-3 PR Registrations:\n"
	)
	crowd := "" // the next registrant has no room in a page
	for i := 0; len(crowd)+4*len(regA) < os.Getpagesize(); i++ {
		crowd += strings.Replace(regA, ":a,", fmt.Sprintf(":%05d,", i), 1)
	}
	type reservation struct{ holder, kind, registered string }
	for _, row := range []struct {
		name string
		x, y reservation
		ok   bool
	}{
		{"both by one", reservation{holdA, only, head + regA}, reservation{holdA, only, head + regA}, true},
		{"by two", reservation{holdA, only, head + regA}, reservation{holdB, only, head + regB}, false},
		{"one registered with both", reservation{holdA, only, head + regA}, reservation{holdB, all, head + regA + regB}, true},
		{"a registrant of the first alone", reservation{holdA, all, head + regA + regB}, reservation{holdA, only, head + regA}, false},
		{"the same registrants", reservation{holdA, all, head + regA + regB}, reservation{holdB, all, head + regB + regA}, true},
		{"as many as the kernel lists", reservation{holdA, all, head + regA + crowd}, reservation{holdA, all, head + regA + crowd}, false},
		{"the second has more", reservation{holdA, only, head + regA}, reservation{holdB, all, head + regA + regB + crowd}, true},
		{"no registrants to be seen", reservation{holdA, all, ""}, reservation{holdA, only, ""}, false},
		{"another session of one host", reservation{holdA, only, ""}, reservation{strings.Replace(holdA, "01\n", "02\n", 1), only, ""}, false},
	} {
		for l, r := range map[*lun]reservation{x: row.x, y: row.y} {
			l.SetAttribute("pr/res_holder", r.holder)
			l.SetAttribute("pr/res_pr_type", r.kind)
			l.SetAttribute("pr/res_pr_registered_i_pts", r.registered)
		}
		if r := x.send(cdb, list, 0).Wait(); (r.Status == 0) != row.ok {
			t.Errorf("%s: status %#x", row.name, r.Status)
		}
	}
	x.close()
	y.close()
}

func FuzzCopyRoles(f *testing.F) {
	_, list := copyList(make([]byte, 16), make([]byte, 16), 1, 2, 3)
	f.Add(list)
	f.Add(list[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := max(len(copyRoles(b, false)), len(copyRoles(b, true))); n > maxCSCDs {
			t.Errorf("%d roles", n)
		}
		designators(b)
	})
}

// TestTwoDoors: a volume has one device at a time.
func TestTwoDoors(t *testing.T) {
	a := NewArray(newHost(t), nil)
	x := mustOpen(t, a, "gold/x", tcmutest.Options{})
	if _, err := open(t, a, "gold/x", tcmutest.Options{}, nil); err == nil || !strings.Contains(err.Error(), "door") {
		t.Errorf("a second device got %v", err)
	}
	x.close()
	mustOpen(t, a, "gold/x", tcmutest.Options{}).close()
}

func TestGeometry(t *testing.T) {
	a := NewArray(newHost(t), nil)
	mustOpen(t, a, "gold/x", tcmutest.Options{}).close()
	for _, row := range []struct {
		name   string
		config string
		change func(*tcmu.Info)
		says   string
	}{
		{"the same", "gold/x", func(*tcmu.Info) {}, ""},
		{"another size", "gold/x", func(i *tcmu.Info) { i.Size *= 2 }, "size=33554432"},
		{"another size, taken over", "gold/x", func(i *tcmu.Info) { i.Size *= 2; i.Resumed = true }, ""},
		{"other blocks", "gold/x", func(i *tcmu.Info) { i.BlockSize = 4096 }, "hw_block_size=512"},
		{"new, blocks of 4096", "gold/y", func(i *tcmu.Info) { i.BlockSize = 4096 }, ""},
		{"blocks of 1024", "gold/z", func(i *tcmu.Info) { i.BlockSize = 1024 }, "512 or 4096"},
		{"size 0", "gold/z", func(i *tcmu.Info) { i.Size = 0 }, "size is 0"},
		{"no whole block", "gold/z", func(i *tcmu.Info) { i.Size++ }, "not a multiple"},
		{"no such pool", "iron/z", func(*tcmu.Info) {}, "iron"},
		{"bad configuration", "gold", func(*tcmu.Info) {}, "names no volume"},
		{"more than the pool has", "gold/z/provisioning=thick", func(i *tcmu.Info) { i.Size = 1 << 40 }, "gold"},
	} {
		l, err := open(t, a, row.config, tcmutest.Options{}, row.change)
		if err == nil {
			l.close()
		}
		if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: got %v, want %q", row.name, err, row.says)
		}
	}
}

func TestReconfigure(t *testing.T) {
	h := newHost(t)
	a := NewArray(h, nil)
	d, err := tcmu.Attach(tcmutest.New(tcmutest.Options{}), tcmu.Info{Config: "gold/x", Size: lunSize, BlockSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	u, err := a.Open(d)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	size := func(n uint64) tcmu.Change { return tcmu.Change{Size: &n} }
	cache := func(on bool) tcmu.Change { return tcmu.Change{WriteCache: &on} }
	config := func(s string) tcmu.Change { return tcmu.Change{Config: &s} }
	for _, row := range []struct {
		name string
		c    tcmu.Change
		ok   bool
	}{
		{"larger", size(2 * lunSize), true},
		{"no whole block", size(2*lunSize + 1000), true}, // the host rounds or refuses
		{"larger than the limit", size(1 << 60), false},
		{"cache on", cache(true), true},
		{"cache off", cache(false), true},
		{"the same volume", config("gold/x/provisioning=thick"), true},
		{"another volume", config("gold/y"), false},
		{"another domain", config("gold/x/domain=y"), false},
		{"nonsense", config("?"), false},
	} {
		if err := u.(tcmu.Reconfigurer).Reconfigure(row.c); (err == nil) != row.ok {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// TestResizeIsHeardOf: initiators are told once that the capacity is another.
func TestResizeIsHeardOf(t *testing.T) {
	h := newHost(t)
	l := mustOpen(t, NewArray(h, nil), "gold/x", tcmutest.Options{})
	if err := h.ResizeVolume("x", 2*lunSize); err != nil {
		t.Fatal(err)
	}
	l.fails(6, 0x2A09, testUnitReady, nil, 0)
	if got := binary.BigEndian.Uint32(l.do([]byte{0x25, 9: 0}, nil, 8)); got != 2*lunSize/512-1 {
		t.Errorf("last LBA %d", got)
	}
	l.close()
}

// TestWriteProtect by configuration string.
func TestWriteProtect(t *testing.T) {
	l := mustOpen(t, NewArray(newHost(t), nil), "gold/x/write_protect=yes", tcmutest.Options{})
	l.fails(7, 0x2700, cdb10(0x2A, 0, 1), make([]byte, 512), 0)
	l.close()
}

// stuck is a device whose requests end when the test says so, or are withdrawn.
type stuck struct {
	block.Device
	held []*block.Request
}

func (s *stuck) Submit(r []*block.Request) { s.held = append(s.held, r...) }

func (s *stuck) Cancel(r *block.Request) {
	i := slices.Index(s.held, r)
	if i < 0 { // it has begun
		s.Device.Cancel(r)
		return
	}
	s.held = slices.Delete(s.held, i, i+1)
	r.Status = block.Cancelled
	r.Done(r)
}

// TestTaskManagement: commands that the kernel gave up come back, and no reset is
// reported twice.
func TestTaskManagement(t *testing.T) {
	for _, row := range []struct {
		name     string
		function byte
	}{
		{"ABORT TASK", tcmu.TMRAbortTask},
		{"LUN RESET", tcmu.TMRLUNReset},
		{"reset by PREEMPT AND ABORT", tcmu.TMRLUNResetPRO},
	} {
		t.Run(row.name, func(t *testing.T) {
			defer func(d time.Duration) { fabricsWait = d }(fabricsWait)
			fabricsWait = time.Minute // a question that has no processor for a second is no answer
			h := newHost(t)
			hung := &stuckHost{testHost: h}
			l := mustOpen(t, NewArray(hung, nil), "gold/x", tcmutest.Options{})
			r := l.send(cdb10(0x28, 0, 8), nil, 4096)
			w := l.send(cdb10(0x2A, 0, 8), make([]byte, 4096), 0)
			hung.await(t, 2)
			if l.InFlight() != 2 {
				t.Fatalf("%d commands in progress", l.InFlight())
			}
			if err := l.Manage(row.function, r.ID(), w.ID()); err != nil {
				t.Fatal(err)
			}
			for _, c := range []*tcmutest.Call{r, w} {
				if got := c.Wait(); got.Status != 0x40 {
					t.Errorf("status %#x, want TASK ABORTED", got.Status)
				}
			}
			l.do(testUnitReady, nil, 0)
			l.close()
		})
	}
}

// TestFenceReachesCopies: a reset of a unit, and a PREEMPT AND ABORT, end copies that use it and came by
// another unit's ring; other task management does not.
func TestFenceReachesCopies(t *testing.T) {
	for _, row := range []struct {
		function byte
		ends     bool
	}{{tcmu.TMRLUNReset, true}, {tcmu.TMRLUNResetPRO, true}, {tcmu.TMRAbortTask, false}} {
		h := newHost(t)
		hung := &stuckHost{testHost: h}
		a := NewArray(hung, nil)
		x := mustOpen(t, a, "gold/x", tcmutest.Options{})
		y := mustOpen(t, a, "gold/y", tcmutest.Options{})
		cdb, list := copyList(y.naa(), x.naa(), 0, 0, 8)
		c := y.send(cdb, list, 0)
		hung.await(t, 1) // or the reset comes before the copy
		if y.InFlight() != 1 {
			t.Fatalf("%d commands in progress", y.InFlight())
		}
		if err := x.Manage(row.function); err != nil {
			t.Fatal(err)
		}
		if !row.ends {
			x.do(testUnitReady, nil, 0) // what was managed is done
			if y.InFlight() != 1 {
				t.Errorf("function %d ended a copy by another unit", row.function)
			}
			if err := y.Manage(tcmu.TMRAbortTask, c.ID()); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.Wait(); row.ends && got.Status != scsi.StatusCheckCondition {
			t.Errorf("function %d: the copy ended with status %#x", row.function, got.Status)
		}
		x.close()
		y.close()
	}
}

// TestNoAllocation: once warm, a read and a write allocate nothing beyond what the
// fake kernel does.
func TestNoAllocation(t *testing.T) {
	l := mustOpen(t, NewArray(newHost(t), nil), "gold/x", tcmutest.Options{})
	defer l.close()
	data := make([]byte, 4096)
	l.write(0, data)
	for _, row := range []struct {
		name string
		run  func()
	}{
		{"test unit ready", func() { l.send(testUnitReady, nil, 0).Wait() }},
		{"read", func() { l.send(readCDB, nil, 4096).Wait() }},
		{"write", func() { l.send(writeCDB, data, 0).Wait() }},
	} {
		got := testing.AllocsPerRun(300, row.run)
		// A Call, its channel, and with data the lists of blocks and pieces and the copy.
		if limit := map[bool]float64{true: 2.5, false: 5.5}[row.name == "test unit ready"]; got > limit {
			t.Errorf("%s: %.1f allocations, the fake kernel makes %.0f of them", row.name, got, limit)
		}
	}
}

var readCDB, writeCDB = cdb10(0x28, 0, 8), cdb10(0x2A, 0, 8)

// BenchmarkRead is a 4 KiB read through fake kernel, ring, SCSI layer and cache, 32 at a time.
func BenchmarkRead(b *testing.B) { benchmark(b, readCDB, nil, 4096) }

// BenchmarkWrite is the same for a write.
func BenchmarkWrite(b *testing.B) { benchmark(b, writeCDB, make([]byte, 4096), 0) }

func benchmark(b *testing.B, cdb, out []byte, in int) {
	l := mustOpen(b, NewArray(newHost(b), nil), "gold/x", tcmutest.Options{RingBytes: 64 << 10})
	defer l.close()
	l.write(0, make([]byte, 4096))
	b.SetBytes(4096)
	b.ReportAllocs()
	b.ResetTimer()
	var calls []*tcmutest.Call
	for range b.N {
		if calls = append(calls, l.send(cdb, out, in)); len(calls) == 32 {
			calls[0].Wait()
			calls = append(calls[:0], calls[1:]...)
		}
	}
	for _, c := range calls {
		c.Wait()
	}
}

// TestNamesBehindAFabric: a unit that LIO shows by tcm_loop or FC names itself, and no port of the portal.
func TestNamesBehindAFabric(t *testing.T) {
	a := NewArray(newHost(t), nil)
	l := mustOpen(t, a, "gold/x", tcmutest.Options{})
	page := l.do(page83, nil, 256)
	page = page[:4+int(binary.BigEndian.Uint16(page[2:]))]
	if bytes.Contains(page, []byte("iqn.")) {
		t.Errorf("the page names a port or device of iSCSI: %q", page)
	}
	for d := page[4:]; len(d) >= 4; d = d[4+int(d[3]):] {
		if d[1]&0x80 != 0 {
			t.Errorf("a designator claims protocol %d: % x", d[0]>>4, d[:4+int(d[3])])
		}
	}
	l.naa()
	l.close()
}
