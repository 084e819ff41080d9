// The state of a task.

package scsi

import "github.com/arraysim/arraysim/internal/block"

// phase is where a task stands between Submit and Done.
type phase uint8

const (
	idle    phase = iota // not in a task set
	dormant              // waits for older tasks (SAM-5 8.5)
	enabled              // runs
	over                 // ended; Done is due
)

// taskState is what the device server keeps in a Task. It holds everything that a
// READ or WRITE needs, so that these allocate nothing.
type taskState struct {
	req   block.Request
	vec   [1][]byte // Data of a READ
	in    [1][]byte // DataIn
	n     *Nexus
	itl   *itl
	u     *Unit
	row   *command
	then  func(*Task) // what goes on when the request has ended well
	multi stepper     // state of a command of many steps
	start int64
	// arrived numbers the target's tasks.
	arrived uint64
	// resume is afterDelay, kept because the task is used again.
	resume func()

	prev, next *Task // the unit's task set, oldest first
	phase      phase
	blocks     bool // ORDERED or HEAD OF QUEUE: others wait for it
	member     bool // in the unit's task set
	inDevice   bool // req is with the device, or the task is delayed
	delayed    bool // waits in the front end, see Options.Delay
	aborted    bool
	booked     bool      // already counted in another way
	told       bool      // aborted by another nexus: TASK ABORTED status (TAS=1)
	waiters    []*waiter // task management functions that wait for this task
}

// stepper is a command of many steps. end is called once, when the task ends for
// whatever reason, to release what the command holds.
type stepper interface{ end(*Task) }
