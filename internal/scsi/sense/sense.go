// Package sense has what a status alone does not say: sense data and unit attention conditions
// (SPC-5 4.4). It is the only one that encodes sense data, and knows no task.
package sense

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/sam"
)

// Code is a sense key, additional sense code and qualifier as 0xKKAAQQ.
type Code uint32

// Sense codes that the device server reports (SPC-5 annex F).
const (
	NoSense             Code = 0x000000
	UnitNotReady        Code = 0x020400 // LOGICAL UNIT NOT READY, CAUSE NOT REPORTABLE
	FormatInProgress    Code = 0x020404
	OperationInProgress Code = 0x020407 // LOGICAL UNIT NOT READY, OPERATION IN PROGRESS
	SanitizeInProgress  Code = 0x02041B
	PortStandby         Code = 0x02040B // LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE
	PortUnavailable     Code = 0x02040C // LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE
	MediumNotPresent    Code = 0x023A00
	MediumWriteError    Code = 0x030C00
	MediumReadError     Code = 0x031100
	FormatCorrupted     Code = 0x033100 // MEDIUM FORMAT CORRUPTED
	FormatFailed        Code = 0x033101
	SanitizeFailed      Code = 0x033103
	InternalFailure     Code = 0x044400
	ParameterListLength Code = 0x051A00
	InvalidOpcode       Code = 0x052000
	LBAOutOfRange       Code = 0x052100
	InvalidFieldInCDB   Code = 0x052400
	LUNNotSupported     Code = 0x052500
	InvalidFieldInList  Code = 0x052600
	TooManyCSCDs        Code = 0x052606
	UnsupportedCSCD     Code = 0x052607
	TooManySegments     Code = 0x052608
	UnsupportedSegment  Code = 0x052609
	InlineDataExceeded  Code = 0x05260B
	ListIDInUse         Code = 0x050016 // OPERATION IN PROGRESS
	WrongOperand        Code = 0x050E03 // INVALID FIELD IN COMMAND INFORMATION UNIT
	InvalidRelease      Code = 0x052604 // INVALID RELEASE OF PERSISTENT RESERVATION
	SavingNotSupported  Code = 0x053900
	RemovalPrevented    Code = 0x055302
	InsufficientRegs    Code = 0x055504
	TokenNoCause        Code = 0x052300 // INVALID TOKEN OPERATION
	TokenType           Code = 0x052301 // UNSUPPORTED TOKEN TYPE
	TokenUnknown        Code = 0x052304
	TokenRevoked        Code = 0x052306
	TokenExpired        Code = 0x052307
	TokenDeleted        Code = 0x052309
	TokenBadLength      Code = 0x05230A // INVALID TOKEN LENGTH
	WriteProtected      Code = 0x072700
	AllocationFailed    Code = 0x072707 // SPACE ALLOCATION FAILED WRITE PROTECT
	CopyDeviceFailure   Code = 0x0A0D01 // THIRD PARTY DEVICE FAILURE
	CopyNotReachable    Code = 0x0A0D02 // COPY TARGET DEVICE NOT REACHABLE
	CopyIncorrectType   Code = 0x0A0D03 // INCORRECT COPY TARGET DEVICE TYPE
	CopyInvalidField    Code = 0x0A2600
	CopyInexact         Code = 0x0A260A // UNEXPECTED INEXACT SEGMENT
	CopyNoROD           Code = 0x0A550D // INSUFFICIENT RESOURCES TO CREATE ROD TOKEN
	CopyGranularity     Code = 0x0A260D // COPY SEGMENT GRANULARITY VIOLATION
	CopyAborted         Code = 0x0A0000
	MiscompareVerify    Code = 0x0E1D00
)

func (c Code) key() byte  { return byte(c >> 16) }
func (c Code) asc() byte  { return byte(c >> 8) }
func (c Code) ascq() byte { return byte(c) }

// Data is what a CHECK CONDITION says. It is a value; how it looks on the wire
// depends on D_SENSE of the unit's control mode page.
type Data struct {
	Code
	Information    uint64 // INFORMATION
	Specific       uint64 // COMMAND-SPECIFIC INFORMATION
	HasInformation bool
	HasSpecific    bool
	KeySpecific    [3]byte // SENSE KEY SPECIFIC; SKSV is bit 7 of the first byte
	// ForwardedFrom and fwd forward what a copy source (1) or destination (2) said
	// (SPC-5 4.4.2.8); fwdStatus is its SAM status.
	ForwardedFrom   byte
	ForwardedStatus byte
	Forwarded       Code
}

// Bits of the first byte of a field pointer (SPC-5 4.4.2.4.2).
const (
	sksv   = 0x80
	sksCDB = 0x40 // C/D: the pointer is into the CDB
	sksSD  = 0x20 // copy: the pointer is into a segment descriptor
	sksBPV = 0x08
)

// InCDB is INVALID FIELD IN CDB with a pointer to bit (the most significant of
// the field) of a byte of the CDB.
func InCDB(offset, bit int) Data {
	return Data{Code: InvalidFieldInCDB, KeySpecific: [3]byte{sksv | sksCDB | sksBPV | byte(bit), byte(offset >> 8), byte(offset)}}
}

// InList points to a byte of the parameter list.
func InList(c Code, offset int) Data {
	return Data{Code: c, KeySpecific: [3]byte{sksv, byte(offset >> 8), byte(offset)}}
}

// BitInList points to a bit (the most significant of the field) of a byte of the parameter list.
func BitInList(c Code, offset, bit int) Data {
	return Data{Code: c, KeySpecific: [3]byte{sksv | sksBPV | byte(bit), byte(offset >> 8), byte(offset)}}
}

// InSegment points to a byte of the segment descriptor that a copy is at.
func InSegment(c Code, offset int) Data {
	return Data{Code: c, KeySpecific: [3]byte{sksv | sksSD, byte(offset >> 8), byte(offset)}}
}

// UnsupportedOpcode is INVALID COMMAND OPERATION CODE, with a pointer to that code as a whole.
func UnsupportedOpcode() Data {
	return Data{Code: InvalidOpcode, KeySpecific: [3]byte{sksv | sksCDB, 0, 0}}
}

// WithProgress adds the PROGRESS INDICATION, done of total in 65536ths (SPC-5 4.4.2.4.4).
func (c Code) WithProgress(done, total uint64) Data {
	p := done * 65535 / max(total, 1)
	return Data{Code: c, KeySpecific: [3]byte{sksv, byte(p >> 8), byte(p)}}
}

// WithInfo adds the INFORMATION field.
func (c Code) WithInfo(info uint64) Data {
	return Data{Code: c, Information: info, HasInformation: true}
}

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

// Encode writes the sense data into dst, which has room for 64 bytes.
func (s *Data) Encode(dst []byte, descriptor bool) []byte {
	if descriptor {
		return s.encodeDescriptors(dst)
	}
	n := fixedLen
	b := dst[:fixedLen]
	clear(b)
	b[0] = 0x70
	b[fixedKey] = s.key()
	if s.HasInformation && s.Information>>32 == 0 { // a larger value does not fit: VALID stays 0
		b[0] |= 0x80
		binary.BigEndian.PutUint32(b[fixedInfo:], uint32(s.Information))
	}
	if s.HasSpecific {
		binary.BigEndian.PutUint32(b[fixedSpecific:], uint32(s.Specific))
	}
	b[fixedASC], b[fixedASC+1] = s.asc(), s.ascq()
	copy(b[fixedSKS:], s.KeySpecific[:])
	if s.ForwardedFrom != 0 {
		// SPC-4 6.4.6.3: bytes 8 and 9 say where the status byte and sense data
		// of the source and of the destination begin.
		b[fixedSpecific+int(s.ForwardedFrom)-1] = fixedLen
		b = dst[:fixedLen+1+fixedLen]
		b[n] = s.ForwardedStatus
		n++
		if s.ForwardedStatus == sam.StatusCheckCondition {
			inner := Data{Code: s.Forwarded}
			n += len(inner.Encode(b[n:], false))
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

func (s *Data) encodeDescriptors(dst []byte) []byte {
	b := append(dst[:0], 0x72, s.key(), s.asc(), s.ascq(), 0, 0, 0, 0)
	if s.HasInformation {
		b = append(b, descInformation, 10, 0x80, 0)
		b = binary.BigEndian.AppendUint64(b, s.Information)
	}
	if s.HasSpecific {
		b = append(b, descSpecific, 10, 0, 0)
		b = binary.BigEndian.AppendUint64(b, s.Specific)
	}
	if s.KeySpecific[0]&sksv != 0 {
		b = append(b, descSKS, 6, 0, 0, s.KeySpecific[0], s.KeySpecific[1], s.KeySpecific[2], 0)
	}
	if s.ForwardedFrom != 0 {
		b = append(b, descForwarded, 2, s.ForwardedFrom, s.ForwardedStatus)
		if s.ForwardedStatus == sam.StatusCheckCondition {
			b[len(b)-3] += 8
			b = append(b, 0x72, s.Forwarded.key(), s.Forwarded.asc(), s.Forwarded.ascq(), 0, 0, 0, 0)
		}
	}
	b[7] = byte(len(b) - 8)
	return b
}
