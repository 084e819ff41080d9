// Package cdb knows where in a command descriptor block what stands: how long it is, and,
// of block commands, the extent and the flags (SPC-5 4.2.5, SBC-4 5).
package cdb

import "encoding/binary"

// Variable is the operation code of CDBs of variable length. Those of 32 bytes are known.
const Variable = 0x7F

// Length returns the length of a CDB by its operation code's group, 0 for a group that has none
// (SPC-5 4.2.5.1).
func Length(op byte) int {
	if op == Variable {
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

// Extent reads the LOGICAL BLOCK ADDRESS and the transfer length of a block command of any length.
func Extent(b []byte) (lba, n uint64) {
	be := binary.BigEndian
	switch Length(b[0]) {
	case 6:
		lba, n = uint64(be.Uint32(b)&0x1FFFFF), uint64(b[4])
		if n == 0 { // SBC-3 5.8: 0 means 256
			n = 256
		}
	case 10:
		lba, n = uint64(be.Uint32(b[2:])), uint64(be.Uint16(b[7:]))
	case 12:
		lba, n = uint64(be.Uint32(b[2:])), uint64(be.Uint32(b[6:]))
	case 16:
		lba, n = be.Uint64(b[2:]), uint64(be.Uint32(b[10:]))
	case 32:
		lba, n = be.Uint64(b[12:]), uint64(be.Uint32(b[28:]))
	}
	return lba, n
}

// LengthOffset is where Extent's length stands, for field pointers.
func LengthOffset(b []byte) int {
	switch Length(b[0]) {
	case 6:
		return 4
	case 10:
		return 7
	case 12:
		return 6
	case 32:
		return 28
	}
	return 10
}

// FlagsOffset is the byte with the flags of a block command.
func FlagsOffset(b []byte) int {
	if b[0] == Variable {
		return 10
	}
	return 1
}
