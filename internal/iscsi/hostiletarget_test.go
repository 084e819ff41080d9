package iscsi

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// hostileTarget is the far end of a session that is logged in, with 4 KiB of data segment, 8 KiB of
// first burst and 16 KiB of burst.
func hostileTarget(t *testing.T) (*Client, net.Conn) {
	ours, theirs := net.Pipe()
	ours.SetDeadline(time.Now().Add(patience))
	theirs.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	c := &Client{CmdSN: 1, MaxCmdSN: 32, nc: ours, r: bufio.NewReaderSize(ours, 64<<10), p: defaultParams(), maxSend: 4096, full: true}
	c.p.maxXmit, c.p.firstBurst, c.p.maxBurst, c.p.immediateData = 4096, 8192, 16384, true
	return c, theirs
}

// answer makes a PDU of a target.
func answer(op byte, itt uint32, n int, fill func(h bhs)) []byte {
	h := bhs(make([]byte, bhsLen))
	h[0], h[offFlags] = op, flagFinal
	h.put32(offITT, itt)
	h.put32(offTTT, noTag)
	h.put32(offMaxCmdSN, 64)
	if fill != nil {
		fill(h)
	}
	return appendPDU(nil, h, nil, make([]byte, n), false, false)
}

// TestTargetLengths: what a target says of a PDU's length is checked before anything is allocated
// or awaited.
func TestTargetLengths(t *testing.T) {
	header := func(fill func(h bhs)) []byte {
		b := answer(opNopIn, noTag, 0, nil)
		fill(b)
		return b
	}
	for _, row := range []struct {
		name  string
		login bool
		send  []byte
	}{
		{"a segment beyond what was declared", false, header(func(h bhs) { h.setDataLen(4097) })},
		{"the longest segment", false, header(func(h bhs) { h.setDataLen(1<<24 - 1) })},
		{"a segment beyond the default, in login", true, header(func(h bhs) { h.setDataLen(8193) })},
		{"an additional header", false, header(func(h bhs) { h[offAHSLen] = 1 })},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, far := hostileTarget(t)
			c.full = !row.login
			go far.Write(row.send) // and no data: whoever waits for it waits in vain
			got := make(chan error, 1)
			go func() { _, err := c.Receive(); got <- err }()
			select {
			case err := <-got:
				if err == nil {
					t.Error("it was taken")
				}
			case <-time.After(patience):
				t.Error("the initiator waits for the data")
			}
		})
	}
}

// TestTargetBreaksRules: a target that asks for the wrong data, sends what nobody asked for or
// floods ends its session, and the commands of it are lost.
func TestTargetBreaksRules(t *testing.T) {
	const size = 64 << 10
	r2t := func(itt, sn, off uint32, n int) []byte {
		return answer(opR2T, itt, 0, func(h bhs) {
			h.put32(offTTT, sn)
			h.put32(offDataSN, sn)
			h.put32(offBufOffset, off)
			h.put32(offResidual, uint32(n))
		})
	}
	in := func(itt, off uint32, n int) []byte {
		return answer(opDataIn, itt, n, func(h bhs) { h[offFlags] = 0; h.put32(offBufOffset, off) })
	}
	join := func(b ...[]byte) (all []byte) {
		for _, p := range b {
			all = append(all, p...)
		}
		return all
	}
	for _, row := range []struct {
		name  string
		write bool
		send  []byte
	}{
		{"R2T for nothing", true, r2t(1, 0, 8192, 0)},
		{"R2T beyond the burst", true, r2t(1, 0, 8192, 16388)},
		{"R2T beyond the data", true, join(r2t(1, 0, 8192, 16384), r2t(1, 1, 24576, 16384), r2t(1, 2, 40960, 16384), r2t(1, 3, 57344, 16384))},
		{"R2T for what was sent", true, r2t(1, 0, 0, 8192)},
		{"R2T with a gap", true, r2t(1, 0, 12288, 8192)},
		{"the same R2T again", true, join(r2t(1, 0, 8192, 8192), r2t(1, 1, 8192, 8192))},
		{"R2T whose end overflows", true, r2t(1, 0, 0xffffe000, 8192)},
		{"R2T for a read", false, r2t(1, 0, 0, 512)},
		{"Data-In for a write", true, in(1, 0, 512)},
		{"Data-In with a gap", false, in(1, 512, 512)},
		{"Data-In again", false, join(in(1, 0, 512), in(1, 0, 512))},
		{"Data-In beyond the buffer", false, in(1, 1<<31, 512)},
		{"an answer to nobody", false, answer(opResponse, 77, 0, nil)},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, far := hostileTarget(t)
			i := newInitiator(c)
			t.Cleanup(i.Close)
			go io.Copy(io.Discard, far)
			end := make(chan error, 1)
			cmd := &Command{CDB: make([]byte, 16), Done: func(c *Command) { end <- c.Lost }}
			if data := [][]byte{make([]byte, size)}; row.write {
				cmd.Out = data
			} else {
				cmd.In = data
			}
			i.Start(cmd)
			go far.Write(row.send)
			select {
			case err := <-end:
				if err == nil {
					t.Error("the command ended as if nothing were wrong")
				}
			case <-time.After(patience):
				t.Error("the session goes on")
			}
		})
	}
}

// TestTargetFloods: pings whose answers the target does not read, and text without end, take no
// memory without bound.
func TestTargetFloods(t *testing.T) {
	c, far := hostileTarget(t)
	i := newInitiator(c)
	t.Cleanup(i.Close)
	ping := answer(opNopIn, noTag, 0, func(h bhs) { h.put32(offTTT, 7) })
	flood := make([]byte, 0, 1000*len(ping))
	for range 1000 {
		flood = append(flood, ping...)
	}
	sent := 0
	for ; sent < 1000; sent++ {
		if _, err := far.Write(flood); err != nil {
			break
		}
		i.mu.Lock()
		queued := cap(i.out)
		i.mu.Unlock()
		if queued > 8<<20 {
			t.Fatalf("%d bytes of answers are queued", queued)
		}
	}
	if sent == 1000 {
		t.Error("a million pings were taken and no answer was read")
	}

	c, far = hostileTarget(t)
	go io.Copy(io.Discard, far)
	go func() {
		more := answer(opTextResp, 1, 4096, func(h bhs) { h[offFlags] = flagContinue; h.put32(offTTT, 9) })
		for {
			if _, err := far.Write(more); err != nil {
				return
			}
		}
	}()
	got := make(chan error, 1)
	go func() { _, err := c.Text(appendKey(nil, keySendTargets, "All")); got <- err }()
	select {
	case err := <-got:
		if err == nil || !strings.Contains(err.Error(), "too long") {
			t.Errorf("text without end: %v", err)
		}
	case <-time.After(patience):
		t.Error("text without end is taken without end")
	}
}
