package link

import (
	"bytes"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
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

// users is of how many initiators the link keeps something, -1 while there is none.
func (r *copyRig) users() int {
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	if r.client.link == nil {
		return -1
	}
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

// slowArray is another array that is asked for tokens, and does not answer before the test says so.
type slowArray struct {
	mu    sync.Mutex
	asked map[string]int // guarded by mu; by initiator
	held  []func()       // guarded by mu: its answers
}

func (s *slowArray) Find(_ scsi.CopyInitiator, want []scsi.CopyDesignator, answer func([]scsi.CopyUnit)) {
	answer(make([]scsi.CopyUnit, len(want)))
}

func (s *slowArray) Borrow(who scsi.CopyInitiator, _ scsi.CopyTokenSum, answer func(scsi.CopyUnit, block.Readable, uint32)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[who.Name]++
	s.held = append(s.held, func() { answer(nil, nil, scsi.CopyTokenUnknown) })
}

func (s *slowArray) of(who string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[who]
}

// answer has it answer all that it was asked.
func (s *slowArray) answer() {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	for _, fn := range held {
		fn()
	}
}

// TestSlowArrayLeavesRoom: an initiator whose tokens a near array has at once leaves behind one question each at an array that is
// slow. It keeps no other initiator from asking there.
func TestSlowArrayLeavesRoom(t *testing.T) {
	r := newCopyRig(t)
	far := &slowArray{asked: map[string]int{}}
	r.dst.exec.Lock()
	scsi.LinkCopies(r.dst.target, far)
	r.dst.exec.Unlock()
	near := r.src.login(copyHost)
	a, b := r.dst.login(copyHost), r.dst.login(copyOther)
	token := near.token(0, 8)
	for range 1100 {
		if got := end(a.Do(redeem(0, 0, token, 0, 8))); got != "00" {
			t.Fatalf("a copy from the array that is near: %s", got)
		}
	}
	nobody := make([]byte, 512)
	nobody[1], nobody[6], nobody[7] = 0x80, 1, 0xF8
	p := b.start(redeem(0, 0, nobody, 0, 8))
	r.poll("a question of another initiator to the slow array", func() bool {
		if far.of(copyOther) == 0 {
			select {
			case <-p.done:
				t.Fatalf("the slow array was not asked for another initiator: %s", end(p.wait()))
			default:
			}
		}
		return far.of(copyOther) == 1
	})
	far.answer()
	if got := end(p.wait()); got != "052304" {
		t.Errorf("a token of nobody: %s", got)
	}
	if n := far.of(copyHost); n > 64 {
		t.Errorf("the slow array had %d questions of one initiator at a time", n)
	}
	if got := end(a.Do(redeem(0, 0, token, 0, 8))); got != "00" {
		t.Errorf("a copy from the array that is near, behind the answers: %s", got)
	}
	far.answer()
	r.src.free()
	r.dst.free()
}

// TestLentReferencesLeaveRoom: whatever another array has held here, in whoever's name, the hosts of this one can make
// references, those in whose name it asks too.
func TestLentReferencesLeaveRoom(t *testing.T) {
	s := newSide(t, 1)
	for i := uint64(0); i < sideSectors; i += 2 { // as many runs as there are sectors
		s.write(0, i, make([]byte, 512))
	}
	names := []string{copyHost, copyOther, "iqn.2026-11.org.example:p", "iqn.2026-11.org.example:q", "iqn.2026-11.org.example:r"}
	var hosts []*host
	for _, name := range names {
		hosts = append(hosts, s.login(name))
	}
	store, naa := scsi.CopySourceOf(s.target), s.names(0)[8:24]
	var lent []*scsi.CopyLent
	runs := map[string]int{}
	hold := func(name string) bool {
		s.exec.Lock()
		l := store.Lend(scsi.CopyInitiator{Name: name, Port: name}, scsi.CopyDesignator{CodeSet: 1, Kind: 3, ID: naa}, func(scsi.CopyEnding) {})
		s.exec.Unlock()
		if l == nil {
			t.Fatalf("%s does not see the unit", name)
		}
		lent = append(lent, l)
		held := make(chan scsi.CopyAnswer, 1)
		s.exec.Lock()
		l.Hold(block.Range{Count: sideSectors}, func(a scsi.CopyAnswer) { held <- a })
		s.exec.Unlock()
		a := heard(t, held)
		if a.Status == block.OK {
			runs[name] += sideSectors
		}
		return a.Status == block.OK
	}
	const all, most = 1 << 22, 1 << 20
	for _, name := range names {
		for n := 0; n < all/sideSectors && hold(name); n++ {
		}
		if n := runs[name]; n < sideSectors || n > most {
			t.Errorf("%d runs are lent in the name of %s", n, name)
		}
	}
	for i, h := range hosts {
		l := scsitest.PopulateList(0, 0, 0, scsitest.Extent{Blocks: sideSectors})
		if got := end(h.Do(scsitest.Command{CDB: scsitest.TokenCDB(0x10, 1, l), Out: l})); got != "00" {
			t.Errorf("a token that %s makes: %s; lent in its name are %d runs", names[i], got, runs[names[i]])
		}
	}
	s.exec.Lock()
	for _, l := range lent {
		l.Leave()
	}
	s.exec.Unlock()
	if !hold(copyHost) {
		t.Error("what was given back is not there again")
	}
	s.exec.Lock()
	lent[len(lent)-1].Leave()
	s.exec.Unlock()
	s.free()
}

// TestLinksOfOneArray: an array that links again and again keeps no other array out.
func TestLinksOfOneArray(t *testing.T) {
	const other = "a secret of two other arrays, and of no node"
	s, err := NewServer(ServerConfig{Self: Node{ID: 1, Name: "a", Ports: 1}, Targets: []*scsi.Target{newSide(t, 1).target}, Secret: []byte(testSecret), Array: "source",
		Copies: []CopySecret{{Name: "b", Secret: []byte(copySecret)}, {Name: "c", Secret: []byte(other)}}, times: unhurried})
	if err != nil {
		t.Fatal(err)
	}
	to, links := serving(t, s), 0
	for range maxLends + 1 {
		if _, k, _ := greetCopies(t, to, copySecret); k == kindCopyWelcome {
			links++
		}
	}
	if links < 2 || links > maxLends/2 {
		t.Errorf("one array has %d links of %d", links, maxLends)
	}
	if _, k, body := greetCopies(t, to, other); k != kindCopyWelcome {
		t.Errorf("another array gets no link: %q", body)
	}
}
