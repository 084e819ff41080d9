package scsi_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestCopiesWithoutListID: a copy whose result nobody asks for counts like any other.
func TestCopiesWithoutListID(t *testing.T) {
	r := newRig(t)
	r.devs[0].Hold = true
	list := r.list(0, 0)
	list[1] |= 0x18 // LIST ID USAGE: there is none
	start := func(n *scsi.Nexus, lun uint64) int {
		_, c := r.run(n, lun, scsitest.CopyCDB4(list), list)
		return c
	}
	busy := func(n *scsi.Nexus, lun uint64) (refused int) {
		for range 40 {
			if start(n, lun) == scsi.StatusBusy<<24 {
				refused++
			}
		}
		return refused
	}
	r.wants("refused to one I_T_L nexus", busy(r.a, scsitest.Thin), 40-32)
	r.wants("refused on a second LUN", busy(r.a, scsitest.Other), 40-32)
	r.wants("refused on a third LUN: an initiator has 64", busy(r.a, scsitest.Thick), 40)
	// What one initiator holds leaves room for the others.
	if c := start(r.b, scsitest.Thin); c == scsi.StatusBusy<<24 {
		t.Error("one initiator's copies keep another from its first")
	}
	r.wants("refused to a second initiator, which has 64 as well", busy(r.b, scsitest.Thin)+busy(r.b, scsitest.Other), 1+80-64)
	// Those who come later find something, too, and some of them all that a nexus is promised.
	for i := range 7 {
		name := fmt.Sprint("iqn.2026-01.example:c", i)
		n := r.tg.OpenNexus(name, name+",i,0x1", 1)
		for range 3 { // unit attentions
			r.run(n, scsitest.Thin, make([]byte, 6), nil)
		}
		if c := start(n, scsitest.Thin); c == scsi.StatusBusy<<24 {
			t.Errorf("the copies of %d initiators keep another from its first", i+2)
		}
		if refused := busy(n, scsitest.Thin); i == 0 && refused != 1+40-32 {
			t.Errorf("beside two initiators a third has %d copies on an I_T_L nexus, which is promised 32", 1+40-refused)
		}
	}
	for r.devs[0].Waiting() > 0 {
		r.devs[0].Release(1)
		r.exec.RunUntil(r.exec.Now() + 1000)
	}
	r.devs[0].Hold = false
	r.wants("afterwards", start(r.a, scsitest.Thin), 0)
	r.refs("at the end", 0)
}

// TestTokensOfOneInitiator: an initiator has a quarter of the tokens, over however many sessions
// and units.
func TestTokensOfOneInitiator(t *testing.T) {
	r := newRig(t)
	l := scsitest.PopulateList(0, 0, 0, scsitest.Extent{Blocks: 8})
	populate := func(n *scsi.Nexus) int {
		_, c := r.run(n, 0, scsitest.TokenCDB(0x10, 1, l), l)
		return c
	}
	again := r.tg.OpenNexus(initiatorA, initiatorA+",i,0x2", 1)
	for range 3 { // unit attentions
		r.run(again, 0, make([]byte, 6), nil)
	}
	for i := range 64 {
		n := r.a
		if i%2 == 1 {
			n = again
		}
		r.wants("one of its tokens", populate(n), 0)
	}
	r.wants("one more", populate(r.a), 0x020A550D)
	r.wants("one more by another session", populate(again), 0x020A550D)
	r.wants("another initiator's first", populate(r.b), 0)
	r.refs("all", 65)
	r.exec.RunUntil(r.exec.Now() + 4000*second)
	r.refs("none", 0)
	r.wants("room again", populate(r.a), 0)
}

// TestVerifyIsBudgeted: however many VERIFY or ORWRITE commands are under way, few of them hold
// memory, each gets its turn, and those of an initiator that has many do not keep another's waiting.
func TestVerifyIsBudgeted(t *testing.T) {
	t.Run("VERIFY", func(t *testing.T) { budgeted(t, 500, 0x8F, nil) })
	t.Run("ORWRITE", func(t *testing.T) { budgeted(t, 100, 0x8B, make([]byte, scsitest.Sectors*512)) })
}

func budgeted(t *testing.T, many int, op byte, out []byte) {
	r := newRig(t)
	d := r.devs[0]
	d.Hold = true
	cdb := make([]byte, 16)
	cdb[0] = op
	binary.BigEndian.PutUint32(cdb[10:], scsitest.Sectors)
	task := func(name string) *scsi.Task {
		k := r.task(name, scsitest.Thin, cdb)
		if out != nil {
			k.DataOut = [][]byte{out}
		}
		return k
	}
	var reads uint64 // bytes of memory that the device reads into, since the last round
	d.Fault = func(q *block.Request) block.Status {
		reads += uint64(block.VecLen(q.Data))
		return block.OK
	}
	for i := range many {
		k := task("hostile")
		k.Tag = uint64(i)
		r.submit(r.a, k)
	}
	r.exec.RunUntil(r.exec.Now() + 1000)
	r.submit(r.b, task("honest"))
	for round := range 64 { // its first piece is read, and each next one, before others are served twice
		if d.Waiting() == 0 {
			t.Fatal("nothing is under way")
		}
		reads = 0
		d.Release(d.Waiting())
		if reads == 0 || reads > 8<<20 {
			t.Fatalf("%d commands read into %d bytes at a time", many, reads)
		}
		r.exec.RunUntil(r.exec.Now() + 1000)
		if len(r.log) > 0 && r.log[len(r.log)-1] == "honest" {
			break
		}
		if round == 63 {
			t.Errorf("not ended after %d rounds, which end %d others", round, len(r.log))
		}
	}
	// Those that wait can be aborted; the rest end well, and nothing is left.
	aborted := false
	r.a.Manage(scsi.AbortTask, scsitest.Thin<<48, uint64(many-1), func(got scsi.TMFResponse) { aborted = got == scsi.TMFComplete })
	d.Hold = false
	for d.Waiting() > 0 {
		d.Release(d.Waiting())
		r.exec.Run()
	}
	r.exec.Run()
	if !aborted || len(r.log) != many+1 {
		t.Errorf("%d of %d commands ended, aborted %v", len(r.log), many+1, aborted)
	}
}
