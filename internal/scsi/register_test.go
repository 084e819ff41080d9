package scsi_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// savingRig is a target of one unit whose state is saved, with ports.
func savingRig(t *testing.T, ports ...scsi.Port) (*rig, *keeper) {
	exec := &block.Virtual{}
	k := &keeper{exec: exec}
	return life(t, k, scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true)), ports...), k
}

// keys returns the registered keys in their order, and the generation.
func (r *rig) keys() (list []uint64, generation uint32) {
	r.Helper()
	in, c := r.run(r.a, 0, []byte{0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0}, nil)
	r.wants("READ KEYS", c, 0)
	d := bytes.Join(in.DataIn, nil)
	for at := 8; at+8 <= len(d); at += 8 {
		list = append(list, binary.BigEndian.Uint64(d[at:]))
	}
	return list, binary.BigEndian.Uint32(d)
}

// wireID is the TransportID of a port as an initiator sends it.
func wireID(port string) []byte {
	n := (len(port) + 4) / 4 * 4
	b := append([]byte{0x45, 0, byte(n >> 8), byte(n)}, port...)
	return append(b, make([]byte, 4+n-len(b))...)
}

// specify sends REGISTER with SPEC_I_PT=1 for further ports.
func (r *rig) specify(n *scsi.Nexus, key, action uint64, flags byte, ports ...string) int {
	var ids []byte
	for _, p := range ports {
		ids = append(ids, wireID(p)...)
	}
	list := slices.Concat(prList(key, action, flags|0x08), binary.BigEndian.AppendUint32(nil, uint32(len(ids))), ids)
	cdb := prOut(0, 0)
	binary.BigEndian.PutUint32(cdb[5:], uint32(len(list)))
	_, c := r.run(n, 0, cdb, list)
	return c
}

// TestSpecifiedPortsAreNotOthersToChange: REGISTER with SPEC_I_PT=1 registers ports that are not
// registered, and touches no registration that there is (SPC-4 5.12.7, table of the register
// behaviors).
func TestSpecifiedPortsAreNotOthersToChange(t *testing.T) {
	const victim, fresh = initiatorB + ",i,0x1", initiatorB + ",i,0x2"
	for _, c := range []struct {
		name        string
		key, action uint64
		ports       []string
		want        []uint64
		changed     bool
	}{
		{"deregister", 0, 0, []string{victim}, []uint64{0xB}, false},
		{"rekey", 0, 0xE, []string{victim}, []uint64{0xB, 0xE}, true},
		{"rekey one and register one", 0, 0xE, []string{victim, fresh}, []uint64{0xB, 0xE, 0xE}, true},
		{"deregister one that is not registered", 0, 0, []string{fresh}, []uint64{0xB}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := savingRig(t)
			_, got := r.run(r.b, 0, prOut(0, 0), prList(0, 0xB, 0))
			r.wants("REGISTER", got, 0)
			_, got = r.run(r.b, 0, prOut(1, 1), prList(0xB, 0, 0)) // Write Exclusive
			r.wants("RESERVE", got, 0)
			_, before := r.keys()
			r.wants("the stranger", r.specify(r.a, c.key, c.action, 0, c.ports...), 0)
			list, after := r.keys()
			if !slices.Equal(list, c.want) {
				t.Errorf("the keys are %x, want %x", list, c.want)
			}
			if (after != before) != c.changed {
				t.Errorf("generation %d became %d", before, after)
			}
			_, got = r.run(r.a, 0, scsitest.CDB(0x2A, 0, 1), make([]byte, 512))
			r.wants("the stranger's WRITE", got, 0x18000000)
		})
	}
}

// TestNamesThatCannotLogIn: what TransportIDs name is saved, so names are those by which initiators
// can log in. Others would fill the array's objects, which all units' states are a part of.
func TestNamesThatCannotLogIn(t *testing.T) {
	r, k := savingRig(t)
	for name, port := range map[string]string{
		"of control characters": "iqn.2026-11.org.example:" + strings.Repeat("\x01", 8000) + ",i,0x1",
		"too long":              "iqn.2026-11.org.example:" + strings.Repeat("x", 200) + ",i,0x1",
		"no UTF-8":              "iqn.2026-11.org.example:\xff,i,0x1",
		"empty":                 ",i,0x1",
	} {
		r.wants(name, r.specify(r.a, 0, 0xA, 1, port), 0x02052600)
	}
	if list, _ := r.keys(); len(list) != 0 || k.calls != 0 {
		t.Errorf("the keys are %x, saved %d times", list, k.calls)
	}
	longest := "iqn.2026-11.org.example:" + strings.Repeat("x", 199) + ",i,0x1"
	r.wants("the longest name", r.specify(r.a, 0, 0xA, 1, longest), 0)
	_, c := r.run(r.a, 0, prOut(1, 1), prList(0xA, 0, 0))
	r.wants("RESERVE", c, 0)
	move := func(port string) int {
		id := wireID(port)
		list := append(prList(0xA, 0xC, 0), id...)
		list[19] = 1 // RELATIVE TARGET PORT IDENTIFIER
		binary.BigEndian.PutUint32(list[20:], uint32(len(id)))
		cdb := prOut(7, 0)
		binary.BigEndian.PutUint32(cdb[5:], uint32(len(list)))
		_, c := r.run(r.a, 0, cdb, list)
		return c
	}
	r.wants("REGISTER AND MOVE to a name that is too long", move(strings.Replace(longest, "x", "xx", 1)), 0x02052600)
	r.wants("REGISTER AND MOVE to the longest name", move(longest), 0)
}

// TestSavedNamesThatCannotLogIn: what was saved of such names before they were refused does not keep a
// unit from its state, and whoever is registered removes it.
func TestSavedNamesThatCannotLogIn(t *testing.T) {
	exec := &block.Virtual{}
	odd := strings.Repeat(`\u0001`, 8000)
	k := &keeper{exec: exec, state: fmt.Appendf(nil, `{"pr":{"generation":3,"type":5,"holder":1,"registrations":[`+
		`{"port":"%s,i,0x1","target_port":1,"key":"7"},{"port":"%s,i,0x000000000001","target_port":1,"key":"10"}]}}`, odd, initiatorA)}
	r := life(t, k, scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true)))
	if list, _ := r.keys(); !slices.Equal(list, []uint64{7, 10}) {
		t.Errorf("the keys are %x", list)
	}
	in, c := r.run(r.a, 0, []byte{0x5E, 3, 0, 0, 0, 0, 0, 0x40, 0, 0}, nil)
	r.wants("READ FULL STATUS", c, 0)
	if in.InTotal < 8000 {
		t.Errorf("%d bytes of full status", in.InTotal)
	}
	_, c = r.run(r.a, 0, prOut(4, 5), prList(10, 7, 0)) // PREEMPT
	r.wants("PREEMPT", c, 0)
	if len(k.state) > 500 {
		t.Errorf("%d bytes are kept", len(k.state))
	}
}

// TestNothingToRegister: a REGISTER that has nothing to do leaves what survives power loss as it
// is.
func TestNothingToRegister(t *testing.T) {
	for _, sa := range []byte{0, 6} {
		r, k := savingRig(t)
		_, c := r.run(r.a, 0, prOut(0, 0), prList(0, 0xA, 1)) // APTPL
		r.wants("REGISTER", c, 0)
		_, c = r.run(r.a, 0, prOut(1, 3), prList(0xA, 0, 0))
		r.wants("RESERVE", c, 0)
		calls := k.calls
		_, c = r.run(r.b, 0, prOut(sa, 0), prList(0, 0, 0))
		r.wants("a stranger's REGISTER of nothing", c, 0)
		if k.calls != calls {
			t.Errorf("service action %d: the state was saved again", sa)
		}
		in, _ := r.run(r.a, 0, []byte{0x5E, 2, 0, 0, 0, 0, 0, 0, 8, 0}, nil)
		if d := bytes.Join(in.DataIn, nil); d[3]&1 == 0 {
			t.Errorf("service action %d: PTPL_A is %x", sa, d[3])
		}
		r = life(t, k, scsitest.NewDevice(k.exec, scsitest.Ready(1, scsitest.Sectors, 512, true)))
		_, c = r.run(r.b, 0, scsitest.CDB(0x28, 0, 1), nil)
		r.wants("a READ of the stranger after power loss", c, 0x18000000)
	}
}

// TestAllPortsAsIfOneByOne: ALL_TG_PT=1 is the same request by every target port, so that a
// REGISTER does not change what the initiator registered by another port with another key.
func TestAllPortsAsIfOneByOne(t *testing.T) {
	r, _ := savingRig(t, scsi.Port{ID: 1, Group: 1}, scsi.Port{ID: 2, Group: 2})
	second := r.tg.OpenNexus(initiatorA, initiatorA+",i,0x1", 2)
	r.run(second, 0, tur, nil)
	_, c := r.run(second, 0, prOut(0, 0), prList(0, 0x2, 0))
	r.wants("by the second port", c, 0)
	_, c = r.run(r.a, 0, prOut(0, 0), prList(0, 0, 4))
	r.wants("REGISTER of nothing by all ports", c, 0)
	_, c = r.run(r.a, 0, prOut(0, 0), prList(0, 0x1, 4))
	r.wants("REGISTER by all ports", c, 0)
	if list, _ := r.keys(); !slices.Equal(list, []uint64{2, 1}) {
		t.Errorf("the keys are %x, want 2 and 1", list)
	}
	_, c = r.run(r.a, 0, prOut(6, 0), prList(0, 0x7, 4))
	r.wants("REGISTER AND IGNORE EXISTING KEY by all ports", c, 0)
	if list, _ := r.keys(); !slices.Equal(list, []uint64{7, 7}) {
		t.Errorf("the keys are %x, want 7 and 7", list)
	}
	_, c = r.run(r.a, 0, prOut(0, 0), prList(7, 0, 4))
	r.wants("REGISTER of no key by all ports", c, 0)
	if list, _ := r.keys(); len(list) != 0 {
		t.Errorf("the keys are %x, want none", list)
	}
}

// TestPreemptOfRegistrations: a PREEMPT that takes no reservation ignores SCOPE and TYPE (SPC-4
// 5.12.11.4.4); one that takes it needs them.
func TestPreemptOfRegistrations(t *testing.T) {
	for _, sa := range []byte{4, 5} {
		r, _ := savingRig(t)
		steps := func(what string, n *scsi.Nexus, sa, kind byte, key, action uint64, want int) {
			t.Helper()
			_, c := r.run(n, 0, prOut(sa, kind), prList(key, action, 0))
			r.wants(what, c, want)
		}
		steps("REGISTER", r.a, 0, 0, 0, 0xA, 0)
		steps("REGISTER", r.b, 0, 0, 0, 0xB, 0)
		steps("without a reservation", r.a, sa, 0x00, 0xA, 0xB, 0)
		r.run(r.b, 0, tur, nil)
		steps("REGISTER", r.b, 6, 0, 0, 0xB, 0)
		steps("RESERVE", r.a, 1, 5, 0xA, 0, 0)
		steps("of one that does not hold it", r.a, sa, 0xF2, 0xA, 0xB, 0)
		if list, _ := r.keys(); !slices.Equal(list, []uint64{0xA}) {
			t.Errorf("the keys are %x, want a", list)
		}
		r.run(r.b, 0, tur, nil)
		steps("REGISTER", r.b, 6, 0, 0, 0xB, 0)
		r.run(r.b, 0, tur, nil)
		steps("of the holder, without a type", r.b, sa, 0x00, 0xB, 0xA, 0x02052400)
		steps("of the holder, with another scope", r.b, sa, 0x11, 0xB, 0xA, 0x02052400)
		if list, _ := r.keys(); !slices.Equal(list, []uint64{0xA, 0xB}) {
			t.Errorf("a PREEMPT that was refused left the keys %x", list)
		}
		steps("of the holder", r.b, sa, 0x01, 0xB, 0xA, 0)
	}
}

// TestPreemptThatIsAborted: a PREEMPT AND ABORT that is aborted while it waits for the tasks of
// others has preempted all the same, and what it changed survives power loss.
func TestPreemptThatIsAborted(t *testing.T) {
	r, k := savingRig(t)
	for i, n := range []*scsi.Nexus{r.a, r.b} {
		_, c := r.run(n, 0, prOut(0, 0), prList(0, uint64(0xA+i), 1))
		r.wants("REGISTER", c, 0)
	}
	_, c := r.run(r.b, 0, prOut(1, 3), prList(0xB, 0, 0))
	r.wants("RESERVE", c, 0)
	dev := scsitest.NewDevice(k.exec, scsitest.Ready(1, scsitest.Sectors, 512, true))
	r = life(t, k, dev)
	dev.Late = second
	write := r.start(r.b, 0, scsitest.CDB(0x2A, 0, 1), make([]byte, 512))
	preempt := &scsi.Task{Tag: 7, CDB: prOut(5, 3), DataOut: [][]byte{prList(0xA, 0xB, 0)}, Bufs: heap{}, Done: func(t *scsi.Task) { t.Ctx = true }}
	r.a.Submit([]*scsi.Task{preempt})
	r.exec.RunUntil(r.exec.Now() + second/2)
	if preempt.Ctx != nil || write.Ctx != nil {
		t.Fatal("the PREEMPT AND ABORT does not wait for the WRITE")
	}
	r.a.Manage(scsi.AbortTask, 0, 7, func(scsi.TMFResponse) {})
	r.exec.RunUntil(r.exec.Now() + second/100)
	if !preempt.Aborted {
		t.Error("the PREEMPT AND ABORT is not aborted")
	}
	after := func() string {
		list, _ := r.keys()
		in, _ := r.run(r.a, 0, []byte{0x5E, 1, 0, 0, 0, 0, 0, 0, 64, 0}, nil)
		return fmt.Sprintf("%x %x", list, bytes.Join(in.DataIn, nil)[8:])
	}
	now := after()
	r = life(t, k, dev)
	if got := after(); got != now {
		t.Errorf("after power loss the reservations are %s; they were %s", got, now)
	}
}

// TestConflictAndAttentions: a host hears of a power-on, a reset or the loss of its nexus before it hears of
// a conflict, of anything else after it (SAM-5 5.3.3).
func TestConflictAndAttentions(t *testing.T) {
	exec := &block.Virtual{}
	dev := scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true))
	r := life(t, &keeper{exec: exec}, dev)
	_, c := r.run(r.a, 0, prOut(6, 0), prList(0, 0xA, 0))
	r.wants("REGISTER", c, 0)
	_, c = r.run(r.a, 0, prOut(1, 3), prList(0xA, 0, 0)) // Exclusive Access
	r.wants("RESERVE", c, 0)
	read, inquiry := scsitest.CDB(0x28, 0, 1), []byte{0x12, 0, 0, 0, 96, 0}
	const conflict = 0x18000000
	hears := func(what string, first int) {
		t.Helper()
		_, c := r.run(r.b, 0, inquiry, nil)
		r.wants(what+", INQUIRY", c, 0)
		for _, want := range []int{first, conflict} {
			_, c = r.run(r.b, 0, read, nil)
			r.wants(what, c, want)
		}
	}
	r.b = r.tg.OpenNexus(initiatorB, initiatorB+",i,0x2", 1)
	hears("a new port", 0x02062900)
	dev.Change(block.EventPowerLoss, func(*block.Info) {})
	hears("a power-on", 0x02062900)
	r.a.Manage(scsi.LogicalUnitReset, 0, 0, func(scsi.TMFResponse) {})
	hears("a reset", 0x02062903)
	r.b.Close(func() {})
	exec.RunUntil(exec.Now() + 1_000_000)
	r.b = r.tg.OpenNexus(initiatorB, initiatorB+",i,0x2", 1)
	hears("a nexus loss", 0x02062907)
	dev.Change(block.EventCapacity, func(i *block.Info) { i.Sectors *= 2 })
	hears("another capacity", conflict)
	_, c = r.run(r.b, 0, tur, nil)
	r.wants("a command that does not conflict", c, 0x02062A09)
	hears("nothing", conflict)
}

// TestPreemptAndAbortAllows: PREEMPT AND ABORT is PREVENT=0 of the hosts that it preempts (SPC-4 5.12.11.5), and
// of no others; PREEMPT is not.
func TestPreemptAndAbortAllows(t *testing.T) {
	prevent, eject := []byte{0x1E, 0, 0, 0, 1, 0}, []byte{0x1B, 0, 0, 0, 2, 0}
	for _, c := range []struct {
		sa         byte
		who, third bool // who prevent it
		want       int
	}{{4, true, false, 0x02055302}, {5, true, false, 0}, {5, true, true, 0x02055302}, {5, false, true, 0x02055302}} {
		r := newRig(t)
		others := r.login("iqn.2026-11.org.example:host-c")
		run := func(n *scsi.Nexus, cdb, out []byte) int { _, c := r.run(n, scsitest.Removable, cdb, out); return c }
		r.wants("REGISTER", run(r.a, prOut(0, 0), prList(0, 0xA, 0)), 0)
		r.wants("REGISTER", run(r.b, prOut(0, 0), prList(0, 0xB, 0)), 0)
		if c.who {
			r.wants("PREVENT", run(r.b, prevent, nil), 0)
		}
		if c.third {
			r.wants("PREVENT", run(others, prevent, nil), 0)
		}
		r.wants("PREEMPT", run(r.a, prOut(c.sa, 1), prList(0xA, 0xB, 0)), 0)
		if got := run(r.a, eject, nil); got != c.want {
			t.Errorf("%+v: eject ends %08x", c, got)
		}
	}
}

// TestGenerationAfterPowerOn: PRGENERATION is 0 after a power-on, whatever else of a reservation survives it (SPC-4, READ
// KEYS). A process that takes over what had its power all the time goes on with it.
func TestGenerationAfterPowerOn(t *testing.T) {
	exec := &block.Virtual{}
	k := &keeper{exec: exec}
	dev := scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, 512, true))
	r := life(t, k, dev)
	for key := range uint64(3) {
		_, c := r.run(r.a, 0, prOut(0, 0), prList(key, key+1, 1)) // APTPL
		r.wants("REGISTER", c, 0)
	}
	generation := func(what string, survived bool, want uint32) {
		t.Helper()
		state, err := scsi.ParseUnitState(k.state)
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{TB: t, exec: exec, tg: scsi.NewTarget(scsi.Options{Exec: exec, Survived: survived})}
		if err := r.tg.Map("", 0, r.tg.AddUnit(dev, scsi.UnitOptions{State: state, Save: k.save})); err != nil {
			t.Fatal(err)
		}
		r.a = r.login(initiatorA)
		if list, got := r.keys(); got != want || !slices.Equal(list, []uint64{3}) {
			t.Errorf("%s: generation %d, keys %x; want %d and 3", what, got, list, want)
		}
		if survived {
			return
		}
		_, c := r.run(r.a, 0, prOut(0, 0), prList(3, 3, 1))
		r.wants("REGISTER", c, 0)
		if _, got := r.keys(); got != want+1 {
			t.Errorf("%s: generation %d after a REGISTER", what, got)
		}
	}
	generation("another process", true, 3)
	generation("a power-on", false, 0)
	generation("another process then", true, 1)
}
