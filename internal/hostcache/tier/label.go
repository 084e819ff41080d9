package tier

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
)

// A label says whose flash this is and how new: it comes first, in two copies of a sector each, so that
// one damaged sector does not take the cache with it. Of two that are whole the one with the higher
// revision counts. Little endian:
//
//	 0  magic "ASHLABL3"    8  crc32c of the rest of the 128 bytes (4), version (4)
//	16  cache (8)          24  incarnation (8)   32  generation (8)   40  epoch (8)
//	48  NAA of the LUN (16)
//	64  sectors a block (4) 68  frames (4)       72  role, state, copies, sync, flushed (1 each), 3 free
//	80  boot (8)           88  revision (8)      96  size (8)
type label struct {
	// cache is the number of this cache: a format makes a new one. incarnation is that of the opening
	// whose snapshots and batches the journal has; what another one left behind does not count.
	cache, incarnation uint64
	// generation grows whenever a member is left out or joins. A member with less than another one
	// has missed something.
	generation uint64
	epoch      uint64 // the first one that counts
	naa        [16]byte
	per        uint32
	frames     uint32
	size       uint64 // bytes that the flash was laid out for, 0 by an earlier version: those of its device
	role       role
	state      labelState
	copies     uint8 // members that had everything, this one included
	powerSafe  bool
	flushed    bool   // nothing is dirty, nor volatile below; an earlier version closed its label without that
	boot       uint64 // of the machine whose process wrote it, 0: not known
	revision   uint64
}

// role is what a flash device is to a cache.
type role uint8

const (
	roleOwn  role = iota + 1 // of the host: dirty and clean data
	roleCopy                 // of a peer: dirty data alone
)

// labelState says what a label is good for.
type labelState uint8

const (
	labelMember labelState = iota + 1 // it has all that it should have as of its generation
	labelVoid                         // it has nothing of this cache
	labelClosed                       // a member that was stopped with nothing dirty; see flushed
)

// labelFound is what was read where a label should be.
type labelFound uint8

const (
	labelNone    labelFound = iota // nothing of ours
	labelOurs                      // read
	labelOld                       // the format of an older version, or of a newer one
	labelDamaged                   // ours, and neither copy is whole
	labelUnread                    // the device did not answer
)

const (
	labelMagic   = "ASHLABL3"
	labelDigit   = 7 // where it has the number of the format
	labelSize    = 128
	labelCopy    = 4096 // distance of the copies
	labelBytes   = 2 * labelCopy
	labelVersion = 3
)

// FormatVersion is that of what is on a flash. Another one is not read.
const FormatVersion = labelVersion

func (l *label) encode() []byte {
	b := make([]byte, 0, block.SectorSize)
	b = append(b, labelMagic...)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, labelVersion)
	for _, n := range [...]uint64{l.cache, l.incarnation, l.generation, l.epoch} {
		b = le.AppendUint64(b, n)
	}
	b = append(b, l.naa[:]...)
	b = le.AppendUint32(b, l.per)
	b = le.AppendUint32(b, l.frames)
	b = append(b, byte(l.role), byte(l.state), l.copies, asByte(l.powerSafe), asByte(l.flushed), 0, 0, 0)
	b = le.AppendUint64(b, l.boot)
	b = le.AppendUint64(b, l.revision)
	b = le.AppendUint64(b, l.size)
	b = append(b, make([]byte, block.SectorSize-len(b))...)
	le.PutUint32(b[8:], crc32c.Checksum(b[12:labelSize]))
	return b
}

func asByte(on bool) byte {
	if on {
		return 1
	}
	return 0
}

func decodeLabel(b []byte) (l label, found labelFound) {
	switch {
	case le.Uint32(b) == oldMagic:
		return l, labelOld
	case string(b[:labelDigit]) != labelMagic[:labelDigit]:
		return l, labelNone
	case b[labelDigit] != labelMagic[labelDigit]:
		return l, labelOld // or newer than this
	case crc32c.Checksum(b[12:labelSize]) != le.Uint32(b[8:]):
		return l, labelDamaged
	case le.Uint32(b[12:]) != labelVersion:
		return l, labelOld
	}
	l = label{cache: le.Uint64(b[16:]), incarnation: le.Uint64(b[24:]), generation: le.Uint64(b[32:]), epoch: le.Uint64(b[40:]), naa: [16]byte(b[48:64]),
		per: le.Uint32(b[64:]), frames: le.Uint32(b[68:]), role: role(b[72]), state: labelState(b[73]), copies: b[74], powerSafe: b[75] != 0, flushed: b[76] != 0,
		boot: le.Uint64(b[80:]), revision: le.Uint64(b[88:]), size: le.Uint64(b[96:])}
	return l, labelOurs
}

// readLabel reads a member's label. A copy that cannot be read leaves the other.
func (m *member) readLabel(done func()) {
	d := m.d
	var bufs [2][]byte
	var ops [2]*op
	pending := len(bufs)
	for i := range bufs {
		bufs[i] = make([]byte, block.SectorSize)
		o := &op{d: d, mode: freeMode}
		ops[i] = o
		o.step = func(*op) {
			if pending--; pending > 0 {
				return
			}
			m.found = labelNone
			unread := 0
			for i, b := range bufs {
				if ops[i].flash {
					unread++
					continue
				}
				l, found := decodeLabel(b)
				if found == labelOurs && (m.found != labelOurs || l.revision > m.label.revision) {
					m.label, m.found = l, found
				} else if m.found != labelOurs {
					m.found = max(m.found, found)
				}
			}
			if unread > 0 && m.found != labelOurs {
				m.found = labelUnread
			}
			done()
		}
	}
	for i := range bufs {
		m.read(ops[i], uint64(i)*labelCopy, [][]byte{bufs[i]})
	}
	d.pump()
}

// writeLabel writes both copies and syncs; the op hears of it.
func (m *member) writeLabel(o *op, l label) {
	l.revision = m.label.revision + 1
	m.label, m.found = l, labelOurs
	b := l.encode()
	w := &op{d: m.d, mode: freeMode, marker: true}
	o.pending++
	end := func(*op) {
		if w.flash {
			o.flash = true
		}
		o.less()
	}
	w.step = func(*op) {
		if w.flash || m.d.opt.PowerSafe {
			end(w)
			return
		}
		w.step = end
		w.pending = 1
		m.syncFor(w)
		w.less()
	}
	w.pending = 1
	for i := range uint64(2) {
		m.write(w, i*labelCopy, [][]byte{b})
	}
	w.less()
}

// newLabel is what a member is labelled with from now on.
func (d *Disk) newLabel(m *member, copies int) label {
	r := roleOwn
	if m.peer != nil {
		r = roleCopy
	}
	return label{cache: d.cache, incarnation: d.incarnation, generation: d.marks.generation, epoch: d.j.firstEpoch, naa: d.info.NAA, per: uint32(d.per), frames: uint32(d.totalFrames), size: d.size,
		role: r, state: labelMember, copies: uint8(copies), powerSafe: d.opt.PowerSafe, flushed: d.sealed == sealOn && m.peer == nil, boot: d.opt.Boot}
}

// newID returns a number that no other opening has: the caller's, or one of what is known.
func (d *Disk) newID() uint64 {
	if d.opt.ID != 0 {
		return d.opt.ID
	}
	h := fnv.New64a()
	b := append([]byte(nil), d.info.NAA[:]...)
	for _, n := range [...]uint64{uint64(d.exec.Now()), d.local().label.incarnation, d.local().label.generation} {
		b = le.AppendUint64(b, n)
	}
	h.Write(b)
	return max(h.Sum64(), 1)
}

const giveUp = "--format gives up what is in it"

// judge decides by the labels and the witness whether the flash is what the cache goes on with. An
// error says what is wrong and how to mend it.
func (d *Disk) judge(mark Mark) error {
	m := d.local()
	l := m.label
	witnessed := mark.Generation != 0 && mark.NAA == d.info.NAA
	switch m.found {
	case labelUnread:
		return fmt.Errorf("the label cannot be read from the flash device")
	case labelOld:
		return fmt.Errorf("the flash device has a cache of a newer or older format; destage it with the version that wrote it, or %s", giveUp)
	case labelDamaged:
		return fmt.Errorf("both copies of the label on the flash device are damaged; take over from a peer, or %s", giveUp)
	case labelNone:
		if witnessed {
			return fmt.Errorf("the cache of %s is on another flash device; give that one, or --format to give up what it has", d.info.Name)
		}
		if d.opt.TakeOver {
			return errors.New("the flash device has no cache to take over; give the flash of the lost host's peer")
		}
		for _, p := range d.members[1:] {
			if p.found == labelOurs && p.label.state == labelMember && p.label.naa == d.info.NAA {
				return fmt.Errorf("peer %s has a copy of a cache of %s, and the flash device is empty; take over from it, or --format to give it up", p.peer.Name, d.info.Name)
			}
		}
		return nil
	}
	switch {
	case l.naa != d.info.NAA:
		return fmt.Errorf("the flash device has the cache of another LUN; give the one of %s, or --format to give up what is in it", d.info.Name)
	case l.state != labelMember && l.state != labelClosed:
		return fmt.Errorf("the flash device was given up, or did not get a whole copy; --format starts an empty one")
	case l.size > d.size: // its frames may begin elsewhere all the same
		return fmt.Errorf("the flash device has a cache of %d bytes, and its size is %d; give all of it, or --format to give up what is in it", l.size, d.size)
	case l.per != uint32(d.per) || l.frames != uint32(d.totalFrames):
		return fmt.Errorf("the flash device has a cache of blocks of %d bytes in %d frames, not %d in %d; keep its size and --block-size, or --format to give up what is in it",
			l.per<<block.SectorShift, l.frames, d.per<<block.SectorShift, d.totalFrames)
	case l.role == roleCopy && !d.opt.TakeOver:
		return fmt.Errorf("the flash device has data that a peer keeps for another host; start with --take-over and that host's key, or %s", giveUp)
	case witnessed && mark.Cache != 0 && mark.Cache != l.cache:
		return fmt.Errorf("the cache of %s was started again on another flash device, and this one has been out of it since; give that one, or %s", d.info.Name, giveUp)
	case witnessed && mark.Generation > l.generation:
		return fmt.Errorf("the flash device was left out of the cache (generation %d of %d); take over from a peer that was not, or %s", l.generation, mark.Generation, giveUp)
	case mark.Elsewhere > l.generation && (mark.Cache != l.cache || mark.Generation < l.generation):
		return fmt.Errorf("the flash device was left out of the cache (generation %d, and a registration at the LUN has %d); take over from a peer that was not, or %s", l.generation, mark.Elsewhere, giveUp)
	}
	for _, p := range d.members[1:] {
		if p.found == labelOurs && p.label.cache == l.cache && p.label.generation > l.generation {
			return fmt.Errorf("the flash device was left out of the cache (generation %d), and peer %s was not (%d); take over from that, or %s", l.generation, p.peer.Name, p.label.generation, giveUp)
		}
	}
	return nil
}

// highest is the highest generation that is known of.
func (d *Disk) highest(mark Mark) uint64 {
	g := max(mark.Generation, mark.Elsewhere)
	for _, m := range d.members {
		if m.found == labelOurs {
			g = max(g, m.label.generation)
		}
	}
	return g
}

// alternates tells whether another member may have all that is dirty here.
func (d *Disk) alternates() bool {
	return d.opt.TakeOver || d.local().label.copies > 1 ||
		slices.ContainsFunc(d.members[1:], func(m *member) bool {
			return m.found == labelOurs && m.label.state == labelMember && m.label.cache == d.cache && m.label.generation >= d.local().label.generation
		})
}
