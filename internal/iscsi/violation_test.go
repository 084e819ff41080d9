package iscsi

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/testkit"
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

// Data that does not continue its sequence spoils its command, which ends with
// CHECK CONDITION and writes nothing; a connection that goes on like that is
// closed.
func TestDataOutViolations(t *testing.T) {
	rows := []struct {
		name string
		keys map[string]string
		run  func(c spoiler)
	}{
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
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, nil)
			c := spoiler{r.login(func(cfg *ClientConfig) { cfg.Keys = row.keys }), t}
			take := func(op byte) *PDU {
				for {
					pdu, err := c.Receive()
					if err != nil {
						t.Fatal(err)
					}
					switch pdu.Header[0] {
					case op:
						return pdu
					case opR2T:
					default:
						t.Fatalf("got %x in place of opcode %#x", pdu.Header, op)
					}
				}
			}
			for i := 1; i < offenceLimit; i++ {
				row.run(c)
				if pdu := take(opReject); pdu.Header[offResponse] != rejectProtocol || len(pdu.Data) != bhsLen {
					t.Errorf("%x", pdu.Header)
				}
				pdu := take(opResponse)
				if pdu.Header[offStatus] != scsi.StatusCheckCondition || len(pdu.Data) != 20 || pdu.Data[4] != 0x0b || pdu.Data[14] != 0x4b {
					t.Errorf("%x %x", pdu.Header, pdu.Data)
				}
				res, err := c.Command(0, cdb10(opRead10, 0, 4), nil, 2048)
				if err != nil || res.Status != 0 || !bytes.Equal(res.Data, make([]byte, 2048)) {
					t.Fatalf("the next command: %v", err)
				}
			}
			row.run(c)
			take(opReject)
			if _, err := c.Receive(); err == nil {
				t.Error("the connection stays")
			}
			r.eventually("all are counted", func(*fakeTarget) bool { return r.errors(ErrDataOut) == offenceLimit })
		})
	}
}

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

// loggedIn starts a connection in full feature phase on one end of a pipe.
func loggedIn(t testing.TB, p *Portal) *Client {
	ours, theirs := net.Pipe()
	p.start(ours, 1)
	theirs.SetDeadline(time.Now().Add(patience))
	c, err := NewClient(theirs, ClientConfig{Initiator: testInitiator, Target: testTarget, Keys: map[string]string{keyMaxBurst: "4096", keyFirstBurst: "2048"}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func FuzzSession(f *testing.F) {
	exec := block.NewLive()
	f.Cleanup(exec.Stop)
	target := newFake(exec, 1<<20)
	cfg := Config{Targets: []TargetConfig{{Name: testTarget, Handler: target}}}
	cfg.Limits = Limits{PingInterval: -1, MaxRecvSegment: 8192, MaxCommandData: 1 << 16, ConnMemory: 1 << 16, Window: 16}
	p, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	seed := func(pdus ...func(h bhs) (ahs, data []byte)) {
		var stream []byte
		for i, fill := range pdus {
			h := bhs(make([]byte, bhsLen))
			h[offFlags] = flagFinal
			h.put32(offITT, uint32(i))
			h.put32(offTTT, noTag)
			h.put32(offCmdSN, uint32(1+i))
			ahs, data := fill(h)
			stream = appendPDU(stream, h, ahs, data, false, false)
		}
		f.Add(stream)
	}
	command := func(op byte, flags byte, edtl, blocks, n int) func(bhs) ([]byte, []byte) {
		return func(h bhs) ([]byte, []byte) {
			h[0], h[offFlags] = opCommand, flags
			h.put32(offEDTL, uint32(edtl))
			copy(h[offCDB:], cdb10(op, 0, blocks))
			return nil, make([]byte, n)
		}
	}
	op := func(op byte, data string) func(bhs) ([]byte, []byte) {
		return func(h bhs) ([]byte, []byte) { h[0] = op; return nil, []byte(data) }
	}
	seed(command(opRead10, 0xc1, 4096, 8, 0), command(opWrite10, 0xa1, 1024, 2, 1024), op(opLogout, ""))
	seed(command(opWrite10, 0x21, 8192, 16, 512), op(opDataOut|0x40, "x"), op(opTaskMgmt, ""))
	seed(op(opNopOut, "hello"), op(opText, "SendTargets=All\x00"), op(opSNACK, ""))
	seed(func(h bhs) ([]byte, []byte) { h[0] = opCommand; return []byte{0, 5, 1, 0, 1, 2, 3, 4}, nil })
	reset := func(h bhs) ([]byte, []byte) {
		h[0], h[offFlags] = opTaskMgmt|immediateBit, flagFinal|byte(scsi.LogicalUnitReset)
		h.put32(offCmdSN, 9) // behind a gap
		return nil, nil
	}
	// The writes are SIMPLE, then ORDERED; their data does not come.
	seed(command(opWrite10, 0xa1, 1024, 2, 0), command(opWrite10, 0xa2, 1024, 2, 0), command(opRead10, 0xc1, 512, 1, 0), reset, op(opNopOut, ""), command(opRead10, 0xc1, 512, 1, 0))
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := loggedIn(t, p)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		gone := make(chan struct{})
		go func() {
			io.Copy(io.Discard, c.nc)
			close(gone)
		}()
		c.nc.Write(stream)
		c.nc.Close()
		<-gone
		poll(func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.conns)+len(p.sessions) == 0
		})
		if got := p.Sessions(); len(got) > 0 {
			t.Fatalf("the session stays: %+v", got)
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20+uint64(len(stream))*64 {
			t.Fatalf("%d bytes were allocated for %d", grown, len(stream))
		}
		exec.Lock()
		defer exec.Unlock()
		if len(target.nexuses) > 0 {
			t.Fatal("the nexus stays")
		}
	})
}

// A random mixture of legal and damaged PDUs; the seed is printed and may be
// given with -seed.
func TestDamagedStreams(t *testing.T) {
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	r := newRig(t, nil)
	for range 60 {
		c := r.login(func(cfg *ClientConfig) { cfg.Keys = map[string]string{keyMaxBurst: "4096", keyFirstBurst: "2048"} })
		var stream []byte
		for range 1 + rng.IntN(20) {
			hdr, _ := c.CommandHeader(0, cdb10([]byte{opRead10, opWrite10, opTestUnitReady}[rng.IntN(3)], 0, 4), rng.IntN(2)*2048, 2048)
			at := len(stream)
			stream = appendPDU(stream, hdr[:], nil, make([]byte, rng.IntN(3)*1024), false, false)
			for range rng.IntN(3) {
				stream[at+rng.IntN(len(stream)-at)] = byte(rng.Uint32())
			}
			if rng.IntN(4) == 0 {
				binary.BigEndian.PutUint32(stream[at+offCmdSN:], rng.Uint32())
			}
		}
		go io.Copy(io.Discard, c.nc)
		c.nc.Write(stream)
		time.Sleep(time.Millisecond)
		c.Close()
	}
	r.eventually("all sessions are gone", func(f *fakeTarget) bool { return len(f.nexuses) == 0 })
	c := r.login(nil)
	if res, err := c.Command(0, cdb10(opRead10, 0, 1), nil, 512); err != nil || res.Status != 0 {
		t.Error(res, err)
	}
}
