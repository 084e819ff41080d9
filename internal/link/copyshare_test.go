package link

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

const copyOther = "iqn.2026-11.org.example:o"

// TestSearchesLeaveRoom: an initiator that has the other array asked for very many tokens, which are slow to come, keeps no
// other one from copying.
func TestSearchesLeaveRoom(t *testing.T) {
	r := newCopyRig(t)
	data := stamps(3, 4096)
	r.src.write(0, 0, data)
	r.src.login(copyOther)
	a, b := r.dst.login(copyHost), r.dst.login(copyOther)
	r.tap.pass(0)
	token := make([]byte, 512)
	token[1], token[6], token[7] = 0x80, 1, 0xF8
	var all []*running
	for i := range 1100 {
		token[200], token[201] = byte(i), byte(i>>8)
		all = append(all, a.start(redeem(0, 0, bytes.Clone(token), 0, 8)))
	}
	p := b.start(copies(1, r.src.names(0), r.dst.names(1), 8, 0, 0))
	r.tap.pass(-1)
	if got := end(p.wait()); got != "00" || !bytes.Equal(r.dst.read(1, 0, 8), data) {
		t.Errorf("a copy of another initiator ends with %s", got)
	}
	busy := 0
	for _, x := range all {
		switch res := x.wait(); {
		case res.Status == scsi.StatusBusy:
			busy++
		case end(res) != "052304":
			t.Fatalf("a token of nobody: %s", end(res))
		}
	}
	if most := len(all) - 64; busy < most/2 {
		t.Errorf("%d commands of one initiator were refused, of %d beyond what it may have", busy, most)
	}
	r.src.free()
	r.dst.free()
}

// users is of how many initiators the link keeps something.
func (r *copyRig) users() int {
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	return len(r.client.link.users)
}

// TestUnitsOfOneInitiator: one initiator's copies have half of the units of a link at most, and half of the runs.
func TestUnitsOfOneInitiator(t *testing.T) {
	r := newCopyRig(t)
	for i := uint64(0); i < sideSectors; i += 2 { // as many runs as there are sectors
		r.src.write(0, i, make([]byte, 512))
	}
	r.src.login(copyHost)
	r.src.login(copyOther)
	find := func(who string, n int) []scsi.CopyUnit {
		found := make(chan []scsi.CopyUnit, 1)
		id := r.src.names(0)[8:24]
		var want []scsi.CopyDesignator
		for range n {
			want = append(want, scsi.CopyDesignator{CodeSet: 1, Kind: 3, ID: id})
		}
		r.client.Find(scsi.CopyInitiator{Name: who, Port: who}, want, func(u []scsi.CopyUnit) { found <- u })
		return heard(t, found)
	}
	var all []scsi.CopyUnit
	for range copyUnits / copyWants {
		for _, u := range find(copyHost, copyWants) {
			if u != nil {
				all = append(all, u)
			}
		}
	}
	if len(all) != copyUnits/2 {
		t.Errorf("one initiator has %d units of %d", len(all), copyUnits)
	}
	u := find(copyOther, 1)[0]
	if u == nil {
		t.Fatal("there is no unit for another initiator")
	}
	hold := func(u scsi.CopyUnit) scsi.CopyAnswer {
		held := make(chan scsi.CopyAnswer, 1)
		u.Hold(block.Range{Count: sideSectors}, func(a scsi.CopyAnswer) { held <- a })
		return heard(t, held)
	}
	runs := 0
	for _, u := range all[:copyAllRuns/sideSectors] {
		switch a := hold(u); {
		case a.Status == block.OK:
			runs += sideSectors
		case a.Status != block.Resources || a.SAM != scsi.StatusBusy:
			t.Fatalf("a hold beyond the runs of an initiator: %+v", a)
		}
	}
	if runs > copyAllRuns/2 || runs < copyAllRuns/4 {
		t.Errorf("one initiator has %d runs of %d", runs, copyAllRuns)
	}
	if a := hold(u); a.Status != block.OK {
		t.Errorf("a hold of another initiator: %+v", a)
	}
	u.Leave()
	for _, u := range all {
		u.Leave()
	}
	if n := r.users(); n != 0 {
		t.Errorf("%d initiators have something when all units are gone", n)
	}
	r.client.mu.Lock()
	if l := r.client.link; l.runs != 0 || len(l.units) != 0 {
		t.Errorf("%d runs and %d units are left", l.runs, len(l.units))
	}
	r.client.mu.Unlock()
	r.src.free()
}
