package lun

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestAttentionsAreHeard: what a unit attention says of the unit's data goes to who caches it.
func TestAttentionsAreHeard(t *testing.T) {
	for name, row := range map[string]struct {
		asc  uint16
		want []block.EventKind
	}{
		"power on, reset or bus device reset": {0x2900, []block.EventKind{block.EventPowerLoss}},
		"power on":                            {0x2901, []block.EventKind{block.EventPowerLoss}},
		"bus device reset function":           {0x2903, nil},
		"device internal reset":               {0x2904, nil},
		"I_T nexus loss":                      {0x2907, nil},
		"parameters changed":                  {0x2a01, []block.EventKind{block.EventCapacity}},
		"capacity data has changed":           {0x2a09, []block.EventKind{block.EventCapacity}},
		"a soft threshold":                    {0x3807, nil},
		"LUN data has changed":                {0x3f0e, nil},
		"not ready to ready":                  {0x2800, []block.EventKind{block.EventGeneration}},
	} {
		t.Run(name, func(t *testing.T) {
			exec := &block.Virtual{}
			k := &keeper{}
			d := &Device{exec: exec, t: k, info: block.Info{BlockSize: 512, Sectors: 1 << 10}}
			var heard []block.EventKind
			d.Notify(func(e block.Event) { heard = append(heard, e.Kind) })
			d.Submit([]*block.Request{{Op: block.OpRead, Range: block.Range{Count: 1}, Data: [][]byte{make([]byte, 512)}, Done: func(*block.Request) {}}})
			c := k.got[0]
			c.Status, c.Sense = statusCheck, []byte{0x72, senseAttention, byte(row.asc >> 8), byte(row.asc)}
			d.ended(c)
			for exec.Step() {
			}
			if !slices.Equal(heard, row.want) {
				t.Errorf("heard %v, want %v", heard, row.want)
			}
			if len(k.got) != 2 {
				t.Errorf("the command was sent %d times", len(k.got))
			}
		})
	}
}
