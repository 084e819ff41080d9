// The state machine of a task. Its states are the command states of SAM-5 8.5, with the enabled
// state split by who has the task now, because an abort and a removal of the unit differ by that.
// SAM-5's blocked state is left out: it belongs to ACA, which no task can cause (NACA is refused).
//
//	        arrive        push          enable              submit
//	idle ----------> received --> dormant --+------> enabled <------> atDevice
//	 ^                  |             |     |           ^   |  done      |
//	 |                  |             |     +-> delayed-+   |            |
//	 | Done             |             |            |        |            |
//	 |                  |             +--------> aborting <-+------------+
//	 |                  v             v            v        v
//	 +-------------- completed <------+------------+--------+
//
// Only taskState.to changes the state, and it holds every change against the table of transitions.

package server

import "github.com/arraysim/arraysim/internal/block"

// phase is the state that a task is in. From dormant to aborting it is in its unit's task set.
type phase uint8

const (
	// idle: the front end has the task.
	idle phase = iota
	// received: it has its number and its I_T_L nexus. From here it ends without having been in
	// a task set: the LUN has no unit, or the set is full.
	received
	// dormant: it waits for older tasks (SAM-5 8.6).
	dormant
	// delayed: it may run, but the front end still works at it (Options.Delay). Nobody can get it
	// back before the delay is over.
	delayed
	// enabled: it is checked or carried out, or it waits for what is no request: memory, a save,
	// the end of other tasks. So it can end at any time.
	enabled
	// atDevice: its request, or its copy operation, is with a device. It ends when that is over, or
	// has been withdrawn.
	atDevice
	// aborting: it was aborted, and ends without a response of its own as soon as nobody else
	// has it any more.
	aborting
	// completed: it has its status and is out of the task set. Done is due.
	completed

	numPhases
)

// transitions says, as a set of bits, from which states each state may be entered. It is the other
// way round than one would write it: the state to enter is a constant wherever one changes, so that
// its row is too.
var transitions = [numPhases]uint32{
	idle:      1 << completed,
	received:  1 << idle,
	dormant:   1 << received,
	delayed:   1 << dormant,
	enabled:   1<<dormant | 1<<delayed | 1<<atDevice,
	atDevice:  1 << enabled,
	aborting:  1<<dormant | 1<<delayed | 1<<enabled | 1<<atDevice,
	completed: 1<<received | 1<<dormant | 1<<enabled | 1<<aborting,
}

var phaseNames = [numPhases]string{"idle", "received", "dormant", "delayed", "enabled", "at the device", "aborting", "completed"}

// elsewhere reports whether the task cannot end by itself now: it waits for the front end or a
// device.
func (p phase) elsewhere() bool { return p == delayed || p == atDevice || p == aborting }

// taskState is what the device server keeps in a Task. It holds all that a READ or WRITE needs, so
// that these allocate nothing.
type taskState struct {
	phase phase // changed by to only

	// Two facts that no state implies. The first is written by abort, and matters in the state
	// aborting only; the second is written by the task's copy operation, and read at the end.
	reportTaskAborted bool // another nexus aborted it: it ends with TASK ABORTED (TAS=1)
	countedByCopy     bool // the operation has counted the command, for each unit that took part

	// Set when the task is received, gone when it is completed.
	n       *Nexus
	itl     *ITL
	u       *Unit
	row     *Command // nil before the check
	start   int64    // when it arrived, in the executor's nanoseconds
	arrived uint64   // its number among the target's tasks

	// The request, and what goes on after it.
	req          block.Request
	vec          [1][]byte   // Data of a READ
	in           [1][]byte   // DataIn
	then         func(*Task) // called when the request has ended well
	continuation Continuation
	resume       func() // afterDelay, kept because the task is used again

	prev, next *Task     // in the task set, oldest first
	waiters    []*Waiter // task management functions that wait for the end of the task
}

// to changes the state. A change that is not in the table is a fault of this package.
func (st *taskState) to(p phase) {
	if transitions[p]>>(st.phase&31)&1 == 0 {
		illegal(st.phase, p)
	}
	st.phase = p
}

func illegal(from, to phase) {
	panic("scsi: internal error: a task that is " + phaseNames[from] + " cannot become " + phaseNames[to])
}

// Continuation is the state of a command of many steps. release is called once, when the task
// ends for whatever reason, and gives back what the command holds.
type Continuation interface{ Release(*Task) }
