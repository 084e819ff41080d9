package scsi

import (
	"testing"

	"github.com/arraysim/arraysim/internal/scsi/counters"
)

// TestTable checks what init cannot know: that every command is found by its own
// usage data, and is counted as what it is.
func TestTable(t *testing.T) {
	for _, c := range allCommands.rows() {
		cdb := make([]byte, len(c.usage))
		cdb[0] = c.op
		switch {
		case c.op == opVariable:
			cdb[8], cdb[9] = byte(c.sa>>8), byte(c.sa)
			if c.usage[8] != cdb[8] || c.usage[9] != cdb[9] || int(c.usage[7]) != len(c.usage)-8 {
				t.Errorf("%s: usage data of the service action", c.name)
			}
		case c.sa != none:
			cdb[1] = byte(c.sa)
		}
		if allCommands.lookup(cdb) != c {
			t.Errorf("%s: not found by its CDB", c.name)
		}
		if c.flags&writes != 0 && (c.kind == counters.Other || c.kind == counters.Read) {
			t.Errorf("%s: a write counted as %s", c.name, c.kind)
		}
	}
	if len(allCommands.rows()) < 50 {
		t.Errorf("only %d commands", len(allCommands.rows()))
	}
}
