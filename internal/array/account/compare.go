// The account that the meta store has, held against the pages of leaves that it has.

package account

import (
	"fmt"
	"math/bits"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/node"
)

// Comparison takes all entries of a meta store as of one moment, in the order of their keys, and compares what the
// account among them says with what the pages of leaves refer to. It looks at nothing that a running array has, so
// that it finds what the array has read and believes.
//
// The calls are Pool for each pool, Take for each entry, and Differences.
type Comparison struct {
	stored Account // of the account's entries alone
	nodes  node.Slab
	leaf   node.Node
	pools  []compared
	of     map[uint32]*compared // by volume; nil: of a pool that is no more
	apart  map[node.Key]struct{}
	mark   Mark
}

// compared is a pool's space.
type compared struct {
	id    uint16
	space *alloc.Space
	found *alloc.Counts // what pages refer to
}

// Pool says that there is a pool of so many grains.
func (c *Comparison) Pool(id uint16, grains int64) {
	space := alloc.New([]int{int(grains / layout.ExtentGrains)}, alloc.Events{})
	c.stored.OpenPool(id, space)
	c.pools = append(c.pools, compared{id, space, space.NewCounts()})
}

// Take takes an entry of any kind.
func (c *Comparison) Take(key, value []byte) error {
	switch string(key[:1]) {
	case Prefix:
		if len(key) == len(Prefix) {
			c.mark = MarkOf(value)
			return nil
		}
		_, err := c.stored.Load(key, value)
		return err
	case node.EntryPrefix:
		return c.entry(key, value)
	case node.Prefix:
		return c.page(key, value)
	}
	return nil
}

// entry notes in which pool a leaf lies.
func (c *Comparison) entry(key, value []byte) error {
	e, ok := node.DecodeEntry(key, value)
	if !ok {
		return fmt.Errorf("the entry of a map page is damaged")
	}
	if c.of == nil {
		c.of, c.apart = map[uint32]*compared{}, map[node.Key]struct{}{}
	}
	switch {
	case e.Key.Level > 0:
	case e.Pool == node.NoPool: // the account has nothing of it
		c.apart[e.Key] = struct{}{}
	case c.of[e.Key.Vol] == nil:
		for i := range c.pools {
			if c.pools[i].id == e.Pool {
				c.of[e.Key.Vol] = &c.pools[i]
			}
		}
	}
	return nil
}

// page counts what a leaf refers to.
func (c *Comparison) page(key, value []byte) error {
	if len(key) != node.KeyBytes {
		return fmt.Errorf("a map page has a damaged key")
	}
	k := node.KeyOf(key)
	p := c.of[k.Vol]
	if _, apart := c.apart[k]; k.Level > 0 || p == nil || apart {
		return nil
	}
	c.leaf = node.Node{Vol: k.Vol, Index: k.Index}
	if err := c.nodes.Decode(&c.leaf, value); err != nil {
		return err
	}
	var err error
	c.nodes.EachGrainOf(&c.leaf, func(g uint64) {
		if g >= uint64(p.space.Grains()) {
			err = Behind{k.Vol}
			return
		}
		p.found.Add(g)
	})
	c.nodes.Windows.Forget(&c.leaf.Slots)
	return err
}

// Difference is what the account of a pool's space says otherwise than the pages do.
type Difference struct {
	Pool          uint16
	Grains        int    // that have other counts
	Grain         uint64 // the first
	Stored, Pages uint32 // its references
}

// Differences returns those that there are, one a pool. ok is false where the store says that its account is not to be
// relied on: the next start derives it anyway. Preconditions: each page in the store has its entry, as behind a start.
func (c *Comparison) Differences() (list []Difference, ok bool) {
	if c.mark == NotKnown {
		return nil, false
	}
	for _, p := range c.pools {
		d := Difference{Pool: p.id}
		book := c.stored.bookOf(p.id)
		for e := range uint32(p.space.Grains() / layout.ExtentGrains) {
			found, _ := p.found.Extent(e)
			stored, _ := book.refs.Extent(e)
			for left := found | stored; left != 0; left &= left - 1 {
				g := uint64(e)*layout.ExtentGrains + uint64(bits.TrailingZeros64(left))
				if has, want := book.refs.Of(g), p.found.Of(g); has < want || has > want && c.mark != TooMuch {
					if d.Grains++; d.Grains == 1 {
						d.Grain, d.Stored, d.Pages = g, has, want
					}
				}
			}
		}
		if d.Grains > 0 {
			list = append(list, d)
		}
	}
	return list, true
}
