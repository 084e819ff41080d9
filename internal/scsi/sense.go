// Sense data: the codes that the device server reports, their two formats on the wire, and how
// the outcome of a request becomes a SAM status. Nobody else encodes sense data.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
)

// code is a sense key, additional sense code and qualifier as 0xKKAAQQ.
type code uint32

// Sense codes that the device server reports (SPC-5 annex F).
const (
	noSense             code = 0x000000
	unitNotReady        code = 0x020400 // LOGICAL UNIT NOT READY, CAUSE NOT REPORTABLE
	formatInProgress    code = 0x020404
	sanitizeInProgress  code = 0x02041B
	portStandby         code = 0x02040B // LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE
	portUnavailable     code = 0x02040C // LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE
	mediumNotPresent    code = 0x023A00
	mediumWriteError    code = 0x030C00
	mediumReadError     code = 0x031100
	formatCorrupted     code = 0x033100 // MEDIUM FORMAT CORRUPTED
	formatFailed        code = 0x033101
	sanitizeFailed      code = 0x033103
	internalFailure     code = 0x044400
	parameterListLength code = 0x051A00
	invalidOpcode       code = 0x052000
	lbaOutOfRange       code = 0x052100
	invalidFieldInCDB   code = 0x052400
	lunNotSupported     code = 0x052500
	invalidFieldInList  code = 0x052600
	tooManyCSCDs        code = 0x052606
	unsupportedCSCD     code = 0x052607
	tooManySegments     code = 0x052608
	unsupportedSegment  code = 0x052609
	inlineDataExceeded  code = 0x05260B
	listIDInUse         code = 0x050016 // OPERATION IN PROGRESS
	wrongOperand        code = 0x050E03 // INVALID FIELD IN COMMAND INFORMATION UNIT
	invalidRelease      code = 0x052604 // INVALID RELEASE OF PERSISTENT RESERVATION
	savingNotSupported  code = 0x053900
	removalPrevented    code = 0x055302
	insufficientRegs    code = 0x055504
	tokenNoCause        code = 0x052300 // INVALID TOKEN OPERATION
	tokenType           code = 0x052301 // UNSUPPORTED TOKEN TYPE
	tokenUnknown        code = 0x052304
	tokenRevoked        code = 0x052306
	tokenExpired        code = 0x052307
	tokenDeleted        code = 0x052309
	tokenBadLength      code = 0x05230A // INVALID TOKEN LENGTH
	writeProtected      code = 0x072700
	allocationFailed    code = 0x072707 // SPACE ALLOCATION FAILED WRITE PROTECT
	copyDeviceFailure   code = 0x0A0D01 // THIRD PARTY DEVICE FAILURE
	copyNotReachable    code = 0x0A0D02 // COPY TARGET DEVICE NOT REACHABLE
	copyIncorrectType   code = 0x0A0D03 // INCORRECT COPY TARGET DEVICE TYPE
	copyInvalidField    code = 0x0A2600
	copyInexact         code = 0x0A260A // UNEXPECTED INEXACT SEGMENT
	copyNoROD           code = 0x0A550D // INSUFFICIENT RESOURCES TO CREATE ROD TOKEN
	copyGranularity     code = 0x0A260D // COPY SEGMENT GRANULARITY VIOLATION
	copyAborted         code = 0x0A0000
	miscompareVerify    code = 0x0E1D00
)

func (c code) key() byte  { return byte(c >> 16) }
func (c code) asc() byte  { return byte(c >> 8) }
func (c code) ascq() byte { return byte(c) }

// sense is what a CHECK CONDITION says. It is a value; how it looks on the wire
// depends on D_SENSE of the unit's control mode page.
type sense struct {
	code
	info        uint64 // INFORMATION
	specific    uint64 // COMMAND-SPECIFIC INFORMATION
	hasInfo     bool
	hasSpecific bool
	sks         [3]byte // SENSE KEY SPECIFIC; SKSV is bit 7 of the first byte
	// from and fwd forward what a copy source (1) or destination (2) said
	// (SPC-5 4.4.2.8); fwdStatus is its SAM status.
	from      byte
	fwdStatus byte
	fwd       code
}

// Bits of the first byte of a field pointer (SPC-5 4.4.2.4.2).
const (
	sksv   = 0x80
	sksCDB = 0x40 // C/D: the pointer is into the CDB
	sksSD  = 0x20 // copy: the pointer is into a segment descriptor
	sksBPV = 0x08
)

// inCDB is INVALID FIELD IN CDB with a pointer to bit (the most significant of
// the field) of a byte of the CDB.
func inCDB(offset, bit int) sense {
	return sense{code: invalidFieldInCDB, sks: [3]byte{sksv | sksCDB | sksBPV | byte(bit), byte(offset >> 8), byte(offset)}}
}

// inList points to a byte of the parameter list.
func inList(c code, offset int) sense {
	return sense{code: c, sks: [3]byte{sksv, byte(offset >> 8), byte(offset)}}
}

// withInfo adds the INFORMATION field.
func (c code) withInfo(info uint64) sense { return sense{code: c, info: info, hasInfo: true} }

// Offsets of fixed format sense data (SPC-5 4.4.3).
const (
	fixedKey      = 2
	fixedInfo     = 3
	fixedLength   = 7
	fixedSpecific = 8
	fixedASC      = 12
	fixedSKS      = 15
	fixedLen      = 18
)

// encode writes the sense data into dst, which has room for 64 bytes.
func (s *sense) encode(dst []byte, descriptor bool) []byte {
	if descriptor {
		return s.encodeDescriptors(dst)
	}
	n := fixedLen
	b := dst[:fixedLen]
	clear(b)
	b[0] = 0x70
	b[fixedKey] = s.key()
	if s.hasInfo && s.info>>32 == 0 { // a larger value does not fit: VALID stays 0
		b[0] |= 0x80
		binary.BigEndian.PutUint32(b[fixedInfo:], uint32(s.info))
	}
	if s.hasSpecific {
		binary.BigEndian.PutUint32(b[fixedSpecific:], uint32(s.specific))
	}
	b[fixedASC], b[fixedASC+1] = s.asc(), s.ascq()
	copy(b[fixedSKS:], s.sks[:])
	if s.from != 0 {
		// SPC-4 6.4.6.3: bytes 8 and 9 say where the status byte and sense data
		// of the source and of the destination begin.
		b[fixedSpecific+int(s.from)-1] = fixedLen
		b = dst[:fixedLen+1+fixedLen]
		b[n] = s.fwdStatus
		n++
		if s.fwdStatus == StatusCheckCondition {
			inner := sense{code: s.fwd}
			n += len(inner.encode(b[n:], false))
		}
		b = b[:n]
	}
	b[fixedLength] = byte(n - fixedLength - 1)
	return b
}

// Sense data descriptor types (SPC-5 4.4.2).
const (
	descInformation = 0x00
	descSpecific    = 0x01
	descSKS         = 0x02
	descForwarded   = 0x0C
)

func (s *sense) encodeDescriptors(dst []byte) []byte {
	b := append(dst[:0], 0x72, s.key(), s.asc(), s.ascq(), 0, 0, 0, 0)
	if s.hasInfo {
		b = append(b, descInformation, 10, 0x80, 0)
		b = binary.BigEndian.AppendUint64(b, s.info)
	}
	if s.hasSpecific {
		b = append(b, descSpecific, 10, 0, 0)
		b = binary.BigEndian.AppendUint64(b, s.specific)
	}
	if s.sks[0]&sksv != 0 {
		b = append(b, descSKS, 6, 0, 0, s.sks[0], s.sks[1], s.sks[2], 0)
	}
	if s.from != 0 {
		b = append(b, descForwarded, 2, s.from, s.fwdStatus)
		if s.fwdStatus == StatusCheckCondition {
			b[len(b)-3] += 8
			b = append(b, 0x72, s.fwd.key(), s.fwd.asc(), s.fwd.ascq(), 0, 0, 0, 0)
		}
	}
	b[7] = byte(len(b) - 8)
	return b
}

// badBlock is a medium error with the first bad block in INFORMATION, if the device knows it (SBC-4
// 4.18.1): hosts take what comes before it for good.
func (u *Unit) badBlock(c code, req *block.Request) sense {
	if !req.Located {
		return sense{code: c}
	}
	return c.withInfo((req.Range.Start + req.Offset>>block.SectorShift) >> u.shift)
}

// outcome turns the status of a request into a SAM status and sense data. It is
// the only place that does.
func (u *Unit) outcome(req *block.Request) (byte, sense) {
	check := func(c code) (byte, sense) { return StatusCheckCondition, sense{code: c} }
	switch req.Status {
	case block.OK:
		return StatusGood, sense{}
	case block.Miscompare:
		return StatusCheckCondition, miscompareVerify.withInfo(req.Offset)
	case block.OutOfRange:
		return check(lbaOutOfRange)
	case block.NoSpace:
		return check(allocationFailed)
	case block.MediumRead:
		return StatusCheckCondition, u.badBlock(mediumReadError, req)
	case block.MediumWrite:
		return StatusCheckCondition, u.badBlock(mediumWriteError, req)
	case block.Cancelled:
		if u.removed {
			return check(lunNotSupported)
		}
		return StatusTaskAborted, sense{}
	case block.Gone:
		return check(lunNotSupported)
	case block.ReadOnly:
		return check(writeProtected)
	case block.Offline:
		return check(unitNotReady)
	case block.Resources:
		return StatusBusy, sense{}
	case block.Unsupported:
		return check(invalidOpcode)
	default: // Hardware, and what this layer does not know
		return check(internalFailure)
	}
}
