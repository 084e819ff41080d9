package torture

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// granule is what the model of the random test knows of: so many sectors hold one value.
const granule = 8

// worlds is the model: for each granule of each volume, the values that it may have.
type worlds map[where][][]uint64

// span is a run of granules of a volume.
type span struct {
	where
	at, n int
}

func (s span) overlaps(o span) bool {
	return s.where == o.where && s.at < o.at+o.n && o.at < s.at+s.n
}

// attempt is a command of the random test: what it writes where, if it is carried out.
type attempt struct {
	*call
	dst    span
	values [][]uint64 // of the granules of dst
	abort  bool
}

// TestRandomCopiesOverGroups: copies by EXTENDED COPY and by tokens within and between two groups, beside writes, aborts, resets,
// a group that takes no messages for a while, and deaths of the process. Of what a command that did not end well would have written, each
// granule has the old value or the new one; all else has what the model says. Then nothing is held in either group, and what
// came into the caches went out of them. The same seed gives the same bytes at the same time.
func TestRandomCopiesOverGroups(t *testing.T) {
	base, rounds := testkit.Seed(t), uint64(6)
	switch {
	case testkit.GivenSeed() != 0:
		rounds = 1
	case testing.Short():
		rounds = 3
	}
	for seed := base; seed < base+rounds; seed++ {
		first := randomCopies(t, seed)
		if seed == base && !t.Failed() && first != randomCopies(t, seed) {
			t.Error("the same seed gives other bytes, or takes another time")
		}
		if t.Failed() {
			t.Fatalf("-seed %d", seed)
		}
	}
}

type randomGroups struct {
	*groups
	rng    *rand.Rand
	may    worlds
	who    [2]*scsi.Nexus
	next   uint64
	digest hash.Hash // of all that was read
	ends   map[string]int
}

// randomCopies returns a digest of all that was read, and of when.
func randomCopies(t *testing.T, seed uint64) string {
	r := &randomGroups{groups: slowGroups(t, 20<<20), rng: rand.New(rand.NewPCG(seed, 1)), may: worlds{}, digest: sha256.New(), ends: map[string]int{}}
	r.who = r.both("iqn.2026-11.org.example:a")
	for g := range 2 {
		for v := range 2 {
			r.may[where{g, v}] = slices.Repeat([][]uint64{{0}}, groupSectors/granule)
		}
	}
	for range 12 {
		r.batch()
		r.verify()
		if t.Failed() {
			return ""
		}
	}
	r.conserves()
	r.empty()
	t.Log("commands ended with ", r.ends)
	return fmt.Sprintf("%x %d", r.digest.Sum(nil), r.clock.Now())
}

func (r *randomGroups) span(n int) span {
	return span{where{r.rng.IntN(2), r.rng.IntN(2)}, r.rng.IntN(groupSectors/granule - n), n}
}

// batch runs some commands side by side that do not touch what others of them write.
func (r *randomGroups) batch() {
	var all []*attempt
	var written, read []span
	for range 1 + r.rng.IntN(8) {
		n := 1 + r.rng.IntN([]int{8, 100, 700}[r.rng.IntN(3)])
		dst, src := r.span(n), r.span(n)
		taken := func(s span) func(span) bool { return func(o span) bool { return s.overlaps(o) } }
		if slices.ContainsFunc(written, taken(dst)) || slices.ContainsFunc(read, taken(dst)) || slices.ContainsFunc(written, taken(src)) || dst.overlaps(src) {
			continue
		}
		written = append(written, dst)
		var a *attempt
		switch k := r.rng.IntN(10); {
		case k < 3:
			a = r.writes(dst)
		case k < 8:
			read = append(read, src)
			a = r.copies(src, dst)
		default:
			read = append(read, src)
			a = r.redeems(src, dst)
		}
		all = append(all, a)
		for range r.rng.IntN(4) {
			r.clock.Step()
		}
	}
	shut := r.rng.IntN(4)
	if shut < 2 {
		r.g[shut].shut = true
	}
	for range r.rng.IntN(20) {
		r.clock.Step()
	}
	if r.rng.IntN(4) == 0 {
		r.crash(all)
		return
	}
	for _, a := range all {
		if r.rng.IntN(4) == 0 {
			a.abort = true
			for _, n := range r.who {
				for lun := range 2 {
					n.Manage(scsi.AbortTask, uint64(lun)<<48, a.Tag, func(scsi.TMFResponse) {})
				}
			}
		}
	}
	if r.rng.IntN(6) == 0 {
		w := where{r.rng.IntN(2), r.rng.IntN(2)}
		r.who[w.g].Manage(scsi.LogicalUnitReset, uint64(w.v)<<48, 0, func(scsi.TMFResponse) {})
	}
	if r.rng.IntN(2) == 0 { // long enough for others to give up, or not
		r.clock.RunUntil(r.clock.Now() + r.rng.Int64N(45e9))
	}
	for _, g := range r.g {
		g.open()
	}
	for _, a := range all {
		if !r.within(a.call, 120) {
			r.t.Fatal("a command never ends")
		}
		what := a.String()
		if a.Aborted {
			what = "aborted"
		}
		r.ends[what]++
		r.ended(a)
	}
	r.settle() // what a reset leaves behind
	for g := range r.g {
		for lun := range 2 {
			for range 2 {
				r.do(r.who[g], lun, make([]byte, 6), nil, 0)
			}
		}
	}
}

// ended notes in the model what a command has made, or may have made.
func (r *randomGroups) ended(a *attempt) {
	for i, v := range a.values {
		m := &r.may[a.dst.where][a.dst.at+i]
		if a.call.ended && a.Status == scsi.StatusGood && !a.Aborted {
			*m = slices.Clone(v)
		} else {
			*m = append(slices.Clone(*m), v...)
		}
	}
}

// crash has the process die, perhaps while a group takes no messages. What had its answer is there.
func (r *randomGroups) crash(all []*attempt) {
	for _, a := range all {
		r.ended(a)
		what := "nothing: the process died"
		if a.call.ended {
			what = a.String()
		}
		r.ends[what]++
	}
	r.die()
	r.who = r.both("iqn.2026-11.org.example:a")
}

func (r *randomGroups) writes(dst span) *attempt {
	a := &attempt{dst: dst}
	b := make([]byte, dst.n*granule*512)
	for i := range dst.n {
		r.next++
		fill(b[i*granule*512:(i+1)*granule*512], r.next)
		a.values = append(a.values, []uint64{r.next})
	}
	cdb := scsitest.CDB(0x2A, uint64(dst.at*granule), dst.n*granule)
	a.call = r.start(r.who[dst.g], dst.v, cdb, b, 0)
	return a
}

func (r *randomGroups) held(src span) (out [][]uint64) {
	for i := range src.n {
		out = append(out, slices.Clone(r.may[src.where][src.at+i]))
	}
	return out
}

func (r *randomGroups) copies(src, dst span) *attempt {
	a := &attempt{dst: dst, values: r.held(src)}
	at := []where{src.where, dst.where, {r.rng.IntN(2), r.rng.IntN(2)}}[r.rng.IntN(3)]
	list := r.list(src.where, dst.where, src.n*granule, uint64(src.at*granule), uint64(dst.at*granule))
	a.call = r.start(r.who[at.g], at.v, scsitest.CopyCDB(list), list, 0)
	return a
}

// redeems makes a token and uses it.
func (r *randomGroups) redeems(src, dst span) *attempt {
	a := &attempt{dst: dst, values: r.held(src)}
	l := scsitest.PopulateList(0, 0, 0, scsitest.Extent{LBA: uint64(src.at * granule), Blocks: uint32(src.n * granule)})
	id := uint32(r.tag)
	if c := r.do(r.who[src.g], src.v, scsitest.TokenCDB(0x10, id, l), l, 0); c.Status != scsi.StatusGood {
		r.t.Fatalf("POPULATE TOKEN: %v", c)
	}
	b := r.good(r.who[src.g], src.v, scsitest.ReceiveCDB(0x84, 0x07, id), nil, 4096)
	at := 32 + int(b[13])
	l = scsitest.WriteTokenList(byte(2*r.rng.IntN(2)), 0, b[at+6:at+6+512], scsitest.Extent{LBA: uint64(dst.at * granule), Blocks: uint32(dst.n * granule)})
	a.call = r.start(r.who[dst.g], dst.v, scsitest.TokenCDB(0x11, id+1, l), l, 0)
	return a
}

func fill(b []byte, v uint64) {
	for i := 0; i < len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], v)
	}
}

// verify reads everything, and leaves in the model what it found.
func (r *randomGroups) verify() {
	want := make([]byte, granule*512)
	for k := range 4 {
		w := where{k / 2, k % 2}
		m := r.may[w]
		b := r.read(w.g, w.v, 0, groupSectors)
		for i := range m {
			got := b[i*granule*512 : (i+1)*granule*512]
			v := binary.BigEndian.Uint64(got)
			fill(want, v)
			if !slices.Contains(m[i], v) || !bytes.Equal(got, want) {
				// A command that was cut off may have written a part of a granule.
				if len(m[i]) == 1 || !r.mixed(got, m[i]) {
					r.t.Errorf("granule %d of volume %d of group %d has %x, want one of %x", i, w.v, w.g, v, m[i])
					return
				}
				r.digest.Write(got)
				fill(want, r.next+1)
				r.next++
				v = r.next
				r.device(w.g, w.v, &block.Request{Op: block.OpWrite, Range: block.Range{Start: uint64(i * granule), Count: granule}, Data: [][]byte{want}})
				want = make([]byte, granule*512)
			}
			m[i] = []uint64{v}
			r.digest.Write(want[:8]) // which is what all of the granule has
		}
	}
}

// mixed reports whether each sector has one of the values.
func (r *randomGroups) mixed(b []byte, values []uint64) bool {
	for i := 0; i < len(b); i += 8 {
		if !slices.Contains(values, binary.BigEndian.Uint64(b[i:])) {
			return false
		}
	}
	return true
}
