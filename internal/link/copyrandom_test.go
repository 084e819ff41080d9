package link

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// granule is what the model of the random test knows of: so many sectors hold one value.
const granule = 8

// place is a volume of one of the two arrays, span a run of granules of it.
type place struct{ array, volume int }

type span struct {
	place
	at, n int
}

func (s span) overlaps(o span) bool {
	return s.place == o.place && s.at < o.at+o.n && o.at < s.at+s.n
}

// attempt is a command of the random test: what it writes where, if it is carried out.
type attempt struct {
	*running
	dst    span
	values [][]uint64 // of the granules of dst
}

// randomCopies is the state of the random test: for each granule of each volume, the values that it may have.
type randomCopies struct {
	*copyRig
	rng  *rand.Rand
	may  map[place][][]uint64
	who  [2][2]*host // initiators, at both arrays
	slow *slowArray  // is asked as well, and answers late
	next uint64
	ends map[string]int
}

// TestRandomCopiesBetweenArrays: copies by EXTENDED COPY and by tokens from one array to another, over windows of all sizes, of
// two initiators, beside writes, aborts, resets, logouts, reservations and masks, pauses and breaks of the link, take-overs of
// the source, and a third array that is slow. Of what a command that did not end well would have written, each granule has the
// old value or the new one; all else has what the model says. Then nothing is held in either array, no initiator has anything of
// the link, and what came into the caches went out of them. ARRAYSIM_COPY_SEED repeats what a run asks for, though not when it
// is carried out.
func TestRandomCopiesBetweenArrays(t *testing.T) {
	seed, rounds := rand.Uint64(), 12
	if s := os.Getenv("ARRAYSIM_COPY_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if testing.Short() {
		rounds = 6
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	pieces := []int{0, 1, 2, 5}[rng.IntN(4)]
	r := &randomCopies{copyRig: timedCopyRig(t, unhurried, pieces), rng: rng, may: map[place][][]uint64{}, ends: map[string]int{}}
	for k := range 4 {
		r.may[place{k / 2, k % 2}] = slices.Repeat([][]uint64{{0}}, sideSectors/granule)
	}
	r.slow = &slowArray{asked: map[string]int{}}
	r.dst.exec.Lock()
	scsi.LinkCopies(r.dst.target, r.slow)
	r.dst.exec.Unlock()
	for k, name := range copyNames {
		r.who[k] = [2]*host{r.src.login(name), r.dst.login(name)}
	}
	for i := range rounds {
		r.batch()
		r.verify()
		if t.Failed() {
			t.Fatalf("round %d: ARRAYSIM_COPY_SEED=%d", i, seed)
		}
	}
	t.Log("commands ended with ", r.ends)
	r.slow.answer()
	r.poll("the end of all that initiators have of the link", func() bool { return r.users() == 0 })
	r.src.free()
	r.dst.free()
	if t.Failed() {
		t.Fatalf("ARRAYSIM_COPY_SEED=%d", seed)
	}
}

var copyNames = [2]string{copyHost, copyOther}

// host is one of the initiators, at an array.
func (r *randomCopies) host(array int) *host { return r.who[r.rng.IntN(2)][array] }

func (r *randomCopies) side(p place) *side { return []*side{r.src, r.dst}[p.array] }

func (r *randomCopies) span(array, n int) span {
	return span{place{array, r.rng.IntN(2)}, r.rng.IntN(sideSectors/granule - n), n}
}

// batch runs some commands side by side that do not touch what others of them write.
func (r *randomCopies) batch() {
	if r.rng.IntN(2) == 0 {
		r.tap.pass(r.rng.IntN(1 << 20))
	}
	var all []*attempt
	var written, read []span
	for range 1 + r.rng.IntN(12) {
		n := 1 + r.rng.IntN([]int{8, 100, 700}[r.rng.IntN(3)])
		src, dst := r.span(r.rng.IntN(2), n), r.span(1, n)
		write := r.rng.IntN(10) < 3
		if write {
			dst = r.span(r.rng.IntN(2), n)
		}
		taken := func(s span) func(span) bool { return func(o span) bool { return s.overlaps(o) } }
		if slices.ContainsFunc(written, taken(dst)) || slices.ContainsFunc(read, taken(dst)) || slices.ContainsFunc(written, taken(src)) || dst.overlaps(src) {
			continue
		}
		written = append(written, dst)
		a := &attempt{dst: dst}
		if write {
			a.running = r.writes(a)
		} else {
			read = append(read, src)
			for i := range n {
				a.values = append(a.values, slices.Clone(r.may[src.place][src.at+i]))
			}
			a.running = r.copies(src, dst)
		}
		all = append(all, a)
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
				r.slow.answer()
			}
		}
	}()
	switch k := r.rng.IntN(10); {
	case k == 0:
		r.tap.cut()
	case k == 8:
		k, i := r.rng.IntN(2), r.rng.IntN(2)
		r.who[k][i].Close()
		r.who[k][i] = []*side{r.src, r.dst}[i].login(copyNames[k])
	case k == 9:
		old := r.server
		r.epoch++
		r.serve()
		old.Cut()
	case k == 1:
		p := place{r.rng.IntN(2), r.rng.IntN(2)}
		r.host(p.array).Reset(uint64(p.volume))
	case k == 4:
		r.tap.pass(-1)
		r.reserve()
	case k == 5:
		r.tap.pass(-1)
		r.mask()
	case k < 4 && len(all) > 0:
		a := all[r.rng.IntN(len(all))]
		for lun := range uint64(2) {
			a.h.manage(scsi.AbortTask, lun)
		}
	}
	r.tap.pass(-1)
	for _, a := range all {
		res := a.wait()
		what := end(res)
		if a.task.Aborted {
			what = "aborted"
		}
		r.ends[what]++
		for i, v := range a.values {
			m := &r.may[a.dst.place][a.dst.at+i]
			if res.Status == scsi.StatusGood && !a.task.Aborted {
				*m = slices.Clone(v)
			} else {
				*m = append(slices.Clone(*m), v...)
			}
		}
	}
	r.linked(true)
	for _, h := range slices.Concat(r.who[0][:], r.who[1][:]) {
		for lun := range uint64(2) {
			for range 6 { // of a mask and of a reservation, too
				h.Do(scsitest.Command{LUN: lun, CDB: make([]byte, 6)})
			}
		}
	}
}

func (r *randomCopies) writes(a *attempt) *running {
	b := make([]byte, a.dst.n*granule*512)
	for i := range a.dst.n {
		r.next++
		fill(b[i*granule*512:(i+1)*granule*512], r.next)
		a.values = append(a.values, []uint64{r.next})
	}
	return r.host(a.dst.array).start(scsitest.Command{LUN: uint64(a.dst.volume), CDB: scsitest.CDB(0x2A, uint64(a.dst.at*granule), a.dst.n*granule), Out: b})
}

// copies copies, by a list or by a token.
func (r *randomCopies) copies(src, dst span) *running {
	if r.rng.IntN(3) > 0 {
		return r.host(1).start(copies(r.rng.IntN(2), r.side(src.place).names(src.volume), r.dst.names(dst.volume), src.n*granule, uint64(src.at*granule), uint64(dst.at*granule)))
	}
	r.next++
	id, h := uint32(r.next), r.host(src.array)
	l := scsitest.PopulateList(0, 0, 0, scsitest.Extent{LBA: uint64(src.at * granule), Blocks: uint32(src.n * granule)})
	if res := h.Do(scsitest.Command{LUN: uint64(src.volume), CDB: scsitest.TokenCDB(0x10, id, l), Out: l}); res.Status != scsi.StatusGood {
		r.t.Fatalf("POPULATE TOKEN: %s", end(res))
	}
	b := h.Do(scsitest.Command{LUN: uint64(src.volume), CDB: scsitest.ReceiveCDB(0x84, 0x07, id), In: 4096}).In
	at := 32 + int(b[13])
	token := bytes.Clone(b[at+6 : at+6+512])
	return r.host(1).start(redeem(dst.volume, byte(2*r.rng.IntN(2)), token, uint64(dst.at*granule), dst.n*granule))
}

func fill(b []byte, v uint64) {
	for i := 0; i < len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], v)
	}
}

// verify reads everything, and leaves in the model what it found.
func (r *randomCopies) verify() {
	want := make([]byte, granule*512)
	for p, m := range r.may {
		b := r.side(p).read(p.volume, 0, sideSectors)
		for i := range m {
			got := b[i*granule*512 : (i+1)*granule*512]
			v := binary.BigEndian.Uint64(got)
			fill(want, v)
			if !slices.Contains(m[i], v) || !bytes.Equal(got, want) {
				// A command that was cut off may have written a part of a granule.
				if len(m[i]) == 1 || !mixed(got, m[i]) {
					r.t.Errorf("granule %d of volume %d of array %d has %x, want one of %x", i, p.volume, p.array, v, m[i])
					return
				}
				r.next++
				v = r.next
				whole := make([]byte, granule*512)
				fill(whole, v)
				r.side(p).device(p.volume, &block.Request{Op: block.OpWrite, Range: block.Range{Start: uint64(i * granule), Count: granule}, Data: [][]byte{whole}})
			}
			m[i] = []uint64{v}
		}
	}
}

// mixed reports whether each word has one of the values.
func mixed(b []byte, values []uint64) bool {
	for i := 0; i < len(b); i += 8 {
		if !slices.Contains(values, binary.BigEndian.Uint64(b[i:])) {
			return false
		}
	}
	return true
}
