package scsi_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// keeper is the array's part: it keeps the state of one unit.
type keeper struct {
	exec  *block.Virtual
	state []byte
	fail  error
	calls int
}

func (k *keeper) save(b []byte, done func(error)) {
	k.calls++
	k.exec.At(k.exec.Now()+1000, func() {
		if k.fail == nil {
			k.state = b
		}
		done(k.fail)
	})
}

// TestWhatInitiatorsHearAfterAStart: whether what was not flushed may be lost.
func TestWhatInitiatorsHearAfterAStart(t *testing.T) {
	for _, row := range []struct {
		survived bool
		want     int
	}{{false, 0x062900}, {true, 0x062904}} {
		exec := &block.Virtual{}
		r := &rig{TB: t, exec: exec}
		r.tg = scsi.NewTarget(scsi.Options{Exec: exec, Survived: row.survived})
		dev := scsitest.NewDevice(exec, block.Info{Name: "v", Sectors: 1024, BlockSize: 512})
		if err := r.tg.Map("", 0, r.tg.AddUnit(dev, scsi.UnitOptions{})); err != nil {
			t.Fatal(err)
		}
		n := r.tg.OpenNexus(initiatorA, initiatorA+",i,0x1", 1)
		ready := make([]byte, 6)
		for i, want := range []int{row.want, 0} {
			if _, c := r.run(n, 0, ready, nil); c&0xFFFFFF != want {
				t.Errorf("survived %v: TEST UNIT READY %d ends %06x, not %06x", row.survived, i, c, want)
			}
		}
		// The device loses power while the initiator is there.
		dev.Change(block.EventPowerLoss, func(*block.Info) {})
		if _, c := r.run(n, 0, ready, nil); c&0xFFFFFF != 0x062900 {
			t.Errorf("after a loss of power TEST UNIT READY ends %06x", c)
		}
		closed := false
		n.Close(func() { closed = true })
		for !closed && exec.Step() {
		}
		n = r.tg.OpenNexus(initiatorA, initiatorA+",i,0x1", 1)
		if _, c := r.run(n, 0, ready, nil); c&0xFFFFFF != 0x062907 {
			t.Errorf("after a nexus loss TEST UNIT READY ends %06x", c)
		}
	}
}

// life is a target over a device, as it is after a power-on of the array.
func life(t *testing.T, k *keeper, dev block.Device, ports ...scsi.Port) *rig {
	return start(t, k, dev, scsi.Options{Ports: ports})
}

// takeOver is life in another process, which lost nothing.
func takeOver(t *testing.T, k *keeper, dev block.Device) *rig {
	return start(t, k, dev, scsi.Options{Survived: true})
}

func start(t *testing.T, k *keeper, dev block.Device, opt scsi.Options) *rig {
	state, err := scsi.ParseUnitState(k.state)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, exec: k.exec}
	opt.Exec, opt.SetGroups = k.exec, func(name string) bool { return name == initiatorA }
	r.tg = scsi.NewTarget(opt)
	if err := r.tg.Map("", 0, r.tg.AddUnit(dev, scsi.UnitOptions{State: state, Save: k.save})); err != nil {
		t.Fatal(err)
	}
	r.a, r.b = r.login(initiatorA), r.login(initiatorB)
	return r
}

func prOut(sa, kind byte) []byte { return []byte{0x5F, sa, kind, 0, 0, 0, 0, 0, 24, 0} }

func prList(key, action uint64, flags byte) []byte {
	b := make([]byte, 24)
	binary.BigEndian.PutUint64(b, key)
	binary.BigEndian.PutUint64(b[8:], action)
	b[20] = flags
	return b
}

func TestReservationsSurvivePowerLoss(t *testing.T) {
	exec := &block.Virtual{}
	k := &keeper{exec: exec}
	dev := scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true))
	r := life(t, k, dev)
	read := scsitest.CDB(0x28, 0, 1)
	steps := func(r *rig, list ...int) {
		t.Helper()
		for i := 0; i < len(list); i += 2 {
			if list[i] != list[i+1] {
				t.Fatalf("step %d: %08x, want %08x", i/2, list[i], list[i+1])
			}
		}
	}
	do := func(n *scsi.Nexus, cdb, out []byte) int { _, c := r.run(n, 0, cdb, out); return c }
	steps(r,
		do(r.a, prOut(0, 0), prList(0, 0xA, 1)), 0, // APTPL
		do(r.b, prOut(0, 0), prList(0, 0xB, 1)), 0,
		do(r.a, prOut(1, 3), prList(0xA, 0, 0)), 0, // Exclusive Access
		do(r.b, read, nil), 0x18000000)
	in, _ := r.run(r.a, 0, []byte{0x5E, 2, 0, 0, 0, 0, 0, 0, 8, 0}, nil)
	if c := bytes.Join(in.DataIn, nil); c[2] != 0x0D || c[3] != 0x81 {
		t.Errorf("capabilities % x", c)
	}

	r = life(t, k, dev)
	steps(r,
		do(r.b, read, nil), 0x18000000,
		do(r.a, read, nil), 0,
		do(r.b, prOut(4, 3), prList(0xB, 0xA, 0)), 0, // PREEMPT
		do(r.b, read, nil), 0)

	r = life(t, k, dev)
	steps(r,
		do(r.a, read, nil), 0x18000000,
		do(r.b, read, nil), 0,
		do(r.b, prOut(0, 0), prList(0xB, 0xBB, 0)), 0) // APTPL=0: from now on they go

	r = life(t, k, dev)
	steps(r,
		do(r.a, read, nil), 0)

	// GOOD means that it is saved.
	k.fail = errors.New("no")
	steps(r, do(r.a, prOut(6, 0), prList(0, 0xA, 1)), 0x02044400)
}

// TestFenceWithoutAPTPL: with APTPL=0 a fence ends with the power, and not with the process: a take-over lets nobody in. What a
// power-on has ended stays so when another process takes over then.
func TestFenceWithoutAPTPL(t *testing.T) {
	exec := &block.Virtual{}
	k := &keeper{exec: exec}
	dev := scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true))
	write := func(r *rig, n *scsi.Nexus) int {
		_, c := r.run(n, 0, scsitest.CDB(0x2A, 0, 1), make([]byte, 512))
		return c
	}
	r := life(t, k, dev)
	for i, out := range []struct {
		by        *scsi.Nexus
		cdb, list []byte
	}{
		{r.a, prOut(6, 0), prList(0, 0xA, 0)},
		{r.b, prOut(6, 0), prList(0, 0xB, 0)},
		{r.a, prOut(1, 5), prList(0xA, 0, 0)},
		{r.a, prOut(5, 5), prList(0xA, 0xB, 0)}, // B is fenced
	} {
		_, c := r.run(out.by, 0, out.cdb, out.list)
		r.wants(fmt.Sprint("step ", i), c, 0)
	}
	for range 2 {
		r = takeOver(t, k, dev)
		r.wants("A's write", write(r, r.a), 0)
		r.wants("B's write", write(r, r.b), 0x18000000)
		if list, got := r.keys(); got != 3 || !slices.Equal(list, []uint64{0xA}) {
			t.Errorf("generation %d, keys %x; want 3 and A", got, list)
		}
		in, _ := r.run(r.a, 0, []byte{0x5E, 2, 0, 0, 0, 0, 0, 0, 8, 0}, nil)
		if c := bytes.Join(in.DataIn, nil); c[3] != 0x80 {
			t.Errorf("capabilities % x: PTPL_A", c)
		}
	}
	for i, again := range []func() *rig{func() *rig { return life(t, k, dev) }, func() *rig { return takeOver(t, k, dev) }} {
		r = again()
		exec.RunUntil(exec.Now() + second)
		r.wants("B's write", write(r, r.b), 0)
		if list, got := r.keys(); got != 0 || len(list) != 0 {
			t.Errorf("start %d: generation %d, keys %x; want none", i, got, list)
		}
	}
}

// TestFailedSaveIsMadeUpFor: reservations of which the end could not be saved are saved away by the next change, though that
// one asks for nothing to be kept through a loss of power.
func TestFailedSaveIsMadeUpFor(t *testing.T) {
	exec := &block.Virtual{}
	k := &keeper{exec: exec}
	dev := scsitest.NewDevice(exec, block.Info{Name: "v", Sectors: 1024, BlockSize: 512})
	r := life(t, k, dev)
	_, c := r.run(r.a, 0, prOut(0, 0), prList(0, 1, 1)) // APTPL
	r.wants("register", c, 0)
	_, c = r.run(r.a, 0, prOut(1, 3), prList(1, 0, 0))
	r.wants("reserve", c, 0)
	k.fail = errors.New("no")
	_, c = r.run(r.a, 0, prOut(3, 0), prList(1, 0, 0))
	r.wants("clear, which is not saved", c, 0x02044400)
	k.fail = nil
	_, c = r.run(r.a, 0, prOut(0, 0), prList(0, 2, 0))
	r.wants("register", c, 0)
	r = life(t, k, dev)
	_, c = r.run(r.b, 0, append([]byte{0x2A, 8: 1}, 0), make([]byte, 512))
	r.wants("a write by another host after the restart", c, 0)
}

func TestModePagesAreSaved(t *testing.T) {
	exec := &block.Virtual{}
	k := &keeper{exec: exec}
	dev := scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true))
	r := life(t, k, dev)
	swp := []byte{0, 0, 0, 0, 0x0A, 10, 0x02, 0x10, 0x08, 0x40, 0, 0, 0, 0, 0, 0}
	write, data := scsitest.CDB(0x2A, 0, 1), make([]byte, 512)
	sense := func(pc byte) []byte {
		in, _ := r.run(r.a, 0, []byte{0x1A, 8, pc<<6 | 0x0A, 0, 255, 0}, nil)
		return bytes.Join(in.DataIn, nil)[4:]
	}
	_, c := r.run(r.a, 0, []byte{0x15, 0x11, 0, 0, 16, 0}, swp) // SP
	r.wants("MODE SELECT", c, 0)
	if p := sense(3); p[0] != 0x8A || p[4] != 0x08 {
		t.Errorf("saved values % x", p)
	}
	r.a.Manage(scsi.LogicalUnitReset, 0, 0, func(scsi.TMFResponse) {})
	r.run(r.a, 0, tur, nil)
	_, c = r.run(r.a, 0, write, data)
	r.wants("after a reset", c, 0x02072700)
	r = life(t, k, dev)
	_, c = r.run(r.a, 0, write, data)
	r.wants("after power loss", c, 0x02072700)
	swp[8] = 0
	_, c = r.run(r.a, 0, []byte{0x15, 0x10, 0, 0, 16, 0}, swp) // not saved
	r.wants("MODE SELECT", c, 0)
	if p := sense(3); p[4] != 0x08 {
		t.Errorf("saved values % x", p)
	}
	if p := sense(0); p[4] != 0 {
		t.Errorf("current values % x", p)
	}
}

// An erasure that power loss interrupts starts anew; a failed one stays failed.
func TestErasureSurvivesPowerLoss(t *testing.T) {
	exec := &block.Virtual{}
	k := &keeper{exec: exec}
	dev := scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true))
	r := life(t, k, dev)
	dev.Hold = true
	r.run(r.a, 0, []byte{0x48, 0x81, 0, 0, 0, 0, 0, 0, 5, 0}, []byte{1, 0, 0, 1, 0x77})
	dev.Release(0)
	dev.Hold = false
	r = life(t, k, dev)
	exec.RunUntil(exec.Now() + second)
	if _, c := r.run(r.a, 0, tur, nil); c != 0 || !bytes.Equal(dev.Data, bytes.Repeat([]byte{0x77}, len(dev.Data))) {
		t.Errorf("the overwriting did not go on: %08x", c)
	}
	dev.Fault = func(*block.Request) block.Status { return block.MediumWrite }
	r.run(r.a, 0, []byte{0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0}, nil)
	exec.RunUntil(exec.Now() + second)
	r = life(t, k, dev)
	_, c := r.run(r.a, 0, tur, nil)
	r.wants("failed", c, 0x02033103)
}

func TestDamagedState(t *testing.T) {
	for in, want := range map[string]string{
		"{": "saved state of a unit",
		`{"pr":{"type":3,"holder":1,"registrations":[{"port":"a","target_port":1,"key":"1"}]}}`: "registration 1 of 1",
		`{"pr":{"type":2}}`:       "type 2",
		`{"failed":{"passes":1}}`: "without a pattern",
	} {
		if _, err := scsi.ParseUnitState([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// Two portals as two ports: one is taken away, the other goes on.
func TestPortGroups(t *testing.T) {
	exec := &block.Virtual{}
	dev := scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true))
	r := life(t, &keeper{exec: exec}, dev, scsi.Port{ID: 1, Group: 1}, scsi.Port{ID: 2, Group: 2})
	second := r.tg.OpenNexus(initiatorA, initiatorA+",i,0x1", 2)
	r.run(second, 0, tur, nil)
	in, _ := r.run(second, 0, []byte{0x12, 1, 0x83, 1, 0, 0}, nil)
	if d := bytes.Join(in.DataIn, nil); !bytes.Contains(d, []byte{0x51, 0x95, 0, 4, 0, 0, 0, 2}) {
		t.Errorf("the group is not in page 83h: % x", d)
	}
	if err := r.tg.SetAccess(1, scsi.AccessUnavailable); err != nil {
		t.Fatal(err)
	}
	_, c := r.run(second, 0, tur, nil)
	r.wants("the other port hears of it", c, 0x02062A06)
	in, _ = r.run(second, 0, []byte{0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, nil)
	if d := bytes.Join(in.DataIn, nil); !bytes.Equal(d[4:], []byte{3, 0x0F, 0, 1, 0, 2, 0, 1, 0, 0, 0, 1, 0, 0x0F, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2}) {
		t.Errorf("groups % x", d)
	}
	read := scsitest.CDB(0x28, 0, 1)
	_, c = r.run(second, 0, read, nil)
	r.wants("and goes on", c, 0)
	r.run(r.a, 0, tur, nil)
	_, c = r.run(r.a, 0, read, nil)
	r.wants("the first one", c, 0x0202040C)
	// The host brings it back (explicit).
	_, c = r.run(second, 0, []byte{0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0}, []byte{0, 0, 0, 0, 1, 0, 0, 1})
	r.wants("SET TARGET PORT GROUPS", c, 0)
	r.run(r.a, 0, tur, nil)
	_, c = r.run(r.a, 0, read, nil)
	r.wants("the first one again", c, 0)
	// In standby a port serves reservations and what describes the unit, no more.
	_, c = r.run(second, 0, []byte{0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0}, []byte{0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 2})
	r.wants("SET TARGET PORT GROUPS", c, 0)
	r.run(r.a, 0, tur, nil)
	for _, x := range []struct {
		cdb  []byte
		want int
	}{{read, 0x0202040B}, {tur, 0x0202040B}, {[]byte{0x12, 0, 0, 0, 96, 0}, 0}, {[]byte{0x5E, 0, 0, 0, 0, 0, 0, 0, 64, 0}, 0}} {
		_, c = r.run(r.a, 0, x.cdb, nil)
		r.wants("in standby", c, x.want)
	}
	_, c = r.run(second, 0, []byte{0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0}, []byte{0, 0, 0, 0, 3, 0, 0, 2})
	r.wants("the last one", c, 0x02052600)
	// ALL_TG_PT registers by both.
	_, c = r.run(r.a, 0, prOut(0, 0), prList(0, 5, 4))
	r.wants("REGISTER", c, 0)
	in, _ = r.run(second, 0, []byte{0x5E, 0, 0, 0, 0, 0, 0, 0, 64, 0}, nil)
	if d := bytes.Join(in.DataIn, nil); len(d) != 24 {
		t.Errorf("keys % x", d)
	}
	for _, bad := range []error{r.tg.SetAccess(9, 0), r.tg.SetAccess(1, 9)} {
		if bad == nil {
			t.Error("no error")
		}
	}
}

// TestWhoMaySetGroups: SET TARGET PORT GROUPS takes the paths of all initiators, so it exists for
// those alone that the target's options name; the others see that states change by themselves
// only.
func TestWhoMaySetGroups(t *testing.T) {
	exec := &block.Virtual{}
	dev := scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true))
	r := life(t, &keeper{exec: exec}, dev, scsi.Port{ID: 1, Group: 1}, scsi.Port{ID: 2, Group: 2})
	for _, x := range []struct {
		n    *scsi.Nexus
		tpgs byte
		want int
	}{{r.b, 1, 0x02052400}, {r.a, 3, 0}} {
		in, _ := r.run(x.n, 0, []byte{0x12, 0, 0, 0, 96, 0}, nil)
		if d := bytes.Join(in.DataIn, nil); d[5]>>4&3 != x.tpgs {
			t.Errorf("TPGS is %d, want %d", d[5]>>4&3, x.tpgs)
		}
		task, c := r.run(x.n, 0, []byte{0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0}, []byte{0, 0, 0, 0, 3, 0, 0, 2})
		r.wants("SET TARGET PORT GROUPS", c, x.want)
		if x.want != 0 && !bytes.Equal(task.Sense[15:18], []byte{0xCC, 0, 1}) {
			t.Errorf("the field pointer is %x, want the service action", task.Sense[15:18])
		}
		_, c = r.run(x.n, 0, []byte{0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, nil)
		r.wants("without a list", c, x.want)
		in, _ = r.run(x.n, 0, []byte{0xA3, 0x0C, 3, 0xA4, 0, 0x0A, 0, 0, 1, 0, 0, 0}, nil)
		if d := bytes.Join(in.DataIn, nil); (d[1]&7 == 3) != (x.want == 0) {
			t.Errorf("REPORT SUPPORTED OPERATION CODES says %x", d)
		}
		in, _ = r.run(x.n, 0, []byte{0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, nil)
		if d := bytes.Join(in.DataIn, nil); (d[16] == 3) != (x.want == 0) {
			t.Errorf("afterwards the groups are % x", d)
		}
	}
}

func TestSoftThreshold(t *testing.T) {
	exec := &block.Virtual{}
	dev := &scsitest.PoolDevice{Device: scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true)), Used: 79 << 13, Available: 21 << 13}
	r := life(t, &keeper{exec: exec}, dev)
	write, data := scsitest.CDB(0x2A, 0, 1), make([]byte, 512)
	try := func(what string, used uint64, wants int) {
		t.Helper()
		dev.Used, dev.Available = used<<13, (100-used)<<13
		r.run(r.a, 0, write, data)
		_, c := r.run(r.b, 0, tur, nil)
		r.wants(what, c, wants)
		r.run(r.a, 0, tur, nil)
	}
	try("below", 79, 0)
	try("reached", 80, 0x02063807)
	try("once", 81, 0)
	try("below again", 70, 0)
	try("reached again", 99, 0x02063807)
	in, _ := r.run(r.a, 0, []byte{0x4D, 0, 0x4C, 0, 0, 0, 0, 1, 0, 0}, nil)
	want := []byte{0x0C, 0, 0, 24, 0, 1, 3, 8, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 3, 8, 0, 0, 0, 99, 2, 0, 0, 0}
	if d := bytes.Join(in.DataIn, nil); !bytes.Equal(d, want) {
		t.Errorf("page 0Ch % x", d)
	}
	in, _ = r.run(r.a, 0, []byte{0x12, 1, 0xB2, 0, 255, 0}, nil)
	if d := bytes.Join(in.DataIn, nil); d[4] != 13 {
		t.Errorf("threshold exponent %d", d[4])
	}
	// The mode page says where the threshold is: armed for what is used, 80 of 100 sets. Hosts cannot change it.
	page := []byte{0xDC, 2, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x81, 2, 0, 0, 0, 0, 0, 80}
	for _, sense := range [][]byte{{0x1A, 8, 0x1C, 2, 255, 0}, {0x1A, 8, 0xDC, 2, 255, 0}, {0x1A, 8, 0x9C, 2, 255, 0}} {
		in, c := r.run(r.a, 0, sense, nil)
		if d := bytes.Join(in.DataIn, nil); c != 0 || len(d) != 4+24 || !bytes.Equal(d[4:], page) {
			t.Errorf("mode page 1C/02: %x, % x", c, d)
		}
	}
	in, _ = r.run(r.a, 0, []byte{0x1A, 8, 0x5C, 2, 255, 0}, nil)
	if d := bytes.Join(in.DataIn, nil); len(d) != 4+24 || !bytes.Equal(d[8:], make([]byte, 20)) {
		t.Errorf("changeable: % x", d)
	}
	in, _ = r.run(r.a, 0, []byte{0x1A, 8, 0x1C, 0xFF, 255, 0}, nil)
	if d := bytes.Join(in.DataIn, nil); len(d) != 4+12+24 {
		t.Errorf("mode page 1C with its subpages: % x", d)
	}
	list := append(make([]byte, 4), page...)
	list[4] &= 0x7F
	_, c := r.run(r.a, 0, []byte{0x15, 0x10, 0, 0, 28, 0}, list)
	r.wants("MODE SELECT of what it is", c, 0)
	list[4+23] = 90
	_, c = r.run(r.a, 0, []byte{0x15, 0x10, 0, 0, 28, 0}, list)
	r.wants("MODE SELECT of another threshold", c, 0x02052600)
	_, c = r.run(r.a, 0, []byte{0x15, 0x10, 0, 0, 7, 0}, list[:7])
	r.wants("MODE SELECT of half a header", c, 0x02051A00)
	dev.Fault = func(*block.Request) block.Status { return block.NoSpace }
	_, c = r.run(r.a, 0, write, data)
	r.wants("full", c, 0x02072707)
}
