package sense

import "testing"

// TestAttentions: each condition is reported once, those of the lower bits first, and each is one
// of the unit attention codes.
func TestAttentions(t *testing.T) {
	all := Attentions(1)<<len(attentionCodes) - 1
	if all&UATimestamp == 0 || all>>1 >= UATimestamp {
		t.Fatalf("there are %d codes, the last condition is %x", len(attentionCodes), UATimestamp)
	}
	pending, seen := all, map[Code]bool{}
	for i := range attentionCodes {
		c := pending.Take()
		if c != attentionCodes[i] || c.key() != 6 || seen[c] {
			t.Errorf("condition %d is reported as %06x", i, c)
		}
		if seen[c] = true; pending != all&^(1<<(i+1)-1) {
			t.Errorf("behind condition %d, %x are pending", i, pending)
		}
	}
	a := UATimestamp | UAReset
	if c := a.Take(); c != 0x062903 || a != UATimestamp {
		t.Errorf("%06x is reported before a reset", c)
	}
}
