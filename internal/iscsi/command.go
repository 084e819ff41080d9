package iscsi

import (
	"sync"

	"github.com/arraysim/arraysim/internal/buffers"
	"github.com/arraysim/arraysim/internal/scsi"
)

// chunkLen is the piece in which memory for Data-Out is taken, so that what a
// peer announces costs nothing until it sends or we ask for it.
const chunkLen = 256 << 10

// command is one SCSI command from its header to the last byte of its response.
// It is pooled. The reader owns it until it is submitted, the executor until
// Done, then the holder of the sending token.
type command struct {
	task scsi.Task
	conn *conn
	itt  uint32
	slot uint32 // in the connection's tags
	seq  uint64 // counts arrivals

	edtl      int // expected data transfer length
	read      bool
	write     bool
	immediate bool
	refuse    bool // answered with refuseSense, never submitted
	full      bool // refused because there is no memory: TASK SET FULL instead
	held      int  // bytes of the portal's memory that are charged
	cdb       [maxCDBLen]byte

	// Collection of Data-Out.
	out         []*buffers.Buffer
	lent        *receiveMemory // has all of the data, in the place of out
	received    int
	unsolicited bool   // Data-Out without R2T is still to come
	dataSN      uint32 // of the unsolicited sequence
	nextR2T     int    // offset of the next R2T
	r2tSN       uint32
	r2ts        []r2t  // outstanding, oldest first
	reserved    int    // of the connection's memory
	sequences   uint64 // of Data-Out that were asked for or ended
	owed        mark   // since when none did

	in []*buffers.Buffer // handed out by Get

	send dataIn
}

// r2t is an outstanding request for data.
type r2t struct {
	ttt      uint32
	offset   int
	length   int
	received int
	dataSN   uint32
}

// dataIn is the progress of a response.
type dataIn struct {
	total       int // bytes of Data-In to send
	sent        int
	chunk, off  int // position in task.DataIn
	burst       int // bytes sent of the present sequence
	sn          uint32
	statusSent  bool
	initialised bool
}

var commandPool sync.Pool

func getCommand(c *conn) *command {
	cmd, ok := commandPool.Get().(*command)
	if !ok {
		cmd = new(command)
		cmd.task.Ctx = cmd
		cmd.task.Bufs = cmd
		cmd.task.Done = taskDone
	}
	cmd.conn = c
	return cmd
}

// release gives back the command and all that it holds. Whoever owns the command
// calls it, once.
func (cmd *command) release() {
	c := cmd.conn
	for i, b := range cmd.out {
		b.Put()
		cmd.out[i] = nil
	}
	for i, b := range cmd.in {
		b.Put()
		cmd.in[i] = nil
	}
	cmd.out, cmd.in = cmd.out[:0], cmd.in[:0]
	if cmd.lent != nil {
		cmd.lent.leave()
		cmd.lent = nil
	}
	t := &cmd.task
	clear(t.DataOut)
	clear(t.DataIn)
	t.DataOut, t.DataIn = t.DataOut[:0], t.DataIn[:0]
	t.Status, t.Sense, t.InTotal, t.OutTotal, t.Aborted = 0, nil, 0, 0, false
	cmd.received, cmd.dataSN, cmd.nextR2T, cmd.r2tSN = 0, 0, 0, 0
	cmd.r2ts = cmd.r2ts[:0]
	cmd.sequences, cmd.owed = 0, mark{}
	cmd.refuse, cmd.full, cmd.unsolicited = false, false, false
	cmd.send = dataIn{}
	reserved, immediate := cmd.reserved, cmd.immediate
	if cmd.held > 0 {
		c.portal.budget.give(&c.account, int64(cmd.held))
		cmd.held = 0
	}
	cmd.reserved, cmd.immediate, cmd.conn = 0, false, nil
	commandPool.Put(cmd)

	if immediate {
		c.immediates.Add(-1)
	}
	if reserved > 0 {
		c.unreserve(reserved)
	}
	c.inflight.Add(-1)
}

// Get implements scsi.Buffers. It is called on the executor.
func (cmd *command) Get(n int) []byte {
	b := buffers.Get(n)
	cmd.in = append(cmd.in, b)
	return b.B[:n]
}

// place appends to dst where the n bytes of Data-Out from offset off on belong,
// and takes the memory for it. Preconditions: off+n <= edtl.
func (cmd *command) place(dst [][]byte, off, n int) [][]byte {
	for len(cmd.out)*chunkLen < off+n {
		size := min(chunkLen, cmd.edtl-len(cmd.out)*chunkLen)
		b := buffers.Get(size)
		cmd.out = append(cmd.out, b)
		cmd.task.DataOut = append(cmd.task.DataOut, b.B[:size])
	}
	for n > 0 {
		piece := cmd.task.DataOut[off/chunkLen][off%chunkLen:]
		piece = piece[:min(len(piece), n)]
		dst = append(dst, piece)
		off += len(piece)
		n -= len(piece)
	}
	return dst
}

// collected tells whether all Data-Out is here.
func (cmd *command) collected() bool {
	return !cmd.unsolicited && (!cmd.write || cmd.refuse || cmd.received == cmd.edtl)
}

// taskDone is Task.Done of every command.
func taskDone(t *scsi.Task) {
	cmd := t.Ctx.(*command)
	c := cmd.conn
	if t.Aborted {
		c.forget(cmd)
		return
	}
	if cmd.held > 0 {
		cmd.settleCharge()
	}
	c.enqueue(outItem{cmd: cmd})
}

// refuseSense is ILLEGAL REQUEST, INVALID FIELD IN CDB in fixed format: for
// transfers in both directions at once or longer than the portal's limit.
var refuseSense = [18]byte{0: 0x70, 2: 0x05, 7: 10, 12: 0x24}

// residual compares what the command moves with what the initiator expected
// (RFC 7143 11.4.5).
func (cmd *command) residual() (flag byte, count uint32) {
	t := &cmd.task
	moves := 0
	switch {
	case cmd.refuse:
	case cmd.write:
		moves = t.OutTotal
	case t.Status == scsi.StatusGood:
		moves = t.InTotal
		if !cmd.read {
			moves += t.OutTotal
		}
	default:
		moves = cmd.send.total
	}
	switch {
	case moves > cmd.edtl:
		return flagOverflow, uint32(moves - cmd.edtl)
	case moves < cmd.edtl:
		return flagUnderflow, uint32(cmd.edtl - moves)
	}
	return 0, 0
}
