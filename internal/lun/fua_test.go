package lun

import (
	"fmt"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// forced is a unit that has FUA or not, and says so or not.
type forced struct {
	scripted
	has   bool
	known []byte // operation codes of MODE SENSE that it has
	got   []string
	// lost: it has no disk, and says so when its cache is to be emptied.
	lost bool
}

func (f *forced) Start(c *Command) {
	f.serve(c)
	refuse := func(asc byte) { c.Status, c.Sense = statusCheck, []byte{0x72, senseIllegal, asc, 0} }
	switch op := c.CDB[0]; op {
	case opModeSense6, opModeSense10:
		head := make([]byte, map[byte]int{opModeSense6: modeHead6, opModeSense10: modeHead10}[op])
		if f.has {
			head[map[byte]int{opModeSense6: modeDevice6, opModeSense10: modeDevice10}[op]] = 0x90 // WP, too
		}
		if c.InLen = copy(c.In[0], head); !slices.Contains(f.known, op) {
			refuse(0x20)
		}
	case opRead16, opWrite16, opOrWrite16, opCompareWrite, opWriteSame16, opUnmap, opSyncCache16:
		bit := c.CDB[1]&flagFUA != 0
		f.got = append(f.got, fmt.Sprintf("%02x %v %d+%d", op, bit, be.Uint64(c.CDB[2:]), be.Uint32(c.CDB[10:14])))
		switch {
		case bit && !f.has:
			refuse(0x24)
		case op == opRead16:
			c.InLen = int(block.VecLen(c.In))
		case op == opSyncCache16 && f.lost:
			c.Status, c.Sense = statusCheck, []byte{0x72, 0x03, 0x0c, 0}
		}
	}
	go c.Done(c)
}

// TestFUAWithoutFUA: a request with FUA at a unit that does not have it is the request and a SYNCHRONIZE CACHE of its blocks.
func TestFUAWithoutFUA(t *testing.T) {
	sector := [][]byte{make([]byte, 512)}
	both := []byte{opModeSense6, opModeSense10}
	g := block.Range{Start: 7, Count: 1}
	for name, row := range map[string]struct {
		has   bool
		known []byte
		op    block.Op
		want  []string
	}{
		"a write":                 {false, both, block.OpWrite, []string{"8a false 7+1", "91 false 7+1"}},
		"a read":                  {false, both, block.OpRead, []string{"88 false 7+1", "91 false 7+1"}},
		"a compare and write":     {false, both, block.OpCompareWrite, []string{"89 false 7+1", "91 false 7+1"}},
		"an or":                   {false, both, block.OpOrWrite, []string{"8b false 7+1", "91 false 7+1"}},
		"a write same":            {true, both, block.OpWriteSame, []string{"93 false 7+1", "91 false 7+1"}},
		"a write with FUA":        {true, both, block.OpWrite, []string{"8a true 7+1"}},
		"a read with FUA":         {true, both, block.OpRead, []string{"88 true 7+1"}},
		"MODE SENSE(10) alone":    {true, both[1:], block.OpWrite, []string{"8a true 7+1"}},
		"MODE SENSE(10) and none": {false, both[1:], block.OpWrite, []string{"8a false 7+1", "91 false 7+1"}},
		"no MODE SENSE":           {true, nil, block.OpWrite, []string{"8a false 7+1", "91 false 7+1"}},
	} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprint(name, lost), func(t *testing.T) {
				exec := block.NewLive()
				t.Cleanup(exec.Stop)
				f := &forced{scripted: scripted{blocks: 100}, has: row.has, known: row.known, lost: lost}
				d, err := Open(exec, f, "lun")
				if err != nil {
					t.Fatal(err)
				}
				l := &lab{t: t, x: exec}
				want := block.OK
				if lost && len(row.want) > 1 {
					want = block.MediumWrite
				}
				if s := l.do(d, &block.Request{Op: row.op, Flags: block.FUA, Range: g, Data: sector, Compare: sector}); s != want {
					t.Errorf("it ends %v, want %v", s, want)
				}
				if !slices.Equal(f.got, row.want) {
					t.Errorf("the unit gets %q, want %q", f.got, row.want)
				}
				f.lost = false
				for _, r := range []*block.Request{{Op: block.OpFlush}, {Op: block.OpWrite, Range: g, Data: sector}} { // the command is used again
					if s := l.do(d, r); s != block.OK {
						t.Errorf("a %v afterwards ends %v", r.Op, s)
					}
				}
				if n := len(row.want) + 2; len(f.got) != n {
					t.Errorf("the unit gets %q, want %d commands", f.got, n)
				}
			})
		}
	}
}

// forcedOne is a device over a keeper that has a request with FUA of sector 5, at a unit without FUA, and whether that has ended.
func forcedOne(op block.Op, sector [][]byte) (d *Device, k *keeper, exec *block.Virtual, r *block.Request, ended *bool) {
	exec, k, ended = &block.Virtual{}, &keeper{}, new(bool)
	d = &Device{exec: exec, t: k}
	r = &block.Request{Op: op, Flags: block.FUA, Range: block.Range{Start: 5, Count: 1}, Data: sector, Compare: sector, Done: func(*block.Request) { *ended = true }}
	d.Submit([]*block.Request{r})
	return d, k, exec, r, ended
}

// TestPowerLossBeforeTheSync: what the unit lost between the two commands of a request with FUA is not reported as
// saved. It is written again, unless it would find what it did.
func TestPowerLossBeforeTheSync(t *testing.T) {
	const second = 1_000_000_000
	sector := [][]byte{make([]byte, 512)}
	for name, row := range map[string]struct {
		op    block.Op
		asc   uint16 // that the SYNCHRONIZE CACHE, or another command, reports
		other bool
		want  []byte // what is sent behind the first two commands, or none: the request has failed
	}{
		"a write":                              {block.OpWrite, 0x2900, false, []byte{opWrite16, opSyncCache16}},
		"a write, and another command is told": {block.OpWrite, 0x2901, true, []byte{opWrite16, opSyncCache16}},
		"a read":                               {block.OpRead, 0x2900, false, []byte{opRead16, opSyncCache16}},
		"a compare and write":                  {block.OpCompareWrite, 0x2900, false, nil},
		"a compare and write, told to another": {block.OpCompareWrite, 0x2900, true, nil},
		"a reset that loses nothing":           {block.OpWrite, 0x2904, false, []byte{opSyncCache16}},
	} {
		t.Run(name, func(t *testing.T) {
			d, k, exec, r, ended := forcedOne(row.op, sector)
			k.answer(exec, 0, statusGood, nil, sector[0])
			if *ended || len(k.got) != 2 || k.got[1].CDB[0] != opSyncCache16 {
				t.Fatalf("ended %v with %d commands sent", *ended, len(k.got))
			}
			if row.other {
				d.attention(&Command{Status: statusCheck, Sense: attentionSense(row.asc)})
				k.answer(exec, 1, statusGood, nil, nil)
			} else {
				k.answer(exec, 1, statusCheck, attentionSense(row.asc), nil)
			}
			for i, op := range row.want {
				exec.RunUntil(exec.Now() + second)
				if *ended || len(k.got) != 3+i || k.got[2+i].CDB[0] != op {
					t.Fatalf("ended %v with %v after %d commands, the last %x", *ended, r.Status, len(k.got), k.got[len(k.got)-1].CDB[0])
				}
				k.answer(exec, 2+i, statusGood, nil, sector[0])
			}
			want := block.OK
			if row.want == nil {
				want = block.Offline
			}
			if !*ended || r.Status != want || len(k.got) != 2+len(row.want) {
				t.Errorf("ended %v with %v after %d commands, want %v", *ended, r.Status, len(k.got), want)
			}
		})
	}
}

// TestSyncThatIsNotTaken: a request with FUA was executed when the unit does not take its SYNCHRONIZE CACHE. Only one that can be
// sent again may end as if it was not.
func TestSyncThatIsNotTaken(t *testing.T) {
	sector := [][]byte{make([]byte, 512)}
	for name, row := range map[string]struct {
		op     block.Op
		status byte
		sense  []byte
		want   block.Status
	}{
		"a write, and the unit is busy":             {block.OpWrite, statusBusy, nil, block.Resources},
		"a write, and the unit has no such command": {block.OpWrite, statusCheck, []byte{0x72, 5, 0x20, 0}, block.Unsupported},
		"a compare and write, busy":                 {block.OpCompareWrite, statusBusy, nil, block.Offline},
		"a compare and write, no such command":      {block.OpCompareWrite, statusCheck, []byte{0x72, 5, 0x20, 0}, block.Offline},
		"a compare and write, no space":             {block.OpCompareWrite, statusCheck, []byte{0x72, 7, 0x27, 7}, block.Offline},
		"a compare and write, write protected":      {block.OpCompareWrite, statusCheck, []byte{0x72, 7, 0x27, 0}, block.Offline},
		"a compare and write, a medium error":       {block.OpCompareWrite, statusCheck, []byte{0x72, 3, 0x0c, 0}, block.MediumWrite},
		"an or write, busy":                         {block.OpOrWrite, statusBusy, nil, block.Offline},
	} {
		t.Run(name, func(t *testing.T) {
			_, k, exec, r, ended := forcedOne(row.op, sector)
			k.answer(exec, 0, statusGood, nil, nil)
			for i := 1; !*ended && i < 2*maxTries; i++ {
				if len(k.got) != i+1 || k.got[i].CDB[0] != opSyncCache16 {
					t.Fatalf("%d commands are sent, the last %x", len(k.got), k.got[len(k.got)-1].CDB[0])
				}
				k.answer(exec, i, row.status, row.sense, nil)
			}
			if !*ended || r.Status != row.want {
				t.Errorf("ended %v with %v, want %v", *ended, r.Status, row.want)
			}
		})
	}
}

// TestWithdrawnBeforeTheSync: a request that is withdrawn between its two commands ends so.
func TestWithdrawnBeforeTheSync(t *testing.T) {
	exec, k := &block.Virtual{}, &keeper{}
	d := &Device{exec: exec, t: k}
	r := &block.Request{Op: block.OpWrite, Flags: block.FUA, Range: block.Range{Count: 1}, Data: [][]byte{make([]byte, 512)}, Done: func(*block.Request) {}}
	d.Submit([]*block.Request{r})
	d.Cancel(r)
	k.answer(exec, 0, statusGood, nil, nil)
	if r.Status != block.Cancelled || len(k.got) != 1 {
		t.Errorf("it ends %v after %d commands", r.Status, len(k.got))
	}
}
