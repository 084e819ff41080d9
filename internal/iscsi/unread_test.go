package iscsi

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// unreadPeer logs in over a pipe, which takes nothing that nobody reads, and returns both ends.
func unreadPeer(t *testing.T, p *Portal, keys map[string]string) (*Client, *conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	p.start(ours, 1)
	theirs.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { theirs.Close() })
	c, err := NewClient(theirs, ClientConfig{Initiator: testInitiator, Target: testTarget, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) != 1 {
		t.Fatalf("%d connections", len(p.conns))
	}
	for far := range p.conns {
		return c, far
	}
	return nil, nil
}

// flood sends PDUs until the portal takes no more of them; it reports how many it took. That it
// took none for a second says so only when its queue is long: until then it may lack a processor.
func flood(c *Client, far *conn, most int, header [bhsLen]byte, data []byte) int {
	var taken atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range most {
			if c.Send(header, nil, data) != nil {
				return
			}
			taken.Add(1)
		}
	}()
	last, since := int64(-1), time.Now()
	poll(func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		far.out.mu.Lock()
		size := far.out.ctlSize
		far.out.mu.Unlock()
		if n := taken.Load(); n != last || size <= outputLimit/2 {
			last, since = n, time.Now()
		}
		return time.Since(since) > time.Second
	})
	return int(taken.Load())
}

// TestUnreadControlAnswers: whatever makes the target answer, outside of any window too, it stops
// reading when a peer that reads nothing has a queue of answers.
func TestUnreadControlAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	for _, row := range []struct {
		op    byte
		flags byte
		stuck int // immediate commands before
	}{
		{opSNACK, flagFinal, 0},
		{0x1d | immediateBit, flagFinal, 0},
		{opTaskMgmt | immediateBit, flagFinal | tmfReassign, 0},
		{opTaskMgmt | immediateBit, flagFinal | 1, maxImmediates},
		{opCommand | immediateBit, flagFinal, maxImmediates},
		{opLogout | immediateBit, flagFinal | logoutNoRecovery, 0},
		{opNopOut | immediateBit, flagFinal, 0},
	} {
		t.Run(fmt.Sprintf("%#x %#x", row.op, row.flags), func(t *testing.T) {
			const most = 60_000
			r := newRig(t, nil)
			c, far := unreadPeer(t, r.portal, nil)
			defer c.Close()
			for range row.stuck {
				hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
				hdr[0] |= immediateBit
				c.Send(hdr, nil, nil)
			}
			h := c.NewHeader(row.op, 0)
			h[offFlags] = row.flags
			if n := flood(c, far, most, h, nil); n == most {
				t.Errorf("%d were taken in without an answer being read", n)
			}
			far.out.mu.Lock()
			size := far.out.ctlSize
			far.out.mu.Unlock()
			if size <= outputLimit/2 || size > outputLimit+4096 {
				t.Errorf("%d bytes of answers are queued, with a limit of %d", size, outputLimit)
			}
		})
	}
}

// TestUnreadPingsAreCountedWhole: an answer counts as what it keeps in memory, not as the part of
// it that the peer's MaxRecvDataSegmentLength lets out.
func TestUnreadPingsAreCountedWhole(t *testing.T) {
	r := newRig(t, nil)
	c, far := unreadPeer(t, r.portal, map[string]string{keyMaxRecvSegment: "512"})
	defer c.Close()
	flood(c, far, 64, c.NewHeader(opNopOut|immediateBit, 0), make([]byte, 256<<10))
	far.out.mu.Lock()
	defer far.out.mu.Unlock()
	held := 0
	for _, it := range far.out.queue {
		if it.ctl != nil && it.ctl.buf != nil {
			held += len(it.ctl.buf.B)
		}
	}
	if held == 0 || held > outputLimit+1<<20 {
		t.Errorf("answers hold %d bytes, with a limit of %d", held, outputLimit)
	}
}

// TestTextAnswerIsCopied: a piece of a long text that is sent does not keep the text.
func TestTextAnswerIsCopied(t *testing.T) {
	r := newRig(t, nil)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	c := newConn(r.portal, ours, 1)
	c.maxXmit.Store(512)
	c.text = textExchange{tag: 7, out: make([]byte, 8192)}
	h := bhs(make([]byte, bhsLen))
	h[0], h[offFlags] = opText|immediateBit, flagFinal
	h.put32(offTTT, 7)
	if err := c.finishText(h); err != nil {
		t.Fatal(err)
	}
	if got := c.out.queue[0].ctl.data; len(got) != 512 || cap(got) > 1024 {
		t.Errorf("%d bytes are sent, %d are held", len(got), cap(got))
	}
	if len(c.text.out) != 8192-512 {
		t.Errorf("%d bytes are left", len(c.text.out))
	}
}
