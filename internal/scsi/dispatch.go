// The dispatch table: one row for each operation code and service action, with its handler.
// REPORT SUPPORTED OPERATION CODES answers from the same rows, so what is not here does not
// exist. It is checked as the program starts.

package scsi

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/scsi/cdb"
	"github.com/arraysim/arraysim/internal/scsi/copylist"
	"github.com/arraysim/arraysim/internal/scsi/copymgr"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sbc"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/scsi/spc"
)

// Names of bytes of usage data.
const (
	ff   = 0xFF
	ctrl = 0x04 // CONTROL: NACA is looked at
	grp  = 0x3F // GROUP NUMBER
	pdf  = 0xF8 // RD/WRPROTECT, DPO, FUA
	vfy  = 0xF6 // VRPROTECT, DPO, BYTCHK
	wsp  = 0xF8 // WRPROTECT, ANCHOR, UNMAP
)

// What rows need and pass, as package server names it.
const (
	none         = server.NoAction
	needMedium   = server.NeedMedium
	thinOnly     = server.ThinOnly
	atomicOnly   = server.AtomicOnly
	passBusy     = server.PassBusy
	strict       = server.Strict
	unlisted     = server.Unlisted
	passUA       = server.PassUA
	passStandby  = server.PassStandby
	groupSetters = server.GroupSetters
	passReserve  = server.PassReserve
	passLegacy   = server.PassLegacy
	mediumRead   = server.MediumRead
	mediumWrite  = server.MediumWrite
	passAll      = server.PassAll
	passAccess   = server.PassAccess
)

// row makes a row of the table. usage is the CDB usage data.
func row(name string, op byte, sa int, usage []byte, run func(*server.Task), flags server.Flags, kind counters.Op) *server.Command {
	return &server.Command{Name: name, Op: op, ServiceAction: sa, Usage: usage, Run: run, Flags: flags, Kind: kind}
}

// shortRows are the commands of 6 and 10 bytes, with the operation codes below 60h.
func shortRows() []*server.Command {
	return []*server.Command{
		row("TEST UNIT READY", 0x00, none, []byte{0x00, 0, 0, 0, 0, ctrl}, spc.TestUnitReady, needMedium|passReserve, counters.Other),
		row("REQUEST SENSE", 0x03, none, []byte{0x03, 1, 0, 0, ff, ctrl}, spc.RequestSense, passUA|passAll|passBusy|passAccess, counters.Other),
		row("FORMAT UNIT", 0x04, none, []byte{0x04, 0x3F, 0, 0, 0, ctrl}, sbc.FormatUnit, mediumWrite, counters.Erase),
		row("READ(6)", 0x08, none, []byte{0x08, 0x1F, ff, ff, ff, ctrl}, sbc.Read, mediumRead, counters.Read),
		row("WRITE(6)", 0x0A, none, []byte{0x0A, 0x1F, ff, ff, ff, ctrl}, sbc.Write, mediumWrite, counters.Write),
		row("INQUIRY", 0x12, none, []byte{0x12, 1, ff, ff, ff, ctrl}, spc.Inquiry, passUA|passAll|passBusy|passAccess, counters.Other),
		row("MODE SELECT(6)", 0x15, none, []byte{0x15, 0x11, 0, 0, ff, ctrl}, spc.ModeSelect, passStandby, counters.Other),
		row("RESERVE(6)", 0x16, none, []byte{0x16, 0, 0, 0, 0, ctrl}, spc.Reserve, 0, counters.Other),
		row("RELEASE(6)", 0x17, none, []byte{0x17, 0, 0, 0, 0, ctrl}, spc.Release, passLegacy, counters.Other),
		row("MODE SENSE(6)", 0x1A, none, []byte{0x1A, 0x08, ff, ff, ff, ctrl}, spc.ModeSense, passStandby, counters.Other),
		row("START STOP UNIT", 0x1B, none, []byte{0x1B, 1, 0, 0x0F, 0xF7, ctrl}, sbc.StartStop, 0, counters.Other),
		row("SEND DIAGNOSTIC", 0x1D, none, []byte{0x1D, 0xF7, 0, ff, ff, ctrl}, spc.SendDiagnostic, needMedium, counters.Other),
		row("PREVENT ALLOW MEDIUM REMOVAL", 0x1E, none, []byte{0x1E, 0, 0, 0, 3, ctrl}, spc.PreventAllowRemoval, 0, counters.Other),
		row("READ CAPACITY(10)", 0x25, none, []byte{0x25, 0, 0, 0, 0, 0, 0, 0, 0, ctrl}, sbc.ReadCapacity10, needMedium|passReserve, counters.Other),
		row("READ(10)", 0x28, none, []byte{0x28, pdf, ff, ff, ff, ff, grp, ff, ff, ctrl}, sbc.Read, mediumRead, counters.Read),
		row("WRITE(10)", 0x2A, none, []byte{0x2A, pdf, ff, ff, ff, ff, grp, ff, ff, ctrl}, sbc.Write, mediumWrite, counters.Write),
		row("WRITE AND VERIFY(10)", 0x2E, none, []byte{0x2E, vfy, ff, ff, ff, ff, grp, ff, ff, ctrl}, sbc.WriteVerify, mediumWrite, counters.Write),
		row("VERIFY(10)", 0x2F, none, []byte{0x2F, vfy, ff, ff, ff, ff, grp, ff, ff, ctrl}, sbc.Verify, mediumRead, counters.Other),
		row("PRE-FETCH(10)", 0x34, none, []byte{0x34, 2, ff, ff, ff, ff, grp, ff, ff, ctrl}, sbc.PreFetch, mediumRead, counters.Other),
		row("SYNCHRONIZE CACHE(10)", 0x35, none, []byte{0x35, 2, ff, ff, ff, ff, grp, ff, ff, ctrl}, sbc.Synchronize, needMedium, counters.Sync),
		row("READ DEFECT DATA(10)", 0x37, none, []byte{0x37, 0, sbc.DefectLists, 0, 0, 0, 0, ff, ff, ctrl}, sbc.ReadDefects10, mediumRead, counters.Other),
		row("WRITE SAME(10)", 0x41, none, []byte{0x41, wsp, ff, ff, ff, ff, grp, ff, ff, ctrl}, sbc.WriteSame, mediumWrite, counters.WriteSame),
		row("UNMAP", 0x42, none, []byte{0x42, 1, 0, 0, 0, 0, grp, ff, ff, ctrl}, sbc.Unmap, mediumWrite|thinOnly, counters.Unmap),
		row("SANITIZE, OVERWRITE", 0x48, sbc.SanitizeOverwrite, sanitizeCDB(sbc.SanitizeOverwrite), sbc.Sanitize, mediumWrite|strict, counters.Erase),
		row("SANITIZE, BLOCK ERASE", 0x48, sbc.SanitizeBlock, sanitizeCDB(sbc.SanitizeBlock), sbc.Sanitize, mediumWrite|strict, counters.Erase),
		row("SANITIZE, CRYPTOGRAPHIC ERASE", 0x48, sbc.SanitizeCrypto, sanitizeCDB(sbc.SanitizeCrypto), sbc.Sanitize, mediumWrite|strict, counters.Erase),
		row("SANITIZE, EXIT FAILURE MODE", 0x48, sbc.SanitizeExit, sanitizeCDB(sbc.SanitizeExit), sbc.Sanitize, strict, counters.Other),
		row("LOG SELECT", 0x4C, none, []byte{0x4C, 3, 0xFF, ff, 0, 0, 0, ff, ff, ctrl}, spc.LogSelect, passStandby, counters.Other),
		row("LOG SENSE", 0x4D, none, []byte{0x4D, 1, 0xFF, ff, 0, ff, ff, ff, ff, ctrl}, spc.LogSense, passReserve|passBusy|passStandby, counters.Other),
		row("MODE SELECT(10)", 0x55, none, []byte{0x55, 0x11, 0, 0, 0, 0, 0, ff, ff, ctrl}, spc.ModeSelect, passStandby, counters.Other),
		row("RESERVE(10)", 0x56, none, []byte{0x56, 0, 0, 0, 0, 0, 0, 0, 0, ctrl}, spc.Reserve, 0, counters.Other),
		row("RELEASE(10)", 0x57, none, []byte{0x57, 0, 0, 0, 0, 0, 0, 0, 0, ctrl}, spc.Release, passLegacy, counters.Other),
		row("MODE SENSE(10)", 0x5A, none, []byte{0x5A, 0x18, ff, ff, 0, 0, 0, ff, ff, ctrl}, spc.ModeSense, passStandby, counters.Other),
		row("PERSISTENT RESERVE IN, READ KEYS", 0x5E, 0, prIn(0), spc.ReadKeys, passReserve|passStandby, counters.Other),
		row("PERSISTENT RESERVE IN, READ RESERVATION", 0x5E, 1, prIn(1), spc.ReadReservation, passReserve|passStandby, counters.Other),
		row("PERSISTENT RESERVE IN, REPORT CAPABILITIES", 0x5E, 2, prIn(2), spc.ReportCapabilities, passReserve|passStandby, counters.Other),
		row("PERSISTENT RESERVE IN, READ FULL STATUS", 0x5E, 3, prIn(3), spc.ReadFullStatus, passReserve|passStandby, counters.Other),
		row("PERSISTENT RESERVE OUT, REGISTER", 0x5F, spc.PRRegister, prOut(spc.PRRegister), spc.PersistentReserveOut, passReserve|passStandby, counters.Other),
		row("PERSISTENT RESERVE OUT, RESERVE", 0x5F, spc.PRReserve, prOut(spc.PRReserve), spc.PersistentReserveOut, passReserve|passStandby, counters.Other),
		row("PERSISTENT RESERVE OUT, RELEASE", 0x5F, spc.PRRelease, prOut(spc.PRRelease), spc.PersistentReserveOut, passReserve|passStandby, counters.Other),
		row("PERSISTENT RESERVE OUT, CLEAR", 0x5F, spc.PRClear, prOut(spc.PRClear), spc.PersistentReserveOut, passReserve|passStandby, counters.Other),
		row("PERSISTENT RESERVE OUT, PREEMPT", 0x5F, spc.PRPreempt, prOut(spc.PRPreempt), spc.PersistentReserveOut, passReserve|passStandby, counters.Other),
		row("PERSISTENT RESERVE OUT, PREEMPT AND ABORT", 0x5F, spc.PRPreemptAbort, prOut(spc.PRPreemptAbort), spc.PersistentReserveOut, passReserve|passStandby, counters.Other),
		row("PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", 0x5F, spc.PRRegisterIgnore, prOut(spc.PRRegisterIgnore), spc.PersistentReserveOut, passReserve|passStandby, counters.Other),
		row("PERSISTENT RESERVE OUT, REGISTER AND MOVE", 0x5F, spc.PRMove, prOut(spc.PRMove), spc.PersistentReserveOut, passReserve|passStandby, counters.Other),
	}
}

// longRows are the commands of 12, 16 and 32 bytes, with the operation codes above 5Fh.
func longRows() []*server.Command {
	return []*server.Command{
		// By SBC-3 4.22.2 the 32-byte form is for units with type 2 protection. It is taken
		// all the same, as LIO takes it, but not listed for a unit that should not have it.
		row("WRITE SAME(32)", cdb.Variable, sbc.SAWriteSame32, []byte{cdb.Variable, ctrl, 0, 0, 0, 0, grp, 0x18, 0, sbc.SAWriteSame32, 0xF9, 0, ff, ff, ff, ff, ff, ff, ff, ff,
			0, 0, 0, 0, 0, 0, 0, 0, ff, ff, ff, ff}, sbc.WriteSame, mediumWrite|unlisted, counters.WriteSame),
		row("EXTENDED COPY(LID1)", 0x83, 0x00, []byte{0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, copymgr.ExtendedCopy, 0, counters.Other),
		row("EXTENDED COPY(LID4)", 0x83, copymgr.SACopyLID4, []byte{0x83, copymgr.SACopyLID4, 0, 0, 0, 0, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, copymgr.ExtendedCopy, 0, counters.Other),
		row("POPULATE TOKEN", 0x83, copymgr.SAPopulateToken, tokenOut(copymgr.SAPopulateToken), copymgr.PopulateToken, mediumRead, counters.ODXSource),
		row("WRITE USING TOKEN", 0x83, copymgr.SAWriteToken, tokenOut(copymgr.SAWriteToken), copymgr.WriteToken, mediumWrite, counters.ODXTarget),
		row("COPY OPERATION ABORT", 0x83, copymgr.SACopyAbort, []byte{0x83, copymgr.SACopyAbort, ff, ff, ff, ff, 0, 0, 0, 0, 0, 0, 0, 0, 0, ctrl}, copymgr.CopyAbort, 0, counters.Other),
		row("RECEIVE COPY STATUS(LID1)", 0x84, 0x00, copyIn(0x00), copymgr.CopyStatus, 0, counters.Other),
		row("RECEIVE COPY DATA(LID1)", 0x84, 0x01, copyIn(0x01), copymgr.CopyData, 0, counters.Other),
		row("RECEIVE COPY OPERATING PARAMETERS", 0x84, 0x03, copyIn(0x03), copylist.Parameters, passReserve, counters.Other),
		row("RECEIVE COPY FAILURE DETAILS(LID1)", 0x84, 0x04, copyIn(0x04), copymgr.CopyFailure, 0, counters.Other),
		row("RECEIVE COPY STATUS(LID4)", 0x84, 0x05, copyIn4(0x05), copymgr.CopyStatus4, 0, counters.Other),
		row("RECEIVE COPY DATA(LID4)", 0x84, 0x06, copyIn4(0x06), copymgr.CopyData, 0, counters.Other),
		row("RECEIVE ROD TOKEN INFORMATION", 0x84, 0x07, copyIn4(0x07), copymgr.TokenInformation, 0, counters.Other),
		row("REPORT ALL ROD TOKENS", 0x84, 0x08, []byte{0x84, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, copymgr.ReportTokens, 0, counters.Other),
		row("READ(16)", 0x88, none, rw16(0x88, pdf), sbc.Read, mediumRead, counters.Read),
		row("COMPARE AND WRITE", 0x89, none, []byte{0x89, pdf, ff, ff, ff, ff, ff, ff, ff, ff, 0, 0, 0, ff, grp, ctrl}, sbc.CompareAndWrite, mediumWrite, counters.CAW),
		row("WRITE(16)", 0x8A, none, rw16(0x8A, pdf), sbc.Write, mediumWrite, counters.Write),
		row("ORWRITE(16)", 0x8B, none, rw16(0x8B, pdf), sbc.OrWrite, mediumWrite, counters.Write),
		row("WRITE AND VERIFY(16)", 0x8E, none, rw16(0x8E, vfy), sbc.WriteVerify, mediumWrite, counters.Write),
		row("VERIFY(16)", 0x8F, none, rw16(0x8F, vfy), sbc.Verify, mediumRead, counters.Other),
		row("PRE-FETCH(16)", 0x90, none, rw16(0x90, 2), sbc.PreFetch, mediumRead, counters.Other),
		row("SYNCHRONIZE CACHE(16)", 0x91, none, rw16(0x91, 2), sbc.Synchronize, needMedium, counters.Sync),
		row("WRITE SAME(16)", 0x93, none, rw16(0x93, wsp|1), sbc.WriteSame, mediumWrite, counters.WriteSame),
		row("WRITE ATOMIC(16)", 0x9C, none, rw16(0x9C, pdf), sbc.WriteAtomic, mediumWrite|atomicOnly, counters.Write),
		row("READ CAPACITY(16)", 0x9E, 0x10, []byte{0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, sbc.ReadCapacity16, needMedium|passReserve, counters.Other),
		row("GET LBA STATUS(16)", 0x9E, 0x12, []byte{0x9E, 0x12, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, 0, ctrl}, sbc.LBAStatus, mediumRead, counters.Other),
		row("REPORT LUNS", 0xA0, none, []byte{0xA0, 0, ff, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, spc.ReportLUNs, passUA|passAll|passBusy|passAccess, counters.Other),
		row("REPORT IDENTIFYING INFORMATION", 0xA3, 0x05, []byte{0xA3, 0x05, 0, 0, 0, 0, ff, ff, ff, ff, 0xFE, ctrl}, spc.ReportIdentifyingInformation, passReserve|passAccess, counters.Other),
		row("REPORT TARGET PORT GROUPS", 0xA3, 0x0A, []byte{0xA3, 0xEA, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, spc.ReportGroups, passReserve|passBusy|passAccess, counters.Other),
		row("REPORT SUPPORTED OPERATION CODES", 0xA3, 0x0C, []byte{0xA3, 0x0C, 0x87, ff, ff, ff, ff, ff, ff, ff, 0, ctrl}, spc.ReportOpcodes, passBusy|passAccess, counters.Other),
		row("REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", 0xA3, 0x0D, []byte{0xA3, 0x0D, 0x80, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, spc.ReportTMFs, passBusy|passAccess, counters.Other),
		row("REPORT TIMESTAMP", 0xA3, 0x0F, []byte{0xA3, 0x0F, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, spc.ReportTimestamp, passReserve|passAccess, counters.Other),
		row("SET IDENTIFYING INFORMATION", 0xA4, 0x06, []byte{0xA4, 0x06, 0, 0, 0, 0, ff, ff, ff, ff, 0xFE, ctrl}, spc.SetIdentifyingInformation, passAccess, counters.Other),
		row("SET TARGET PORT GROUPS", 0xA4, 0x0A, []byte{0xA4, 0x0A, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, spc.SetGroups, passBusy|passAccess|groupSetters, counters.Other),
		row("SET TIMESTAMP", 0xA4, 0x0F, []byte{0xA4, 0x0F, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, spc.SetTimestamp, passAccess, counters.Other),
		row("READ(12)", 0xA8, none, rw12(0xA8, pdf), sbc.Read, mediumRead, counters.Read),
		row("WRITE(12)", 0xAA, none, rw12(0xAA, pdf), sbc.Write, mediumWrite, counters.Write),
		row("WRITE AND VERIFY(12)", 0xAE, none, rw12(0xAE, vfy), sbc.WriteVerify, mediumWrite, counters.Write),
		row("VERIFY(12)", 0xAF, none, rw12(0xAF, vfy), sbc.Verify, mediumRead, counters.Other),
		row("READ DEFECT DATA(12)", 0xB7, none, []byte{0xB7, sbc.DefectLists, ff, ff, ff, ff, ff, ff, ff, ff, 0, ctrl}, sbc.ReadDefects12, mediumRead, counters.Other),
	}
}

// allCommands is what every target serves.
var allCommands = server.NewCommands(checked(append(shortRows(), longRows()...)), []server.VPD{
	{Code: 0x00, Add: spc.SupportedPage}, {Code: 0x80, Add: spc.SerialNumberPage}, {Code: 0x83, Add: spc.IdentificationPage}, {Code: 0x86, Add: spc.ExtendedPage},
	{Code: 0x8F, Add: copylist.ThirdPartyCopyPage}, {Code: 0xB0, Add: sbc.BlockLimitsPage}, {Code: 0xB1, Add: sbc.CharacteristicsPage}, {Code: 0xB2, Add: sbc.ProvisioningPage},
}, spc.WithoutUnit)

func rw12(op, b1 byte) []byte { return []byte{op, b1, ff, ff, ff, ff, ff, ff, ff, ff, grp, ctrl} }

func rw16(op, b1 byte) []byte {
	return []byte{op, b1, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, grp, ctrl}
}

func sanitizeCDB(sa byte) []byte {
	b := []byte{0x48, sbc.SanitizeImmed | sbc.SanitizeAUSE | sa, 0, 0, 0, 0, 0, ff, ff, ctrl}
	if sa == sbc.SanitizeExit {
		b[1] = sa
	}
	return b
}

func prIn(sa byte) []byte { return []byte{0x5E, sa, 0, 0, 0, 0, 0, ff, ff, ctrl} }

func prOut(sa byte) []byte { return []byte{0x5F, sa, ff, 0, 0, ff, ff, ff, ff, ctrl} }

func copyIn4(sa byte) []byte {
	return []byte{0x84, sa, ff, ff, ff, ff, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}
}

func tokenOut(sa byte) []byte {
	return []byte{0x83, sa, 0, 0, 0, 0, ff, ff, ff, ff, ff, ff, ff, ff, grp, ctrl}
}

func copyIn(sa byte) []byte {
	return []byte{0x84, sa, ff, 0, 0, 0, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}
}

// checked returns the table. It panics when rows contradict each other or themselves.
func checked(table []*server.Command) []*server.Command {
	seen := map[[2]int]bool{}
	for i, c := range table {
		why := wrong(c)
		op, key := int(c.Op), [2]int{int(c.Op), c.ServiceAction}
		switch {
		case why != "":
		case seen[key], c.ServiceAction == none && i > 0 && table[i-1].Op == c.Op:
			why = "listed twice"
		case i > 0 && (int(table[i-1].Op) > op || int(table[i-1].Op) == op && table[i-1].ServiceAction >= c.ServiceAction && op != 0x5F):
			why = "out of order"
		}
		if why != "" {
			panic(fmt.Sprintf("scsi: internal error: command table, %s: %s", c.Name, why))
		}
		seen[key] = true
	}
	return table
}

// wrong says what a row contradicts itself in.
func wrong(c *server.Command) string {
	reservations := server.PassRead | server.PassReserve | server.PassLegacy
	switch want := cdb.Length(c.Op); {
	case c.Run == nil:
		return "no handler"
	case want != len(c.Usage):
		return "the operation code's group has a different CDB length"
	case c.Usage[0] != c.Op:
		return "usage data of another operation code"
	case c.Usage[c.Control()]&^ctrl != 0:
		return "usage data of CONTROL"
	case c.ServiceAction != none && int(c.Usage[1]&0x1F) != c.ServiceAction && c.Op != cdb.Variable:
		return "usage data of another service action"
	case c.Flags&server.Writes != 0 && c.Flags&(needMedium|reservations) != needMedium:
		return "a write must need the medium and respect reservations"
	}
	return ""
}
