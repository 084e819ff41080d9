// Logical unit numbers: peripheral device addressing on bus 0, and flat space addressing where that
// cannot say a number (SAM-5 4.7.7); and LUN masking: which unit an initiator sees at which LUN.

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

// LUNMaps has a LUN map for each initiator that has one of its own, and one for all others, by the
// empty name. U is a unit; its zero value is that there is none.
type LUNMaps[U comparable] struct {
	by map[string][]U // by initiator, then by LUN; never walked through where order matters
}

// Of returns the map of an initiator, by LUN. It must not be changed.
func (m *LUNMaps[U]) Of(initiator string) []U {
	if units, own := m.by[initiator]; own {
		return units
	}
	return m.by[""]
}

// Set makes a unit visible at a LUN, at most MaxLUN, in the initiator's own map, which there is
// from then on. taken is what else is there; then it stays.
func (m *LUNMaps[U]) Set(initiator string, lun uint16, u U) (taken U) {
	var none U
	if m.by == nil {
		m.by = make(map[string][]U)
	}
	units := m.by[initiator]
	for len(units) <= int(lun) {
		units = append(units, none)
	}
	m.by[initiator] = units
	if v := units[lun]; v != none && v != u {
		return v
	}
	units[lun] = u
	return none
}

// Clear takes a LUN out of the initiator's own map, and returns what was there.
func (m *LUNMaps[U]) Clear(initiator string, lun uint16) (was U) {
	var none U
	if units := m.by[initiator]; int(lun) < len(units) {
		was, units[lun] = units[lun], none
	}
	return was
}

// Remove takes a unit out of all maps.
func (m *LUNMaps[U]) Remove(u U) {
	var none U
	for _, units := range m.by { // each map is changed on its own: order does not matter
		for lun, v := range units {
			if v == u {
				units[lun] = none
			}
		}
	}
}
