package tier

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
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
