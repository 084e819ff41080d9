package link

import (
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
)

// TestDebtsOfOneInitiator: an initiator that has given up very many reads of another array, which has not answered them, keeps no
// other one from copying from there.
func TestDebtsOfOneInitiator(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for 10 s")
	}
	var l halfLender
	f := newForger(t, l.serve(8))
	a, b := f.dst.login(copyHost), f.dst.login(copyOther)
	const each = 28 // far from each other
	for round := range 3 {
		var all []*running
		for i := range uint64(each) {
			c := redeem(0, 0, forgedToken(), sideSectors/each/8*8*i, 8)
			be.PutUint32(c.CDB[6:], uint32(i)+1) // the list identifier
			all = append(all, a.start(c))
		}
		f.poll("pieces of the first initiator", func() bool {
			return l.pieces() == each*(round+1)
		})
		a.manage(scsi.AbortTaskSet, 0)
		for _, x := range all {
			x.wait()
		}
	}
	time.Sleep(10*time.Second + 500*time.Millisecond) // patience of a fetch
	if got := end(b.Do(redeem(1, 0, forgedToken(), 0, 8))); got != "00" {
		t.Errorf("a copy of another initiator ends with %s", got)
	}
	if got := end(a.Do(redeem(0, 0, forgedToken(), 0, 8))); got == "00" {
		t.Errorf("a copy of the initiator whose reads have no answer ends with %s", got)
	}
	f.client.Stop()
	f.dst.free()
}
