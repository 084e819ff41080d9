package torture

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// many returns a command with descriptors by the hundred: an EXTENDED COPY between all LUNs, or an UNMAP.
func (g *generator) many() Command {
	g.stamp++
	c := Command{Op: "copy-many", Host: g.rng.IntN(hosts), LUN: g.rng.IntN(len(luns)), From: g.rng.IntN(len(luns)), Stamp: g.stamp,
		N: 1 + g.rng.Uint64N([]uint64{4, 40, 250}[g.rng.IntN(3)])}
	c.Form = g.rng.IntN(2)
	if g.rng.IntN(3) == 0 && luns[c.LUN].thin {
		c.Op, c.Form, c.From = "unmap-many", 10, 0
		c.N = min(c.N, 200)
	}
	return c
}

// piece is a segment of a "copy-many", in sectors.
type piece struct {
	from, to     int
	fromAt, toAt uint64
	n            uint64
}

// pieces returns the segments of a "copy-many": whole blocks of every LUN.
func (c Command) pieces() []piece {
	const grain = 8
	rng := rand.New(rand.NewPCG(c.Stamp, 0x5E6))
	out := make([]piece, c.N)
	for i := range out {
		p := &out[i]
		p.from, p.to, p.n = rng.IntN(len(luns)), rng.IntN(len(luns)), grain*(1+rng.Uint64N(4))
		p.fromAt = rng.Uint64N((luns[p.from].sectors-p.n)/grain+1) * grain
		p.toAt = rng.Uint64N((luns[p.to].sectors-p.n)/grain+1) * grain
	}
	return out
}

func (c Command) copyAreas() (out []area) {
	for _, p := range c.pieces() {
		out = append(out, area{p.from, p.fromAt, p.n, false}, area{p.to, p.toAt, p.n, true})
	}
	return out
}

func (c Command) unmapAreas() []area {
	s := luns[c.LUN]
	rng := rand.New(rand.NewPCG(c.Stamp, 0x0A9))
	out := make([]area, c.N)
	for i := range out {
		n := 1 + rng.Uint64N(4)
		out[i] = area{c.LUN, rng.Uint64N(s.blocks()-n+1) * s.block, n * s.block, true}
	}
	return out
}

// unmapMany returns the CDB and the parameter list.
func (c Command) unmapMany() (cdb, list []byte) {
	be := binary.BigEndian
	s := luns[c.LUN]
	list = make([]byte, 8)
	for _, a := range c.unmapAreas() {
		list = be.AppendUint64(list, a.at/s.block)
		list = be.AppendUint32(list, uint32(a.n/s.block))
		list = append(list, 0, 0, 0, 0)
	}
	be.PutUint16(list, uint16(len(list)-2))
	be.PutUint16(list[2:], uint16(len(list)-8))
	cdb = []byte{0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	be.PutUint16(cdb[7:], uint16(len(list)))
	return cdb, list
}

// copyMany returns the parameter list of EXTENDED COPY(LID4).
func (r *rig) copyMany(c Command) []byte {
	var cscds, segments [][]byte
	for lun := range luns {
		cscds = append(cscds, r.naa(lun))
	}
	for _, p := range c.pieces() {
		a, b := luns[p.from].block, luns[p.to].block
		segments = append(segments, scsitest.Segment02(p.from, p.to, int(p.n/b), p.fromAt/a, p.toAt/b, true))
	}
	r.lists++
	return scsitest.CopyList4(r.lists, 2, c.Flags, cscds, segments)
}

// judgeMany is EXTENDED COPY with many segments, one after the other, up to the first that a reservation forbids.
func (m *model) judgeMany(c Command) (w want) {
	if m.luns[c.to()].excluded(c.Host, false) {
		return conflict
	}
	now := map[area]string{} // what the segments before have written, by sector
	for _, p := range c.pieces() {
		src, dst := m.luns[p.from], m.luns[p.to]
		if src.excluded(c.Host, true) || dst.excluded(c.Host, false) {
			w.refused = true
			return w
		}
		data := slices.Clone(src.cur[p.fromAt : p.fromAt+p.n])
		for i := range data {
			if s, ok := now[area{lun: p.from, at: p.fromAt + uint64(i)}]; ok {
				data[i] = s
			}
		}
		for i, s := range data {
			now[area{lun: p.to, at: p.toAt + uint64(i)}] = s
		}
		w.effects = append(w.effects, effect{p.to, p.toAt, data})
	}
	return w
}
