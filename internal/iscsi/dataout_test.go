package iscsi

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
)

// Data that does not continue its sequence spoils its command, which ends with
// CHECK CONDITION and writes nothing; a connection that goes on like that is
// closed.
func TestDataOutViolations(t *testing.T) {
	for _, row := range dataOutViolations() {
		t.Run(row.name, func(t *testing.T) { row.violate(t) })
	}
}

type dataOutViolation struct {
	name string
	keys map[string]string
	run  func(c spoiler)
}

func dataOutViolations() []dataOutViolation {
	return []dataOutViolation{
		{"DataSN all 0", unsolicited, func(c spoiler) {
			itt := c.write(false, 0)
			c.out(itt, noTag, 0, 0, 512, false)
			c.out(itt, noTag, 0, 512, 512, true)
		}},
		{"DataSN 27", unsolicited, func(c spoiler) {
			c.out(c.write(false, 0), noTag, 27, 0, 512, false)
		}},
		{"DataSN -1", unsolicited, func(c spoiler) {
			c.out(c.write(false, 0), noTag, 0xffffffff, 0, 512, false)
		}},
		{"DataSN 1, 0", unsolicited, func(c spoiler) {
			itt := c.write(false, 0)
			c.out(itt, noTag, 1, 0, 512, false)
			c.out(itt, noTag, 0, 512, 512, true)
		}},
		{"DataSN goes on after an R2T", solicited, func(c spoiler) {
			itt := c.write(true, 0)
			c.out(itt, c.awaitR2T(), 1, 0, 1024, true)
		}},
		{"offset not 0", unsolicited, func(c spoiler) {
			c.out(c.write(false, 0), noTag, 0, 512, 512, true)
		}},
		{"offset goes back", unsolicited, func(c spoiler) {
			itt := c.write(false, 0)
			c.out(itt, noTag, 0, 0, 512, false)
			c.out(itt, noTag, 1, 0, 512, true)
		}},
		{"offset huge", solicited, func(c spoiler) {
			c.out(c.write(true, 0), c.awaitR2T(), 0, 0xfffffff0, 1024, true)
		}},
		{"beyond the first burst", unsolicited, func(c spoiler) {
			c.out(c.write(false, 0), noTag, 0, 0, 1028, true)
		}},
		{"goes on at the first burst", unsolicited, func(c spoiler) {
			c.out(c.write(false, 0), noTag, 0, 0, 1024, false)
		}},
		{"beyond the R2T", solicited, func(c spoiler) {
			c.out(c.write(true, 0), c.awaitR2T(), 0, 0, 1536, true)
		}},
		{"less than the R2T", solicited, func(c spoiler) {
			c.out(c.write(true, 0), c.awaitR2T(), 0, 0, 512, true)
		}},
		{"R2T not ended", solicited, func(c spoiler) {
			c.out(c.write(true, 0), c.awaitR2T(), 0, 0, 1024, false)
		}},
		{"R2Ts in the wrong order", solicited, func(c spoiler) {
			itt := c.write(true, 0)
			c.awaitR2T()
			c.out(itt, c.awaitR2T(), 0, 1024, 1024, true)
		}},
		{"tag of nobody", solicited, func(c spoiler) {
			itt := c.write(true, 0)
			c.out(itt, c.awaitR2T()+100, 0, 0, 1024, true)
		}},
		{"unsolicited after F", map[string]string{keyImmediateData: valNo, keyFirstBurst: "1024"}, func(c spoiler) {
			itt := c.write(true, 0)
			c.awaitR2T()
			c.out(itt, noTag, 0, 0, 512, true)
		}},
		{"unsolicited, with F in the command", unsolicited, func(c spoiler) {
			c.out(c.write(true, 0), noTag, 0, 0, 512, true)
		}},
	}
}

func (row *dataOutViolation) violate(t *testing.T) {
	r := newRig(t, nil)
	c := spoiler{r.login(func(cfg *ClientConfig) { cfg.Keys = row.keys }), t}
	for i := 1; i < offenceLimit; i++ {
		row.run(c)
		c.rejected()
	}
	row.run(c)
	c.take(opReject)
	if _, err := c.Receive(); err == nil {
		t.Error("the connection stays")
	}
	r.eventually("all are counted", func(*fakeTarget) bool { return r.errors(ErrDataOut) == offenceLimit })
}

// take returns the next PDU but for R2Ts, which has this opcode.
func (c spoiler) take(op byte) *PDU {
	c.t.Helper()
	for {
		pdu, err := c.Receive()
		if err != nil {
			c.t.Fatal(err)
		}
		switch pdu.Header[0] {
		case op:
			return pdu
		case opR2T:
		default:
			c.t.Fatalf("got %x in place of opcode %#x", pdu.Header, op)
		}
	}
}

// rejected takes the answers to data that is wrong, and reads that nothing was written.
func (c spoiler) rejected() {
	c.t.Helper()
	if pdu := c.take(opReject); pdu.Header[offResponse] != rejectProtocol || len(pdu.Data) != bhsLen {
		c.t.Errorf("%x", pdu.Header)
	}
	pdu := c.take(opResponse)
	if pdu.Header[offStatus] != scsi.StatusCheckCondition || len(pdu.Data) != 20 || pdu.Data[4] != 0x0b || pdu.Data[14] != 0x4b {
		c.t.Errorf("%x %x", pdu.Header, pdu.Data)
	}
	res, err := c.Command(0, cdb10(opRead10, 0, 4), nil, 2048)
	if err != nil || res.Status != 0 || !bytes.Equal(res.Data, make([]byte, 2048)) {
		c.t.Fatalf("the next command: %v", err)
	}
}

// ping sends a NOP-Out with this CmdSN.
func (c spoiler) ping(sn uint32) {
	next := c.CmdSN
	hdr := c.NewHeader(opNopOut, 0)
	bhs(hdr[:]).put32(offCmdSN, sn)
	c.CmdSN = next
	c.Send(hdr, nil, nil)
}

// The same for commands whose data comes while they wait behind a gap.
func TestDataOutViolationsBehindGap(t *testing.T) {
	ran := 0
	for _, row := range dataOutViolations() {
		if row.keys[keyInitialR2T] == valYes || row.name == "unsolicited after F" {
			continue // data for an R2T, which does not come before the gap is closed
		}
		ran++
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, nil)
			c := spoiler{r.login(func(cfg *ClientConfig) { cfg.Keys = row.keys }), t}
			for i := 1; i < offenceLimit; i++ {
				gap := c.CmdSN
				c.CmdSN++
				row.run(c)
				c.ping(gap)
				c.take(opNopIn)
				c.rejected()
			}
			r.eventually("all are counted", func(*fakeTarget) bool { return r.errors(ErrDataOut) == offenceLimit-1 })
		})
	}
	if ran < 8 {
		t.Errorf("%d cases", ran)
	}
}

// Data that names the tag of something else that waits behind a gap is not that one's: here a ping with the tag of a task that
// was aborted. The window opens once for each command, whatever is sent.
func TestDataOutForHeldPing(t *testing.T) {
	r := newRig(t, nil)
	c := spoiler{r.login(func(cfg *ClientConfig) { cfg.Keys = solicited }), t}
	sn := c.CmdSN
	itt := c.write(true, 0)
	c.awaitR2T()
	c.awaitR2T()
	if res, err := c.Manage(scsi.AbortTask, 0, itt, sn); err != nil || res != scsi.TMFComplete {
		t.Fatal(res, err)
	}
	gap := c.CmdSN
	c.CmdSN++
	held := c.NewHeader(opNopOut, 0)
	bhs(held[:]).put32(offITT, itt)
	c.Send(held, nil, nil)
	for range 100 {
		c.out(itt, noTag, 0, 0, 0, true)
	}
	c.ping(gap)
	c.take(opNopIn)
	c.take(opNopIn)
	if res, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Fatal(res, err)
	}
	if got, want := c.MaxCmdSN-c.CmdSN+1, uint32(DefaultLimits().Window); got != want {
		t.Errorf("the window has %d commands, not %d", got, want)
	}
}
