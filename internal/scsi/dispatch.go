// The dispatch table: one row for each operation code and service action, with its handler.
// REPORT SUPPORTED OPERATION CODES answers from the same rows, so what is not here does not
// exist. It is checked as the program starts.

package scsi

import "github.com/arraysim/arraysim/internal/scsi/counters"

// Names of bytes of usage data.
const (
	ff   = 0xFF
	ctrl = 0x04 // CONTROL: NACA is looked at
	grp  = 0x3F // GROUP NUMBER
	pdf  = 0xF8 // RD/WRPROTECT, DPO, FUA
	vfy  = 0xF6 // VRPROTECT, DPO, BYTCHK
	wsp  = 0xF8 // WRPROTECT, ANCHOR, UNMAP
)

// shortRows are the commands of 6 and 10 bytes, with the operation codes below 60h.
func shortRows() []*command {
	return []*command{
		{"TEST UNIT READY", 0x00, none, []byte{0x00, 0, 0, 0, 0, ctrl}, doTestUnitReady, needMedium | passReserve, counters.Other},
		{"REQUEST SENSE", 0x03, none, []byte{0x03, 1, 0, 0, ff, ctrl}, doRequestSense, passUA | passAll | passBusy | passAccess, counters.Other},
		{"FORMAT UNIT", 0x04, none, []byte{0x04, 0x3F, 0, 0, 0, ctrl}, doFormat, mediumWrite, counters.Erase},
		{"READ(6)", 0x08, none, []byte{0x08, 0x1F, ff, ff, ff, ctrl}, doRead, mediumRead, counters.Read},
		{"WRITE(6)", 0x0A, none, []byte{0x0A, 0x1F, ff, ff, ff, ctrl}, doWrite, mediumWrite, counters.Write},
		{"INQUIRY", 0x12, none, []byte{0x12, 1, ff, ff, ff, ctrl}, doInquiry, passUA | passAll | passBusy | passAccess, counters.Other},
		{"MODE SELECT(6)", 0x15, none, []byte{0x15, 0x11, 0, 0, ff, ctrl}, doModeSelect, passStandby, counters.Other},
		{"RESERVE(6)", 0x16, none, []byte{0x16, 0, 0, 0, 0, ctrl}, doReserve, 0, counters.Other},
		{"RELEASE(6)", 0x17, none, []byte{0x17, 0, 0, 0, 0, ctrl}, doRelease, passLegacy, counters.Other},
		{"MODE SENSE(6)", 0x1A, none, []byte{0x1A, 0x08, ff, ff, ff, ctrl}, doModeSense, passStandby, counters.Other},
		{"START STOP UNIT", 0x1B, none, []byte{0x1B, 1, 0, 0x0F, 0xF7, ctrl}, doStartStop, 0, counters.Other},
		{"SEND DIAGNOSTIC", 0x1D, none, []byte{0x1D, 0xF7, 0, ff, ff, ctrl}, doSendDiagnostic, needMedium, counters.Other},
		{"PREVENT ALLOW MEDIUM REMOVAL", 0x1E, none, []byte{0x1E, 0, 0, 0, 3, ctrl}, doPreventAllow, 0, counters.Other},
		{"READ CAPACITY(10)", 0x25, none, []byte{0x25, 0, 0, 0, 0, 0, 0, 0, 0, ctrl}, doReadCapacity10, needMedium | passReserve, counters.Other},
		{"READ(10)", 0x28, none, []byte{0x28, pdf, ff, ff, ff, ff, grp, ff, ff, ctrl}, doRead, mediumRead, counters.Read},
		{"WRITE(10)", 0x2A, none, []byte{0x2A, pdf, ff, ff, ff, ff, grp, ff, ff, ctrl}, doWrite, mediumWrite, counters.Write},
		{"WRITE AND VERIFY(10)", 0x2E, none, []byte{0x2E, vfy, ff, ff, ff, ff, grp, ff, ff, ctrl}, doWriteVerify, mediumWrite, counters.Write},
		{"VERIFY(10)", 0x2F, none, []byte{0x2F, vfy, ff, ff, ff, ff, grp, ff, ff, ctrl}, doVerify, mediumRead, counters.Other},
		{"PRE-FETCH(10)", 0x34, none, []byte{0x34, 2, ff, ff, ff, ff, grp, ff, ff, ctrl}, doPreFetch, mediumRead, counters.Other},
		{"SYNCHRONIZE CACHE(10)", 0x35, none, []byte{0x35, 2, ff, ff, ff, ff, grp, ff, ff, ctrl}, doSynchronize, needMedium, counters.Sync},
		{"READ DEFECT DATA(10)", 0x37, none, []byte{0x37, 0, maskDefects, 0, 0, 0, 0, ff, ff, ctrl}, doReadDefects10, mediumRead, counters.Other},
		{"WRITE SAME(10)", 0x41, none, []byte{0x41, wsp, ff, ff, ff, ff, grp, ff, ff, ctrl}, doWriteSame, mediumWrite, counters.WriteSame},
		{"UNMAP", 0x42, none, []byte{0x42, 1, 0, 0, 0, 0, grp, ff, ff, ctrl}, doUnmap, mediumWrite | thinOnly, counters.Unmap},
		{"SANITIZE, OVERWRITE", 0x48, sanitizeOverwrite, sanitizeCDB(sanitizeOverwrite), doSanitize, mediumWrite | strict, counters.Erase},
		{"SANITIZE, BLOCK ERASE", 0x48, sanitizeBlock, sanitizeCDB(sanitizeBlock), doSanitize, mediumWrite | strict, counters.Erase},
		{"SANITIZE, CRYPTOGRAPHIC ERASE", 0x48, sanitizeCrypto, sanitizeCDB(sanitizeCrypto), doSanitize, mediumWrite | strict, counters.Erase},
		{"SANITIZE, EXIT FAILURE MODE", 0x48, sanitizeExit, sanitizeCDB(sanitizeExit), doSanitize, strict, counters.Other},
		{"LOG SELECT", 0x4C, none, []byte{0x4C, 3, 0xFF, ff, 0, 0, 0, ff, ff, ctrl}, doLogSelect, passStandby, counters.Other},
		{"LOG SENSE", 0x4D, none, []byte{0x4D, 1, 0xFF, ff, 0, ff, ff, ff, ff, ctrl}, doLogSense, passReserve | passBusy | passStandby, counters.Other},
		{"MODE SELECT(10)", 0x55, none, []byte{0x55, 0x11, 0, 0, 0, 0, 0, ff, ff, ctrl}, doModeSelect, passStandby, counters.Other},
		{"RESERVE(10)", 0x56, none, []byte{0x56, 0, 0, 0, 0, 0, 0, 0, 0, ctrl}, doReserve, 0, counters.Other},
		{"RELEASE(10)", 0x57, none, []byte{0x57, 0, 0, 0, 0, 0, 0, 0, 0, ctrl}, doRelease, passLegacy, counters.Other},
		{"MODE SENSE(10)", 0x5A, none, []byte{0x5A, 0x18, ff, ff, 0, 0, 0, ff, ff, ctrl}, doModeSense, passStandby, counters.Other},
		{"PERSISTENT RESERVE IN, READ KEYS", 0x5E, 0, prIn(0), doReadKeys, passReserve | passStandby, counters.Other},
		{"PERSISTENT RESERVE IN, READ RESERVATION", 0x5E, 1, prIn(1), doReadReservation, passReserve | passStandby, counters.Other},
		{"PERSISTENT RESERVE IN, REPORT CAPABILITIES", 0x5E, 2, prIn(2), doReportCapabilities, passReserve | passStandby, counters.Other},
		{"PERSISTENT RESERVE IN, READ FULL STATUS", 0x5E, 3, prIn(3), doReadFullStatus, passReserve | passStandby, counters.Other},
		{"PERSISTENT RESERVE OUT, REGISTER", 0x5F, prRegister, prOut(prRegister), doPROut, passReserve | passStandby, counters.Other},
		{"PERSISTENT RESERVE OUT, RESERVE", 0x5F, prReserve, prOut(prReserve), doPROut, passReserve | passStandby, counters.Other},
		{"PERSISTENT RESERVE OUT, RELEASE", 0x5F, prRelease, prOut(prRelease), doPROut, passReserve | passStandby, counters.Other},
		{"PERSISTENT RESERVE OUT, CLEAR", 0x5F, prClear, prOut(prClear), doPROut, passReserve | passStandby, counters.Other},
		{"PERSISTENT RESERVE OUT, PREEMPT", 0x5F, prPreempt, prOut(prPreempt), doPROut, passReserve | passStandby, counters.Other},
		{"PERSISTENT RESERVE OUT, PREEMPT AND ABORT", 0x5F, prPreemptAbort, prOut(prPreemptAbort), doPROut, passReserve | passStandby, counters.Other},
		{"PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", 0x5F, prRegisterIgnore, prOut(prRegisterIgnore), doPROut, passReserve | passStandby, counters.Other},
		{"PERSISTENT RESERVE OUT, REGISTER AND MOVE", 0x5F, prMove, prOut(prMove), doPROut, passReserve | passStandby, counters.Other},
	}
}

// longRows are the commands of 12, 16 and 32 bytes, with the operation codes above 5Fh.
func longRows() []*command {
	return []*command{
		// By SBC-3 4.22.2 the 32-byte form is for units with type 2 protection. It is taken
		// all the same, as LIO takes it, but not listed for a unit that should not have it.
		{"WRITE SAME(32)", opVariable, saWriteSame32, []byte{opVariable, ctrl, 0, 0, 0, 0, grp, 0x18, 0, saWriteSame32, 0xF9, 0, ff, ff, ff, ff, ff, ff, ff, ff,
			0, 0, 0, 0, 0, 0, 0, 0, ff, ff, ff, ff}, doWriteSame, mediumWrite | unlisted, counters.WriteSame},
		{"EXTENDED COPY(LID1)", 0x83, 0x00, []byte{0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, doExtendedCopy, 0, counters.Other},
		{"EXTENDED COPY(LID4)", 0x83, saCopyLID4, []byte{0x83, saCopyLID4, 0, 0, 0, 0, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, doExtendedCopy, 0, counters.Other},
		{"POPULATE TOKEN", 0x83, saPopulateToken, tokenOut(saPopulateToken), doPopulateToken, mediumRead, counters.ODXSource},
		{"WRITE USING TOKEN", 0x83, saWriteToken, tokenOut(saWriteToken), doWriteToken, mediumWrite, counters.ODXTarget},
		{"COPY OPERATION ABORT", 0x83, saCopyAbort, []byte{0x83, saCopyAbort, ff, ff, ff, ff, 0, 0, 0, 0, 0, 0, 0, 0, 0, ctrl}, doCopyAbort, 0, counters.Other},
		{"RECEIVE COPY STATUS(LID1)", 0x84, 0x00, copyIn(0x00), doCopyStatus, 0, counters.Other},
		{"RECEIVE COPY DATA(LID1)", 0x84, 0x01, copyIn(0x01), doCopyData, 0, counters.Other},
		{"RECEIVE COPY OPERATING PARAMETERS", 0x84, 0x03, copyIn(0x03), doCopyParameters, passReserve, counters.Other},
		{"RECEIVE COPY FAILURE DETAILS(LID1)", 0x84, 0x04, copyIn(0x04), doCopyFailure, 0, counters.Other},
		{"RECEIVE COPY STATUS(LID4)", 0x84, 0x05, copyIn4(0x05), doCopyStatus4, 0, counters.Other},
		{"RECEIVE COPY DATA(LID4)", 0x84, 0x06, copyIn4(0x06), doCopyData, 0, counters.Other},
		{"RECEIVE ROD TOKEN INFORMATION", 0x84, 0x07, copyIn4(0x07), doTokenInformation, 0, counters.Other},
		{"REPORT ALL ROD TOKENS", 0x84, 0x08, []byte{0x84, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, doReportTokens, 0, counters.Other},
		{"READ(16)", 0x88, none, rw16(0x88, pdf), doRead, mediumRead, counters.Read},
		{"COMPARE AND WRITE", 0x89, none, []byte{0x89, pdf, ff, ff, ff, ff, ff, ff, ff, ff, 0, 0, 0, ff, grp, ctrl}, doCompareAndWrite, mediumWrite, counters.CAW},
		{"WRITE(16)", 0x8A, none, rw16(0x8A, pdf), doWrite, mediumWrite, counters.Write},
		{"ORWRITE(16)", 0x8B, none, rw16(0x8B, pdf), doOrWrite, mediumWrite, counters.Write},
		{"WRITE AND VERIFY(16)", 0x8E, none, rw16(0x8E, vfy), doWriteVerify, mediumWrite, counters.Write},
		{"VERIFY(16)", 0x8F, none, rw16(0x8F, vfy), doVerify, mediumRead, counters.Other},
		{"PRE-FETCH(16)", 0x90, none, rw16(0x90, 2), doPreFetch, mediumRead, counters.Other},
		{"SYNCHRONIZE CACHE(16)", 0x91, none, rw16(0x91, 2), doSynchronize, needMedium, counters.Sync},
		{"WRITE SAME(16)", 0x93, none, rw16(0x93, wsp|1), doWriteSame, mediumWrite, counters.WriteSame},
		{"WRITE ATOMIC(16)", 0x9C, none, rw16(0x9C, pdf), doWriteAtomic, mediumWrite | atomicOnly, counters.Write},
		{"READ CAPACITY(16)", 0x9E, 0x10, []byte{0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, doReadCapacity16, needMedium | passReserve, counters.Other},
		{"GET LBA STATUS(16)", 0x9E, 0x12, []byte{0x9E, 0x12, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, 0, ctrl}, doLBAStatus, mediumRead, counters.Other},
		{"REPORT LUNS", 0xA0, none, []byte{0xA0, 0, ff, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, doReportLUNs, passUA | passAll | passBusy | passAccess, counters.Other},
		{"REPORT IDENTIFYING INFORMATION", 0xA3, 0x05, []byte{0xA3, 0x05, 0, 0, 0, 0, ff, ff, ff, ff, 0xFE, ctrl}, doReportIdent, passReserve | passAccess, counters.Other},
		{"REPORT TARGET PORT GROUPS", 0xA3, 0x0A, []byte{0xA3, 0xEA, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, doReportGroups, passReserve | passBusy | passAccess, counters.Other},
		{"REPORT SUPPORTED OPERATION CODES", 0xA3, 0x0C, []byte{0xA3, 0x0C, 0x87, ff, ff, ff, ff, ff, ff, ff, 0, ctrl}, doReportOpcodes, passBusy | passAccess, counters.Other},
		{"REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", 0xA3, 0x0D, []byte{0xA3, 0x0D, 0x80, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, doReportTMFs, passBusy | passAccess, counters.Other},
		{"REPORT TIMESTAMP", 0xA3, 0x0F, []byte{0xA3, 0x0F, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, doReportTimestamp, passReserve | passAccess, counters.Other},
		{"SET IDENTIFYING INFORMATION", 0xA4, 0x06, []byte{0xA4, 0x06, 0, 0, 0, 0, ff, ff, ff, ff, 0xFE, ctrl}, doSetIdent, passAccess, counters.Other},
		{"SET TARGET PORT GROUPS", 0xA4, 0x0A, []byte{0xA4, 0x0A, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, doSetGroups, passBusy | passAccess | groupSetters, counters.Other},
		{"SET TIMESTAMP", 0xA4, 0x0F, []byte{0xA4, 0x0F, 0, 0, 0, 0, ff, ff, ff, ff, 0, ctrl}, doSetTimestamp, passAccess, counters.Other},
		{"READ(12)", 0xA8, none, rw12(0xA8, pdf), doRead, mediumRead, counters.Read},
		{"WRITE(12)", 0xAA, none, rw12(0xAA, pdf), doWrite, mediumWrite, counters.Write},
		{"WRITE AND VERIFY(12)", 0xAE, none, rw12(0xAE, vfy), doWriteVerify, mediumWrite, counters.Write},
		{"VERIFY(12)", 0xAF, none, rw12(0xAF, vfy), doVerify, mediumRead, counters.Other},
		{"READ DEFECT DATA(12)", 0xB7, none, []byte{0xB7, maskDefects, ff, ff, ff, ff, ff, ff, ff, ff, 0, ctrl}, doReadDefects12, mediumRead, counters.Other},
	}
}

// served is what every target serves.
var allCommands = newCommands(append(shortRows(), longRows()...), []vpd{
	{0x00, vpdSupported}, {0x80, vpdSerial}, {0x83, vpdIdentification}, {0x86, vpdExtended},
	{0x8F, vpdThirdParty}, {0xB0, vpdBlockLimits}, {0xB1, vpdCharacteristics}, {0xB2, vpdProvisioning},
}, withoutUnit)

func rw12(op, b1 byte) []byte { return []byte{op, b1, ff, ff, ff, ff, ff, ff, ff, ff, grp, ctrl} }

func rw16(op, b1 byte) []byte {
	return []byte{op, b1, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, ff, grp, ctrl}
}

func sanitizeCDB(sa byte) []byte {
	b := []byte{0x48, sanitizeImmed | sanitizeAUSE | sa, 0, 0, 0, 0, 0, ff, ff, ctrl}
	if sa == sanitizeExit {
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
