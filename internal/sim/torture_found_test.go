package sim

// What TestTorture finds of pools and volumes after a start, and at any time.

// findObjects compares pools and volumes with those that there must be after a start.
func (m *torture) findObjects() {
	for i, v := range m.vols {
		switch w := m.arr.Volume(v.name); {
		case w == nil && v.limbo && !v.relied:
			m.vols[i] = m.create(v.name, v.pool)
		case w == nil:
			m.fail("volume %s is gone", v.name)
			return
		case v.sizing != nil || v.unsure != nil:
			if n := uint64(len(v.units)); v.sizing == nil {
				v.sizing = &sizing{units: n, lowest: n, keep: n, maybe: n}
			}
			v.sizing.pending = append(v.sizing.pending, v.unsure...)
			m.endSizing(v, w.Info().Sectors)
		}
		v.limbo, v.relied, v.unsure = false, false, nil
	}
	if w := m.arr.Volume("never"); w != nil { // its creation was on the disk that failed, its deletion not
		gone := false
		m.arr.DeleteVolume(w, func(err error) {
			if gone = true; err != nil {
				m.fail("delete: %v", err)
			}
		})
		m.until(func() bool { return gone }, "a volume to be deleted")
	}
	for name := range m.pools {
		if m.arr.Pool(name) == nil && !m.unsure[name] && !m.flying[name] {
			m.fail("pool %s is gone", name)
		}
	}
	for _, p := range m.arr.Pools() {
		if name := p.Name(); !m.pools[name] && !m.unsure[name] && !m.flying[name] {
			m.fail("a start finds pool %s, which is gone or was not made", name)
		}
	}
	clear(m.pools)
	clear(m.unsure)
	clear(m.flying)
	for _, p := range m.arr.Pools() {
		m.pools[p.Name()] = true
	}
	m.findSpare()
}

// checkObjects compares pools and volumes with those that there must be.
func (m *torture) checkObjects() {
	for _, v := range m.vols {
		switch w := m.arr.Volume(v.name); {
		case v.sizing != nil:
		case w == nil:
			m.fail("volume %s is gone", v.name)
		case w.Info().Sectors != v.sectors():
			m.fail("volume %s has %d sectors; it should have %d", v.name, w.Info().Sectors, v.sectors())
		}
	}
	pools := m.arr.Pools()
	if n := len(pools); n != len(m.pools) {
		m.fail("there are %d pools; it should be %d", n, len(m.pools))
	}
	files := map[string]bool{}
	for _, p := range pools {
		for _, d := range p.Stats().Mdisks {
			file := p.Name() + "." + d.Name
			if files[file] {
				m.fail("two pools have the file of mdisk %s", file)
			}
			files[file] = true
		}
	}
}
