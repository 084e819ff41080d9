package sim

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// The commands of TestTorture. Each touches units where nothing else is under way.

// task sends a command by either host; done is not called if the power failed meanwhile.
func (m *torture) task(lun int, cdb, out []byte, in int, done func(*scsi.Task)) {
	m.taskOf(int(m.rng.N(2)), lun, cdb, out, in, done)
}

func (m *torture) taskOf(host, lun int, cdb, out []byte, in int, done func(*scsi.Task)) {
	m.tag++
	m.tasks++
	era := m.era
	t := &scsi.Task{LUN: uint64(lun) << 48, Tag: m.tag, Attr: scsi.Attr(1 + m.rng.N(20)/19), CDB: cdb, MaxIn: in}
	bufs := &taskBuffers{free: &m.memory}
	t.Bufs = bufs
	if out != nil {
		t.DataOut = [][]byte{out}
	}
	t.Done = func(t *scsi.Task) {
		if era == m.era {
			m.tasks--
			done(t)
			bufs.ended(out)
		}
	}
	m.nexus[host].Submit([]*scsi.Task{t})
}

// outcome tells whether a task ended well; what a unit attention kept from being carried
// out did nothing.
func outcome(t *scsi.Task) (good, nothing bool) {
	switch {
	case t.Aborted || t.Status == scsi.StatusTaskAborted:
		return false, false
	case t.Status == scsi.StatusGood:
		return true, false
	}
	return false, t.Status == scsi.StatusCheckCondition && senseOf(t.Sense)>>16 == senseUnitAttention
}

// command issues a random command where nothing else is under way.
func (m *torture) command() {
	if m.tasks > 40 {
		return
	}
	kind := m.rng.N(100)
	if m.odx {
		kind = m.rng.N(106)
	}
	most := uint64(16)
	if kind%7 == 0 {
		most = 200
	}
	v, lun, first, n, ok := m.free(most)
	if !ok {
		return
	}
	if kind >= 90 && kind < 96 {
		n = m.one(v, first, n)
	}
	switch {
	case kind < 40:
		m.write(v, lun, first, n)
	case kind < 60:
		m.read(v, lun, first, n)
	case kind < 68:
		m.change(v, first, n, 0)
		cdb := cdb16(0x93, v.lba(first), n)
		cdb[1] = 1 // NDOB
		if v.thin && m.rng.N(2) == 0 {
			cdb[1] |= 8 // UNMAP
		}
		what := "zero"
		if cdb[1]&8 != 0 && m.rng.N(2) == 0 {
			cdb[1] |= 16 // ANCHOR
			what = anchoring
		}
		m.task(lun, cdb, nil, 0, m.finish(v, first, n, what))
	case kind < 74:
		m.unmap(v, lun, first, n)
	case kind < 78:
		m.stamp++
		m.change(v, first, n, m.stamp)
		m.task(lun, cdb16(0x93, v.lba(first), n), m.contents(m.stamp, 1)[:512], 0, m.finish(v, first, n, fmt.Sprintf("write same %d to", m.stamp)))
	case kind < 90:
		m.xcopy(v, lun, first, n)
	case kind < 96:
		m.compare(v, lun, first)
	case kind < 98:
		m.sync(v, lun)
		v.release(first, n)
	case kind < 100:
		v.release(first, n)
		m.wide(v, lun)
	case kind < 103:
		m.populate(v, lun, first, n)
	default:
		m.place(v, lun, first, n)
	}
}

// change says what a command makes of a range.
func (m *torture) change(v *tortureVolume, first, n, stamp uint64) {
	for k := first; k < first+n; k++ {
		v.units[k].what, v.units[k].next = true, stamp
	}
}

func (m *torture) write(v *tortureVolume, lun int, first, n uint64) {
	m.stamp++
	stamp := m.stamp
	m.change(v, first, n, stamp)
	cdb := cdb16(0x8A, v.lba(first), n)
	fua := m.rng.N(10) == 0
	if fua {
		cdb[1] = 8
	}
	if !v.thin {
		m.saw(thickVolumes)
	}
	then := m.finish(v, first, n, fmt.Sprintf("write %d to", stamp))
	m.task(lun, cdb, m.contents(stamp, n), 0, func(t *scsi.Task) {
		then(t)
		if good, _ := outcome(t); good && fua {
			for k := range v.at(first, n) {
				v.units[first+uint64(k)].was = nil
			}
		}
	})
}

// sync sends SYNCHRONIZE CACHE. What had been settled before is not lost any more.
func (m *torture) sync(v *tortureVolume, lun int) {
	changes := map[int]uint64{}
	for k := range v.units {
		if u := &v.units[k]; u.was != nil && !u.busy {
			changes[k] = u.changes
		}
	}
	cdb := make([]byte, 10)
	cdb[0] = 0x35
	m.task(lun, cdb, nil, 0, func(t *scsi.Task) {
		if good, _ := outcome(t); !good {
			return
		}
		for k, n := range changes { // each on its own
			if k < len(v.units) && v.units[k].changes == n && !v.units[k].busy {
				v.units[k].was = nil
			}
		}
	})
}

// unmap sends UNMAP: of one descriptor, or of one and more for each unit.
func (m *torture) unmap(v *tortureVolume, lun int, first, n uint64) {
	if !v.thin {
		v.release(first, n)
		return
	}
	what, anchor := "unmap", byte(0)
	if m.rng.N(3) == 0 {
		what, anchor = anchoring, 1
	}
	each := uint64(unitSecs) * n // sectors of a descriptor
	if m.rng.N(3) == 0 {
		each = []uint64{1, unitSecs}[m.rng.N(2)]
	}
	m.unmapBy(v, lun, first, n, each, anchor, what)
}

func (m *torture) unmapBy(v *tortureVolume, lun int, first, n, each uint64, anchor byte, what string) {
	m.change(v, first, n, 0)
	list := make([]byte, 8)
	for at := uint64(0); at < n*unitSecs; at += each {
		list = binary.BigEndian.AppendUint64(list, v.lba(first)+at)
		list = binary.BigEndian.AppendUint32(list, uint32(min(each, n*unitSecs-at)))
		list = append(list, 0, 0, 0, 0)
	}
	descriptors := len(list) / 16
	binary.BigEndian.PutUint16(list, uint16(len(list)-2))
	binary.BigEndian.PutUint16(list[2:], uint16(len(list)-8))
	cdb := make([]byte, 10)
	cdb[0], cdb[1] = 0x42, anchor
	binary.BigEndian.PutUint16(cdb[7:], uint16(len(list)))
	then := m.finish(v, first, n, fmt.Sprintf("%s by %d", what, descriptors))
	m.task(lun, cdb, list, 0, func(t *scsi.Task) {
		then(t)
		if good, _ := outcome(t); good {
			if v.anchor(first, n, anchor != 0); anchor != 0 {
				m.saw(anchors)
			}
			if descriptors >= 100 {
				m.saw(manyDescriptors)
			}
		}
	})
}

// wide zeroes or unmaps whole islands of a sparse volume with all that lies between them.
func (m *torture) wide(v *tortureVolume, lun int) {
	first := m.rng.N(uint64(len(v.units))) / islandUnits * islandUnits
	n := min((1+m.rng.N(4))*islandUnits, uint64(len(v.units))-first)
	if v.unit == nil || !v.sparse() || v.busy(first, n) {
		return
	}
	v.take(first, n)
	m.change(v, first, n, 0)
	lba, sectors := v.span(first, n)
	cdb := cdb16(0x93, lba, 0)
	cdb[1] = []byte{1, 9}[m.rng.N(2)] // NDOB, UNMAP
	binary.BigEndian.PutUint32(cdb[10:], uint32(sectors))
	m.saw(wideEdits)
	m.task(lun, cdb, nil, 0, m.finish(v, first, n, fmt.Sprintf("zero %d sectors of", sectors)))
}

// finish notes the next task, which changes a range, and returns what to do when it ends.
func (m *torture) finish(v *tortureVolume, first, n uint64, what string) func(*scsi.Task) {
	tag := m.tag + 1
	m.note("%s %s [%d+%d) tag %d", what, v.name, first, n, tag)
	promised := v.promised(first, n)
	return func(t *scsi.Task) {
		good, nothing := outcome(t)
		m.note("  tag %d: status %02x sense %06x aborted %v", tag, t.Status, senseOf(t.Sense), t.Aborted)
		if promised && noSpace(t) && !m.store.metaBad {
			m.fail("%s %s [%d+%d) found no space, which was promised", what, v.name, first, n)
		}
		if good && what == anchoring {
			m.saw(anchors)
		}
		defer v.anchor(first, n, good && what == anchoring)
		if nothing {
			v.release(first, n)
			return
		}
		m.settle(v, first, n, good)
	}
}

// one keeps the first unit of a range only.
func (m *torture) one(v *tortureVolume, first, n uint64) uint64 {
	v.release(first+1, n-1)
	return 1
}

// cdb16 is a command of 16 bytes about n units.
func cdb16(op byte, lba, n uint64) []byte {
	b := make([]byte, 16)
	b[0] = op
	binary.BigEndian.PutUint64(b[2:], lba)
	binary.BigEndian.PutUint32(b[10:], uint32(n*unitSecs))
	return b
}

// read compares what comes with what may be there; what was read is what is there.
func (m *torture) read(v *tortureVolume, lun int, first, n uint64) {
	m.note("read %s [%d+%d) tag %d", v.name, first, n, m.tag+1)
	m.task(lun, cdb16(0x88, v.lba(first), n), nil, int(n*unitBytes), func(t *scsi.Task) {
		defer v.release(first, n)
		if good, _ := outcome(t); good && first+n <= uint64(len(v.units)) {
			m.compareWith(v, first, n, m.dataIn(t), "")
		}
	})
}

func (m *torture) readAll(lun int) {
	v := m.vols[lun]
	for first := uint64(0); v.unit != nil && first < uint64(len(v.units)) && m.bad == ""; {
		n := v.together(first, 256)
		// Each unit attention condition that waits is one attempt: resets, reservations, LUNs that come and go.
		for attempt := 0; attempt < 8; attempt++ {
			ended, good := false, false
			m.task(lun, cdb16(0x88, v.lba(first), n), nil, int(n*unitBytes), func(t *scsi.Task) {
				ended = true
				if good, _ = outcome(t); good {
					m.compareWith(v, first, n, m.dataIn(t), "at the end, ")
				} else if attempt == 7 {
					m.fail("%s [%d+%d) cannot be read: status %02x sense %06x", v.name, first, n, t.Status, senseOf(t.Sense))
				}
			})
			m.until(func() bool { return ended }, "a read")
			if good {
				break
			}
		}
		first += n
	}
}

// xcopy copies to [first+n) of v from somewhere else.
func (m *torture) xcopy(v *tortureVolume, lun int, first, n uint64) {
	w, src, from, k, ok := m.free(n)
	if !ok {
		v.release(first, n)
		return
	}
	if k < n {
		v.release(first+k, n-k)
		n = k
	}
	for i := range n {
		u := &v.units[first+i]
		u.what, u.from = true, slices.Clone(w.units[from+i].may)
	}
	be := binary.BigEndian
	list := make([]byte, 16+64+28)
	list[1], list[3], list[11] = 3<<3, 64, 28
	for i, x := range []*tortureVolume{w, v} {
		d := list[16+32*i:]
		d[0], d[4], d[5], d[7], d[30] = 0xE4, 1, 3, 16, 2
		copy(d[8:], x.naa[:])
	}
	s := list[80:]
	s[0], s[3], s[7] = 2, 0x18, 1
	be.PutUint16(s[10:], uint16(n*unitSecs))
	be.PutUint64(s[12:], w.lba(from))
	be.PutUint64(s[20:], v.lba(first))
	cdb := make([]byte, 16)
	cdb[0] = 0x83
	be.PutUint32(cdb[10:], uint32(len(list)))
	then := m.finish(v, first, n, fmt.Sprintf("copy %s [%d+%d) to", w.name, from, n))
	if m.rng.N(2) == 0 {
		lun = src // either unit takes the command
	}
	m.copies++
	m.task(lun, cdb, list, 0, func(t *scsi.Task) {
		m.copies--
		if good, _ := outcome(t); good && v != w {
			m.saw(acrossLUNs)
		}
		then(t)
		w.release(from, n)
	})
}

// compare sends COMPARE AND WRITE of one sector's unit whose contents are known.
func (m *torture) compare(v *tortureVolume, lun int, first uint64) {
	u := &v.units[first]
	if len(u.may) != 1 {
		v.release(first, 1)
		return
	}
	was := u.may[0]
	m.stamp++
	wrong := m.rng.N(3) == 0
	expect := was
	if wrong {
		expect = m.stamp | 1<<60
	}
	u.what, u.next = true, m.stamp
	if wrong {
		u.next = was
	}
	cdb := make([]byte, 16)
	cdb[0], cdb[13] = 0x89, unitSecs
	binary.BigEndian.PutUint64(cdb[2:], v.lba(first))
	then := m.finish(v, first, 1, fmt.Sprintf("compare with %d and write %d to", expect, m.stamp))
	data := m.contents(expect, 2)
	stampOn(data[unitBytes:], m.stamp)
	m.task(lun, cdb, data, 0, func(t *scsi.Task) {
		good, _ := outcome(t)
		miscompare := t.Status == scsi.StatusCheckCondition && senseOf(t.Sense) == 0x0E1D00
		if good && wrong || miscompare && !wrong {
			m.fail("%s unit %d: compare with %d where %d is: status %02x sense %06x", v.name, first, expect, was, t.Status, senseOf(t.Sense))
		}
		then(t)
	})
}

// tortureToken is a ROD token and what it stands for.
type tortureToken struct {
	bytes   []byte
	of      *tortureVolume
	first   uint64
	may     [][]uint64
	changes []uint64 // of the units, then
}

// populate makes a token of a range.
func (m *torture) populate(v *tortureVolume, lun int, first, n uint64) {
	host := int(m.rng.N(2))
	m.held = true
	m.lists++
	id := m.lists
	k := &tortureToken{of: v, first: first}
	for _, u := range v.units[first : first+n] {
		k.may, k.changes = append(k.may, slices.Clone(u.may)), append(k.changes, u.changes)
	}
	m.note("populate token %d of %s [%d+%d) tag %d", id, v.name, first, n, m.tag+1)
	list := scsitest.PopulateList(0, 3600, 0, scsitest.Extent{LBA: v.lba(first), Blocks: uint32(n * unitSecs)})
	m.taskOf(host, lun, scsitest.TokenCDB(0x10, id, list), list, 0, func(t *scsi.Task) {
		v.release(first, n)
		if good, _ := outcome(t); !good {
			return
		}
		m.taskOf(host, lun, scsitest.ReceiveCDB(0x84, 7, id), nil, 2048, func(t *scsi.Task) {
			b := m.dataIn(t)
			if good, _ := outcome(t); good && len(b) >= 38+512 {
				k.bytes = slices.Clone(b[38 : 38+512])
				m.tokens[m.rng.N(uint64(len(m.tokens)))] = k
			}
		})
	})
}

// place makes a range what a token stands for.
func (m *torture) place(v *tortureVolume, lun int, first, n uint64) {
	if k := m.tokens[m.rng.N(uint64(len(m.tokens)))]; k != nil {
		m.placeToken(k, v, lun, first, n)
	} else {
		v.release(first, n)
	}
}

func (m *torture) placeToken(k *tortureToken, v *tortureVolume, lun int, first, n uint64) {
	if most := uint64(len(k.may)); most < n {
		v.release(first+most, n-most)
		n = most
	}
	held := false
	for i := range n {
		u := &v.units[first+i]
		u.what, u.from = true, k.may[i]
		if now := k.of.at(k.first+i, 1); len(now) == 0 || now[0].changes != k.changes[i] {
			held = true // the source has changed since
		}
	}
	m.lists++
	then := m.finish(v, first, n, "place a token in")
	list := scsitest.WriteTokenList(0, 0, k.bytes, scsitest.Extent{LBA: v.lba(first), Blocks: uint32(n * unitSecs)})
	m.copies++
	m.task(lun, scsitest.TokenCDB(0x11, m.lists, list), list, 0, func(t *scsi.Task) {
		m.copies--
		if good, _ := outcome(t); good {
			if m.saw(tokens); held {
				m.saw(heldGrains)
			}
		}
		then(t)
	})
}
