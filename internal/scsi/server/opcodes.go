// What a command is: a row of the dispatch table, its flags, and how a row is found by the bytes
// of a CDB. Handlers may use this; the rows themselves, which name the handlers, are above them
// in dispatch.go.

package server

import (
	"github.com/arraysim/arraysim/internal/scsi/cdb"
	"github.com/arraysim/arraysim/internal/scsi/counters"
)

// Command is one row of the dispatch table: an operation code, or one service action of it.
type Command struct {
	Name          string
	Op            byte
	ServiceAction int    // service action, or none
	Usage         []byte // CDB usage data (SPC-5 6.35.3); its length is that of the CDB
	Run           func(*Task)
	Flags         Flags
	Kind          counters.Op // how the host layer counts it
}

const NoAction = -1

// Flags of a command.
type Flags uint16

const (
	PassUA          Flags = 1 << iota // neither reports nor clears a unit attention condition
	NeedMedium                        // needs the medium to be there and started
	Writes                            // changes the medium
	ThinOnly                          // exists on thin provisioned units only
	AtomicOnly                        // exists where the device has atomic writes
	PassBusy                          // works while the medium is erased
	Strict                            // refuses bits that mean nothing
	Unlisted                          // not in the list of all commands
	PassStandby                       // works on a port in standby (SPC-5 5.17.2.5)
	passUnavailable                   // works on an unavailable port (SPC-5 5.17.2.6)
	GroupSetters                      // exists for initiators that Options.SetGroups names
	// Which reservations of others let it pass. Without any of the three it is
	// refused by every reservation that does not include the nexus.
	PassRead    // passes Write Exclusive reservations (SBC-4 table 13)
	PassReserve // passes all persistent reservations (SPC-5 table 66)
	PassLegacy  // passes RESERVE(6) and RESERVE(10) of another nexus (SPC-2 5.5)
)

// Groups of flags.
const (
	MediumRead  = NeedMedium | PassRead
	MediumWrite = NeedMedium | Writes
	PassAll     = PassReserve | PassLegacy
	PassAccess  = PassStandby | passUnavailable
	conditional = ThinOnly | AtomicOnly | GroupSetters // offered has to be asked
)

// Commands is what a target serves: the rows of the dispatch table, and the vital product data
// pages. It never changes.
type Commands struct {
	table []*Command // in ascending order of operation code and service action
	byOp  [256]served
	pages []VPD // in ascending order of page code
	// withoutUnit serves those commands to a LUN without a unit that do not end with LOGICAL UNIT NOT
	// SUPPORTED there, and reports whether this is one of them.
	withoutUnit func(*Task) bool
}

// served finds the row of an operation code: cmd, or one of sas.
type served struct {
	cmd *Command
	sas []*Command // in ascending order of service action
}

// VPD is a vital product data page.
type VPD struct {
	Code byte
	Add  func(x *ITL, b []byte) []byte // appends the page behind its header
}

// NewCommands makes a table of rows that do not contradict each other. They and the pages are in
// order.
func NewCommands(table []*Command, pages []VPD, withoutUnit func(*Task) bool) *Commands {
	all := &Commands{table: table, pages: pages, withoutUnit: withoutUnit}
	for _, c := range table {
		s := &all.byOp[c.Op]
		if c.ServiceAction == NoAction {
			s.cmd = c
			continue
		}
		s.sas = append(s.sas, c)
	}
	return all
}

// Pages returns the vital product data pages, in ascending order.
func (all *Commands) Pages() []VPD { return all.pages }

// Rows returns all rows, in the order of the table.
func (all *Commands) Rows() []*Command { return all.table }

// Served returns the rows of an operation code: the one without a service action, or those of its
// service actions.
func (all *Commands) Served(op byte) (cmd *Command, sas []*Command) {
	return all.byOp[op].cmd, all.byOp[op].sas
}

// Lookup finds the row of a CDB, or nil.
func (all *Commands) Lookup(b []byte) *Command {
	if len(b) < 6 {
		return nil
	}
	s := &all.byOp[b[0]]
	if s.sas == nil {
		return s.cmd
	}
	sa := int(b[1] & 0x1F)
	if b[0] == cdb.Variable {
		if len(b) < 10 {
			return nil
		}
		sa = int(b[8])<<8 | int(b[9])
	}
	for _, c := range s.sas {
		if c.ServiceAction == sa {
			return c
		}
	}
	return nil
}

// Page finds a vital product data page, or nil.
func (all *Commands) Page(code byte) *VPD {
	for i := range all.pages {
		if all.pages[i].Code == code {
			return &all.pages[i]
		}
	}
	return nil
}

// Control returns the offset of the CONTROL byte.
func (c *Command) Control() int {
	if c.Op == cdb.Variable {
		return 1
	}
	return len(c.Usage) - 1
}

// on reports whether the unit has the command.
func (c *Command) on(u *Unit) bool {
	return (c.Flags&ThinOnly == 0 || u.info.Thin) && (c.Flags&AtomicOnly == 0 || u.info.AtomicSectors > 0)
}

// Offered reports whether the unit has the command for this I_T_L nexus.
func (c *Command) Offered(x *ITL) bool {
	return c.on(x.u) && (c.Flags&GroupSetters == 0 || x.n.SetsGroups())
}
