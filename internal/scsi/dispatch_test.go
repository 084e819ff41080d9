package scsi

import (
	"testing"

	"github.com/arraysim/arraysim/internal/scsi/cdb"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// TestTable checks what init cannot know: that every command is found by its own
// usage data, and is counted as what it is.
func TestTable(t *testing.T) {
	for _, c := range allCommands.Rows() {
		b := make([]byte, len(c.Usage))
		b[0] = c.Op
		switch {
		case c.Op == cdb.Variable:
			b[8], b[9] = byte(c.ServiceAction>>8), byte(c.ServiceAction)
			if c.Usage[8] != b[8] || c.Usage[9] != b[9] || int(c.Usage[7]) != len(c.Usage)-8 {
				t.Errorf("%s: usage data of the service action", c.Name)
			}
		case c.ServiceAction != server.NoAction:
			b[1] = byte(c.ServiceAction)
		}
		if allCommands.Lookup(b) != c {
			t.Errorf("%s: not found by its CDB", c.Name)
		}
		if c.Flags&server.Writes != 0 && (c.Kind == counters.Other || c.Kind == counters.Read) {
			t.Errorf("%s: a write counted as %s", c.Name, c.Kind)
		}
	}
	if len(allCommands.Rows()) < 50 {
		t.Errorf("only %d commands", len(allCommands.Rows()))
	}
}
