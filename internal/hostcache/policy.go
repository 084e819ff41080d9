package hostcache

import (
	"fmt"
	"slices"
	"strings"
)

// policy decides which block leaves. It owns the lists of its Index. A policy
// keeps what it knows of a block in the slot's state, counter and place.
type policy interface {
	name() string
	// ghosts returns how much history it wants for a capacity, in its unit.
	ghosts(capacity int64) int64
	// resize sets its limits; nothing is resident beyond the capacity.
	resize(capacity int64)
	// hit is a reference to a resident block.
	hit(s uint32)
	// admit makes room for w units of block k, whose ghost is g (0: none), which
	// it frees. It returns the state of the new slot, or false if all that could
	// leave is pinned.
	admit(k Key, g uint32, w int64) (state uint8, ok bool)
	// place puts a new slot where admit said.
	place(s uint32, state uint8)
	// drop takes a slot, resident or ghost, from its lists.
	drop(s uint32)
	// order appends the resident slots and the ghosts, those that would leave
	// first in front.
	order(resident, ghosts []uint32) ([]uint32, []uint32)
	// adopt takes over slots that are on no list, in the order of order, and
	// returns how many of the ghosts, the newest, it keeps.
	adopt(resident, ghosts []uint32) int
}

// Auto is the name of the policy that chooses among the others on line.
const Auto = "auto"

// policies makes them by name, in the order of documents and tables.
var policies = []struct {
	name string
	make func(ix *Index) policy
}{
	{"lru", func(ix *Index) policy { return &lru{ix: ix} }},
	{"fifo", func(ix *Index) policy { return &fifo{lru{ix: ix}} }},
	{"clock", func(ix *Index) policy { return &clock{lru{ix: ix}} }},
	{"sieve", func(ix *Index) policy { return &sieve{lru: lru{ix: ix}} }},
	{"2q", func(ix *Index) policy { return &twoQ{ix: ix} }},
	{"arc", func(ix *Index) policy { return &arc{ix: ix} }},
	{"s3-fifo", func(ix *Index) policy { return &s3fifo{ix: ix} }},
	{"lirs", func(ix *Index) policy { return &lirs{ix: ix} }},
	{"w-tinylfu", func(ix *Index) policy { return &tinyLFU{ix: ix} }},
	{"lfu", func(ix *Index) policy { return &lfu{lru{ix: ix}} }},
}

// Policies returns the names of all policies, Auto the last.
func Policies() []string {
	var out []string
	for _, p := range policies {
		out = append(out, p.name)
	}
	return append(out, Auto)
}

func newPolicy(name string, ix *Index) (policy, error) {
	if ix.cfg.Plugged != nil {
		return newPlugged(ix), nil
	}
	for _, p := range policies {
		if p.name == name {
			return p.make(ix), nil
		}
	}
	if name == Auto {
		return newAuto(ix), nil
	}
	return nil, UnknownPolicy(name)
}

// UnknownPolicy returns nil if the name is one of Policies, else an error that
// lists them.
func UnknownPolicy(name string) error {
	if slices.Contains(Policies(), name) {
		return nil
	}
	return fmt.Errorf("no policy is named %q; choose from %s", name, strings.Join(Policies(), ", "))
}

// collect appends the slots of lists, oldest first.
func (ix *Index) collect(to []uint32, lists ...uint8) []uint32 {
	for _, l := range lists {
		for s := ix.oldest(uint32(l)); s >= numLists; s = ix.nodes[s].prev {
			to = append(to, s)
		}
	}
	return to
}
