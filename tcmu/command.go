package tcmu

import "fmt"

// All says to [Command.Complete] that everything in Command.Data is what the
// initiator shall get, or that the command brought data instead of asking for some.
const All = -1

// maxCDB is the longest CDB (SPC-5 4.2.3: 8 bytes and ADDITIONAL CDB LENGTH).
const maxCDB = 260

// Command is one SCSI command of a ring. The handler has it from [Handler].Serve
// until it calls Complete, which it does exactly once, from any goroutine.
//
// The kernel says neither which initiator sent the command, nor with which task
// attribute, nor in which direction its data goes: the CDB alone tells that.
type Command struct {
	// CDB is a copy; it is valid until Complete. Its length is the one that its
	// operation code has, 10 bytes for one that has no standard length.
	CDB []byte
	// Data is the memory that the kernel made for the command's data, in order. For
	// a command that writes it holds what the initiator sent. For a command that
	// reads it is to be filled; it may hold bytes of earlier commands, so what is
	// not filled must be cut off by Complete. Its length is what the initiator
	// announced, not what the CDB says. It must not be touched after Complete.
	Data [][]byte
	// Ctx is the handler's own. Commands are used again, and Ctx keeps its value
	// then: what a handler allocates for a command it can hang in here once.
	Ctx any

	dev        *Device
	id         uint16
	state      commandState
	prev, next *Command
	cdb        [maxCDB]byte
	segments   [][]byte // the memory of Data
	touched    byte     // what touch read
}

type commandState uint8

const (
	stateFree commandState = iota
	stateLive
	stateKept // status is given, buffers are not
)

// ID is the kernel's number for the command. [TMR].IDs lists these. The kernel uses
// it again after Complete.
func (c *Command) ID() uint16 { return c.id }

// Len is the number of bytes in Data.
func (c *Command) Len() int {
	n := 0
	for _, s := range c.Data {
		n += len(s)
	}
	return n
}

// Complete ends the command with a SAM status, and sense data when that is CHECK
// CONDITION (02h). Of Data the initiator gets the first readLen bytes, or all with
// [All]. With CHECK CONDITION it gets data only if readLen is above 0. Commands may
// end in any order.
//
// The interface cannot express "no data at all" for a status other than CHECK
// CONDITION; then, as where the kernel knows no length, Data is filled with
// zeros from readLen on. So a command that wrote shall end with All.
func (c *Command) Complete(status byte, sense []byte, readLen int) {
	c.respond(status, sense, readLen, 0)
}

// Keep is Complete, but Data stays the handler's until Free: it can acknowledge a
// write and use the data afterwards. It tells whether the kernel can do that; if
// not, nothing has happened.
func (c *Command) Keep(status byte, sense []byte, readLen int) bool {
	if c.dev.caps&capKeepBuf == 0 || c.dev.freeKept == nil {
		return false
	}
	c.respond(status, sense, readLen, uflagKeepBuf)
	return true
}

// Free gives the memory back after Keep.
func (c *Command) Free() error {
	d := c.dev
	d.mu.Lock()
	if c.state != stateKept {
		d.mu.Unlock()
		panic("tcmu: Free of a command that is not kept")
	}
	id, lost := c.id, d.wasReset()
	d.mu.Unlock()
	var err error
	if !lost { // else it may be the number of another one
		err = d.freeKept(id)
	}
	d.mu.Lock()
	d.retire(c)
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("tcmu: kept buffer of command %d: %w", id, err)
	}
	return nil
}

const statusCheckCondition = 0x02

func (c *Command) respond(status byte, sense []byte, readLen int, flags uint8) {
	length := c.Len()
	check := status == statusCheckCondition
	if readLen < 0 && !check || readLen > length {
		readLen = length
	}
	r := cmdResponse{status: status}
	switch {
	case readLen == length && !check || readLen <= 0 && check:
		// What the kernel does without being told.
	case readLen > 0 && c.dev.caps&capReadLen != 0:
		flags |= uflagReadLen
		r.readLen = uint32(readLen)
	case !check:
		if c.dev.Guard(func() { c.clear(readLen) }) != nil {
			r = cmdResponse{status: statusCheckCondition}
			sense = internalFailure[:]
		}
	}
	copy(r.sense[:], sense)
	r.uflags = flags
	c.dev.complete(c, &r)
}

// clear zeroes Data from byte n on.
func (c *Command) clear(n int) {
	for _, s := range c.Data {
		k := min(n, len(s))
		clear(s[k:])
		n -= k
	}
}

// cdbLen is the length of a CDB that begins with op and continues in more, as the
// kernel reckons it: it cuts vendor specific ones to 10 bytes.
func cdbLen(op byte, additional byte) int {
	if op == 0x7F {
		return 8 + int(additional)
	}
	return [8]int{6, 10, 10, 12, 16, 12, 10, 10}[op>>5]
}
