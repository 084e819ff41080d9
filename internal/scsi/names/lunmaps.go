// LUN masking: which unit an initiator sees at which LUN.

package names

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

// Set makes a unit visible at a LUN, at most MaxLUN, in the initiator's own map, which there is from
// then on. taken is what else is there; then it stays.
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

// Clear takes a LUN out of the initiator's own map, and reports whether that reaches so far.
func (m *LUNMaps[U]) Clear(initiator string, lun uint16) bool {
	var none U
	units := m.by[initiator]
	if int(lun) >= len(units) {
		return false
	}
	units[lun] = none
	return true
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
