package iscsi

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// Initiator opcodes (RFC 7143 11.2.1.2).
const (
	opNopOut   = 0x00
	opCommand  = 0x01
	opTaskMgmt = 0x02
	opLogin    = 0x03
	opText     = 0x04
	opDataOut  = 0x05
	opLogout   = 0x06
	opSNACK    = 0x10
)

// Target opcodes.
const (
	opNopIn        = 0x20
	opResponse     = 0x21
	opTaskMgmtResp = 0x22
	opLoginResp    = 0x23
	opTextResp     = 0x24
	opDataIn       = 0x25
	opLogoutResp   = 0x26
	opR2T          = 0x31
	opAsync        = 0x32
	opReject       = 0x3f
)

const (
	immediateBit = 0x40 // in byte 0
	opcodeMask   = 0x3f

	flagFinal    = 0x80 // in byte 1 of most PDUs; T in a login
	flagContinue = 0x40 // C in login and text

	// SCSI Command.
	flagRead  = 0x40
	flagWrite = 0x20
	attrMask  = 0x07

	// SCSI Response and Data-In.
	flagOverflow  = 0x04
	flagUnderflow = 0x02
	flagStatus    = 0x01 // S, Data-In only
)

// Offsets in the basic header segment. Those that only some PDUs have say which.
const (
	offFlags     = 1
	offResponse  = 2 // SCSI, task management, logout responses; reject reason
	offStatus    = 3
	offAHSLen    = 4 // in words
	offDataLen   = 5 // 3 bytes
	offLUN       = 8
	offITT       = 16
	offTTT       = 20
	offEDTL      = 20 // SCSI Command
	offRefTask   = 20 // task management
	offCID       = 20 // login, logout
	offCmdSN     = 24 // from the initiator
	offStatSN    = 24 // from the target
	offExpStatSN = 28 // from the initiator
	offExpCmdSN  = 28 // from the target
	offMaxCmdSN  = 32 // from the target
	offRefCmdSN  = 32 // task management
	offCDB       = 32 // SCSI Command
	offDataSN    = 36 // Data-Out, Data-In; R2TSN; ExpDataSN
	offBufOffset = 40 // Data-Out, Data-In, R2T
	offResidual  = 44 // SCSI Response, Data-In; desired length in R2T

	// Login.
	offVersionMax  = 2
	offVersionMin  = 3 // active version in the response
	offISID        = 8 // 6 bytes
	offTSIH        = 14
	offStatusClass = 36

	// Logout response.
	offTime2Wait   = 40
	offTime2Retain = 42

	// Asynchronous message.
	offAsyncEvent = 36
	offAsyncParam = 38 // three of 2 bytes
)

const (
	bhsLen    = 48
	maxAHSLen = 255 * 4
	digestLen = 4
	noTag     = 0xffffffff

	ahsExtendedCDB = 1
	maxCDBLen      = 260
)

// bhs is a view of a basic header segment: 48 bytes.
type bhs []byte

func (h bhs) opcode() byte       { return h[0] & opcodeMask }
func (h bhs) immediate() bool    { return h[0]&immediateBit != 0 }
func (h bhs) final() bool        { return h[offFlags]&flagFinal != 0 }
func (h bhs) ahsLen() int        { return int(h[offAHSLen]) * 4 }
func (h bhs) u32(off int) uint32 { return binary.BigEndian.Uint32(h[off:]) }
func (h bhs) u16(off int) uint16 { return binary.BigEndian.Uint16(h[off:]) }
func (h bhs) lun() uint64        { return binary.BigEndian.Uint64(h[offLUN:]) }
func (h bhs) itt() uint32        { return h.u32(offITT) }
func (h bhs) ttt() uint32        { return h.u32(offTTT) }
func (h bhs) cmdSN() uint32      { return h.u32(offCmdSN) }

func (h bhs) dataLen() int {
	return int(h[offDataLen])<<16 | int(h[offDataLen+1])<<8 | int(h[offDataLen+2])
}

func (h bhs) put32(off int, v uint32) { binary.BigEndian.PutUint32(h[off:], v) }
func (h bhs) put16(off int, v uint16) { binary.BigEndian.PutUint16(h[off:], v) }

func (h bhs) setDataLen(n int) {
	h[offDataLen], h[offDataLen+1], h[offDataLen+2] = byte(n>>16), byte(n>>8), byte(n)
}

// padLen returns the bytes that fill n up to a word.
func padLen(n int) int { return -n & 3 }

var zeros [4]byte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crc32c continues a digest over b. The digest goes over the wire with its least
// significant byte first (RFC 7143 13.1).
func crc32c(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// intOf is v, or the largest int where that has 32 bits: never negative, and beyond all limits.
func intOf(v uint32) int { return int(min(uint(v), math.MaxInt)) }

// appendPDU appends a whole PDU: header, additional header segments, data,
// padding and the digests asked for. The lengths in h are set from the arguments.
func appendPDU(dst []byte, h bhs, ahs, data []byte, headerDigest, dataDigest bool) []byte {
	h[offAHSLen] = byte(len(ahs) / 4)
	h.setDataLen(len(data))
	start := len(dst)
	dst = append(append(dst, h[:bhsLen]...), ahs...)
	if headerDigest {
		dst = binary.LittleEndian.AppendUint32(dst, crc32c(0, dst[start:]))
	}
	if len(data) == 0 {
		return dst
	}
	start = len(dst)
	dst = append(append(dst, data...), zeros[:padLen(len(data))]...)
	if dataDigest {
		dst = binary.LittleEndian.AppendUint32(dst, crc32c(0, dst[start:]))
	}
	return dst
}

// extendedCDB copies the CDB of a SCSI Command into dst, which has maxCDBLen
// bytes, and returns its length: the 16 bytes of the header and what an extended
// CDB segment (RFC 7143 11.2.2.3) adds. Other additional header segments are
// passed over; ok is false where one does not fit.
func extendedCDB(dst []byte, h bhs, ahs []byte) (n int, ok bool) {
	n = copy(dst, h[offCDB:bhsLen])
	for len(ahs) > 0 {
		if len(ahs) < 4 {
			return n, false
		}
		// AHSLength counts the bytes behind its own first three.
		length := int(binary.BigEndian.Uint16(ahs))
		whole := 3 + length
		if length < 1 || whole > len(ahs) {
			return n, false
		}
		if ahs[2] == ahsExtendedCDB {
			ext := ahs[4:whole]
			if n > 16 || len(ext) > maxCDBLen-16 {
				return n, false
			}
			n += copy(dst[n:], ext)
		}
		ahs = ahs[min(whole+padLen(whole), len(ahs)):]
	}
	return n, true
}
