package iscsi

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
)

// mustWork carries out small and middling commands, all of which must end with GOOD.
func mustWork(t *testing.T, c *Client, most int) {
	t.Helper()
	for _, n := range []int{512, 4096, 8192, most} {
		data := pattern(n, n)
		if res, err := c.Command(0, cdb10(opWrite10, 0, n/fakeBlock), data, 0); err != nil || res.Status != 0 {
			t.Fatalf("a write of %d bytes: %+v, %v", n, res, err)
		}
		if res, err := c.Command(0, cdb10(opRead10, 0, n/fakeBlock), nil, n); err != nil || res.Status != 0 {
			t.Fatalf("a read of %d bytes: %+v, %v", n, res, err)
		}
	}
}

// TestHeadersAreCheap: a header costs what was asked for or came, not what it announces. Sixteen
// writes of all that a command may have, none of which sends a byte, leave the portal to the
// others.
func TestHeadersAreCheap(t *testing.T) {
	const most = 4 << 20
	r := newRig(t, func(cfg *Config) {
		cfg.Limits.MaxCommandData, cfg.Limits.Memory, cfg.Limits.MaxSessions = most, 16*most, 32
		cfg.Limits.MaxBurst, cfg.Limits.MaxOutstandingR2T = 64<<10, 1
	})
	for i := range byte(16) {
		c := r.login(func(cfg *ClientConfig) { cfg.Initiator, cfg.ISID[5] = fmt.Sprint(testInitiator, i), 1+i })
		hdr, _ := c.CommandHeader(0, cdb10(opWrite10, 0, most/fakeBlock), most, 0)
		c.Send(hdr, nil, nil)
		if pdu, err := c.Receive(); err != nil || pdu.Header[0] != opR2T {
			t.Fatalf("session %d: %v %v", i, pdu, err)
		}
	}
	if held := r.portal.Held(); held > 16*chunkLen {
		t.Errorf("sixteen headers hold %d bytes", held)
	}
	mustWork(t, r.login(nil), most)
}

// TestShareOfASession: when all that is common is taken, by data that came and by answers that
// nobody fetches, a session still has its share, the greedy ones are turned away, and what they
// held comes back.
func TestShareOfASession(t *testing.T) {
	const most = 1 << 20
	for name, write := range map[string]bool{"data that came": true, "answers": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) {
				cfg.Limits.MaxCommandData, cfg.Limits.Memory, cfg.Limits.MaxSessions = most, 4*most, 8 // 256 KiB a session, 2 MiB for all
				cfg.Limits.MaxBurst, cfg.Limits.FirstBurst = 256<<10, 256<<10
			})
			var greedy []*Client
			full := 0
			for i := range byte(7) {
				c := r.login(func(cfg *ClientConfig) { cfg.Initiator, cfg.ISID[5] = fmt.Sprint(testInitiator, i), 1+i })
				greedy = append(greedy, c)
				cdb, out, in := cdb10(opWrite10, 0, most/fakeBlock), most, 0
				if !write {
					cdb, out, in = cdb10(opStuck, 0, 0), 0, most
				}
				hdr, _ := c.CommandHeader(0, cdb, out, in)
				c.Send(hdr, nil, make([]byte, min(out, 256<<10)))
				for got := 0; write && got < 3; { // all but the last burst
					pdu, err := c.Receive()
					if err != nil {
						t.Fatal(err)
					}
					h := bhs(pdu.Header[:])
					if h.opcode() == opResponse {
						full++
						break
					}
					if off := int(h.u32(offBufOffset)); off < most-256<<10 {
						c.SendData(h.itt(), h.ttt(), make([]byte, most), off, int(h.u32(offResidual)))
					}
					got++
				}
				if !write {
					c.Send(c.NewHeader(opNopOut|immediateBit, 0), nil, nil)
					pdu, err := c.Receive()
					if err != nil {
						t.Fatal(err)
					}
					if bhs(pdu.Header[:]).opcode() == opResponse {
						full++
					}
				}
			}
			if full == 0 {
				t.Errorf("%d bytes are held and nobody was turned away", r.portal.Held())
			}
			if held := r.portal.Held(); held < most || held > 4*most {
				t.Errorf("%d bytes are held", held)
			}
			mustWork(t, r.login(nil), 256<<10)
			for _, c := range greedy {
				c.Close()
			}
			r.eventually("nothing is held", func(*fakeTarget) bool { return r.portal.Held() == 0 })
		})
	}
}

// TestSmallCommandsAreServed: INQUIRY and its like are served whatever others hold, and without a
// share.
func TestSmallCommandsAreServed(t *testing.T) {
	const size = 256 << 10
	r := newRig(t, func(cfg *Config) { cfg.Limits.MaxCommandData, cfg.Limits.Memory = size, size })
	c := r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 1 })
	hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, size)
	c.Send(hdr, nil, nil)
	r.awaitStuck(1)
	good := r.login(nil)
	if res, err := good.Command(0, cdb10(opRead10, 0, 128), nil, 128*fakeBlock); err != nil || res.Status != scsi.StatusTaskSetFull {
		t.Errorf("a read of 64 KiB: %+v, %v", res, err)
	}
	mustWork(t, good, 8192)
	c.Close()
	r.eventually("nothing is held", func(*fakeTarget) bool { return r.portal.Held() == 0 })
}

// TestAnswersAreChargedAsTheyAre: a command that announces much and gets little holds little once
// that is known.
func TestAnswersAreChargedAsTheyAre(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(nil)
	hdr, _ := c.CommandHeader(0, cdb10(opRead10, 0, 1), 0, 32<<20)
	cmd := getCommand(&conn{portal: r.portal, limits: &r.portal.limits})
	cmd.edtl = 32 << 20
	if !cmd.charge(cmd.edtl) || r.portal.Held() != 32<<20 {
		t.Fatalf("%d bytes are held", r.portal.Held())
	}
	cmd.Get(512)
	cmd.settleCharge()
	if held := r.portal.Held(); held != 512 {
		t.Errorf("an answer of 512 bytes holds %d", held)
	}
	cmd.release()
	c.Send(hdr, nil, nil)
	if _, err := c.Receive(); err != nil {
		t.Fatal(err)
	}
	r.eventually("nothing is held", func(*fakeTarget) bool { return r.portal.Held() == 0 })
}

// TestDataOutIsTimed: a command whose data does not come ends with INITIATOR RESPONSE TIMEOUT, and
// the connection goes on.
func TestDataOutIsTimed(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	for name, keys := range map[string]map[string]string{"solicited": solicited, "unsolicited": unsolicited} {
		t.Run(name, func(t *testing.T) {
			// It is the time for answers as well, which a busy machine may take for a while.
			r := newRig(t, func(cfg *Config) { cfg.Limits.DataTimeout = 2 * time.Second })
			c := spoiler{r.login(func(cfg *ClientConfig) { cfg.Keys = keys }), t}
			itt := c.write(name == "solicited", 0)
			var pdu *PDU
			for {
				var err error
				if pdu, err = c.Receive(); err != nil {
					t.Fatal(err)
				}
				if pdu.Header[0] != opR2T {
					break
				}
			}
			if pdu.Header[0] != opResponse || pdu.Header[offStatus] != scsi.StatusCheckCondition || pdu.Data[4] != 0x0b || pdu.Data[14] != 0x4b || pdu.Data[15] != 0x06 {
				t.Errorf("%x %x", pdu.Header, pdu.Data)
			}
			r.eventually("it is counted", func(*fakeTarget) bool { return r.errors(ErrTimeout) == 1 })
			r.eventually("nothing is held", func(*fakeTarget) bool { return r.portal.Held() == 0 })
			// What comes late is passed over.
			ttt := uint32(noTag)
			if name == "solicited" {
				ttt = 1
			}
			c.out(itt, ttt, 0, 0, 512, false)
			if res, err := c.Command(0, cdb10(opRead10, 0, 4), nil, 2048); err != nil || res.Status != 0 {
				t.Errorf("the next command: %+v, %v", res, err)
			}
		})
	}
}

// TestSlowDataOut: who sends slowly and steadily is waited for. Where the machine was so busy that
// the sender was not steady, its end shows nothing, and it begins again.
func TestSlowDataOut(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	const limit = 3 * time.Second
	r := newRig(t, func(cfg *Config) {
		cfg.Limits.DataTimeout, cfg.Limits.MaxBurst, cfg.Limits.MaxOutstandingR2T = limit, 512, 1
	})
	for range 5 {
		begin := time.Now()
		longest, err := slowWrite(r)
		if err != nil && longest > limit/2 {
			t.Logf("a pause of %v: %v", longest, err)
			continue
		}
		if err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < limit {
			t.Errorf("%v is too short to show anything", took)
		}
		return
	}
	t.Error("the machine is too busy to send steadily")
}

// slowWrite carries out a write in sixteen pieces, one each 250 ms; longest is what the portal
// waited for one of them at most.
func slowWrite(r *rig) (longest time.Duration, err error) {
	c := r.login(func(cfg *ClientConfig) {
		cfg.Keys = map[string]string{keyInitialR2T: valYes, keyImmediateData: valNo}
	})
	defer c.Close()
	data := pattern(16*512, 1)
	hdr, _ := c.CommandHeader(0, cdb10(opWrite10, 0, 16), len(data), 0)
	sent := time.Now()
	c.Send(hdr, nil, nil)
	for range 16 {
		pdu, err := c.Receive()
		if err != nil || pdu.Header[0] != opR2T {
			return max(longest, time.Since(sent)), fmt.Errorf("in place of an R2T: %v, %v", pdu, err)
		}
		time.Sleep(250 * time.Millisecond)
		h := bhs(pdu.Header[:])
		c.SendData(h.itt(), h.ttt(), data, int(h.u32(offBufOffset)), 512)
		longest, sent = max(longest, time.Since(sent)), time.Now()
	}
	if pdu, err := c.Receive(); err != nil || pdu.Header[0] != opResponse || pdu.Header[offStatus] != 0 {
		return longest, fmt.Errorf("in place of the end: %v, %v", pdu, err)
	}
	return longest, nil
}

// TestUnfinishedPDU: a PDU whose data does not come, while its bytes hold a buffer, ends its
// connection.
func TestUnfinishedPDU(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Limits.DataTimeout = 100 * time.Millisecond })
	c := r.login(nil)
	hdr, _ := c.CommandHeader(0, cdb10(opWrite10, 0, 128), 1<<16, 0)
	b := appendPDU(nil, bhs(hdr[:]), nil, make([]byte, 1<<16), false, false)
	c.nc.Write(b[:1000])
	stop := make(chan struct{})
	go func() { // a byte now and then does not help
		for at := 1000; ; at++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = c.nc.Write(b[at : at+1])
			}
		}
	}()
	defer close(stop)
	if _, err := c.Receive(); err == nil {
		t.Error("it was answered")
	}
	r.eventually("it is counted", func(*fakeTarget) bool { return r.errors(ErrTimeout) == 1 })
	r.eventually("nothing is held", func(*fakeTarget) bool { return r.portal.Held() == 0 })
}

// TestUnreadAnswers: who asks and does not read is ended, also when he shows signs of life.
func TestUnreadAnswers(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Limits.DataTimeout = 300 * time.Millisecond })
	c := r.login(nil)
	for range 32 {
		hdr, _ := c.CommandHeader(0, cdb10(opRead10, 0, 4<<20/fakeBlock), 0, 4<<20)
		c.Send(hdr, nil, nil)
	}
	r.eventually("answers are held", func(*fakeTarget) bool { return r.portal.Held() > 8<<20 || r.errors(ErrTimeout) > 0 })
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for ping := c.NewHeader(opNopOut|immediateBit, 0); ; time.Sleep(20 * time.Millisecond) {
			bhs(ping[:]).put32(offITT, noTag)
			if c.Send(ping, nil, nil) != nil {
				return
			}
		}
	}()
	r.eventually("nothing is held", func(*fakeTarget) bool { return r.portal.Held() == 0 })
	_, _ = io.Copy(io.Discard, c.nc)
	c.Close()
	<-gone
}
