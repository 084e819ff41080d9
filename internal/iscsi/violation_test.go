package iscsi

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
)

// spoiler sends writes of 2 KiB and data that does not belong to them.
type spoiler struct {
	*Client
	t *testing.T
}

var junk = bytes.Repeat([]byte{0xbb}, 300000)

// write sends the header.
func (c spoiler) write(final bool, immediate int) (itt uint32) {
	hdr, _ := c.CommandHeader(0, cdb10(opWrite10, 0, 4), 2048, 0)
	if !final {
		bhs(hdr[:])[offFlags] &^= flagFinal
	}
	c.Send(hdr, nil, junk[:immediate])
	return bhs(hdr[:]).itt()
}

// awaitR2T returns the tag of the R2T that comes.
func (c spoiler) awaitR2T() uint32 {
	pdu, err := c.Receive()
	if err != nil || pdu.Header[0] != opR2T {
		c.t.Fatalf("no R2T: %v", err)
	}
	return bhs(pdu.Header[:]).ttt()
}

func (c spoiler) out(itt, ttt, sn, off uint32, n int, final bool) {
	var hdr [bhsLen]byte
	h := bhs(hdr[:])
	h[0] = opDataOut
	if final {
		h[offFlags] = flagFinal
	}
	h.put32(offITT, itt)
	h.put32(offTTT, ttt)
	h.put32(offDataSN, sn)
	h.put32(offBufOffset, off)
	c.Send(hdr, nil, junk[:n])
}

var (
	solicited   = map[string]string{keyInitialR2T: valYes, keyImmediateData: valNo, keyMaxBurst: "1024"}
	unsolicited = map[string]string{keyImmediateData: valNo, keyFirstBurst: "1024"}
)

// What a peer must not do: each ends its connection, with a Reject where one is
// due, is counted, and changes nothing on the medium.
func TestViolations(t *testing.T) {
	raw := func(op byte) func(spoiler) {
		return func(c spoiler) { c.Send(c.NewHeader(op, 0), nil, nil) }
	}

	rows := []struct {
		name   string
		keys   map[string]string
		kind   ErrorKind
		reject byte // reason; 0: none is due
		run    func(c spoiler)
	}{
		{"task of nobody", nil, ErrDataOut, rejectProtocol, func(c spoiler) {
			c.out(0x4711, noTag, 0, 0, 512, true)
		}},
		{"immediate data not negotiated", unsolicited, ErrUnsolicited, rejectProtocol, func(c spoiler) { c.write(true, 512) }},
		{"unsolicited data not negotiated", map[string]string{keyInitialR2T: valYes}, ErrUnsolicited, rejectProtocol, func(c spoiler) { c.write(false, 512) }},
		{"immediate data beyond the first burst", map[string]string{keyFirstBurst: "512"}, ErrUnsolicited, rejectProtocol, func(c spoiler) { c.write(true, 1024) }},
		{"immediate data beyond EDTL", nil, ErrUnsolicited, rejectProtocol, func(c spoiler) { c.write(true, 2560) }},
		{"data with a read", nil, ErrUnsolicited, rejectProtocol, func(c spoiler) {
			hdr, _ := c.CommandHeader(0, cdb10(opRead10, 0, 1), 0, 512)
			c.Send(hdr, nil, junk[:512])
		}},
		{"segment beyond what we declared", nil, ErrPDU, rejectProtocol, func(c spoiler) {
			c.Send(c.NewHeader(opNopOut|immediateBit, 0), nil, junk[:262145])
		}},
		{"malformed additional header", nil, ErrPDU, rejectInvalidField, func(c spoiler) {
			hdr, _ := c.CommandHeader(0, cdb10(opRead10, 0, 1), 0, 512)
			c.Send(hdr, []byte{0xff, 0xff, 1, 0}, nil)
		}},
		{"task tag in use", solicited, ErrPDU, rejectTaskInProgress, func(c spoiler) {
			itt := c.write(true, 0)
			c.awaitR2T()
			c.awaitR2T()
			hdr, _ := c.CommandHeader(0, cdb10(opRead10, 0, 1), 0, 512)
			bhs(hdr[:]).put32(offITT, itt)
			c.Send(hdr, nil, nil)
		}},
		{"task tag of a command in the SCSI layer", nil, ErrPDU, rejectTaskInProgress, func(c spoiler) {
			hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
			c.Send(hdr, nil, nil)
			bhs(hdr[:]).put32(offCmdSN, c.CmdSN)
			c.Send(hdr, nil, nil)
		}},
		{"task tag twice behind a gap", nil, ErrPDU, rejectTaskInProgress, func(c spoiler) {
			missing, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
			for range 2 {
				hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
				bhs(hdr[:]).put32(offITT, 0x4711)
				c.Send(hdr, nil, nil)
			}
			c.Send(missing, nil, nil)
		}},
		{"resets without end behind a gap", nil, ErrSequence, rejectProtocol, func(c spoiler) {
			c.CmdSN += 2
			for lun := range uint64(maxFences + 1) {
				hdr := c.NewHeader(opTaskMgmt|immediateBit, lun<<48)
				hdr[offFlags] |= byte(scsi.LogicalUnitReset)
				c.Send(hdr, nil, nil)
			}
		}},
		{"login again", nil, ErrOpcode, rejectProtocol, raw(opLogin | immediateBit)},
		{"malformed text", nil, ErrText, rejectProtocol, func(c spoiler) {
			c.Send(c.NewHeader(opText|immediateBit, 0), nil, []byte("SendTargets"))
		}},
		{"text tag of nobody", nil, ErrText, rejectProtocol, func(c spoiler) {
			hdr := c.NewHeader(opText|immediateBit, 0)
			bhs(hdr[:]).put32(offTTT, 0x1234)
			c.Send(hdr, nil, nil)
		}},
		{"text without end", nil, ErrText, rejectProtocol, func(c spoiler) {
			hdr := c.NewHeader(opText|immediateBit, 0)
			hdr[offFlags] = flagContinue
			for range 2 {
				c.Send(hdr, nil, junk[:32000])
				pdu, err := c.Receive()
				if err != nil {
					return
				}
				bhs(hdr[:]).put32(offTTT, bhs(pdu.Header[:]).ttt())
			}
			c.Send(hdr, nil, junk[:32000])
		}},
		{"header digest", map[string]string{keyHeaderDigest: digestCRC32C}, ErrHeaderDigest, 0, func(c spoiler) {
			b := appendPDU(nil, bhs(make([]byte, bhsLen)), nil, nil, true, false)
			b[50] ^= 1
			c.nc.Write(b)
		}},
		{"data digest", map[string]string{keyDataDigest: digestCRC32C}, ErrDataDigest, rejectDataDigest, func(c spoiler) {
			hdr, _ := c.CommandHeader(0, cdb10(opWrite10, 0, 1), 512, 0)
			b := appendPDU(nil, hdr[:], nil, junk[:512], false, true)
			b[100] ^= 1
			c.nc.Write(b)
		}},
		{"too much behind a gap", nil, ErrSequence, rejectProtocol, func(c spoiler) {
			c.CmdSN++
			for range 5 {
				hdr, _ := c.CommandHeader(0, cdb10(opWrite10, 0, 512), 262144, 0)
				if c.Send(hdr, nil, junk[:262144]) != nil {
					return
				}
			}
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, nil)
			c := r.login(func(cfg *ClientConfig) { cfg.Keys = row.keys })
			row.run(spoiler{c, t})
			var reason byte
			for {
				pdu, err := c.Receive()
				if err != nil {
					break
				}
				switch pdu.Header[0] {
				case opReject:
					reason = pdu.Header[offResponse]
					if len(pdu.Data) != bhsLen {
						t.Errorf("Reject carries %d bytes", len(pdu.Data))
					}
				case opR2T, opTaskMgmtResp:
				default:
					t.Errorf("answered with %x", pdu.Header)
				}
			}
			if reason != row.reject {
				t.Errorf("reject reason %#x, want %#x", reason, row.reject)
			}
			r.eventually("the error is counted", func(*fakeTarget) bool { return r.errors(row.kind) == 1 })
			r.eventually("the session is gone", func(f *fakeTarget) bool { return len(f.nexuses) == 0 })
			r.withFake(func(f *fakeTarget) {
				if !bytes.Equal(f.mem[:4096], make([]byte, 4096)) {
					t.Error("something was written")
				}
			})
			// Others are not concerned.
			if res, err := r.login(nil).Command(0, cdb10(opRead10, 0, 1), nil, 512); err != nil || res.Status != 0 {
				t.Error(res, err)
			}
		})
	}
}

// What is refused without ending the connection.
func TestRejects(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(nil)
	for _, row := range []struct {
		name   string
		op     byte
		reason byte
	}{
		{"SNACK", opSNACK, rejectSNACK},
		{"unknown opcode", 0x1d, rejectUnsupported},
		{"an opcode of targets", opDataIn, rejectUnsupported},
	} {
		c.Send(c.NewHeader(row.op|immediateBit, 0), nil, nil)
		pdu, err := c.Receive()
		if err != nil || pdu.Header[0] != opReject || pdu.Header[offResponse] != row.reason || bhs(pdu.Header[:]).itt() != noTag {
			t.Errorf("%s: %v, %v", row.name, pdu, err)
		}
	}
	for range maxImmediates {
		hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
		hdr[0] |= immediateBit
		c.CmdSN--
		c.Send(hdr, nil, nil)
	}
	hdr, _ := c.CommandHeader(0, cdb10(opTestUnitReady, 0, 0), 0, 0)
	hdr[0] |= immediateBit
	c.CmdSN--
	c.Send(hdr, nil, nil)
	if pdu, err := c.Receive(); err != nil || pdu.Header[0] != opReject || pdu.Header[offResponse] != rejectTooManyImmed {
		t.Errorf("too many immediate commands: %v, %v", pdu, err)
	}
	if res, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Error(res, err)
	}
	if err := c.Logout(); err != nil {
		t.Error(err)
	}
}

// A peer that goes away at any point leaves nothing behind.
func TestTruncation(t *testing.T) {
	r := newRig(t, nil)
	data := pattern(20000, 1)
	for cut := 1; cut < 21000; cut += 1 + cut/3 {
		c := r.login(func(cfg *ClientConfig) { cfg.Keys = map[string]string{keyInitialR2T: valYes} })
		hdr, _ := c.CommandHeader(0, cdb10(opWrite10, 0, 80), 40960, 0)
		c.nc.Write(appendPDU(nil, hdr[:], nil, data, false, false)[:min(cut, bhsLen+len(data))])
		c.Close()
	}
	r.eventually("all sessions are gone", func(f *fakeTarget) bool { return len(f.nexuses) == 0 })
	r.withFake(func(f *fakeTarget) {
		if !bytes.Equal(f.mem[:4096], make([]byte, 4096)) {
			t.Error("a truncated write was carried out")
		}
	})
}
