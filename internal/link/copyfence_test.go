package link

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// What keeps an initiator from a unit, while copies between arrays are under way: those that it begins behind that are refused.

// ordered does what has to end well, behind unit attention conditions.
func (r *randomCopies) ordered(what string, h *host, c scsitest.Command) {
	r.t.Helper()
	var res scsitest.Result
	for range 8 {
		if res = h.Do(c); res.Status == scsi.StatusGood {
			return
		}
	}
	r.t.Errorf("%s: %s", what, end(res))
}

// refused begins a copy that has to be refused, in one of some ways, behind unit attention conditions.
func (r *randomCopies) refused(why string, h *host, c scsitest.Command, ways ...string) {
	r.t.Helper()
	res := h.Do(c)
	for range 8 {
		if res.Status != scsi.StatusCheckCondition || code(res)>>16 != 6 {
			break
		}
		res = h.Do(c)
	}
	r.ends[end(res)]++
	for _, w := range ways {
		if end(res) == w {
			return
		}
	}
	r.t.Errorf("a copy of who is kept out by %s ends with %s, want %v", why, end(res), ways)
}

// persistent is a PERSISTENT RESERVE OUT.
func persistent(lun int, action, kind byte, key, other uint64) scsitest.Command {
	list := make([]byte, 24)
	binary.BigEndian.PutUint64(list, key)
	binary.BigEndian.PutUint64(list[8:], other)
	return scsitest.Command{LUN: uint64(lun), CDB: []byte{0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0}, Out: list}
}

// reserve has an initiator keep the other one from a volume of either array, which can then copy neither from there nor to it.
func (r *randomCopies) reserve() {
	const key, exclusive, register, reserve, free = 77, 3, 6, 1, 3
	p, k := place{r.rng.IntN(2), r.rng.IntN(2)}, r.rng.IntN(2)
	h, kept := r.who[k][p.array], r.who[1-k][1]
	r.ordered("a registration", h, persistent(p.volume, register, 0, 0, key))
	r.ordered("a reservation", h, persistent(p.volume, reserve, exclusive, key, 0))
	src, dst := place{r.rng.IntN(2), r.rng.IntN(2)}, p
	if p.array == 0 || r.rng.IntN(2) == 0 {
		src, dst = p, place{1, r.rng.IntN(2)}
	}
	if src != dst {
		r.refused("a reservation", kept, copies(r.rng.IntN(2), r.side(src).names(src.volume), r.dst.names(dst.volume), 8, 0, 0), "0a0d01", "18")
	}
	r.ordered("the end of a reservation", h, persistent(p.volume, free, 0, key, 0))
}

// mask takes a volume of the source away from all initiators, who can name it neither by its name nor by a token then.
func (r *randomCopies) mask() {
	v := r.rng.IntN(2)
	token := r.who[0][0].token(v, 8)
	r.src.exec.Lock()
	r.src.target.Unmap("", uint16(v))
	r.src.exec.Unlock()
	to := r.rng.IntN(2)
	r.refused("its mask", r.host(1), copies(r.rng.IntN(2), r.src.names(v), r.dst.names(to), 8, 0, 0), "0a0d02")
	r.refused("its mask", r.who[0][1], redeem(to, 0, token, 0, 8), "052304")
	r.src.exec.Lock()
	err := r.src.target.Map("", uint16(v), r.src.units[v])
	r.src.exec.Unlock()
	if err != nil {
		r.t.Fatal(err)
	}
}
