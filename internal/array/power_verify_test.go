package array

import (
	"fmt"
	"strings"

	"github.com/arraysim/arraysim/internal/block"
)

// What a start has to find of the random program's volumes, sector by sector.

// read returns a range of a volume.
func (r *powerRig) read(what string, vol int, g block.Range) []byte {
	got := make([]byte, g.Bytes())
	q := &block.Request{Op: block.OpRead, Range: g, Data: [][]byte{got}}
	ended := false
	q.Done = func(*block.Request) { ended = true }
	r.vols[vol].Submit([]*block.Request{q})
	for !ended && r.clock.Step() {
	}
	if !ended || q.Status != block.OK {
		r.t.Fatalf("%s: reading %v of volume %d ended %v", what, g, vol, q.Status)
	}
	return got
}

// look reads a range of which it is known what it holds, while the array runs, and verifies that. An mdisk may have lost what
// was not synced.
func (r *powerRig) look() {
	vol := r.rnd.IntN(len(r.vols))
	if r.vols[vol] == nil || r.slots[vol].leaves {
		return
	}
	g, ok := r.pick(vol, 400)
	if !ok || !r.isCertain(vol, g) {
		return
	}
	got, shrinks := make([]byte, g.Bytes()), r.shrinks[vol]
	r.submit(vol, &block.Request{Op: block.OpRead, Range: g, Data: [][]byte{got}}, &command{then: func() {
		if r.shrinks[vol] > shrinks { // it may have been cut off meanwhile
			return
		}
		want := make([]byte, 512)
		each(vol, g, func(n int, at uint64) {
			vs := r.sectors[vol][n]
			s := at - g.Start
			if fillStamp(want, vs[len(vs)-1].stamp); string(got[s*512:(s+1)*512]) != string(want) {
				r.t.Errorf("volume %d sector %d is read as %x, and is %x", vol, at, le.Uint64(got[s*512:]), vs[len(vs)-1].stamp)
			}
		})
	}})
}

func (r *powerRig) verify(what string) {
	want := make([]byte, 512)
	for i := range r.vols {
		if r.vols[i] == nil {
			continue
		}
		first, end := 0, uint64(0)
		for _, x := range powerVolumes[i].islands {
			if x.Start > end && end < r.sizes[i] { // what lies between two islands
				g := rng(end+r.rnd.Uint64N(x.Start-end), 1)
				if g.End() <= r.sizes[i] && strings.Trim(string(r.read(what, i, g)), "\x00") != "" {
					r.t.Fatalf("%s: volume %d sector %d was never written, and holds data", what, i, g.Start)
				}
			}
			end = x.End()
			if n := min(x.End(), max(x.Start, r.sizes[i])) - x.Start; n > 0 {
				got := r.read(what, i, rng(x.Start, n))
				for s := range int(n) {
					r.verifySector(what, i, first+s, got[s*512:(s+1)*512], want)
				}
			}
			first += int(x.Count)
		}
	}
	for i := range r.sectors {
		for s, vs := range r.sectors[i] {
			for _, c := range vs {
				if c.cmd != nil && c.cmd.oldSeen && c.cmd.newSeen {
					r.t.Fatalf("%s: %s was done by half, volume %d sector %d", what, c.cmd.what, i, s)
				}
			}
			r.sectors[i][s] = vs[:1]
			r.sectors[i][s][0].cmd = nil
		}
	}
}

// verifySector checks that a sector holds one of the versions since the last flush.
func (r *powerRig) verifySector(what string, vol, s int, got, want []byte) {
	vs := r.sectors[vol][s]
	from := 0
	for i, v := range vs {
		if v.cmd != nil && v.cmd.acked != 0 && v.cmd.acked <= r.flushed {
			from = i
		}
	}
	stamp := le.Uint64(got)
	fillStamp(want, stamp)
	found := -1
	for i := len(vs) - 1; i >= from && found < 0; i-- {
		if vs[i].stamp == stamp {
			found = i
		}
	}
	if string(got) != string(want) || found < 0 {
		var may []string
		for _, v := range vs[from:] {
			c := "found at the start"
			if v.cmd != nil {
				c = fmt.Sprintf("%s acked %d", v.cmd.what, v.cmd.acked)
			}
			may = append(may, fmt.Sprintf("%x (%s)", v.stamp, c))
		}
		r.t.Fatalf("%s: volume %d sector %d holds %x, it may hold %v; flushed up to acknowledgement %d", what, vol, lba(vol, s), stamp, may, r.flushed)
	}
	// The last command of a sector was done there, or was not.
	if last := vs[len(vs)-1]; last.cmd != nil && last.cmd.atomic && len(vs)-1 > from {
		unique := true
		for _, v := range vs[from : len(vs)-1] {
			unique = unique && v.stamp != last.stamp
		}
		if unique && found == len(vs)-1 {
			last.cmd.newSeen = true
		} else if unique {
			last.cmd.oldSeen = true
		}
	}
	r.sectors[vol][s] = append([]version{{stamp: stamp}}, vs...)
}
