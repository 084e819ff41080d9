package link

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

const hostName = "iqn.2026-11.org.example:host"

// ofOnePort are cases that count the target's ports, and expect one. What they are about is asked of two by the tests below.
var ofOnePort = []string{"persistent_reserve/all_target_ports", "persistent_reserve/register_and_move", "target_port_groups/set", "target_port_groups/simple"}

// The SCSI layer's suite over a link.
func TestSuite(t *testing.T) {
	scsitest.Run(t, func(t *testing.T) func(string) scsitest.Initiator {
		if slices.ContainsFunc(ofOnePort, func(name string) bool { return strings.HasSuffix(t.Name(), "/"+name) }) {
			t.Skip("it is about a target of one port")
		}
		r := newRig(t, unhurried)
		t.Cleanup(func() {
			r.exec.Lock()
			defer r.exec.Unlock()
			r.target.RevokeTokens()
			for _, d := range r.devs {
				if d.Refs != 0 {
					t.Errorf("%s: %d references are not released", d.Info().Name, d.Refs)
				}
			}
		})
		return func(name string) scsitest.Initiator { return r.login(name) }
	})
}

func reportGroups(h *host) []byte {
	h.t.Helper()
	r := h.Do(scsitest.Command{CDB: []byte{0xA3, 0x0A, 5: 0, 9: 255, 11: 0}, In: 255})
	if r.Status != scsi.StatusGood {
		h.t.Fatalf("REPORT TARGET PORT GROUPS: status %02x, sense %x", r.Status, r.Sense)
	}
	return r.In
}

func inquiry(h *host, evpd, page byte) []byte {
	h.t.Helper()
	r := h.Do(scsitest.Command{CDB: []byte{0x12, evpd, page, 0, 255, 0}, In: 255})
	if r.Status != scsi.StatusGood {
		h.t.Fatalf("INQUIRY %d %02x: status %02x, sense %x", evpd, page, r.Status, r.Sense)
	}
	return r.In
}

// Two paths show one unit: the same groups, names and contents; each says by which port it was asked.
func TestOneUnitOnTwoPaths(t *testing.T) {
	r := newRig(t, unhurried)
	there, here := r.direct(hostName).ready(), r.login(hostName).ready()
	a, b := reportGroups(there), reportGroups(here)
	if !bytes.Equal(a, b) {
		t.Fatalf("groups by the owner %x, by the other node %x", a, b)
	}
	want := []byte{0, 0, 0, 24, 0, 0x0F, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0x8F, 1, 1, 0, 2, 0, 1, 0, 0, 1, 1}
	if !bytes.Equal(a, want) {
		t.Fatalf("groups %x, want %x", a, want)
	}
	a, b = inquiry(there, 1, 0x83), inquiry(here, 1, 0x83)
	port := func(kind, hi, lo byte) []byte { return []byte{0x51, kind, 0, 4, 0, 0, hi, lo} }
	for _, kind := range []byte{0x94, 0x95} {
		if !bytes.Contains(a, port(kind, 0, 1)) || !bytes.Contains(b, port(kind, 1, 1)) {
			t.Fatalf("designators %x and %x name other ports", a, b)
		}
		b = bytes.Replace(b, port(kind, 1, 1), port(kind, 0, 1), 1)
	}
	b = bytes.Replace(b, []byte("t,0x0101"), []byte("t,0x0001"), 1) // the name of the port
	if !bytes.Equal(a, b) {
		t.Fatalf("designators differ by more than the port: %x, %x", a, b)
	}
	data := bytes.Repeat([]byte("over the link..."), 64<<10/16)
	if res := here.Do(scsitest.Command{CDB: scsitest.CDB(0x8A, 100, 128), Out: data}); res.Status != scsi.StatusGood {
		t.Fatalf("write: %02x %x", res.Status, res.Sense)
	}
	if res := there.Do(scsitest.Command{CDB: scsitest.CDB(0x88, 100, 128), In: 64 << 10}); !bytes.Equal(res.In, data) {
		t.Fatal("what was written by one path is not read by the other")
	}
}

// Registrations are of the port of the node by which the host came.
func TestReservationsByPort(t *testing.T) {
	r := newRig(t, unhurried)
	there, here := r.direct(hostName).ready(), r.login(hostName).ready()
	register := make([]byte, 24)
	register[15] = 9
	for _, h := range []*host{there, here} {
		if res := h.Do(scsitest.Command{CDB: []byte{0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0}, Out: register}); res.Status != scsi.StatusGood {
			t.Fatalf("REGISTER: %02x %x", res.Status, res.Sense)
		}
	}
	reserve := make([]byte, 24)
	reserve[7] = 9
	if res := here.Do(scsitest.Command{CDB: []byte{0x5F, 1, 1, 0, 0, 0, 0, 0, 24, 0}, Out: reserve}); res.Status != scsi.StatusGood {
		t.Fatalf("RESERVE: %02x %x", res.Status, res.Sense)
	}
	if res := there.Do(scsitest.Command{CDB: scsitest.CDB(0x8A, 0, 1), Out: make([]byte, 512)}); res.Status != scsi.StatusReservationConflict {
		t.Fatalf("a write by the other path of the same host: %02x, want a conflict (write exclusive is of a nexus)", res.Status)
	}
	full := there.Do(scsitest.Command{CDB: []byte{0x5E, 3, 0, 0, 0, 0, 0, 1, 0, 0}, In: 256}).In
	var ports []int
	for at := 8; at+24 <= len(full); at += 24 + int(be.Uint32(full[at+20:])) {
		ports = append(ports, int(be.Uint16(full[at+18:])))
	}
	if fmt.Sprint(ports) != "[1 257]" {
		t.Fatalf("registrations of ports %v, want 1 and 257 (%x)", ports, full)
	}
}

// A node that comes and goes changes the groups, and hosts at the owner hear of it.
func TestNodeComesAndGoes(t *testing.T) {
	limits := unhurried
	limits.away = time.Millisecond
	r := newRig(t, limits)
	there := r.direct(hostName).ready()
	r.client.Stop()
	r.poll("the end of the link", func() bool { return r.access() == scsi.AccessUnavailable })
	there.expect(0x062A06)
	if g := reportGroups(there); g[16] != byte(scsi.AccessUnavailable) {
		t.Fatalf("groups %x: that of the node that is away is not unavailable", g)
	}
}

// A command whose link breaks is not repeated, and not answered before nothing of it can land any more.
func TestNothingLandsBehindAnAnswer(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	write := r.stuck(h)
	r.cut()
	time.Sleep(50 * time.Millisecond) // in which a wrong answer comes
	if write.over() {
		t.Error("the write is answered, and is at the device")
	}
	r.release(r.devs[scsitest.Thin])
	if c := code(write.wait()); c != 0x0B0800 {
		t.Fatalf("the write ended with %06x, want 0B0800", c)
	}
	if !r.landed() {
		t.Fatal("the write was answered, and then it landed")
	}
	r.linked(true)
	h.expect(again(0x062907)...)
	r.exec.Lock()
	defer r.exec.Unlock()
	if n := r.devs[scsitest.Thin].Seen[block.OpWrite]; n != 1 {
		t.Fatalf("the device saw %d writes", n)
	}
}

// Nor while the owner answers, and has not ended what the former link brought, however long that takes.
func TestHeldWhileTheOwnerWorks(t *testing.T) {
	hand := &handClock{}
	r := rigOf(t, unhurried, func(local *block.Live) block.Executor {
		hand.Live = local
		return hand
	})
	h := r.login(hostName).ready()
	write := r.stuck(h)
	r.cut()
	for range 8 { // twice the hold: the owner's word comes in time each time
		was := hand.timers()
		r.poll("a word of the owner", func() bool { return hand.timers() > was || write.over() })
		hand.pass(unhurried.hold / 4)
	}
	if write.over() {
		t.Fatal("the write is answered, and at the device")
	}
	r.release(r.devs[scsitest.Thin])
	if c := code(write.wait()); c != 0x0B0800 || !r.landed() {
		t.Fatalf("the write ended with %06x; it had landed: %v", c, r.landed())
	}
}

// Without a new link a command that may have been carried out waits until its owner would refuse it.
func TestHeldCommands(t *testing.T) {
	limits := unhurried
	limits.hold = 200 * time.Millisecond
	r := newRig(t, limits)
	h := r.login(hostName).ready()
	r.exec.Lock()
	r.devs[scsitest.Thin].Hold = true
	r.exec.Unlock()
	write := h.start(scsitest.Command{CDB: scsitest.CDB(0x8A, 5, 1), Out: make([]byte, 512)})
	r.poll("the write at the device", func() bool {
		r.exec.Lock()
		defer r.exec.Unlock()
		return r.devs[scsitest.Thin].Seen[block.OpWrite] == 1
	})
	began := time.Now()
	r.leave()
	if c := code(h.Do(scsitest.Command{CDB: scsitest.CDB(0x8A, 9, 1), Out: make([]byte, 512)})); c != 0x02040A {
		t.Fatalf("a write without a link: %06x, want 02040A", c)
	}
	if r := h.manage(scsi.AbortTask, 0); r != scsi.TMFNoTask {
		t.Fatalf("ABORT TASK: %d, want that there is no such task any more", r)
	}
	if c := code(write.wait()); c != 0x0B0800 {
		t.Fatalf("the write ended with %06x, want 0B0800", c)
	}
	if took := time.Since(began); took < limits.hold {
		t.Fatalf("the write was answered after %v, before its owner would refuse it", took)
	}
	h.Close()
}

// What a node says while nobody has the array, and what hosts hear when somebody has.
func TestTransition(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	kept := map[string][]byte{"inquiry": inquiry(h, 0, 0), "83": inquiry(h, 1, 0x83)}
	luns := h.Do(scsitest.Command{CDB: []byte{0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, In: 256}).In
	groups := reportGroups(h)
	r.leave()
	if c := h.code(); c != 0x02040A {
		t.Fatalf("TEST UNIT READY: %06x, want 02040A", c)
	}
	if !bytes.Equal(inquiry(h, 0, 0), kept["inquiry"]) || !bytes.Equal(inquiry(h, 1, 0x83), kept["83"]) {
		t.Error("INQUIRY says something else than before")
	}
	if c := code(h.Do(scsitest.Command{CDB: []byte{0x12, 1, 0xB0, 0, 255, 0}, In: 255})); c != 0x02040A {
		t.Errorf("INQUIRY of a page that is not known: %06x, want 02040A", c)
	}
	if got := h.Do(scsitest.Command{CDB: []byte{0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, In: 256}).In; !bytes.Equal(got, luns) {
		t.Errorf("REPORT LUNS: %x, want %x", got, luns)
	}
	if s := h.Do(scsitest.Command{CDB: []byte{3, 0, 0, 0, 18, 0}, In: 18}); s.Status != scsi.StatusGood || !bytes.Equal(s.In, senseTransition[:]) {
		t.Errorf("REQUEST SENSE: %02x %x", s.Status, s.In)
	}
	described := []byte{0x72, 0x02, 0x04, 0x0A, 7: 0}
	if s := h.Do(scsitest.Command{CDB: []byte{3, 1, 0, 0, 252, 0}, In: 252}); s.Status != scsi.StatusGood || !bytes.Equal(s.In, described) {
		t.Errorf("REQUEST SENSE with DESC=1: %02x %x, want %x", s.Status, s.In, described)
	}
	want := bytes.Clone(groups)
	want[4], want[9], want[16], want[21] = 0x0F, 2, 0x0F, 2
	if got := reportGroups(h); !bytes.Equal(got, want) {
		t.Errorf("groups %x, want %x", got, want)
	}
	if res := h.manage(scsi.LogicalUnitReset, 0); res != scsi.TMFRejected {
		t.Errorf("LOGICAL UNIT RESET: %d", res)
	}
	late := r.login(hostName + "2")
	r.target, r.devs = scsitest.NewTarget(r.exec)
	r.own(r.target, unhurried)
	r.linked(true)
	h.expect(0x062900, 0x062A06) // a new process
	late.expect(0x062900, 0x062A06)
	if !bytes.Equal(reportGroups(h), groups) {
		t.Error("the groups are others than before")
	}
	h.Close()
	late.Close()
}

// An owner that stops in good order ends what is in progress.
func TestShutdownDrains(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	r.exec.Lock()
	r.devs[scsitest.Thin].Delay = int64(100 * time.Millisecond)
	r.exec.Unlock()
	var all []*running
	for i := range 20 {
		all = append(all, h.start(scsitest.Command{CDB: scsitest.CDB(0x8A, uint64(i), 1), Out: make([]byte, 512)}))
	}
	r.poll("the writes at the device", func() bool {
		r.exec.Lock()
		defer r.exec.Unlock()
		return r.devs[scsitest.Thin].Seen[block.OpWrite] == 20
	})
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.server.Shutdown(within)
	for _, p := range all {
		if res := p.wait(); res.Status != scsi.StatusGood {
			t.Fatalf("a write that was in progress: %02x %x", res.Status, res.Sense)
		}
	}
}

// More commands than the window has room for wait here, and may be aborted here.
func TestWindow(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	d := r.devs[scsitest.Thin]
	r.hang(d)
	const window = windowCommands / 2 // what one host has of it
	const n = window + 100
	var all []*running
	for range n {
		all = append(all, h.start(scsitest.Command{CDB: scsitest.CDB(0x88, 0, 1), In: 512}))
	}
	r.poll("a full window", func() bool {
		r.exec.Lock()
		defer r.exec.Unlock()
		return d.Seen[block.OpRead] == window
	})
	if res := h.manage(scsi.AbortTask, 0); res != scsi.TMFComplete { // all have one tag: those that wait here
		t.Fatalf("ABORT TASK: %d", res)
	}
	for i, p := range all {
		if i >= window != p.over() {
			t.Fatalf("command %d: over is %v", i, p.over())
		}
	}
	r.release(d)
	for _, p := range all {
		p.wait()
	}
	h.Close()
	if s := r.server.Peers()[0].Sessions; s != 0 {
		t.Fatalf("%d sessions are left at the owner", s)
	}
}

// A task that is aborted gets no response, wherever it is.
func TestAbort(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	for _, fn := range []scsi.TMF{scsi.AbortTask, scsi.AbortTaskSet, scsi.LogicalUnitReset} {
		d := r.devs[scsitest.Thin]
		r.exec.Lock()
		d.Hold = true
		seen := d.Seen[block.OpRead]
		r.exec.Unlock()
		p := h.start(scsitest.Command{CDB: scsitest.CDB(0x88, 0, 1), In: 512})
		r.poll("the read at the device", func() bool {
			r.exec.Lock()
			defer r.exec.Unlock()
			return d.Seen[block.OpRead] > seen
		})
		if res := h.manage(fn, 0); res != scsi.TMFComplete {
			t.Fatalf("function %d: %d", fn, res)
		}
		if !p.over() || !p.task.Aborted {
			t.Fatalf("function %d: the task is over %v, aborted %v", fn, p.over(), p.task.Aborted)
		}
		r.exec.Lock()
		d.Hold = false
		r.exec.Unlock()
	}
}

// A cold reset ends the sessions of all nodes.
func TestColdReset(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	if res := h.manage(scsi.TargetColdReset, 0); res != scsi.TMFComplete {
		t.Fatalf("TARGET COLD RESET: %d", res)
	}
	select {
	case <-h.lost:
	case <-time.After(patience):
		t.Fatal("the session is not told")
	}
	h.Close()
}

// Only who has the secret has a link, and one node is one process.
func TestWhoMayLink(t *testing.T) {
	r := newRig(t, unhurried)
	for _, row := range []struct {
		name, secret string
		node         uint16
		targets      int
		says         string
	}{
		{"a different secret", testSecret + "x", 3, 1, "a different secret"},
		{"a node that is there", testSecret, 2, 1, "linked by another process"},
		{"the owner itself", testSecret, 1, 1, "is this one"},
		{"other I/O groups", testSecret, 3, 2, "I/O groups"},
	} {
		t.Run(row.name, func(t *testing.T) {
			said := &lines{}
			exec := block.NewLive()
			defer exec.Stop()
			c, err := NewClient(ClientConfig{Self: Node{ID: row.node, Name: "c", Ports: 1}, Targets: row.targets, Secret: []byte(row.secret), Exec: exec, Address: r.address, Log: said.log(), times: unhurried})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Stop()
			r.poll("a word about it", func() bool { return strings.Contains(said.String(), row.says) })
			if owner, _ := c.Owner(); owner.Linked {
				t.Fatal("it is linked")
			}
		})
	}
	if _, err := identity([]byte("too short")); err == nil {
		t.Error("a short secret was taken")
	}
	if owner, _ := r.client.Owner(); !owner.Linked {
		t.Error("the link of the first node has ended")
	}
}
