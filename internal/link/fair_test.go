package link

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// What nodes and hosts have of each other.

// A session whose unit does not answer leaves others their share of the window, and is told when too much of it waits.
func TestHungUnit(t *testing.T) {
	r := newRig(t, unhurried)
	hung, other := r.login(hostName).ready(), r.login(hostName+"2").ready()
	d := r.devs[scsitest.Thin]
	r.hang(d)
	var all []*running
	for range windowCommands + maxQueued + 10 {
		all = append(all, hung.start(scsitest.Command{CDB: scsitest.CDB(0x88, 0, 1), In: 512}))
	}
	if res := all[len(all)-1].wait(); res.Status != scsi.StatusTaskSetFull {
		t.Errorf("a command beyond all bounds ends with %02x, want TASK SET FULL", res.Status)
	}
	other.start(scsitest.Command{LUN: 0, CDB: make([]byte, 6)}).inTime("a command of another host waits for the unit that does not answer")
	r.release(d)
	for _, p := range all {
		p.wait()
	}
}

// Very many sessions of one host, whose unit does not answer, leave other hosts as much of the window as one of them would: in
// commands, and in bytes. When the unit answers, all of their commands are carried out.
func TestHungHost(t *testing.T) {
	const sessions = 48
	for _, row := range []struct{ each, length, most int }{{64, 512, windowCommands / 2}, {4, 8 << 20, windowBytes / 2 / (8 << 20)}} {
		r := newRig(t, unhurried)
		other := r.login(hostName + "2").ready()
		var hung []*host
		for range sessions {
			hung = append(hung, r.login(hostName).ready())
		}
		d := r.devs[scsitest.Thin]
		r.hang(d)
		var all []*running
		for range row.each {
			for _, h := range hung {
				all = append(all, h.start(scsitest.Command{CDB: scsitest.CDB(0x88, 0, 1), In: row.length}))
			}
		}
		r.local.Lock()
		if n := len(r.client.flights) - len(r.client.free); n == 0 || n > row.most {
			t.Errorf("%d commands of %d bytes of one host are in the window, of which it may have half", n, row.length)
		}
		r.local.Unlock()
		other.start(scsitest.Command{LUN: 0, CDB: make([]byte, 6)}).inTime("a command of another host waits for the unit that does not answer")
		r.release(d)
		for _, p := range all {
			p.wait()
		}
		for _, h := range hung {
			h.Close()
		}
		r.local.Lock()
		if h := r.client.hosts; len(h) != 1 || r.client.turns.len() != 0 {
			t.Errorf("%d hosts are known, and one is there", len(h))
		}
		r.local.Unlock()
	}
}

// A host with one command that takes long had no room for another one while others filled the window: it has when theirs end,
// and does not wait for its own.
func TestRoomOfOthers(t *testing.T) {
	r := newRig(t, unhurried)
	slow := r.login(hostName).ready()
	thin, thick := r.devs[scsitest.Thin], r.devs[scsitest.Thick]
	for _, lun := range []uint64{scsitest.Thick, scsitest.Other} { // hear of the unit attentions
		for slow.start(scsitest.Command{LUN: lun, CDB: make([]byte, 6)}).wait().Status != scsi.StatusGood {
		}
	}
	r.hang(thin)
	r.hang(thick)
	const each = 8 << 20
	long := slow.start(scsitest.Command{LUN: scsitest.Thick, CDB: scsitest.CDB(0x88, 0, 1), In: 512})
	var others []*running
	for n, commands := 0, windowBytes/2/each; commands > 0; n, commands = n+1, commands/2 {
		h := r.login(hostName + strconv.Itoa(n)).ready()
		for range commands {
			others = append(others, h.start(scsitest.Command{LUN: scsitest.Thin, CDB: scsitest.CDB(0x88, 0, 1), In: each}))
		}
	}
	next := slow.start(scsitest.Command{LUN: scsitest.Other, CDB: make([]byte, 6), In: each})
	r.local.Lock()
	if waits := slow.n.(*nexus).host.waits.len(); waits != 1 {
		t.Errorf("%d sessions of the host wait for room, want 1", waits)
	}
	r.local.Unlock()
	r.release(thin)
	for _, p := range others {
		p.wait()
	}
	next.inTime("the window is empty, and a command waits for another one of its host")
	r.release(thick)
	long.wait()
}

// Two commands that fill the window leave room for many hosts when they end: each of those has it then.
func TestRoomForMany(t *testing.T) {
	r := newRig(t, unhurried)
	thin, thick := r.devs[scsitest.Thin], r.devs[scsitest.Thick]
	var slow []*host
	for n := range 5 {
		h := r.login(hostName + strconv.Itoa(n)).ready()
		for h.start(scsitest.Command{LUN: scsitest.Thick, CDB: make([]byte, 6)}).wait().Status != scsi.StatusGood {
			continue // it hears of the unit attentions
		}
		slow = append(slow, h)
	}
	r.hang(thin)
	r.hang(thick)
	var long, large, next []*running
	for _, h := range slow {
		long = append(long, h.start(scsitest.Command{LUN: scsitest.Thick, CDB: scsitest.CDB(0x88, 0, 1), In: 512}))
	}
	for _, name := range []string{"c", "d"} {
		large = append(large, r.login(hostName+name).ready().start(scsitest.Command{LUN: scsitest.Thin, CDB: scsitest.CDB(0x88, 0, 1), In: 63 << 20}))
	}
	for _, h := range slow {
		next = append(next, h.start(scsitest.Command{LUN: scsitest.Thick, CDB: scsitest.CDB(0x88, 0, 1), In: 4 << 20}))
	}
	r.local.Lock()
	if n := r.client.hungry.len(); n != len(slow) {
		t.Errorf("%d hosts wait for room, want %d", n, len(slow))
	}
	r.local.Unlock()
	r.release(thin)
	for _, p := range large {
		p.wait()
	}
	r.poll("room for all", func() bool { // though none of theirs ends
		r.local.Lock()
		defer r.local.Unlock()
		return len(r.client.flights)-len(r.client.free) == len(long)+len(next)
	})
	r.release(thick)
	for _, p := range append(long, next...) {
		p.wait()
	}
}

// A command that follows on the end of a long read is within the window.
func TestWindowOfLongReads(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	const depth, each = 8, 16 << 20 // room for eight of them
	free := make(chan struct{}, depth+8)
	for range depth + 8 {
		free <- struct{}{}
	}
	for range 300 {
		<-free
		task := &scsi.Task{CDB: scsitest.CDB(0x88, 0, 512), MaxIn: each, Bufs: heap{}, Done: func(*scsi.Task) { free <- struct{}{} }}
		h.exec.Lock()
		h.n.Submit([]*scsi.Task{task})
		h.exec.Unlock()
	}
	for range depth + 8 {
		<-free
	}
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	if n := r.server.nodes[0].connects.Load(); n != 1 {
		t.Errorf("there were %d links", n)
	}
}

// A command that may transfer more than the whole window goes alone, beside commands that transfer nothing: both ends count
// it alike.
func TestCommandBeyondTheWindow(t *testing.T) {
	r := newRig(t, unhurried)
	r.server.mu.Lock() // the window that the last of many nodes has
	l := r.server.links[2]
	l.mu.Lock()
	l.window = leastWindow
	l.mu.Unlock()
	r.server.mu.Unlock()
	r.local.Lock()
	r.client.window = leastWindow
	r.local.Unlock()
	a, b := r.login(hostName+"a").ready(), r.login(hostName+"b").ready()
	thick := r.devs[scsitest.Thick]
	for a.start(scsitest.Command{LUN: scsitest.Thick, CDB: make([]byte, 6)}).wait().Status != scsi.StatusGood {
		continue // it hears of the unit attentions
	}
	r.hang(thick)
	flush := a.start(scsitest.Command{LUN: scsitest.Thick, CDB: scsitest.CDB(0x35, 0, 0)})
	r.poll("a flush that takes long", func() bool {
		r.exec.Lock()
		defer r.exec.Unlock()
		return thick.Waiting() == 1
	})
	p := b.start(scsitest.Command{LUN: 0, CDB: make([]byte, 6), In: leastWindow + 512})
	p.inTime("a command beyond the window waits")
	if p.over() && p.task.Status != scsi.StatusGood {
		t.Errorf("a command beyond the window: status %#x, sense %x", p.task.Status, p.task.Sense)
	}
	r.release(thick)
	flush.wait()
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	if n := r.server.nodes[0].connects.Load(); n != 1 {
		t.Errorf("there were %d links", n)
	}
}

// The windows of all links are taken of one budget.
func TestBudget(t *testing.T) {
	s, err := NewServer(ServerConfig{Self: Node{ID: 250, Ports: 1}, Targets: make([]*scsi.Target, 1), Secret: []byte(testSecret)})
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	var links []*serverLink
	for id := uint16(1); id <= maxNodes; id++ {
		l := newServerLink(s, nil, nil, greeting{Node: Node{ID: id, Ports: 1}}, nil)
		if err := s.enter(l); err != nil || l.window < leastWindow || l.window > windowBytes {
			t.Fatalf("node %d: a window of %d bytes, %v", id, l.window, err)
		}
		sum += l.window
		links = append(links, l)
	}
	if sum > budgetBytes+maxNodes*leastWindow {
		t.Errorf("%d nodes have windows of %d bytes", maxNodes, sum)
	}
	for _, l := range links {
		s.leave(l)
	}
	if s.granted != 0 {
		t.Errorf("%d bytes are granted to nobody", s.granted)
	}
}

// An initiator that the owner does not let in loses its session alone.
func TestDenied(t *testing.T) {
	r := newRig(t, unhurried)
	r.leave()
	r.allowed = []string{strings.ToUpper(hostName)}
	r.policy = "others"
	if strings.Contains(r.said.String(), otherPolicy) {
		t.Error("the first owner warned of a node that lets the same initiators in")
	}
	r.own(r.target, unhurried)
	r.linked(true)
	if !strings.Contains(r.said.String(), otherPolicy) {
		t.Error("nothing warned of a node that lets other initiators in")
	}
	welcome := r.login(hostName).ready()
	for _, name := range []string{hostName + "2", "nobody"} {
		h := r.login(name)
		p := h.start(scsitest.Command{CDB: make([]byte, 6)})
		select {
		case <-h.lost:
		case <-time.After(patience):
			t.Fatalf("the session of %s goes on", name)
		}
		if res := p.wait(); res.Status != scsi.StatusBusy {
			t.Errorf("%s: a command ends with %02x, want BUSY", name, res.Status)
		}
		h.Close()
	}
	if c := welcome.code(); c != 0 {
		t.Errorf("the other session has %06x", c)
	}
	if p := r.server.Peers()[0]; p.Sessions != 1 || !p.Linked {
		t.Errorf("%+v", p)
	}
}

// Who has shown an array to hosts shows them no other one, and follows no owner that was replaced.
func TestAnotherArray(t *testing.T) {
	r := newRig(t, unhurried)
	r.leave()
	own := func(array string, epoch uint64) {
		r.array, r.epoch = array, epoch
		r.own(r.target, unhurried)
	}
	own("one", 7) // the first had no name
	r.linked(true)
	for _, row := range []struct {
		array string
		epoch uint64
		ok    bool
	}{{"two", 8, false}, {"one", 6, false}, {"one", 8, true}} {
		r.leave()
		own(row.array, row.epoch)
		if row.ok {
			r.linked(true)
			continue
		}
		time.Sleep(200 * time.Millisecond) // in which it would link
		if owner, _ := r.client.Owner(); owner.Linked {
			t.Errorf("it is linked to the array %s of epoch %d", row.array, row.epoch)
		}
	}
}

// What the owner has said is not said again behind a change, to another session, or behind another link.
func TestOldAnswers(t *testing.T) {
	r := newRig(t, unhurried)
	h := r.login(hostName).ready()
	inquiry(h, 1, 0x83)
	r.exec.Lock()
	r.devs[scsitest.Thin].Change(block.EventCapacity, func(i *block.Info) { i.Sectors += 8 })
	r.exec.Unlock()
	h.expect(0x062A09)
	closed, other := r.login(hostName+"2").ready(), r.login(hostName+"3").ready()
	inquiry(closed, 1, 0x83)
	closed.Close()
	closed = r.login(hostName + "2")
	inquiry(other, 1, 0x83)
	r.relink()
	r.leave()
	for what, h := range map[string]*host{"a change": h, "another session": closed, "another link": other} {
		if c := code(h.Do(scsitest.Command{CDB: []byte{0x12, 1, 0x83, 0, 255, 0}, In: 255})); c != 0x02040A {
			t.Errorf("INQUIRY behind %s: %06x, want 02040A", what, c)
		}
	}
}

// Connections that prove nothing keep no node out.
func TestStrangers(t *testing.T) {
	r := newRig(t, unhurried)
	began := time.Now()
	var idle []net.Conn
	for range maxStrangers + 4 {
		c, err := net.Dial("tcp", r.address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	p := r.hostile(t, 3) // it is welcomed, or the test ends
	if took := time.Since(began); took > handshakeTime/2 {
		t.Skipf("the machine is too busy: %v", took)
	}
	idle[0].SetReadDeadline(time.Now().Add(handshakeTime / 4))
	if _, err := idle[0].Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the oldest stranger is still there: %v", err)
	}
	p.c.Close()
}

// A node that links again at once disturbs nobody, and has the states that an administrator has set.
func TestFlapping(t *testing.T) {
	r := newRig(t, unhurried)
	there := r.direct(hostName).ready()
	for range 3 {
		r.relink()
	}
	there.expect()

	limits := unhurried
	limits.away = time.Millisecond
	r = newRig(t, limits)
	set := func() {
		r.exec.Lock()
		defer r.exec.Unlock()
		if err := r.target.SetAccess(FirstPort(2), scsi.AccessStandby); err != nil {
			t.Error(err)
		}
	}
	set()
	addr := r.address()
	r.mu.Lock()
	r.addr = ""
	r.mu.Unlock()
	r.cut()
	r.poll("the end of the link", func() bool { return r.access() == scsi.AccessUnavailable })
	for range 3 { // breaks that follow on each other: the state is that of before the first
		r.server.hide(r.server.nodes[0])
	}
	time.Sleep(50 * time.Millisecond)
	r.mu.Lock()
	r.addr = addr
	r.mu.Unlock()
	r.poll("the state that was set", func() bool { return r.access() == scsi.AccessStandby })
}

// Names of nodes are text, and those of two series of one metric differ.
func TestNames(t *testing.T) {
	for _, name := range []string{"a\x1b", "a\n", "\xff", strings.Repeat("a", maxName+1)} {
		if (Node{ID: 1, Ports: 1, Name: name}).Check() == nil {
			t.Errorf("%q is a name", name)
		}
	}
	if err := (Node{ID: 1, Ports: 1, Name: "Knoten Süd"}).Check(); err != nil {
		t.Error(err)
	}
	all := []*nodeState{{Node: Node{ID: 1, Name: "a"}}, {Node: Node{ID: 2, Name: "a"}}, {Node: Node{ID: 3, Name: "b"}}}
	if a, b, c := label(all, all[0]), label(all, all[1]), label(all, all[2]); a != "a#1" || b != "a#2" || c != "b" {
		t.Errorf("%s, %s, %s", a, b, c)
	}
}
