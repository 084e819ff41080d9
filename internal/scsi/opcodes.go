// What a command is: a row of the dispatch table, its flags, and how a row is found by the bytes
// of a CDB. Handlers may use this; the rows themselves, which name the handlers, are above them
// in dispatch.go.

package scsi

import "github.com/arraysim/arraysim/internal/scsi/counters"

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

// table is filled by init, because the handlers of REPORT SUPPORTED OPERATION
// CODES refer to it. It never changes afterwards.
var table []*command

// served finds the row of an operation code: cmd, or one of sas.
type served struct {
	cmd *command
	sas []*command // in ascending order of service action
}

var servedOps [256]served

// lookup finds the row of a CDB, or nil.
func lookup(cdb []byte) *command {
	if len(cdb) < 6 {
		return nil
	}
	s := &servedOps[cdb[0]]
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
