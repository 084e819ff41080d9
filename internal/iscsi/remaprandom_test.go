package iscsi

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// remapWrite is a WRITE of one block, whose LBA is its number.
type remapWrite struct {
	itt, ttt uint32
	lba, lun int
	unit     int // that was at the LUN when it began
	epoch    int // of the LUN then
	changes  int // of all LUNs by then
	good     bool
}

// remapModel is the remap rig with what has to become of the writes that are sent.
type remapModel struct {
	*remapRig
	rng     *rand.Rand
	writes  []*remapWrite // all of them
	open    []*remapWrite // whose data is asked for
	held    []*remapWrite // that wait behind the gap
	gap     uint32        // a number that has not been sent, or 0
	unit    [2]int        // by LUN
	epoch   [2]int        // changes of each LUN
	changes int
	base    int  // changes by the last move
	told    bool // the host has taken the attentions of all LUNs
}

// TestWritesWhileLUNsChange draws writes whose data or turn comes late, changes of two LUNs and moves of the array. A write writes
// the unit that was at its LUN when it began, or ends with LOGICAL UNIT NOT SUPPORTED if the LUN has changed: no unit gets a block
// of another one. The seed is printed and may be given with -seed.
func TestWritesWhileLUNsChange(t *testing.T) {
	m := &remapModel{remapRig: newRemapRig(t, nil), rng: rand.New(rand.NewPCG(testkit.Seed(t), 0))}
	m.exec.Lock()
	err := m.tg.Map(testInitiator, 1, m.units[1])
	m.exec.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	m.unit = [2]int{0, 1}
	for range 400 {
		m.tell()
		switch k := m.rng.IntN(16); {
		case k < 6 && len(m.open)+len(m.held) < 16: // the window has room
			m.begins()
		case k < 10 && len(m.open) > 0:
			i := m.rng.IntN(len(m.open))
			w := m.open[i]
			m.open = append(m.open[:i:i], m.open[i+1:]...)
			m.c.SendData(w.itt, w.ttt, written(w.lba), 0, fakeBlock)
			m.settle(w)
		case k < 13:
			m.change(m.rng.IntN(2), m.rng.IntN(2), m.rng.IntN(2) == 0)
		case k < 14:
			m.moves()
		case m.gap == 0:
			m.gap = m.c.CmdSN
			m.c.CmdSN++
		default:
			m.closeGap()
		}
	}
	if m.gap != 0 {
		m.closeGap()
	}
	m.exec.Lock()
	defer m.exec.Unlock()
	for _, w := range m.writes {
		for i, d := range m.devs {
			want := make([]byte, fakeBlock)
			if w.good && w.unit == i {
				want = written(w.lba)
			}
			if got := d.Data[w.lba*fakeBlock:][:fakeBlock]; !bytes.Equal(got, want) {
				t.Errorf("write %+v: unit %d has % x..., want % x...", *w, i, got[:4], want[:4])
			}
		}
	}
}

// written is what a write writes: no block of zeros.
func written(lba int) []byte { return bytes.Repeat([]byte{byte(lba>>8) + 1, byte(lba)}, fakeBlock/2) }

// tell has the host take the attentions of all LUNs, if nothing keeps commands waiting.
func (m *remapModel) tell() {
	m.t.Helper()
	for lun := uint64(0); lun < 2 && !m.told && m.gap == 0; lun++ {
		for status := byte(scsi.StatusCheckCondition); status != scsi.StatusGood; {
			r, err := m.c.Command(lun<<48, make([]byte, 6), nil, 0)
			if err != nil || r.Status != scsi.StatusGood && r.Sense[2] != 6 {
				m.t.Fatalf("TEST UNIT READY: %+v, %v", r, err)
			}
			status = r.Status
		}
	}
	m.told = m.told || m.gap == 0
}

// begins sends a write. Without a gap the host gets the R2T, behind one the data comes with the command.
func (m *remapModel) begins() {
	m.t.Helper()
	lun := m.rng.IntN(2)
	w := &remapWrite{lba: len(m.writes), lun: lun, unit: m.unit[lun], epoch: m.epoch[lun], changes: m.changes}
	m.writes = append(m.writes, w)
	hdr, _ := m.c.CommandHeader(uint64(lun)<<48, cdb10(opWrite10, w.lba, 1), fakeBlock, 0)
	w.itt = bhs(hdr[:]).itt()
	if m.gap != 0 {
		m.c.Send(hdr, nil, written(w.lba))
		m.held = append(m.held, w)
		m.ping()
		return
	}
	m.c.Send(hdr, nil, nil)
	w.ttt = m.r2t()
	m.open = append(m.open, w)
}

// change puts a unit to a LUN, by one change of the map or by two.
func (m *remapModel) change(lun, unit int, two bool) {
	m.t.Helper()
	if m.unit[lun] == unit && !two {
		return
	}
	m.exec.Lock()
	defer m.exec.Unlock()
	put := func() {
		if err := m.tg.Map(testInitiator, uint16(lun), m.units[unit]); err != nil {
			m.t.Fatal(err)
		}
	}
	m.tg.Remap(func() {
		m.tg.Unmap(testInitiator, uint16(lun))
		if !two {
			put()
		}
	}, func() {})
	if two {
		put()
	}
	m.unit[lun], m.told = unit, false
	m.epoch[lun]++
	m.changes++
}

// moves has the array go to the same target, or away and back.
func (m *remapModel) moves() {
	m.t.Helper()
	to := []Handler{ServedBy(m.tg)}
	if m.rng.IntN(2) == 0 {
		to = []Handler{m.handler(), ServedBy(m.tg)}
	}
	m.move(to...)
	m.base, m.told = m.changes, false
}

// closeGap sends the number that is missing: what waits behind it has its turn.
func (m *remapModel) closeGap() {
	m.t.Helper()
	after := m.c.CmdSN
	m.c.CmdSN = m.gap
	nop := m.c.NewHeader(opNopOut, 0)
	bhs(nop[:]).put32(offITT, noTag)
	m.c.Send(nop, nil, nil)
	m.c.CmdSN, m.gap = after, 0
	m.settle(m.held...)
	m.held = nil
}

// settle takes the answers to writes that are complete, in any order.
func (m *remapModel) settle(writes ...*remapWrite) {
	m.t.Helper()
	for range writes {
		pdu, err := m.c.Receive()
		if err != nil || pdu.Header[0] != opResponse {
			m.t.Fatalf("no response: %v, %v", pdu, err)
		}
		h := bhs(pdu.Header[:])
		var key, asc byte
		if len(pdu.Data) > 2 {
			key, asc, _ = scsitest.SenseCode(pdu.Data[2:])
		}
		for _, w := range writes {
			if w.itt != h.itt() {
				continue
			}
			w.good = h[offStatus] == scsi.StatusGood
			stale := w.epoch != m.epoch[w.lun] || w.changes < m.base
			if refused := key == 5 && asc == 0x25; refused != stale || !stale && !w.good && (m.told || key != 6) {
				m.t.Fatalf("write %+v ends with %02x, sense %x/%02x; its LUN has changed %d times, all %d, %d of them before the last move",
					*w, h[offStatus], key, asc, m.epoch[w.lun], m.changes, m.base)
			}
		}
	}
}
