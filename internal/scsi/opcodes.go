// What a command is: a row of the dispatch table, its flags, and how a row is found by the bytes
// of a CDB. Handlers may use this; the rows themselves, which name the handlers, are above them
// in dispatch.go.

package scsi

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/scsi/counters"
)

// command is one row of the dispatch table: an operation code, or one service
// action of it.
type command struct {
	name  string
	op    byte
	sa    int    // service action, or none
	usage []byte // CDB usage data (SPC-5 6.35.3); its length is that of the CDB
	run   func(*Task)
	flags flags
	kind  counters.Op // how the host layer counts it
}

const none = -1

// flags of a command.
type flags uint16

const (
	passUA          flags = 1 << iota // neither reports nor clears a unit attention condition
	needMedium                        // needs the medium to be there and started
	writes                            // changes the medium
	thinOnly                          // exists on thin provisioned units only
	atomicOnly                        // exists where the device has atomic writes
	passBusy                          // works while the medium is erased
	strict                            // refuses bits that mean nothing
	unlisted                          // not in the list of all commands
	passStandby                       // works on a port in standby (SPC-5 5.17.2.5)
	passUnavailable                   // works on an unavailable port (SPC-5 5.17.2.6)
	groupSetters                      // exists for initiators that Options.SetGroups names
	// Which reservations of others let it pass. Without any of the three it is
	// refused by every reservation that does not include the nexus.
	passRead    // passes Write Exclusive reservations (SBC-4 table 13)
	passReserve // passes all persistent reservations (SPC-5 table 66)
	passLegacy  // passes RESERVE(6) and RESERVE(10) of another nexus (SPC-2 5.5)
)

// Groups of flags.
const (
	mediumRead  = needMedium | passRead
	mediumWrite = needMedium | writes
	passAll     = passReserve | passLegacy
	passAccess  = passStandby | passUnavailable
	conditional = thinOnly | atomicOnly | groupSetters // offered has to be asked
)

// opVariable is the operation code of CDBs of variable length.
const (
	opVariable    = 0x7F
	saWriteSame32 = 0x0D
)

// commands is what a target serves: the rows of the dispatch table, and the vital product data pages.
// It never changes.
type commands struct {
	table []*command // in ascending order of operation code and service action
	byOp  [256]served
	pages []vpd // in ascending order of page code
	// withoutUnit serves those commands to a LUN without a unit that do not end with LOGICAL UNIT NOT
	// SUPPORTED there, and reports whether this is one of them.
	withoutUnit func(*Task) bool
}

// served finds the row of an operation code: cmd, or one of sas.
type served struct {
	cmd *command
	sas []*command // in ascending order of service action
}

// vpd is a vital product data page.
type vpd struct {
	code byte
	add  func(x *itl, b []byte) []byte // appends the page behind its header
}

// newCommands makes a table of rows. It panics for rows that contradict each other or themselves.
func newCommands(table []*command, pages []vpd, withoutUnit func(*Task) bool) *commands {
	all := &commands{table: table, pages: pages, withoutUnit: withoutUnit}
	for i, c := range table {
		fail := func(why string) { panic(fmt.Sprintf("scsi: internal error: command table, %s: %s", c.name, why)) }
		if why := c.wrong(); why != "" {
			fail(why)
		}
		if i > 0 && (table[i-1].op > c.op || table[i-1].op == c.op && table[i-1].sa >= c.sa && c.op != 0x5F) {
			fail("out of order")
		}
		s := &all.byOp[c.op]
		if c.sa == none {
			if s.cmd != nil || s.sas != nil {
				fail("listed twice")
			}
			s.cmd = c
			continue
		}
		for _, d := range s.sas {
			if d.sa == c.sa {
				fail("listed twice")
			}
		}
		s.sas = append(s.sas, c)
	}
	return all
}

// wrong says what a row contradicts itself in.
func (c *command) wrong() string {
	const nacaOnly = 0x04
	switch want := cdbLength(c.op); {
	case c.run == nil:
		return "no handler"
	case want != len(c.usage):
		return "the operation code's group has another CDB length"
	case c.usage[0] != c.op:
		return "usage data of another operation code"
	case c.usage[c.control()]&^nacaOnly != 0:
		return "usage data of CONTROL"
	case c.sa != none && int(c.usage[1]&0x1F) != c.sa && c.op != opVariable:
		return "usage data of another service action"
	case c.flags&writes != 0 && c.flags&(needMedium|passRead|passReserve|passLegacy) != needMedium:
		return "a write must need the medium and respect reservations"
	}
	return ""
}

// rows returns all rows, in the order of the table.
func (all *commands) rows() []*command { return all.table }

// served returns the rows of an operation code: the one without a service action, or those of its
// service actions.
func (all *commands) served(op byte) (cmd *command, sas []*command) {
	return all.byOp[op].cmd, all.byOp[op].sas
}

// lookup finds the row of a CDB, or nil.
func (all *commands) lookup(cdb []byte) *command {
	if len(cdb) < 6 {
		return nil
	}
	s := &all.byOp[cdb[0]]
	if s.sas == nil {
		return s.cmd
	}
	sa := int(cdb[1] & 0x1F)
	if cdb[0] == opVariable {
		if len(cdb) < 10 {
			return nil
		}
		sa = int(cdb[8])<<8 | int(cdb[9])
	}
	for _, c := range s.sas {
		if c.sa == sa {
			return c
		}
	}
	return nil
}

// page finds a vital product data page, or nil.
func (all *commands) page(code byte) *vpd {
	for i := range all.pages {
		if all.pages[i].code == code {
			return &all.pages[i]
		}
	}
	return nil
}

// cdbLength is the length of a CDB by its operation code's group (SPC-5 4.2.5.1).
func cdbLength(op byte) int {
	if op == opVariable {
		return 32
	}
	switch op >> 5 {
	case 0:
		return 6
	case 1, 2:
		return 10
	case 4:
		return 16
	case 5:
		return 12
	}
	return 0
}

// control returns the offset of the CONTROL byte.
func (c *command) control() int {
	if c.op == opVariable {
		return 1
	}
	return len(c.usage) - 1
}

// on reports whether the unit has the command.
func (c *command) on(u *Unit) bool {
	return (c.flags&thinOnly == 0 || u.info.Thin) && (c.flags&atomicOnly == 0 || u.info.AtomicSectors > 0)
}

// offered reports whether the unit has the command for this I_T_L nexus.
func (c *command) offered(x *itl) bool {
	return c.on(x.u) && (c.flags&groupSetters == 0 || x.n.setsGroups())
}
