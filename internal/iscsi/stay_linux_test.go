package iscsi

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// countedCalls count the system calls for data. A patient one lets no stay end for want of a peer
// that was in time, so that counts do not depend on how busy the machine is.
type countedCalls struct {
	kernel
	patient, receives, sends atomic.Int64

	told    atomic.Int64 // receives that the runtime knew of
	full    atomic.Int64 // sends that found no room
	signals atomic.Bool  // end each wait
	whole   atomic.Bool  // a wait ends when there is all that was asked for
	after   atomic.Int32 // the read after such a wait
}

const (
	waited = iota + 1
	looked

	toSee // what the next read does
)

func (k *countedCalls) receive(fd int, msg *unix.Msghdr, room int, tell, wait bool) (int, syscall.Errno) {
	did := int32(looked)
	if wait {
		did = waited
	}
	k.after.CompareAndSwap(toSee, did)
	for {
		switch there, err := unix.IoctlGetInt(fd, unix.SIOCINQ); {
		case wait && k.signals.Load():
			return -1, syscall.EINTR
		case wait && k.whole.Load() && err == nil && there < room:
			time.Sleep(time.Millisecond)
			continue
		}
		n, errno := k.kernel.receive(fd, msg, room, tell, wait)
		if wait && errno == syscall.EAGAIN && k.patient.Load() > 0 {
			continue
		}
		if wait && n == room && k.whole.Swap(false) {
			k.after.Store(toSee)
		}
		k.receives.Add(1)
		if tell {
			k.told.Add(1)
		}
		return n, errno
	}
}

// awaitFull waits until somebody waits for room in a socket, or is about to.
func (k *countedCalls) awaitFull(t *testing.T) {
	t.Helper()
	if !poll(func() bool { return k.full.Load() > 1 }) {
		t.Fatal("the socket is never full")
	}
}

func (k *countedCalls) send(fd int, msg *unix.Msghdr, tell bool) (int, syscall.Errno) {
	k.sends.Add(1)
	n, errno := k.kernel.send(fd, msg, tell)
	if errno == syscall.EAGAIN {
		k.full.Add(1)
	}
	return n, errno
}

// newCounted is a rig with so many places to stay, and what counts its calls.
func newCounted(t *testing.T, stays int) (*rig, *countedCalls) {
	k := new(countedCalls)
	k.patient.Store(1)
	r := newRig(t, func(cfg *Config) { cfg.sys, cfg.stays = k, stays })
	t.Cleanup(func() { k.patient.Store(0) })
	return r, k
}

func rounds(t testing.TB, p *pipeline, n int) {
	t.Helper()
	for range n {
		if err := p.run(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCallsPerBatch: commands that come together cost one read, and their answers one write. A
// reader that stays makes no read that finds nothing, and one that may not stay makes one.
func TestCallsPerBatch(t *testing.T) {
	for _, row := range []struct{ stays, depth, reads int }{{1, 1, 1}, {1, 32, 1}, {-1, 1, 2}, {-1, 32, 2}} {
		for _, write := range []bool{false, true} {
			t.Run(fmt.Sprintf("stays %d, depth %d, write %v", row.stays, row.depth, write), func(t *testing.T) {
				r, k := newCounted(t, row.stays)
				p := newPipeline(r.login(nil), row.depth, 1, write)
				rounds(t, p, 50)
				const n = 200
				// Where the machine stops whoever sends an answer, the reader may not stay, by right, and looks in vain: so a round
				// of several has to be as it should. A reader that always looks in vain has none.
				for try := 1; ; try++ {
					k.receives.Store(0)
					k.sends.Store(0)
					rounds(t, p, n)
					if got := k.sends.Load(); got != n {
						t.Errorf("%d batches cost %d writes", n, got)
					}
					// An answer is here before the read after it: the last one's may be missing, and the one before the count be in it.
					got := k.receives.Load()
					if got >= n && got <= int64(n*row.reads)+1 {
						break
					}
					if got < n || try == 20 {
						t.Fatalf("%d batches cost %d reads, want %d each", n, got, row.reads)
					}
				}
			})
		}
	}
}

// TestNoStayWhileOthersWork: a reader stays only while the peer alone owes something.
func TestNoStayWhileOthersWork(t *testing.T) {
	r, _ := newCounted(t, 1)
	c := r.login(nil)
	stays := func(n int32, when string) {
		t.Helper()
		if !poll(func() bool { return r.portal.staying.Load() == n }) {
			t.Fatalf("%s: %d readers stay, want %d", when, r.portal.staying.Load(), n)
		}
	}
	quick := func() {
		t.Helper()
		for range 4 * firstPause {
			if _, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	// On a busy machine an answer may leave late, and a stay end: another one comes, if later.
	quicks := func(when string) {
		t.Helper()
		if !poll(func() bool { quick(); return r.portal.staying.Load() == 1 }) {
			t.Fatalf("%s: no reader stays", when)
		}
	}
	quicks("one quick command after the other")
	hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
	if err := c.Send(hdr, nil, nil); err != nil {
		t.Fatal(err)
	}
	r.awaitStuck(1)
	stays(0, "with a command in the target")
	r.withFake(func(f *fakeTarget) {
		for n := range f.nexuses {
			n.letGo()
		}
	})
	if pdu, err := c.Receive(); err != nil || pdu.Header[0] != opResponse {
		t.Fatal(pdu, err)
	}
	quicks("after it")
}

// staying logs in, and returns when the reader of the connection stays.
func staying(r *rig) (*Client, *pipeline) {
	r.t.Helper()
	c := r.login(nil)
	p := newPipeline(c, 1, 1, false)
	rounds(r.t, p, 3*firstPause)
	if !poll(func() bool { return r.portal.staying.Load() == 1 }) {
		r.t.Fatal("the reader does not stay")
	}
	return c, p
}

// TestStayEnds: a peer that has nothing to say has no processor kept for it, and is heard again.
func TestStayEnds(t *testing.T) {
	r, k := newCounted(t, 1)
	_, p := staying(r)
	k.patient.Store(0)
	if !poll(func() bool { return r.portal.staying.Load() == 0 }) {
		t.Fatal("the reader of a silent peer stays for ever")
	}
	rounds(t, p, 3)
}

// TestStayHears: who stays hears that the portal is held as soon as its peer says something, though that goes on to do so.
func TestStayHears(t *testing.T) {
	r, _ := newCounted(t, 1)
	c, _ := staying(r)
	var over atomic.Bool
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil && !over.Load() {
			nop := c.NewHeader(opNopOut|immediateBit, 0)
			bhs(nop[:]).put32(offTTT, noTag)
			if err = c.Send(nop, nil, nil); err == nil {
				_, err = c.Receive()
			}
		}
		ended <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.portal.Hold(ctx, false); err != nil {
		t.Errorf("a session that has no command under way: %v", err)
	}
	r.portal.Release()
	over.Store(true)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestStayNotices: who stays hears of the end of the portal as others do, with a notice to the peer.
func TestStayNotices(t *testing.T) {
	r, k := newCounted(t, 1)
	_, p := staying(r)
	k.patient.Store(0)
	go r.portal.Shutdown(t.Context())
	var hdr [bhsLen]byte
	if _, err := p.r.Read(hdr[:]); err != nil || hdr[0] != opAsync {
		t.Errorf("opcode %#x, %v", hdr[0], err)
	}
}

// TestStayIsCutOff: who stays hears of what befalls its connection, gives its place back, and goes
// on where it is not the end.
func TestStayIsCutOff(t *testing.T) {
	for _, row := range []struct {
		name    string
		cut     func(near *Client, far *conn)
		patient bool // it is heard in the socket
		ends    bool
		log     string
	}{
		{"the peer resets the connection", func(c *Client, _ *conn) {
			c.nc.(*net.TCPConn).SetLinger(0)
			c.Close()
		}, true, true, "reset by peer"},
		{"the peer closes it", func(c *Client, _ *conn) { c.Close() }, true, true, "EOF"},
		{"abort", func(_ *Client, far *conn) { far.abort(errReinstated) }, false, true, errReinstated.Error()},
		{"cold reset", func(_ *Client, far *conn) { far.coldReset() }, false, true, errReset.Error()},
		{"a kick for nothing", func(_ *Client, far *conn) { far.kick() }, false, false, ""},
		{"a kick to look", func(_ *Client, far *conn) {
			far.look.Store(true)
			far.kick()
		}, false, false, ""},
		{"a kick to look while the peer is busy", func(_ *Client, far *conn) {
			far.look.Store(true)
			far.kick()
		}, true, false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, k := newCounted(t, 1)
			c, p := staying(r)
			far := r.farEnd()
			if !row.patient {
				k.patient.Store(0)
			}
			row.cut(c, far)
			for end := time.Now().Add(patience); far.look.Load(); rounds(t, p, 1) {
				if time.Now().After(end) {
					t.Fatal("the reader does not look")
				}
			}
			if !poll(func() bool { return r.portal.staying.Load() == 0 }) {
				t.Fatal("the reader stays")
			}
			if !row.ends {
				rounds(t, p, 3)
				return
			}
			if !poll(func() bool { return len(r.portal.Sessions()) == 0 }) {
				t.Fatal("the session never ends")
			}
			if !poll(func() bool { return strings.Contains(r.log.String(), row.log) }) {
				t.Errorf("the log does not say %q:\n%s", row.log, r.log)
			}
		})
	}
}

// TestSignalsEndStay: a reader whose waits signals end, however many, is heard and hears.
func TestSignalsEndStay(t *testing.T) {
	r, k := newCounted(t, 1)
	_, p := staying(r)
	k.signals.Store(true)
	if !poll(func() bool { return r.portal.staying.Load() == 0 }) {
		t.Fatal("the reader stays")
	}
	rounds(t, p, 64*firstPause)
}

// TestFullReadEndsStay: a read that was full may have left something, and what it brought may have
// to wait for others: the reader looks for more before it waits for it.
func TestFullReadEndsStay(t *testing.T) {
	r, k := newCounted(t, 1)
	c, p := staying(r)
	nop := c.NewHeader(opNopOut|immediateBit, 0)
	bhs(nop[:]).put32(offITT, noTag) // no answer
	bhs(nop[:]).put32(offTTT, pingTag)
	if err := c.Send(nop, nil, make([]byte, directMin)); err != nil {
		t.Fatal(err)
	}
	far := r.farEnd() // it is behind something large: its reads are short
	if !poll(func() bool { return far.count.rx.Load() > directMin && r.portal.staying.Load() == 1 }) {
		t.Fatal("the reader does not stay behind something large")
	}
	k.whole.Store(true)
	var small []byte
	for range 3 {
		small = appendPDU(small, nop[:], nil, make([]byte, afterLarge/2), false, false)
	}
	if _, err := c.nc.Write(small); err != nil { // as one: part of it would make reads long again
		t.Fatal(err)
	}
	if !poll(func() bool { return k.after.Load() == waited || k.after.Load() == looked }) {
		t.Fatal("no read is full")
	}
	if k.after.Load() != looked {
		t.Error("the reader waits behind a full read")
	}
	rounds(t, p, 3)
}

// TestGateThatStaysShut: a reader whose gate cannot be opened again ends its connection, for nothing
// that comes would wake it.
func TestGateThatStaysShut(t *testing.T) {
	c := socketConn(t)
	c.startFull(new(login))
	defer func() {
		close(c.out.quit)
		<-c.writerDone
	}()
	s := c.sock.Load()
	c.portal.staying.Add(1)
	c.stay.on = true
	ep := s.in.ep
	s.in.ep = -1
	more, err := c.readReady(s)
	s.in.ep = ep
	if more || err == nil {
		t.Errorf("more %v, error %v", more, err)
	}
	if n := c.portal.staying.Load(); n != 0 {
		t.Errorf("%d readers stay", n)
	}
}

// TestLastWords: a peer that closes right behind its last command is noticed, whether its end came
// with the command or after it.
func TestLastWords(t *testing.T) {
	for _, stays := range []int{1, -1} {
		for _, before := range []int{0, 3 * firstPause} {
			t.Run(fmt.Sprintf("stays %d, %d commands before", stays, before), func(t *testing.T) {
				r, k := newCounted(t, stays)
				k.patient.Store(0)
				for range 20 {
					c := r.login(nil)
					rounds(t, newPipeline(c, 1, 1, false), before)
					hdr, _ := c.CommandHeader(0, cdb10(opTestUnitReady, 0, 0), 0, 0)
					if err := c.Send(hdr, nil, nil); err != nil {
						t.Fatal(err)
					}
					c.Close()
					if !poll(func() bool { return len(r.portal.Sessions()) == 0 }) {
						t.Fatal("the session never ends")
					}
				}
			})
		}
	}
}

// TestCrowdedStay: where more sessions are at work than may stay, the one that does gives way; where
// there are places left it does not.
func TestCrowdedStay(t *testing.T) {
	p := &Portal{stays: 1}
	p.staying.Store(1)
	c := &conn{portal: p}
	came := func(mine, others uint64) bool {
		c.count.rx.Add(mine)
		p.count.rx.Add(mine + others)
		return c.crowded()
	}
	if came(48_000, 0) || came(48_000, 480) {
		t.Error("a reader that is alone, but for a word now and then, gives way")
	}
	if !came(48_000, 24_000) {
		t.Error("a reader does not give way to another session that is at work")
	}
	if came(48_000, 0) {
		t.Error("what was counted before counts again")
	}
	if p.stays = 2; came(48_000, 48_000) {
		t.Error("a reader gives way while there is a place left")
	}
}

// TestBusyReaderIsKnown: a reader whose peer never pauses makes calls that the runtime knows of, or nothing else would run where
// there is one processor.
func TestBusyReaderIsKnown(t *testing.T) {
	r, k := newCounted(t, -1)
	p := newPipeline(r.login(nil), 1, 1, false)
	rounds(t, p, 50)
	k.receives.Store(0)
	k.told.Store(0)
	rounds(t, p, 400)
	if n, told := k.receives.Load(), k.told.Load(); n < 400 || told < n/tellEvery-1 || told > n/tellEvery+1 {
		t.Errorf("of %d reads the runtime knew of %d, not of one in %d", n, told, tellEvery)
	}
}

// TestSegmentsAreShort: the runtime need not know of a read of a segment of 256 KiB.
func TestSegmentsAreShort(t *testing.T) {
	r, k := newCounted(t, -1)
	p := newPipeline(r.login(nil), 1, 256<<10/fakeBlock, true)
	rounds(t, p, 20)
	k.receives.Store(0)
	k.told.Store(0)
	rounds(t, p, 100)
	if n, told := k.receives.Load(), k.told.Load(); n < 200 || told > n/tellEvery+1 {
		t.Errorf("of %d reads of long segments the runtime knew of %d, not of one in %d", n, told, tellEvery)
	}
}

// TestParkedReaderGivesItsPlaceBack: a peer that does not read its answers keeps no place to stay.
func TestParkedReaderGivesItsPlaceBack(t *testing.T) {
	r, _ := newCounted(t, 1)
	c, _ := staying(r)
	far := r.farEnd()
	nop := c.NewHeader(opNopOut|immediateBit, 77)
	bhs(nop[:]).put32(offTTT, noTag)
	data := make([]byte, 8<<10)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for c.Send(nop, nil, data) == nil {
			time.Sleep(100 * time.Microsecond) // the reader stays in between
		}
	}()
	if !poll(far.out.congested) {
		t.Fatal("not congested")
	}
	if !poll(func() bool { return r.portal.staying.Load() == 0 }) {
		t.Error("it keeps its place while it waits for its peer to read")
	}
	c.Close()
	<-ended
}
