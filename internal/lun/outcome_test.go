package lun

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestAbortedAtTheUnit: a command that the unit gave up, since another host reset it, say, is sent again. What may have been
// carried out, and would find that the second time, is not.
func TestAbortedAtTheUnit(t *testing.T) {
	const second = 1_000_000_000
	sector := [][]byte{make([]byte, 512)}
	for name, row := range map[string]struct {
		op    block.Op
		again bool
	}{"a read": {block.OpRead, true}, "a write": {block.OpWrite, true}, "a compare and write": {block.OpCompareWrite, false}, "an or": {block.OpOrWrite, false}} {
		for _, end := range []struct {
			status byte
			sense  []byte
		}{{statusAborted, nil}, {statusCheck, []byte{0x72, senseAborted, 0x47, 0}}, {statusCheck, []byte{0: 0x70, 2: senseAborted, 17: 0}}} {
			exec, k := &block.Virtual{}, &keeper{}
			d := &Device{exec: exec, t: k, opened: true}
			ended := false
			r := &block.Request{Op: row.op, Range: block.Range{Count: 1}, Data: sector, Compare: sector, Done: func(*block.Request) { ended = true }}
			d.Submit([]*block.Request{r})
			k.answer(exec, 0, end.status, end.sense, nil)
			exec.RunUntil(exec.Now() + second)
			if !row.again {
				if !ended || r.Status != block.Offline || len(k.got) != 1 {
					t.Errorf("%s, status %#x: ended %v with %v after %d commands", name, end.status, ended, r.Status, len(k.got))
				}
				continue
			}
			if ended || len(k.got) != 2 {
				t.Errorf("%s, status %#x: ended %v with %v after %d commands", name, end.status, ended, r.Status, len(k.got))
				continue
			}
			k.answer(exec, 1, statusGood, nil, sector[0])
			if !ended || r.Status != block.OK {
				t.Errorf("%s, status %#x: ended %v with %v", name, end.status, ended, r.Status)
			}
		}
	}
}

// TestInformation: the offset of a miscompare is found in both formats of sense data, among other descriptors, and
// where there is none nothing is taken for it.
func TestInformation(t *testing.T) {
	be := binary.BigEndian
	fixed := []byte{0: 0xF0, 2: senseMiscompare, 6: 9, 7: 10, 12: 0x1D, 17: 0}
	info := append([]byte{0, 10, 0x80, 0}, be.AppendUint64(nil, 1<<32+5)...)
	head := func(n byte) []byte { return []byte{0x72, senseMiscompare, 0x1D, 0, 0, 0, 0, n} }
	specific := []byte{1, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3}
	invalid := bytes.Clone(info)
	invalid[2] = 0
	for name, row := range map[string]struct {
		sense []byte
		at    uint64
		ok    bool
	}{
		"fixed":                  {fixed, 9, true},
		"fixed, not valid":       {append([]byte{0x70}, fixed[1:]...), 9, false},
		"descriptor":             {append(head(12), info...), 1<<32 + 5, true},
		"behind another":         {append(append(head(24), specific...), info...), 1<<32 + 5, true},
		"another alone":          {append(head(12), specific...), 0, false},
		"descriptor, not valid":  {append(head(12), invalid...), 1<<32 + 5, false},
		"behind the end":         {append(head(0), info...), 0, false},
		"cut off":                {append(head(12), info[:11]...), 0, false},
		"a length that is wrong": {append(head(12), append([]byte{0, 0}, info[2:]...)...), 0, false},
		"none":                   {nil, 0, false},
	} {
		at, ok := (&Command{Sense: row.sense}).information()
		if ok != row.ok || ok && at != row.at {
			t.Errorf("%s: %d, %v", name, at, ok)
		}
	}
	exec, k := &block.Virtual{}, &keeper{}
	d := &Device{exec: exec, t: k, opened: true}
	r := &block.Request{Op: block.OpCompareWrite, Range: block.Range{Count: 1}, Data: [][]byte{make([]byte, 512)}, Compare: [][]byte{make([]byte, 512)}, Done: func(*block.Request) {}}
	d.Submit([]*block.Request{r})
	k.answer(exec, 0, statusCheck, append(head(12), info...), nil)
	if r.Status != block.Miscompare || r.Offset != 1<<32+5 {
		t.Errorf("%v at %d", r.Status, r.Offset)
	}
}

// FuzzSense: whatever a unit sends as sense data.
func FuzzSense(f *testing.F) {
	f.Add([]byte{0x72, 14, 0x1D, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Add([]byte{0: 0xF0, 2: 14, 6: 9, 17: 0})
	f.Add([]byte{0x72, 14, 0x1D, 0, 0, 0, 0, 255, 1, 255, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Command{Status: statusCheck, Sense: b}
		c.information()
		if key, _ := c.sense(); key != c.key() || key > 15 {
			t.Errorf("key %d", key)
		}
	})
}
