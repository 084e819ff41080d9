package iscsi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// Initiator is a session that carries out many commands at a time. Unlike [Client] it
// may be used by any goroutine.
//
// A session ends with its connection: all commands under way then end with Lost, and
// so do those that come later. The caller logs in again.
type Initiator struct {
	c  *Client // the login's result; its connection and parameters
	nc net.Conn

	mu       sync.Mutex
	wake     *sync.Cond          // guarded by mu: there is something to send, or the end
	tasks    map[uint32]*Command // guarded by mu
	manages  map[uint32]managing // guarded by mu
	waiting  []*Command          // guarded by mu: the window is closed
	itt      uint32              // guarded by mu
	cmdSN    uint32              // guarded by mu
	maxCmdSN uint32              // guarded by mu
	expStat  uint32              // guarded by mu
	out      []byte              // guarded by mu
	pongs    int                 // guarded by mu: answers to pings in out
	err      error               // guarded by mu: the session is over
	heard    bool                // guarded by mu: the target sent something since pings looked last

	immediate bool
	first     int
	over      chan struct{} // closed at the end of the session
}

// Command is one command of an Initiator. The caller owns it, and its buffers are the
// Initiator's from Start to Done.
type Command struct {
	LUN uint64
	CDB []byte
	Out [][]byte // Data-Out
	In  [][]byte // where Data-In goes

	Status byte
	Sense  []byte
	InLen  int   // bytes that came
	Lost   error // the session ended before the command did
	// Done is called once, by a goroutine of the Initiator.
	Done func(*Command)
	Ctx  any

	itt   uint32
	cmdSN uint32
	asked int // Data-Out up to here was sent unasked or asked for: the next R2T begins here
}

// ErrAborted is the Lost of a command that task management ended: it may have been carried out in part, and the session
// goes on.
var ErrAborted = errors.New("iscsi: the command was aborted")

// ErrSilent ends a session whose target sends nothing, not even an answer to a ping.
var ErrSilent = errors.New("iscsi: the target does not answer pings")

// maxPongs bounds the answers to pings that wait to be sent.
const maxPongs = 128

// managing is a task management function under way.
type managing struct {
	of   *Command // the task that ABORT TASK is for
	done func(scsi.TMFResponse, error)
}

// NewInitiator logs in over nc and takes it over.
func NewInitiator(nc net.Conn, cfg ClientConfig) (*Initiator, error) {
	c, err := NewClient(nc, cfg)
	if err != nil {
		return nil, err
	}
	return newInitiator(c), nil
}

// newInitiator goes on with a session that is logged in.
func newInitiator(c *Client) *Initiator {
	i := &Initiator{c: c, nc: c.nc, tasks: make(map[uint32]*Command), manages: make(map[uint32]managing), cmdSN: c.CmdSN, maxCmdSN: c.MaxCmdSN, expStat: c.ExpStatSN, itt: c.itt,
		immediate: c.p.immediateData, first: int(c.p.firstBurst), over: make(chan struct{})}
	if i.maxCmdSN == 0 || int32(i.maxCmdSN-i.cmdSN) < -1 { // no window at all, rather than a closed one: at least the first one
		i.maxCmdSN = i.cmdSN
	}
	i.wake = sync.NewCond(&i.mu)
	go i.send()
	go i.receive()
	return i
}

// Watch pings a target that has sent nothing for the time every, and ends the session with [ErrSilent] when nothing comes within
// the time answer. It is called once at most.
func (i *Initiator) Watch(every, answer time.Duration) { go i.watch(every, answer) }

func (i *Initiator) watch(every, answer time.Duration) {
	t := time.NewTimer(every)
	defer t.Stop()
	asked := false
	for {
		select {
		case <-i.over:
			return
		case <-t.C:
		}
		i.mu.Lock()
		heard := i.heard
		i.heard = false
		if !heard && !asked {
			i.sendPing()
		}
		i.mu.Unlock()
		if !heard && asked {
			i.end(ErrSilent)
			return
		}
		if asked = !heard; asked {
			t.Reset(answer)
		} else {
			t.Reset(every)
		}
	}
}

// sendPing queues a NOP-Out that asks for an answer (RFC 7143 11.18). The caller holds mu.
func (i *Initiator) sendPing() {
	var hdr [bhsLen]byte
	h := bhs(hdr[:])
	h[0], h[offFlags] = opNopOut|immediateBit, flagFinal
	h.put32(offITT, i.nextTag())
	h.put32(offTTT, noTag)
	h.put32(offCmdSN, i.cmdSN)
	h.put32(offExpStatSN, i.expStat)
	i.out = appendPDU(i.out, h, nil, nil, i.c.p.headerDigest, i.c.p.dataDigest)
	i.wake.Signal()
}

// nextTag returns the next initiator task tag. The caller holds mu.
func (i *Initiator) nextTag() uint32 {
	i.itt++
	if i.itt == noTag {
		i.itt = 1
	}
	return i.itt
}

// Start sends a command, now or when the target's window allows.
func (i *Initiator) Start(cmd *Command) {
	cmd.Status, cmd.Sense, cmd.InLen, cmd.Lost = 0, nil, 0, nil
	i.mu.Lock()
	if err := i.err; err != nil {
		i.mu.Unlock()
		cmd.Lost = err
		go cmd.Done(cmd)
		return
	}
	i.waiting = append(i.waiting, cmd)
	i.fillWindow()
	i.mu.Unlock()
}

func (i *Initiator) end(err error) {
	i.mu.Lock()
	if i.err != nil {
		i.mu.Unlock()
		return
	}
	i.err = err
	lost := i.waiting
	for _, cmd := range i.tasks { // all end alike: order does not matter
		lost = append(lost, cmd)
	}
	manages := i.manages
	i.waiting, i.tasks, i.manages = nil, nil, nil
	close(i.over)
	i.wake.Broadcast()
	i.mu.Unlock()
	i.nc.Close()
	for _, m := range manages { // all end alike
		m.done(0, err)
	}
	for _, cmd := range lost {
		cmd.Lost = err
		cmd.Done(cmd)
	}
}

// Close ends the session.
func (i *Initiator) Close() { i.end(net.ErrClosed) }

// Drop ends the session for a reason, which the commands under way get as Lost.
func (i *Initiator) Drop(why error) { i.end(why) }

// Abort withdraws a command. It ends with Lost = [ErrAborted], or as it would have if it was quicker. What was
// sent may have been carried out in part.
func (i *Initiator) Abort(cmd *Command) {
	i.mu.Lock()
	at := slices.Index(i.waiting, cmd)
	switch {
	case at >= 0:
		i.waiting = slices.Delete(i.waiting, at, at+1)
	case i.err == nil && i.tasks[cmd.itt] == cmd:
		i.sendManage(scsi.AbortTask, cmd.LUN, managing{cmd, func(scsi.TMFResponse, error) {}})
	}
	i.mu.Unlock()
	if at >= 0 {
		cmd.Lost = ErrAborted
		go cmd.Done(cmd)
	}
}

// Manage sends a task management function for a LUN; of is the command that ABORT TASK is for, else nil. A command that
// the target aborted ends with Lost = [ErrAborted] before done is called. Other functions must not be used while commands of this session
// are under way on the LUN: those get no response.
func (i *Initiator) Manage(fn scsi.TMF, lun uint64, of *Command, done func(scsi.TMFResponse, error)) {
	i.mu.Lock()
	err := i.err
	if err == nil {
		i.sendManage(fn, lun, managing{of, done})
	}
	i.mu.Unlock()
	if err != nil {
		go done(0, err)
	}
}

// sendManage queues a task management request. The caller holds mu.
func (i *Initiator) sendManage(fn scsi.TMF, lun uint64, m managing) {
	var of uint32 = noTag
	ref := i.cmdSN
	if m.of != nil {
		of, ref = m.of.itt, m.of.cmdSN // RFC 7143 11.5.5: the CmdSN of the task itself
	}
	tag := i.nextTag()
	i.manages[tag] = m
	var hdr [bhsLen]byte
	h := bhs(hdr[:])
	h[0], h[offFlags] = opTaskMgmt|immediateBit, flagFinal|byte(fn)
	binary.BigEndian.PutUint64(h[offLUN:], lun)
	h.put32(offITT, tag)
	h.put32(offRefTask, of)
	h.put32(offRefCmdSN, ref)
	h.put32(offCmdSN, i.cmdSN)
	h.put32(offExpStatSN, i.expStat)
	i.out = appendPDU(i.out, h, nil, nil, i.c.p.headerDigest, i.c.p.dataDigest)
	i.wake.Signal()
}

// fillWindow queues the PDUs of what the target takes. The caller holds mu.
func (i *Initiator) fillWindow() {
	n := 0
	for _, cmd := range i.waiting {
		if int32(i.maxCmdSN-i.cmdSN) < 0 {
			break
		}
		n++
		i.queue(cmd)
	}
	if n > 0 {
		i.waiting = append(i.waiting[:0], i.waiting[n:]...)
		i.wake.Signal()
	}
}

func (i *Initiator) queue(cmd *Command) {
	cmd.itt = i.nextTag()
	i.tasks[cmd.itt] = cmd
	var hdr [bhsLen]byte
	h := bhs(hdr[:])
	h[0], h[offFlags] = opCommand, flagFinal|byte(scsi.AttrSimple)
	binary.BigEndian.PutUint64(h[offLUN:], cmd.LUN)
	h.put32(offITT, cmd.itt)
	out, in := block.VecLen(cmd.Out), block.VecLen(cmd.In)
	if out > 0 {
		h[offFlags] |= flagWrite
	}
	if in > 0 {
		h[offFlags] |= flagRead
	}
	h.put32(offEDTL, uint32(max(out, in)))
	h.put32(offCmdSN, i.cmdSN)
	cmd.cmdSN = i.cmdSN
	i.cmdSN++
	h.put32(offExpStatSN, i.expStat)
	ahs := putCDB(h, cmd.CDB)
	first := min(out, i.first)
	immediate := 0
	if i.immediate {
		immediate = min(first, i.c.maxSend)
	}
	if i.c.p.initialR2T {
		first = immediate
	}
	if immediate < first {
		h[offFlags] &^= flagFinal
	}
	i.out = appendPDU(i.out, h, ahs, piece(cmd.Out, 0, immediate), i.c.p.headerDigest, i.c.p.dataDigest)
	cmd.asked = first
	if immediate < first {
		i.dataOut(cmd, noTag, immediate, first-immediate)
	}
}

// send writes what is queued.
func (i *Initiator) send() {
	var spare []byte
	for {
		i.mu.Lock()
		for len(i.out) == 0 && i.err == nil {
			i.wake.Wait()
		}
		if i.err != nil {
			i.mu.Unlock()
			return
		}
		b := i.out
		i.out, i.pongs = spare[:0], 0
		i.mu.Unlock()
		if _, err := i.nc.Write(b); err != nil {
			i.end(err)
			return
		}
		spare = b
	}
}

// receive takes PDUs until the session ends.
func (i *Initiator) receive() {
	for {
		pdu, err := i.c.Receive()
		if err == nil {
			err = i.take(pdu)
		}
		if err != nil {
			i.end(err)
			return
		}
	}
}

func (i *Initiator) take(pdu *PDU) error {
	h := bhs(pdu.Header[:])
	var done *Command
	var managed func()
	i.mu.Lock()
	defer func() {
		i.mu.Unlock()
		if done != nil {
			done.Done(done)
		}
		if managed != nil {
			managed()
		}
	}()
	if i.err != nil {
		return i.err
	}
	i.heard = true
	i.expStat = i.c.ExpStatSN
	if m := h.u32(offMaxCmdSN); int32(m-i.maxCmdSN) > 0 {
		i.maxCmdSN = m
	}
	switch op := h.opcode(); op {
	case opNopIn:
		if h.ttt() != noTag {
			if i.pongs++; i.pongs > maxPongs {
				return errors.New("iscsi: the target sends pings and does not read the answers")
			}
			var hdr [bhsLen]byte
			o := bhs(hdr[:])
			o[0], o[offFlags] = opNopOut|immediateBit, flagFinal
			copy(o[offLUN:offLUN+8], h[offLUN:])
			o.put32(offITT, noTag)
			o.put32(offTTT, h.ttt())
			o.put32(offCmdSN, i.cmdSN)
			o.put32(offExpStatSN, i.expStat)
			i.out = appendPDU(i.out, o, nil, nil, i.c.p.headerDigest, i.c.p.dataDigest)
			i.wake.Signal()
		}
	case opR2T, opDataIn, opResponse:
		cmd := i.tasks[h.itt()]
		if cmd == nil {
			return fmt.Errorf("iscsi: opcode %#x for task %#x, which is not in progress", op, h.itt())
		}
		switch op {
		case opR2T:
			off, n := intOf(h.u32(offBufOffset)), intOf(h.u32(offResidual))
			// In order and each byte once, as was negotiated: what a target can make us queue is bounded.
			if n == 0 || n > int(i.c.p.maxBurst) || off != cmd.asked || off+n > block.VecLen(cmd.Out) {
				return fmt.Errorf("iscsi: R2T for %d bytes at %d, expected at %d of %d", n, off, cmd.asked, block.VecLen(cmd.Out))
			}
			cmd.asked += n
			i.dataOut(cmd, h.ttt(), off, n)
			i.wake.Signal()
			return nil
		case opDataIn:
			off := intOf(h.u32(offBufOffset))
			if off != cmd.InLen || !scatter(cmd.In, off, pdu.Data) {
				return fmt.Errorf("iscsi: %d bytes of Data-In at %d, have %d of %d", len(pdu.Data), off, cmd.InLen, block.VecLen(cmd.In))
			}
			cmd.InLen += len(pdu.Data)
			if h[offFlags]&flagStatus == 0 {
				return nil
			}
		default:
			if d := pdu.Data; len(d) >= 2 {
				cmd.Sense = d[2:][:min(len(d)-2, int(binary.BigEndian.Uint16(d)))]
			}
		}
		cmd.Status = h[offStatus]
		if failed(h, len(cmd.Out) > 0) || cmd.Status == scsi.StatusGood && cmd.asked < block.VecLen(cmd.Out) {
			cmd.Status, cmd.Sense = scsi.StatusCheckCondition, failureSense[:]
		}
		delete(i.tasks, cmd.itt)
		done = cmd
	case opTaskMgmtResp:
		m, ok := i.manages[h.itt()]
		if !ok {
			return fmt.Errorf("iscsi: an answer to task management %#x, which is not in progress", h.itt())
		}
		delete(i.manages, h.itt())
		r := scsi.TMFResponse(h[offResponse])
		if m.of != nil && r == scsi.TMFComplete && i.tasks[m.of.itt] == m.of {
			delete(i.tasks, m.of.itt)
			m.of.Lost, done = ErrAborted, m.of
		}
		managed = func() { m.done(r, nil) }
	case opAsync:
		if h[offAsyncEvent] != 0 {
			return fmt.Errorf("iscsi: the target ends the session (event %d)", h[offAsyncEvent])
		}
	default:
		return fmt.Errorf("iscsi: unexpected opcode %#x", op)
	}
	i.fillWindow()
	return nil
}
