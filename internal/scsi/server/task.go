// What a front end and this package say to each other: tasks, task management functions, and the
// options of targets and units.

package server

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/alua"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/saved"
)

// Buffers hands out buffers for Data-In. They belong to the task until the front
// end has sent them. The memory need not be zeroed.
type Buffers interface {
	Get(n int) []byte
}

// Task is one command on its way through the SCSI layer. A front end takes it
// from a pool, fills the first group of fields, submits it on its Nexus, and owns
// it again when Done is called (on the executor, exactly once, never from inside
// Submit).
//
// A front end collects all of the Data-Out before it submits: DataOut may be
// shorter than what the CDB describes, then only that much is transferred, and
// OutTotal tells the front end what residual to report.
type Task struct {
	LUN     uint64   // SAM-5 LUN, as the 8 bytes on the wire read big endian
	Tag     uint64   // for task management
	Attr    sam.Attr //
	CDB     []byte   // 6 to 260 bytes, owned by the front end until Done
	DataOut [][]byte // what the initiator sent
	MaxIn   int      // the initiator's Data-In buffer, in bytes
	Bufs    Buffers  // where Data-In memory comes from
	Done    func(*Task)
	Ctx     any // the front end's own
	// Remaps is the count of Nexus.CountRemaps when the command began to arrive, or 0. If the unit has come to its LUN since
	// then, or the count was higher when its nexus was created, the command ends with LOGICAL UNIT NOT SUPPORTED; if another
	// nexus has aborted what came by the LUN since then, with TASK ABORTED.
	Remaps uint64
	// Stale, if it is there, is asked when the command begins: where it returns true, that ends with BUSY.
	Stale func(*Task) bool

	Status   byte     // SAM status, StatusGood...
	Sense    []byte   // sense data with Status CheckCondition, in senseBuf
	DataIn   [][]byte // at most MaxIn bytes
	InTotal  int      // bytes that the command transfers in when MaxIn suffices
	OutTotal int      // bytes of Data-Out that the CDB describes
	Aborted  bool     // ended by task management: the front end sends no response

	senseBuf [64]byte
	state    taskState
}

// Options describe a Target; see NewTarget.
type Options struct {
	// Name is the SCSI target's name (an iSCSI name), Vendor, Product and Revision are what INQUIRY reports for all
	// units alike: ESXi refuses XCOPY between units of different product identification.
	Name, Vendor, Product, Revision string
	Exec                            block.Executor
	// Ports are the target ports and their groups; nil is port 1 in group 1.
	Ports []alua.Port
	// SetGroups reports whether the initiator of this name may change the state of target port
	// groups (SET TARGET PORT GROUPS): all initiators of the target feel that. Nil: none may.
	SetGroups func(initiator string) bool
	// Survived: what the units acknowledged before the target was made, in another process, is all there. Initiators then hear of a
	// DEVICE INTERNAL RESET in place of a power-on, after which they would take unflushed data for lost.
	Survived bool
	// Random fills its argument with bytes that nobody can guess; ROD tokens are made of them, without it there are none.
	Random func([]byte)
	// Delay, if it is there, tells how long the front end works at a task before the command is carried out, in
	// nanoseconds. It is called when the task is enabled; the task counts as arrived, and may be aborted, meanwhile.
	Delay func(*Task) int64
	// Serving, if it is there, is asked when a command begins, and does not wait: where it returns false, that ends with BUSY.
	Serving func() bool
}

// UnitOptions are what a Target adds to a Device to make a logical unit of it.
type UnitOptions struct {
	Removable    bool // RMB=1: START STOP UNIT can unload it, PREVENT ALLOW works
	WriteProtect bool // SWP-like protection that an initiator cannot lift
	// State is what Save got last, of another life of the unit; see Parsesaved.State.
	State saved.State
	// Save makes state durable and calls done, on the executor, not from inside Save. Calls are carried out in order.
	// Without it nothing can be saved, and commands that ask for it are refused.
	Save func(state []byte, done func(error))
	// MaxTasks is the size of the task set: more tasks end with TASK SET FULL, and those above half of it
	// of one initiator where others see the unit. 0 means 4096.
	MaxTasks int
}
