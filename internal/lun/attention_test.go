package lun

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// attended is a device over a keeper that has one read under way, and what it tells its listener.
func attended(info block.Info) (d *Device, k *keeper, exec *block.Virtual, heard *[]block.EventKind) {
	exec, k, heard = &block.Virtual{}, &keeper{}, new([]block.EventKind)
	d = &Device{exec: exec, t: k, info: info, opened: true}
	d.Notify(func(e block.Event) { *heard = append(*heard, e.Kind) })
	d.Submit([]*block.Request{{Op: block.OpRead, Range: block.Range{Count: 1}, Data: [][]byte{make([]byte, 512)}, Done: func(*block.Request) {}}})
	return d, k, exec, heard
}

// answer ends the keeper's i-th command.
func (k *keeper) answer(exec *block.Virtual, i int, status byte, sense, data []byte) {
	c := k.got[i]
	c.Status, c.Sense, c.InLen = status, sense, 0
	if len(c.In) > 0 {
		c.InLen = copy(c.In[0], data)
	}
	c.Done(c)
	for exec.Step() {
	}
}

func attentionSense(asc uint16) []byte {
	return []byte{0x72, senseAttention, byte(asc >> 8), byte(asc)}
}

// capacityData is an answer of READ CAPACITY(16).
func capacityData(blocks uint64, size uint32) []byte {
	b := make([]byte, capacityLen)
	be.PutUint64(b, blocks-1)
	be.PutUint32(b[8:], size)
	return b
}

// TestAttentionsAreHeard: what a unit attention says of the unit's data goes to who caches it.
func TestAttentionsAreHeard(t *testing.T) {
	const blocks = 1 << 10
	power, generation, capacity := []block.EventKind{block.EventPowerLoss}, []block.EventKind{block.EventGeneration}, []block.EventKind{block.EventCapacity}
	for name, row := range map[string]struct {
		asc     uint16
		blocks  uint64 // of the unit now; 0: nobody asks
		want    []block.EventKind
		changed []block.EventKind // besides, when the capacity is known
	}{
		"power on, reset or bus device reset": {0x2900, blocks, power, nil},
		"power on":                            {0x2901, 2 * blocks, power, capacity},
		"bus device reset function":           {0x2903, blocks, nil, nil},
		"device internal reset":               {0x2904, blocks / 2, nil, capacity},
		"I_T nexus loss":                      {0x2907, 2 * blocks, nil, capacity},
		"mode parameters changed":             {0x2a01, 2 * blocks, nil, capacity},
		"reservations preempted":              {0x2a03, 0, nil, nil},
		"capacity data has changed, more":     {0x2a09, 2 * blocks, nil, capacity},
		"capacity data has changed, less":     {0x2a09, blocks / 2, nil, capacity},
		"capacity data is what it was":        {0x2a09, blocks, nil, generation},
		"a soft threshold":                    {0x3807, 0, nil, nil},
		"LUN data has changed":                {0x3f0e, 2 * blocks, nil, capacity},
		"not ready to ready":                  {0x2800, 2 * blocks, generation, capacity},
		"commands cleared":                    {0x2f00, 0, generation, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d, k, exec, heard := attended(block.Info{BlockSize: 512, Sectors: blocks})
			h := d.hold(&block.Request{Ranges: []block.Range{{Start: 10, Count: 1}}}).(block.Vulnerable)
			k.answer(exec, 0, statusCheck, attentionSense(row.asc), nil)
			if told := len(*heard) > 0; h.Changed() != told {
				t.Errorf("what a reference refers to has changed: %v, and listeners were told: %v", h.Changed(), *heard)
			}
			if !slices.Equal(*heard, row.want) {
				t.Errorf("heard %v, want %v", *heard, row.want)
			}
			sent := 2 // the read and the read again
			if row.blocks > 0 {
				sent++
			}
			if len(k.got) != sent || k.got[sent-1].CDB[0] != opRead16 {
				t.Fatalf("%d commands were sent, want %d", len(k.got), sent)
			}
			if row.blocks == 0 {
				return
			}
			k.answer(exec, 1, statusGood, nil, capacityData(row.blocks, 512))
			if want := slices.Concat(row.want, row.changed); !slices.Equal(*heard, want) || d.Info().Sectors != row.blocks {
				t.Errorf("heard %v, want %v; the unit has %d blocks", *heard, want, d.Info().Sectors)
			}
		})
	}
}

// TestChangedCapacityIsAQuestion: between two capacities there may have been a smaller one. A unit that lists what it has lost is
// asked for that.
func TestChangedCapacityIsAQuestion(t *testing.T) {
	for _, blocks := range []uint64{50, 100, 200} {
		d, k, exec, heard := attended(block.Info{BlockSize: 512, Sectors: 100})
		d.tracks = true
		k.answer(exec, 0, statusCheck, attentionSense(ascCapacity), nil)
		k.answer(exec, 1, statusGood, nil, capacityData(blocks, 512))
		var want []block.EventKind
		if blocks != 100 {
			want = append(want, block.EventCapacity)
		}
		if want = append(want, block.EventGeneration); !slices.Equal(*heard, want) {
			t.Fatalf("%d blocks: heard %v, want %v", blocks, *heard, want)
		}
		d.attention(&Command{Status: statusCheck, Sense: attentionSense(0x2903)})
		k.answer(exec, len(k.got)-1, statusGood, nil, capacityData(blocks, 512))
		if len(*heard) != len(want) {
			t.Errorf("%d blocks: heard %v of a reset that has changed nothing", blocks, (*heard)[len(want):])
		}
	}
}

// TestChangeDuringTheQuestion: what a unit says of its capacity while that is read is a question of its own where the first one told
// of nothing that may be lost: the answer may be newer than what was said.
func TestChangeDuringTheQuestion(t *testing.T) {
	generation, capacity := block.EventGeneration, block.EventCapacity
	for _, c := range []struct {
		asc  uint16 // that comes meanwhile
		now  uint64
		want []block.EventKind
	}{
		{ascCapacity, 100, []block.EventKind{generation}},
		{ascCapacity, 200, []block.EventKind{capacity, generation}},
		{0x3f0e, 200, []block.EventKind{capacity}},
	} {
		d, k, exec, heard := attended(block.Info{BlockSize: 512, Sectors: 100})
		k.answer(exec, 0, statusCheck, attentionSense(ascCapacity), nil)
		k.answer(exec, 2, statusCheck, attentionSense(c.asc), nil) // of the read, which was sent again
		k.answer(exec, 1, statusGood, nil, capacityData(c.now, 512))
		k.answer(exec, len(k.got)-1, statusGood, nil, capacityData(c.now, 512))
		d.attention(&Command{Status: statusCheck, Sense: attentionSense(0x2903)}) // a reset that has changed nothing
		k.answer(exec, len(k.got)-1, statusGood, nil, capacityData(c.now, 512))
		if !slices.Equal(*heard, c.want) {
			t.Errorf("%04x, %d blocks: heard %v, want %v", c.asc, c.now, *heard, c.want)
		}
	}
}

// TestReferenceToWhatIsCutOff: a copy source that the unit has lost has changed, whether the unit grows again or not.
func TestReferenceToWhatIsCutOff(t *testing.T) {
	d, k, exec, _ := attended(block.Info{BlockSize: 512, Sectors: 100})
	kept := d.hold(&block.Request{Ranges: []block.Range{{Start: 0, Count: 50}}}).(block.Vulnerable)
	lost := d.hold(&block.Request{Ranges: []block.Range{{Start: 0, Count: 1}, {Start: 90, Count: 10}}}).(block.Vulnerable)
	k.answer(exec, 0, statusCheck, attentionSense(ascCapacity), nil)
	k.answer(exec, 1, statusGood, nil, capacityData(95, 512))
	// The list of changes says where it was cut; that lies behind the end.
	_, extents, complete := d.changes(page(20, 10, [3]uint64{12, 95, 5}), 10)
	d.attention(&Command{Status: statusCheck, Sense: attentionSense(ascCapacity)})
	k.answer(exec, len(k.got)-1, statusGood, nil, capacityData(100, 512))
	if kept.Changed() || !lost.Changed() || len(extents) != 0 || !complete {
		t.Errorf("what is kept has changed: %v, what is lost: %v; changes %v, complete %v", kept.Changed(), lost.Changed(), extents, complete)
	}
}

// TestCapacityIsReadUntilItIsKnown: an attention that comes meanwhile has it read again, and so has
// a failure.
func TestCapacityIsReadUntilItIsKnown(t *testing.T) {
	d, k, exec, heard := attended(block.Info{BlockSize: 512, Sectors: 100})
	k.answer(exec, 0, statusCheck, attentionSense(ascCapacity), nil)
	k.answer(exec, 2, statusCheck, attentionSense(ascCapacity), nil) // during the question
	k.answer(exec, 1, statusCheck, attentionSense(0x2903), nil)      // the question hears of it
	questions := func() (at []int) {
		for i, c := range k.got {
			if c.CDB[0] == opServiceIn16 {
				at = append(at, i)
			}
		}
		return at
	}
	q := questions()
	k.answer(exec, q[len(q)-1], statusGood, nil, capacityData(200, 512))
	if got := questions(); len(got) != len(q)+1 {
		t.Fatalf("%d questions, want one more than %d: what came meanwhile may be newer", len(got), len(q))
	}
	q = questions()
	k.answer(exec, q[len(q)-1], 0x08, nil, nil) // BUSY
	if got := questions(); len(got) != len(q)+1 {
		t.Fatal("a question that failed is not asked again")
	}
	q = questions()
	k.answer(exec, q[len(q)-1], statusGood, nil, capacityData(300, 512))
	if d.Info().Sectors != 300 || len(questions()) != len(q) {
		t.Errorf("%d sectors after %d questions", d.Info().Sectors, len(questions()))
	}
	if want := []block.EventKind{block.EventCapacity, block.EventCapacity}; !slices.Equal(*heard, want) {
		t.Errorf("heard %v", *heard)
	}
}

// TestStormOfAttentions: however often a unit says that something has changed that does not tell its capacity, it is asked for that
// once at a time, and once a second.
func TestStormOfAttentions(t *testing.T) {
	d, k, exec, _ := attended(block.Info{BlockSize: 512, Sectors: 100})
	busy := func() {
		for d.measuring != nil {
			d.measuring.Status = statusBusy
			d.measuring.Done(d.measuring)
			exec.RunUntil(exec.Now())
		}
	}
	for range 20 {
		d.attention(&Command{Status: statusCheck, Sense: attentionSense(0x3f0e)})
		busy()
		exec.RunUntil(exec.Now() + 10_000_000)
	}
	asked := len(k.got)
	for end := exec.Now() + 10*measureAgainNanos; exec.Now() < end; busy() {
		exec.RunUntil(exec.Now() + 1_000_000)
	}
	if n := len(k.got) - asked; n < 9 || n > 11 {
		t.Errorf("it is asked %d times in 10 s", n)
	}
}

// TestUnitWithOtherBlocksIsGone: its addresses mean something else.
func TestUnitWithOtherBlocksIsGone(t *testing.T) {
	d, k, exec, heard := attended(block.Info{BlockSize: 512, Sectors: 100})
	k.answer(exec, 0, statusCheck, attentionSense(ascCapacity), nil)
	k.answer(exec, 1, statusGood, nil, capacityData(100, 4096))
	if !slices.Equal(*heard, []block.EventKind{block.EventGone}) {
		t.Errorf("heard %v", *heard)
	}
	sent, r := len(k.got), &block.Request{Op: block.OpRead, Range: block.Range{Count: 8}, Data: [][]byte{make([]byte, 4096)}, Done: func(*block.Request) {}}
	d.Submit([]*block.Request{r})
	for exec.Step() {
	}
	if len(k.got) != sent || r.Status != block.Gone {
		t.Errorf("a read ends %v, %d commands were sent", r.Status, len(k.got)-sent)
	}
}

// TestAttentionOfAWithdrawnCommand: it is heard all the same, and the command is not sent again.
func TestAttentionOfAWithdrawnCommand(t *testing.T) {
	d, k, exec, heard := attended(block.Info{BlockSize: 512, Sectors: 100})
	d.Cancel(k.got[0].req)
	k.answer(exec, 0, statusCheck, attentionSense(ascPowerOn), nil)
	if !slices.Equal(*heard, []block.EventKind{block.EventPowerLoss}) {
		t.Errorf("heard %v", *heard)
	}
	for _, c := range k.got[1:] {
		if c.CDB[0] == opRead16 {
			t.Error("the read was sent again")
		}
	}
}

// TestWithdrawnWhileTheUnitIsBusy: a command that waits to be sent again ends at once, and its
// memory serves the next request.
func TestWithdrawnWhileTheUnitIsBusy(t *testing.T) {
	d, k, exec, _ := attended(block.Info{BlockSize: 512, Sectors: 100})
	r := k.got[0].req
	c := k.got[0]
	c.Status = statusBusy
	c.Done(c)
	exec.RunUntil(exec.Now() + retryNanos)
	if len(k.got) != 1 {
		t.Fatal("it was sent again at once")
	}
	d.Cancel(r)
	exec.RunUntil(exec.Now() + 1)
	if r.Status != block.Cancelled {
		t.Errorf("it ends %v", r.Status)
	}
	next := &block.Request{Op: block.OpRead, Range: block.Range{Count: 1}, Data: [][]byte{make([]byte, 512)}, Done: func(*block.Request) {}}
	d.Submit([]*block.Request{next})
	exec.RunUntil(exec.Now() + 1e12)
	if len(k.got) != 2 {
		t.Errorf("%d commands were sent, want 2", len(k.got))
	}
}
