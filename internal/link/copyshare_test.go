package link

import (
	"bytes"
	"testing"

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
