package iscsi

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
)

// loginAnswer is a login response: flags with T, C and the stages, and text.
type loginAnswer struct {
	flags byte
	text  string
}

const (
	toOperational = flagFinal | stageOperational                       // of stageSecurity, 0
	toFull        = flagFinal | stageOperational<<2 | stageFull        // the login is complete
	goesOn        = stageOperational << 2                              // neither T nor C
	hasMore       = flagContinue | stageOperational<<2                 // C
	badTransit    = flagFinal | stageOperational<<2 | stageOperational // T, to where it is
)

// loginTarget is the far end of a connection: it answers each login request with the next of answers, the last one again
// and again, until the connection ends. What it is asked goes to asked.
func loginTarget(far net.Conn, answers []loginAnswer, asked *[]string) {
	for n := 0; ; n++ {
		var hdr [bhsLen]byte
		if _, err := io.ReadFull(far, hdr[:]); err != nil || hdr[0]&^immediateBit != opLogin {
			return
		}
		text := make([]byte, bhs(hdr[:]).dataLen()+padLen(bhs(hdr[:]).dataLen()))
		if _, err := io.ReadFull(far, text); err != nil {
			return
		}
		*asked = append(*asked, string(bytes.TrimRight(text[:bhs(hdr[:]).dataLen()], "\x00")))
		a := answers[min(n, len(answers)-1)]
		var out [bhsLen]byte
		h := bhs(out[:])
		h[0], h[offFlags] = opLoginResp, a.flags
		h.put32(offITT, bhs(hdr[:]).itt())
		h.put32(offStatSN, uint32(n))
		h.put32(offExpCmdSN, 1)
		h.put32(offMaxCmdSN, 32)
		if _, err := far.Write(appendPDU(nil, h, nil, []byte(a.text), false, false)); err != nil {
			return
		}
		if a.flags&^0x30 == toFull { // whatever the reserved bits are
			return
		}
	}
}

// logsIn logs in to a loginTarget.
func logsIn(t testing.TB, answers ...loginAnswer) (c *Client, far net.Conn, asked []string, err error) {
	ours, far := net.Pipe()
	ours.SetDeadline(time.Now().Add(patience))
	far.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { ours.Close(); far.Close() })
	done := make(chan struct{})
	go func() { loginTarget(far, answers, &asked); close(done) }()
	c, err = NewClient(ours, ClientConfig{Initiator: testInitiator, Target: testTarget})
	if err != nil {
		ours.Close()
	}
	<-done
	return c, far, asked, err
}

// TestTargetLogin: lengths that no target may have, and answers that do not lead to full feature phase, end the login.
func TestTargetLogin(t *testing.T) {
	first := loginAnswer{toOperational, "AuthMethod=None\x00"}
	for _, row := range []struct {
		name string
		rest []loginAnswer
	}{
		{"a segment of nothing", []loginAnswer{{toFull, "MaxRecvDataSegmentLength=0\x00"}}},
		{"a negative segment", []loginAnswer{{toFull, "MaxRecvDataSegmentLength=-1\x00"}}},
		{"a short segment", []loginAnswer{{toFull, "MaxRecvDataSegmentLength=511\x00"}}},
		{"a segment of 24 bits and one", []loginAnswer{{toFull, "MaxRecvDataSegmentLength=16777216\x00"}}},
		{"a segment that is no number", []loginAnswer{{toFull, "MaxRecvDataSegmentLength=many\x00"}}},
		{"a first burst of nothing", []loginAnswer{{toFull, "FirstBurstLength=0\x00"}}},
		{"a short burst", []loginAnswer{{toFull, "MaxBurstLength=1\x00"}}},
		{"a transition to where it is", []loginAnswer{{badTransit, ""}}},
		{"another stage", []loginAnswer{{0, ""}}},
		{"T and C", []loginAnswer{{toFull | flagContinue, ""}}},
		{"text without end", []loginAnswer{{hasMore, strings.Repeat("x", 8000)}}},
		{"more text without text", []loginAnswer{{hasMore, ""}}},
		{"negotiation without end", []loginAnswer{{goesOn, "X-org.example.mood=good\x00"}}},
		{"text that is cut", []loginAnswer{{toFull, "MaxBurst"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, _, asked, err := logsIn(t, append([]loginAnswer{first}, row.rest...)...); err == nil {
				t.Errorf("it is logged in, after %q", asked)
			} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Error("it waits")
			}
		})
	}
}

// TestLoginGoesOn: a target may take several responses for a step, and ask something by itself, before it takes the
// transition (RFC 7143 6.3).
func TestLoginGoesOn(t *testing.T) {
	c, _, asked, err := logsIn(t,
		loginAnswer{0, "TargetPortalGroupTag=1\x00"},
		loginAnswer{toOperational, "AuthMethod=None\x00"},
		loginAnswer{hasMore, "MaxRecvDataSegmentLength=0x400"},
		loginAnswer{goesOn, "00\x00TargetAlias=a\x00X-org.example.mood=good\x00IFMarker=No\x00MaxBurstLength=4096\x00"},
		loginAnswer{toFull, "FirstBurstLength=512\x00"})
	if err != nil {
		t.Fatal(err)
	}
	if len(asked) != 5 || asked[1] != "" || asked[3] != "" || asked[4] != "IFMarker=No\x00X-org.example.mood=NotUnderstood" {
		t.Errorf("it asked %q", asked)
	}
	if c.maxSend != 0x40000 || c.p.maxBurst != 4096 || c.p.firstBurst != 512 || c.MaxCmdSN != 32 {
		t.Errorf("segments of %d, bursts of %d, %d at first, commands to %d", c.maxSend, c.p.maxBurst, c.p.firstBurst, c.MaxCmdSN)
	}
}

// TestDiscoveryHasNoBursts: a target may say that bursts have no bytes in a discovery session, which has no commands.
func TestDiscoveryHasNoBursts(t *testing.T) {
	ours, far := net.Pipe()
	t.Cleanup(func() { ours.Close(); far.Close() })
	var asked []string
	go loginTarget(far, []loginAnswer{{toOperational, "AuthMethod=None\x00"}, {toFull, "MaxBurstLength=0\x00FirstBurstLength=0\x00"}}, &asked)
	if _, err := NewClient(ours, ClientConfig{Initiator: testInitiator}); err != nil {
		t.Error(err)
	}
}

// TestTargetFails: a response that says that the target did not complete the command, and GOOD for a write of which not all
// was taken or asked for, are no success (RFC 7143 11.4.3, 11.4.5).
func TestTargetFails(t *testing.T) {
	end := func(response, flags byte, residual uint32) []byte {
		return answer(opResponse, 1, 0, func(h bhs) { h[offResponse] = response; h[offFlags] |= flags; h.put32(offResidual, residual) })
	}
	for _, row := range []struct {
		name         string
		write, wrong bool
		send         []byte
		size         int // 0: no more than is sent unasked
	}{
		{"a write whose data nobody asked for", true, true, end(0, 0, 0), 16 << 10},
		{"a write, complete", true, false, end(0, 0, 0), 0},
		{"a write, complete with a residual of nothing", true, false, end(0, flagUnderflow, 0), 0},
		{"a write of which 512 bytes were left", true, true, end(0, flagUnderflow, 512), 0},
		{"a write of which too little came", true, true, end(0, flagOverflow, 512), 0},
		{"a write, target failure", true, true, end(1, 0, 0), 0},
		{"a read, response of a vendor", false, true, end(0x80, 0, 0), 0},
		{"a read of which less came", false, false, end(0, flagUnderflow, 512), 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, far := hostileTarget(t)
			i := newInitiator(c)
			t.Cleanup(i.Close)
			go io.Copy(io.Discard, far)
			done := make(chan *Command, 1)
			cmd := &Command{CDB: make([]byte, 16), Done: func(c *Command) { done <- c }}
			if data := [][]byte{make([]byte, max(row.size, 1024))}; row.write {
				cmd.Out = data
			} else {
				cmd.In = data
			}
			i.Start(cmd)
			far.Write(row.send)
			select {
			case c := <-done:
				if wrong := c.Status == scsi.StatusCheckCondition && len(c.Sense) == 18; c.Lost != nil || wrong != row.wrong {
					t.Errorf("status %#x, sense %x, %v", c.Status, c.Sense, c.Lost)
				}
			case <-time.After(patience):
				t.Error("the command goes on")
			}
		})
	}
}

// FuzzTargetLogin answers a login with any three responses and then asks for data: what the initiator queues stays bounded,
// and each command ends.
func FuzzTargetLogin(f *testing.F) {
	f.Add(byte(toOperational), "AuthMethod=None\x00", byte(toFull), "MaxRecvDataSegmentLength=0\x00", byte(0), "")
	f.Add(byte(toOperational), "", byte(toFull), "MaxRecvDataSegmentLength=-1\x00InitialR2T=No\x00", byte(0), "")
	f.Add(byte(toOperational), "", byte(hasMore), "MaxBurst", byte(toFull), "Length=512\x00HeaderDigest=CRC32C\x00")
	f.Add(byte(0), "A=b\x00", byte(toOperational), "", byte(toFull), "FirstBurstLength=0x200\x00ImmediateData=No\x00")
	f.Fuzz(func(t *testing.T, f1 byte, t1 string, f2 byte, t2 string, f3 byte, t3 string) {
		c, far, _, err := logsIn(t, loginAnswer{f1, t1}, loginAnswer{f2, t2}, loginAnswer{f3, t3})
		if err != nil {
			return
		}
		i := newInitiator(c)
		defer i.Close()
		go io.Copy(io.Discard, far)
		const size = 1 << 20
		ended := make(chan struct{}, 2)
		for _, out := range [][][]byte{nil, {make([]byte, size)}} {
			i.Start(&Command{CDB: make([]byte, 16), Out: out, Done: func(*Command) { ended <- struct{}{} }})
		}
		i.mu.Lock()
		queued := len(i.out)
		i.mu.Unlock()
		if queued > 2*size {
			t.Fatalf("%d bytes are queued for a write of %d", queued, size)
		}
		far.Close()
		for range 2 {
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("a command does not end")
			}
		}
	})
}

// TestSendTargetsOnce: a key that is given again is refused, before each makes the portal go through its targets.
func TestSendTargetsOnce(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(func(cfg *ClientConfig) { cfg.Target = "" })
	once := appendKey(nil, keySendTargets, "All")
	if got, err := c.Text(once); err != nil || !strings.Contains(fmt.Sprint(got), testTarget) {
		t.Fatal(got, err)
	}
	if got, err := c.Text(slices.Concat(once, once)); err == nil {
		t.Errorf("answered with %d keys", len(got))
	}
}
