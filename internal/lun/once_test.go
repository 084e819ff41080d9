package lun

import (
	"net"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
)

// keeper is a transport that keeps the commands that it gets.
type keeper struct{ got []*Command }

func (k *keeper) Start(c *Command) { k.got = append(k.got, c) }
func (k *keeper) Cancel(*Command)  {}
func (k *keeper) Close()           {}

// TestWhatIsNotSentAgain: after a lost connection a session sends again what does the same a second time, and nothing else.
func TestWhatIsNotSentAgain(t *testing.T) {
	exec := &block.Virtual{}
	k := &keeper{}
	dev := func(id byte) *Device {
		naa := [16]byte{0x60, id}
		return &Device{exec: exec, t: k, zero: make([]byte, 512), name: designator{1, designNAA, naa[:]}, info: block.Info{BlockSize: 512, Sectors: 1 << 20, NAA: naa}}
	}
	a, b, again := dev(1), dev(2), dev(1) // two sessions may lead to one unit
	hold := func(d *Device, ranges ...block.Range) block.Ref {
		return d.hold(&block.Request{Ranges: ranges})
	}
	g := func(start, n uint64) block.Range { return block.Range{Start: start, Count: n} }
	sector := [][]byte{make([]byte, 512)}
	for name, row := range map[string]struct {
		dev  *Device
		req  block.Request
		once bool
	}{
		"write":                          {a, block.Request{Op: block.OpWrite, Range: g(0, 1), Data: sector}, false},
		"unmap":                          {a, block.Request{Op: block.OpUnmap, Ranges: []block.Range{g(0, 1)}}, false},
		"compare and write":              {a, block.Request{Op: block.OpCompareWrite, Range: g(0, 1), Data: sector, Compare: sector}, true},
		"or":                             {a, block.Request{Op: block.OpOrWrite, Range: g(0, 1), Data: sector}, true},
		"copy to another unit":           {b, block.Request{Op: block.OpPlace, Range: g(0, 100), Ref: hold(a, g(0, 100))}, false},
		"copy beside itself":             {a, block.Request{Op: block.OpPlace, Range: g(100, 100), Ref: hold(a, g(0, 100))}, false},
		"copy over itself, forth":        {a, block.Request{Op: block.OpPlace, Range: g(1, 100), Ref: hold(a, g(0, 100))}, true},
		"copy over itself, back":         {a, block.Request{Op: block.OpPlace, Range: g(0, 100), Ref: hold(a, g(50, 100))}, true},
		"copy of pieces over the last":   {a, block.Request{Op: block.OpPlace, Range: g(500, 100), Ref: hold(a, g(0, 50), g(520, 50))}, true},
		"copy of what is not overlapped": {a, block.Request{Op: block.OpPlace, Range: g(500, 50), Ref: hold(a, g(500, 50), g(0, 50)), RefOffset: 50}, false},
		"the same unit by two sessions":  {again, block.Request{Op: block.OpPlace, Range: g(1, 100), Ref: hold(a, g(0, 100))}, true},
	} {
		t.Run(name, func(t *testing.T) {
			k.got = nil
			row.req.Done = func(*block.Request) {}
			row.dev.Submit([]*block.Request{&row.req})
			if len(k.got) != 1 {
				t.Fatalf("%d commands", len(k.got))
			}
			s, in := &Session{}, new(iscsi.Initiator)
			k.got[0].due = time.Now().Add(time.Hour)
			if kept := s.again(in, k.got[0]); kept == row.once {
				t.Errorf("it is sent again: %v", kept)
			}
			// The command is used again for another request.
			k.got[0].Lost = net.ErrClosed
			row.dev.ended(k.got[0])
			next := block.Request{Op: block.OpRead, Range: g(0, 1), Data: sector, Done: func(*block.Request) {}}
			row.dev.Submit([]*block.Request{&next})
			if !s.again(in, k.got[1]) {
				t.Error("a read that follows is not sent again")
			}
		})
	}
}
