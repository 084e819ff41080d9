package iscsi

import (
	"errors"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// remapRig is a target of two units, of which the host has the first at LUN 0.
type remapRig struct {
	*rig
	c     *Client
	tg    *scsi.Target
	devs  [2]*scsitest.Device
	units [2]*scsi.Unit
}

func newRemapRig(t *testing.T, keys map[string]string) *remapRig {
	m := &remapRig{}
	m.rig = newRig(t, func(cfg *Config) {
		exec := cfg.Targets[0].Handler.Exec()
		m.tg = scsi.NewTarget(scsi.Options{Exec: exec})
		for i := range m.devs {
			m.devs[i] = scsitest.NewDevice(exec, scsitest.Ready(uint32(i+1), 2048, block.SectorSize, true))
			m.units[i] = m.tg.AddUnit(m.devs[i], scsi.UnitOptions{})
		}
		cfg.Targets = []TargetConfig{{Name: testTarget, Target: m.tg}}
	})
	m.remap(-1, 0)
	m.c = m.login(func(cfg *ClientConfig) { cfg.Keys = keys })
	m.attentions()
	return m
}

// remap puts unit in to LUN 0, in the place of unit out; -1 is none.
func (m *remapRig) remap(out, in int) {
	m.t.Helper()
	m.exec.Lock()
	defer m.exec.Unlock()
	if out >= 0 {
		m.tg.Remap(func() { m.tg.Unmap(testInitiator, 0) }, func() {})
	}
	if in >= 0 {
		if err := m.tg.Map(testInitiator, 0, m.units[in]); err != nil {
			m.t.Fatal(err)
		}
	}
}

// attentions takes the unit attention conditions of LUN 0, and returns how many there were.
func (m *remapRig) attentions() (n int) {
	m.t.Helper()
	for ; ; n++ {
		r, err := m.c.Command(0, make([]byte, 6), nil, 0)
		if err != nil || n > 4 {
			m.t.Fatalf("TEST UNIT READY: %+v, %v, after %d attentions", r, err, n)
		}
		if r.Status == scsi.StatusGood {
			return n
		}
	}
}

// begin sends a WRITE of one block of LUN 0, with its data if that is not asked for.
func (m *remapRig) begin(immediate bool) (itt uint32) {
	m.t.Helper()
	hdr, _ := m.c.CommandHeader(0, cdb10(opWrite10, 0, 1), fakeBlock, 0)
	var data []byte
	if immediate {
		data = pattern(fakeBlock, 9)
	}
	if err := m.c.Send(hdr, nil, data); err != nil {
		m.t.Fatal(err)
	}
	return bhs(hdr[:]).itt()
}

func (m *remapRig) r2t() uint32 {
	m.t.Helper()
	pdu, err := m.c.Receive()
	if err != nil || pdu.Header[0] != opR2T {
		m.t.Fatalf("no R2T: %v, %v", pdu, err)
	}
	return bhs(pdu.Header[:]).ttt()
}

// ping returns when all that was sent before has been worked off.
func (m *remapRig) ping() {
	m.t.Helper()
	hdr := m.c.NewHeader(opNopOut|immediateBit, 0)
	m.c.Send(hdr, nil, nil)
	if pdu, err := m.c.Receive(); err != nil || bhs(pdu.Header[:]).itt() != bhs(hdr[:]).itt() {
		m.t.Fatalf("no answer to a ping: %v, %v", pdu, err)
	}
}

// wrote checks how many WRITEs each unit has got.
func (m *remapRig) wrote(want ...int) {
	m.t.Helper()
	m.exec.Lock()
	defer m.exec.Unlock()
	for i, d := range m.devs {
		if got := d.Seen[block.OpWrite]; got != want[i] {
			m.t.Errorf("unit %d has got %d WRITEs, want %d", i, got, want[i])
		}
	}
}

// ended takes the response to a command: GOOD, or LOGICAL UNIT NOT SUPPORTED.
func (m *remapRig) ended(itt uint32, good bool) {
	m.t.Helper()
	r, err := m.c.Await(itt, nil, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	if good {
		if r.Status != scsi.StatusGood {
			m.t.Errorf("the WRITE ends with %#02x %x", r.Status, r.Sense)
		}
		return
	}
	if k, a, q := scsitest.SenseCode(r.Sense); r.Status != scsi.StatusCheckCondition || k != 5 || a != 0x25 || q != 0 {
		m.t.Errorf("the WRITE ends with %#02x %x, want LOGICAL UNIT NOT SUPPORTED", r.Status, r.Sense)
	}
}

// TestDataOfAnotherUnit: a write that came before another unit was at its LUN writes nothing there, whether its data or its turn was
// what it waited for; nor where its own unit is back. Another LUN's changes are no concern of it. The attentions of the new unit are
// left for commands that come later.
func TestDataOfAnotherUnit(t *testing.T) {
	for _, row := range []struct {
		name string
		to   int
		held bool
	}{
		{"while data is collected", 1, false},
		{"while data is collected, back again", 0, false},
		{"behind a gap", 1, true},
		{"behind a gap, back again", 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			keys := solicitedOnly
			if row.held {
				keys = nil
			}
			m := newRemapRig(t, keys)
			var itt uint32
			if !row.held {
				itt = m.begin(false)
				ttt := m.r2t()
				m.remap(0, row.to)
				m.c.SendData(itt, ttt, pattern(fakeBlock, 9), 0, fakeBlock)
			} else {
				gap := m.c.CmdSN
				m.c.CmdSN++
				itt = m.begin(true)
				m.ping()
				m.remap(0, row.to)
				after := m.c.CmdSN
				m.c.CmdSN = gap
				nop := m.c.NewHeader(opNopOut, 0)
				bhs(nop[:]).put32(offITT, noTag)
				m.c.Send(nop, nil, nil)
				m.c.CmdSN = after
			}
			m.ended(itt, false)
			m.wrote(0, 0)
			if n := m.attentions(); n == 0 {
				t.Error("the command that came too early took the attentions of the new unit")
			}
			itt = m.begin(row.held)
			if !row.held {
				m.c.SendData(itt, m.r2t(), pattern(fakeBlock, 9), 0, fakeBlock)
			}
			m.ended(itt, true)
			want := []int{0, 0}
			want[row.to]++
			m.wrote(want...)
		})
	}
	t.Run("another LUN", func(t *testing.T) {
		m := newRemapRig(t, solicitedOnly)
		itt := m.begin(false)
		ttt := m.r2t()
		m.exec.Lock()
		err := m.tg.Map(testInitiator, 1, m.units[1])
		m.exec.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		m.c.SendData(itt, ttt, pattern(fakeBlock, 9), 0, fakeBlock)
		if r, err := m.c.Await(itt, nil, 0); err != nil || r.Status != scsi.StatusCheckCondition || r.Sense[2] != 6 {
			t.Fatalf("%+v, %v, want REPORTED LUNS DATA HAS CHANGED", r, err)
		}
		m.wrote(0, 0)
	})
}

// TestDataAfterAnothersReset: a write of which the data, or the turn, was yet to come when another initiator reset the unit writes
// nothing, and ends with TASK ABORTED. What comes by a LUN of another unit does not, nor what comes later, or after a function that
// is about the other initiator's tasks only.
func TestDataAfterAnothersReset(t *testing.T) {
	const a, b = testInitiator + ":a", testInitiator
	tmf := func(fn scsi.TMF) func(*Client) string {
		return func(c *Client) string {
			if r, err := c.Manage(fn, 0, 0, 0); err != nil || r != scsi.TMFComplete {
				return fmt.Sprint(r, err)
			}
			return ""
		}
	}
	reserve := func(action, key, next byte) func(*Client) string {
		return func(c *Client) string {
			list := make([]byte, 24)
			list[7], list[15] = key, next
			if r, err := c.Command(0, []byte{0x5F, action, 0, 0, 0, 0, 0, 0, 24, 0}, list, 0); err != nil || r.Status != scsi.StatusGood {
				return fmt.Sprint(r, err)
			}
			return ""
		}
	}
	for _, row := range []struct {
		name string
		do   func(*Client) string
		lun  uint64
		want byte
	}{
		{"LOGICAL UNIT RESET", tmf(scsi.LogicalUnitReset), 0, scsi.StatusTaskAborted},
		{"TARGET WARM RESET", tmf(scsi.TargetWarmReset), 0, scsi.StatusTaskAborted},
		{"CLEAR TASK SET", tmf(scsi.ClearTaskSet), 0, scsi.StatusTaskAborted},
		{"PREEMPT AND ABORT", reserve(5, 1, 2), 0, scsi.StatusTaskAborted},
		{"PREEMPT", reserve(4, 1, 2), 0, scsi.StatusCheckCondition}, // a unit attention condition
		{"ABORT TASK SET", tmf(scsi.AbortTaskSet), 0, scsi.StatusGood},
		{"LOGICAL UNIT RESET of another", tmf(scsi.LogicalUnitReset), 1, scsi.StatusGood},
	} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, behind a gap %v", row.name, held), func(t *testing.T) {
				keys := solicitedOnly
				if held {
					keys = nil
				}
				m := newRemapRig(t, keys)
				m.exec.Lock()
				err := errors.Join(m.tg.Map(a, 0, m.units[0]), m.tg.Map(b, 1, m.units[1]))
				m.exec.Unlock()
				if err != nil {
					t.Fatal(err)
				}
				victim := m.c
				other := m.login(func(cfg *ClientConfig) { cfg.Initiator = a })
				for i, c := range []*Client{other, victim} {
					m.c = c
					m.attentions()
					if why := reserve(6, 0, byte(i+1))(c); why != "" {
						t.Fatal(why)
					}
				}
				for range 4 { // it has attentions, too
					if _, err := m.c.Command(1<<48, make([]byte, 6), nil, 0); err != nil {
						t.Fatal(err)
					}
				}
				write := func(during func()) byte {
					gap := m.c.CmdSN
					if held {
						m.c.CmdSN++
					}
					hdr, _ := m.c.CommandHeader(row.lun<<48, cdb10(opWrite10, 0, 1), fakeBlock, 0)
					itt, data := bhs(hdr[:]).itt(), pattern(fakeBlock, 9)
					if !held {
						m.c.Send(hdr, nil, nil)
						ttt := m.r2t()
						during()
						m.c.SendData(itt, ttt, data, 0, fakeBlock)
					} else {
						m.c.Send(hdr, nil, data)
						m.ping()
						during()
						after := m.c.CmdSN
						m.c.CmdSN = gap
						nop := m.c.NewHeader(opNopOut, 0)
						bhs(nop[:]).put32(offITT, noTag)
						m.c.Send(nop, nil, nil)
						m.c.CmdSN = after
					}
					r, err := m.c.Await(itt, nil, 0)
					if err != nil {
						t.Fatal(err)
					}
					return r.Status
				}
				got := write(func() {
					if why := row.do(other); why != "" {
						t.Fatal(why)
					}
					if !held { // what the WRITE would meet has been heard by then
						m.attentions()
					}
				})
				ends, want := row.want, []int{0, 0}
				if !held && ends == scsi.StatusCheckCondition {
					ends = scsi.StatusGood
				}
				if ends == scsi.StatusGood {
					want[row.lun] = 1
				}
				if m.wrote(want...); got != ends {
					t.Errorf("the WRITE ends with %#02x, want %#02x", got, ends)
				}
				m.attentions()
				if got := write(func() {}); got != scsi.StatusGood {
					t.Errorf("the next WRITE ends with %#02x", got)
				}
				want[row.lun]++
				m.wrote(want...)
			})
		}
	}
}

// move has the portal's commands carried out by these, one after the other.
func (m *remapRig) move(to ...Handler) {
	m.t.Helper()
	for _, h := range to {
		ctx := within(m.t)
		if err := m.portal.Hold(ctx, false); err != nil {
			m.t.Fatal(err)
		}
		if err := m.portal.Detach(ctx); err != nil {
			m.t.Fatal(err)
		}
		m.portal.Rehome([]Handler{h}, nil)
	}
}

// TestDataOfAnotherUnitAfterAMove: the session has another nexus when its array has moved, or was away, and a write that came before
// the LUN's unit writes nothing there all the same; one that came later does, as it would have without the move.
func TestDataOfAnotherUnitAfterAMove(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("away=%v", away), func(t *testing.T) {
			m := newRemapRig(t, solicitedOnly)
			to := []Handler{ServedBy(m.tg)}
			if away {
				to = []Handler{m.handler(), ServedBy(m.tg)}
			}
			early := m.begin(false)
			earlyTTT := m.r2t()
			m.remap(0, 1)
			m.attentions()
			late := m.begin(false)
			lateTTT := m.r2t()
			m.move(to...)
			m.attentions()
			m.c.SendData(early, earlyTTT, pattern(fakeBlock, 9), 0, fakeBlock)
			m.ended(early, false)
			m.wrote(0, 0)
			m.c.SendData(late, lateTTT, pattern(fakeBlock, 9), 0, fakeBlock)
			m.ended(late, true)
			m.wrote(0, 1)
			m.remap(1, 0) // the new nexus continues the count
			m.attentions()
			early = m.begin(false)
			earlyTTT = m.r2t()
			m.remap(0, 1)
			m.attentions()
			m.c.SendData(early, earlyTTT, pattern(fakeBlock, 9), 0, fakeBlock)
			m.ended(early, false)
			m.wrote(0, 1)
		})
	}
}

// TestDataAfterAnothersResetAndAMove: a write of which the data was yet to come when another initiator reset the unit writes nothing
// either when the session has another nexus by then, which knows nothing of that reset.
func TestDataAfterAnothersResetAndAMove(t *testing.T) {
	const a = testInitiator + ":a"
	m := newRemapRig(t, solicitedOnly)
	early := m.begin(false)
	ttt := m.r2t()
	m.exec.Lock()
	if err := m.tg.Map(a, 0, m.units[0]); err != nil {
		t.Fatal(err)
	}
	n := m.tg.OpenNexus(a, a+",i,0x1", 1)
	n.Manage(scsi.LogicalUnitReset, 0, 0, func(scsi.TMFResponse) {})
	m.exec.Unlock()
	m.attentions()
	m.move(ServedBy(m.tg))
	m.attentions()
	m.c.SendData(early, ttt, pattern(fakeBlock, 9), 0, fakeBlock)
	m.ended(early, false)
	m.wrote(0, 0)
}
