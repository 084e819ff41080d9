package tier

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

func TestLabelsThatAreRefused(t *testing.T) {
	for _, row := range []struct {
		name, want string
		change     func(b []byte)
	}{
		{"one copy is damaged", "", func(b []byte) { b[20] ^= 1 }},
		{"both are", "both copies of the label", func(b []byte) { b[20] ^= 1; b[labelCopy+20] ^= 1 }},
		{"older format", "older format", func(b []byte) {
			clear(b[:labelBytes])
			le.PutUint32(b, oldMagic)
		}},
		{"a later version's", "newer", func(b []byte) { b[labelDigit]++; b[labelCopy+labelDigit]++ }},
		{"one copy is a later version's", "", func(b []byte) { b[labelDigit]++ }},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, func(w *world) { withoutDestager(w); w.opt.PowerSafe = true })
			l.write(0, 8, 1)
			l.crash()
			row.change(l.cards[0].b)
			_, err := l.open(nil)
			switch {
			case row.want == "" && err != nil:
				t.Fatal(err)
			case row.want == "":
				l.want(0, 8, 1)
			case err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "--format"):
				t.Fatalf("%v; want %q, and how to mend it", err, row.want)
			}
		})
	}
}

func TestLivingHostThatWasFencedAcknowledgesNothing(t *testing.T) {
	l := newLab(t, withPeers(1))
	l.d.SetPolicy(Policy{Mode: WriteBack}, nil) // the peer stays a member, and is not asked for
	l.write(0, 8, 1)
	l.path.fenced, l.slots[1].fenced = true, true
	for range 3 {
		if ended := l.tryWrite(0, 8, 2); ended {
			t.Fatal("a write was acknowledged by a host that was fenced")
		}
	}
}

// tryWrite tells whether a write ended well.
func (l *lab) tryWrite(at, n, value uint64) bool {
	return l.do(&block.Request{Op: block.OpWrite, Range: block.Range{Start: at, Count: n}, Data: [][]byte{pattern(value, n)}}) == block.OK
}

// TestJournalOfSomebodyElse: a journal whose checksums are right has what no cache writes, as one of a peer that made it up. The
// start is refused.
func TestJournalOfSomebodyElse(t *testing.T) {
	zeros := [][]byte{make([]byte, 8<<block.SectorShift)}
	for name, record := range map[string]func(d *Disk){
		"dirty sectors of another disk": func(d *Disk) {
			d.j.written(recWritten, hostcache.MakeKey(3, 1), uint32(d.totalFrames)-1, 0, 8, zeros, 0)
		},
		"clean sectors of another disk": func(d *Disk) { d.j.filled(hostcache.MakeKey(3, 1), uint32(d.totalFrames)-1, 0, 8) },
		"a frame that there is not":     func(d *Disk) { d.j.filled(1, uint32(d.totalFrames), 0, 8) },
		"sectors that a block has not":  func(d *Disk) { d.j.filled(1, 0, 7, 2) },
		"damage that has no end":        func(d *Disk) { d.j.ranged(recDamaged, block.Range{Start: 1<<64 - 8, Count: 16}) },
		"an intent that has no end":     func(d *Disk) { d.j.ranged(recIntent, block.Range{Start: 8, Count: 1<<64 - 8}) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, withoutDestager)
			l.write(0, 8, 1)
			record(l.d)
			l.write(8, 8, 2)
			l.crash()
			if _, err := l.open(nil); err == nil {
				l.d.destager.used = 0
				l.d.turn.wake(l.d)
				l.d.pump()
				l.wait(l.d.clean)
				t.Fatal("the start succeeds")
			}
		})
	}
}
