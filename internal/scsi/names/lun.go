// Logical unit numbers: peripheral device addressing on bus 0, and flat space addressing where that
// cannot say a number (SAM-5 4.7.7).

package names

// MaxLUN is the largest LUN of flat space addressing (SAM-5 4.7.7.4).
const MaxLUN = 1<<14 - 1

// Methods of addressing, the two highest bits of a LUN.
const (
	peripheral    = 0
	flatSpace     = 1
	methodShift   = 14
	maxPeripheral = 0xFF
)

// ParseLUN reads the 8 bytes of a LUN, big endian; ok is false for one that this target cannot
// have.
func ParseLUN(lun uint64) (n int, ok bool) {
	if lun<<16 != 0 {
		return 0, false
	}
	v := lun >> 48
	switch v >> methodShift {
	case peripheral:
		return int(v), v <= maxPeripheral
	case flatSpace:
		return int(v & MaxLUN), true
	}
	return 0, false
}

// AppendLUN appends the 8 bytes of a LUN, in peripheral device addressing where that can say it.
func AppendLUN(b []byte, n int) []byte {
	if n > maxPeripheral {
		n |= flatSpace << methodShift
	}
	return append(b, byte(n>>8), byte(n), 0, 0, 0, 0, 0, 0)
}
