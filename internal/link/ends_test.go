package link

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// What ends, and when: nothing of a command lands behind what a host takes for its end.

// slowOwner is an owner that has welcomed a node, and reads when it is told to.
type slowOwner struct {
	t    *testing.T
	conn net.Conn
	c    *Client
	n    iscsi.Nexus
}

func newSlowOwner(t *testing.T, with ...func(*ClientConfig)) *slowOwner {
	t.Helper()
	exec := block.NewLive()
	t.Cleanup(exec.Stop)
	c := &Client{cfg: ClientConfig{Self: Node{ID: 2, Ports: 1}, Targets: 1, Log: slog.New(slog.DiscardHandler)}, times: unhurried, exec: exec,
		wake: make(chan struct{}, 1), calls: map[uint32]*call{}}
	for _, fn := range with {
		fn(&c.cfg)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	there, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.serve(there, there, "test")
	}()
	t.Cleanup(func() {
		here.Close()
		<-over
	})
	o := &slowOwner{t: t, conn: here, c: c}
	here.SetDeadline(time.Now().Add(patience))
	if k, _, err := readMessage(here, make([]byte, maxBody)); err != nil || k != kindHello {
		t.Fatal(k, err)
	}
	welcome := greeting{Node: Node{ID: 1, Ports: 1}, commands: windowCommands, bytes: windowBytes, targets: 1}
	here.Write(welcome.append(nil, kindWelcome))
	for up := false; !up; time.Sleep(time.Millisecond) {
		exec.Lock()
		up = c.up
		exec.Unlock()
	}
	exec.Lock()
	o.n = c.Target(0).OpenNexus(hostName, hostName+",i,0x1", FirstPort(2))
	exec.Unlock()
	return o
}

// read reads, and grants more, until a nexus is closed; it returns how many commands came, and their bytes.
func (o *slowOwner) read() (commands, size int) {
	o.t.Helper()
	buf, data := make([]byte, maxBody), make([]byte, 1<<20)
	for {
		k, body, err := readMessage(o.conn, buf)
		switch {
		case err != nil:
			o.t.Fatal(err)
		case k == kindClose:
			return commands, size
		case k == kindCommand:
			h, err := parseCommand(body)
			if err != nil {
				o.t.Fatal(err)
			}
			size += headLen + len(body) + int(h.out) + stampLen
			commands++
			for left := int(h.out) + stampLen; left > 0; {
				n, err := o.conn.Read(data[:min(left, len(data))])
				if left -= n; err != nil {
					o.t.Fatal(err)
				}
				o.conn.Write(appendLong(nil, kindCredit, uint64(size-left)))
			}
		}
	}
}

// A session that ends here takes back what the owner has not read, but for a little: its host writes by another path at once.
func TestNothingIsSentBehindASession(t *testing.T) {
	o := newSlowOwner(t)
	const n, each = 64, 256 << 10
	aborted := make(chan bool, n)
	for range n {
		o.c.exec.Lock()
		o.n.Submit([]*scsi.Task{{CDB: scsitest.CDB(0x8A, 0, each/512), DataOut: [][]byte{make([]byte, each)}, Done: func(t *scsi.Task) { aborted <- t.Aborted }}})
		o.c.exec.Unlock()
	}
	time.Sleep(200 * time.Millisecond) // for what would be sent
	o.c.exec.Lock()
	o.n.Close(func() {})
	o.c.exec.Unlock()
	commands, size := o.read()
	if size > creditBytes+each+1024 {
		t.Errorf("the owner reads %d bytes behind the end of the session, want %d and the rest of a command at most", size, creditBytes)
	}
	for range n - commands {
		if !<-aborted {
			t.Error("a command that was not sent has a response")
		}
	}
	t.Logf("%d commands, %d bytes", commands, size)
}

// A task management function takes back what the writer has, too.
func TestAbortOfWhatWaitsForTheWriter(t *testing.T) {
	o := newSlowOwner(t)
	ended := make(chan uint64, 64)
	for tag := range uint64(64) {
		o.c.exec.Lock()
		o.n.Submit([]*scsi.Task{{Tag: tag, CDB: scsitest.CDB(0x8A, 0, 512), DataOut: [][]byte{make([]byte, 256<<10)}, Done: func(t *scsi.Task) {
			if t.Aborted {
				ended <- t.Tag
			}
		}}})
		o.c.exec.Unlock()
	}
	answer := make(chan scsi.TMFResponse, 1)
	o.c.exec.Lock()
	o.n.Manage(scsi.AbortTask, 0, 60, func(r scsi.TMFResponse) { answer <- r })
	o.c.exec.Unlock()
	if r, tag := <-answer, <-ended; r != scsi.TMFComplete || tag != 60 {
		t.Fatalf("ABORT TASK: %d, task %d", r, tag)
	}
}

// late has the device carry writes out so much later, whatever aborts them, and starts one.
func (r *rig) late(h *host, by time.Duration) *running {
	d := r.devs[scsitest.Thin]
	r.exec.Lock()
	d.Late = int64(by)
	r.exec.Unlock()
	write := h.start(scsitest.Command{CDB: scsitest.CDB(0x8A, 5, 1), Out: bytes.Repeat([]byte{0xAA}, 512)})
	r.poll("the write at the device", func() bool {
		r.exec.Lock()
		defer r.exec.Unlock()
		return d.Seen[block.OpWrite] == 1
	})
	return write
}

// stuck has the device carry writes out when it is released, and no sooner, whatever aborts them, and starts one.
func (r *rig) stuck(h *host) *running {
	r.t.Helper()
	d := r.devs[scsitest.Thin]
	r.hang(d)
	r.exec.Lock()
	d.Deaf = true
	r.exec.Unlock()
	write := h.start(scsitest.Command{CDB: scsitest.CDB(0x8A, 5, 1), Out: bytes.Repeat([]byte{0xAA}, 512)})
	r.poll("the write at the device", func() bool {
		r.exec.Lock()
		defer r.exec.Unlock()
		return d.Waiting() == 1
	})
	return write
}

func (r *rig) landed() bool {
	r.exec.Lock()
	defer r.exec.Unlock()
	return r.devs[scsitest.Thin].Data[5*512] == 0xAA
}

// A node is welcomed again only when nothing of a session lands any more that was closed before.
func TestWelcomeBehindAClosedSession(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	r.late(h, 300*time.Millisecond)
	closed := make(chan struct{})
	r.local.Lock()
	h.n.Close(func() { close(closed) })
	r.local.Unlock()
	r.poll("the end of the session", func() bool { return r.server.Peers()[0].Sessions == 0 })
	r.cut()
	<-closed
	if !r.landed() {
		t.Fatal("the session was over, and then its write landed")
	}
}

// A reset that is asked for meanwhile is forwarded behind the welcome.
func TestResetDuringABreak(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	write := r.stuck(h)
	r.cut()
	r.linked(false) // for as long as the write is at the device
	answer := h.ask(scsi.LogicalUnitReset, 0)
	r.release(r.devs[scsitest.Thin])
	if res := heard(t, answer); res != scsi.TMFComplete {
		t.Errorf("LOGICAL UNIT RESET: %d", res)
	}
	if !write.over() {
		t.Error("the reset was answered, and the write was not")
	}
	h.expect(0x062903, 0x062907, 0x063F0E, 0x062A09, 0x062A01, 0x062A03, 0x062A06)
}

// A command that has waited at the owner until it is too old ends with BUSY. One that waits for as long while its node goes on
// is carried out.
func TestCommandThatWaits(t *testing.T) {
	limits := unhurried
	limits.fresh = 100 * time.Millisecond // of a clock that stands still while the test does not move it
	r := newRig(t, limits)
	hand := &handTime{}
	r.clock = hand.clock()
	between := r.sluice(limits)
	r.server.mu.Lock()
	l := r.server.links[2]
	r.server.mu.Unlock()
	h := r.login(hostName).ready()
	d := r.devs[scsitest.Thin]
	// behind starts a write that waits for a read at the device, and has not begun.
	behind := func() *running {
		r.hang(d)
		ordered := &scsi.Task{LUN: 0, CDB: scsitest.CDB(0x88, 0, 1), Attr: scsi.AttrOrdered, MaxIn: 512, Bufs: heap{}, Done: func(*scsi.Task) {}}
		r.local.Lock()
		h.n.Submit([]*scsi.Task{ordered})
		r.local.Unlock()
		write := h.start(scsitest.Command{CDB: scsitest.CDB(0x8A, 5, 1), Out: make([]byte, 512)})
		h.start(scsitest.Command{LUN: scsitest.Thick, CDB: make([]byte, 6)}).wait() // which comes last, and waits for nothing
		return write
	}
	writes := func() int {
		r.exec.Lock()
		defer r.exec.Unlock()
		return d.Seen[block.OpWrite]
	}
	write := behind()
	between.set(true) // the node hears nothing any more, and what it says is old
	hand.pass(2 * limits.fresh)
	r.release(d)
	r.poll("the end of the write", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.commands == 0
	})
	between.set(false)
	if res := write.wait(); res.Status != scsi.StatusBusy || writes() != 0 {
		t.Errorf("the write ends with %02x, want BUSY, and the device saw %d writes", res.Status, writes())
	}

	goesOn := func() {
		r.poll("a later word of the node", func() bool { return l.latest.Load() >= r.clock.now() })
	}
	goesOn()
	write = behind()
	for range 4 {
		hand.pass(limits.fresh / 2)
		goesOn()
	}
	r.release(d)
	if res := write.wait(); res.Status != scsi.StatusGood || writes() != 1 {
		t.Errorf("a write of a node that goes on ends with %02x, and the device saw %d writes", res.Status, writes())
	}
}

// The clock of stamps finds old what was stamped before the machine slept, or before its guest was paused.
func TestClock(t *testing.T) {
	boot, wall := int64(5e9), int64(1e18)
	c := newClockOf(func() int64 { return boot }, func() int64 { return wall })
	pass := func(b, w time.Duration) { boot, wall = boot+int64(b), wall+int64(w) }
	pass(time.Second, time.Second)
	before := c.now()
	pass(100*time.Millisecond, 100*time.Millisecond)
	if old, ahead := c.old(before, time.Second); old || ahead {
		t.Error("a stamp of 0.1 s is old")
	}
	if _, ahead := c.old(before+uint64(time.Second), time.Second); !ahead {
		t.Error("a stamp that is yet to come is taken")
	}
	pass(time.Minute, time.Minute) // asleep
	if old, _ := c.old(before, time.Second); !old {
		t.Error("a stamp of a minute is not old")
	}
	for _, jump := range []time.Duration{time.Minute, -time.Minute} { // paused, and set right; or set back
		before = c.now()
		pass(time.Millisecond, jump)
		if old, _ := c.old(before, time.Second); !old {
			t.Errorf("a stamp from before a jump of %v is not old", jump)
		}
		pass(time.Millisecond, time.Millisecond)
		before = c.now()
		pass(time.Millisecond, time.Millisecond)
		if old, _ := c.old(before, time.Second); old {
			t.Errorf("a stamp from behind a jump of %v is old", jump)
		}
	}
}

// An owner that stops does not wait for a command of which half is here.
func TestShutdownWithHalfACommand(t *testing.T) {
	r := newRig(t, unhurried)
	p := r.hostile(t, 3)
	p.send(p.open(3))
	p.send(appendEmpty(nil, kindReady))
	p.send(write(p.stamp)[:300])
	r.poll("the command", func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		l := r.server.links[3]
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.commands == 1
	})
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if !r.server.Shutdown(within) || within.Err() != nil {
		t.Error("the links did not end by themselves")
	}
}

// TestManagesLeaveRoom: an initiator whose task management functions the owner does not answer leaves room for those of others.
func TestManagesLeaveRoom(t *testing.T) {
	o := newSlowOwner(t)
	o.c.exec.Lock()
	other := o.c.Target(0).OpenNexus(hostName+"x", hostName+"x,i,0x1", FirstPort(2))
	o.c.exec.Unlock()
	var mu sync.Mutex
	rejected := map[string]int{}
	manage := func(n iscsi.Nexus, who string) {
		o.c.exec.Lock()
		defer o.c.exec.Unlock()
		n.Manage(scsi.LogicalUnitReset, 0, 0, func(r scsi.TMFResponse) {
			mu.Lock()
			defer mu.Unlock()
			if r == scsi.TMFRejected {
				rejected[who]++
			}
		})
	}
	for range maxManages {
		manage(o.n, "one")
	}
	manage(other, "other")
	mu.Lock()
	defer mu.Unlock()
	if rejected["one"] != maxManages/2 || rejected["other"] > 0 {
		t.Errorf("of %d functions that one initiator asked for %d are rejected, and of one of another initiator %d", maxManages, rejected["one"], rejected["other"])
	}
}

// An owner that ends has answered first. What it sent is taken, also if this node finds that it cannot write any more before it
// has read all of it.
func TestAnswersBeforeTheEndOfALink(t *testing.T) {
	o := newSlowOwner(t)
	const n = 340 // more than the reader takes at once, and no more than the socket has room for beside that
	status := make(chan byte, n)
	for range n {
		o.c.exec.Lock()
		o.n.Submit([]*scsi.Task{{CDB: scsitest.CDB(0x8A, 0, 1), DataOut: [][]byte{make([]byte, 512)}, Done: func(t *scsi.Task) {
			time.Sleep(500 * time.Microsecond) // so that a ping is due meanwhile
			status <- t.Status
		}}})
		o.c.exec.Unlock()
	}
	buf := make([]byte, maxBody)
	var answers []byte
	for read := 0; read < n; {
		k, body, err := readMessage(o.conn, buf)
		if err != nil {
			t.Fatal(err)
		}
		if k != kindCommand {
			continue
		}
		h, err := parseCommand(body)
		if err == nil {
			_, err = io.CopyN(io.Discard, o.conn, int64(h.out)+stampLen)
		}
		if err != nil {
			t.Fatal(err)
		}
		read++
		r := resultHead{task: h.task, out: 512, sense: make([]byte, 250)}
		answers = r.append(answers)
	}
	o.conn.Write(answers)
	for left := 1; left > 0; time.Sleep(time.Millisecond) { // a socket that is closed drops what is not there yet
		raw, err := o.conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		if err != nil {
			t.Fatal(err)
		}
	}
	o.conn.Close()
	for i := range n {
		select {
		case s := <-status:
			if s != scsi.StatusGood {
				t.Fatalf("command %d, which was answered, ends with %02x", i, s)
			}
		case <-time.After(patience / 4):
			t.Fatalf("%d of %d commands that were answered have ended", i, n)
		}
	}
}
