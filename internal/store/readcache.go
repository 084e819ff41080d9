package store

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
)

const chunkBytes = 64 << 10

// readCache knows which chunks are cached, LRU; it keeps no bytes. Chunks are found by
// open addressing, neighbours side by side.
type readCache struct {
	hit   int64
	slots []uint64 // 0, or 32 bits of the hash of the chunk's key (see hash) and its node
	shift uint
	// nodes[0] is the ring's head: next is the newest, prev the oldest.
	nodes []cacheNode
	limit int
}

type cacheNode struct {
	key        uint64
	prev, next uint32
}

// firstChunks is how many chunks a cache has memory for at first: many simulations are short, and touch
// few of a large cache's.
const firstChunks = 1 << 10

func newReadCache(chunks int, hit int64) *readCache {
	c := &readCache{hit: hit, nodes: make([]cacheNode, 1), limit: chunks}
	c.grow(min(chunks, firstChunks))
	return c
}

// grow makes room for so many chunks, which are more than there are.
func (c *readCache) grow(chunks int) {
	size := max(3, bits.Len(uint(2*chunks-1)))
	was := c.slots
	c.slots, c.shift = block.Table[uint64](1<<size), uint(32-size)
	for _, s := range was {
		if s != 0 {
			at := c.home(s >> 32)
			for c.slots[at] != 0 {
				at = (at + 1) & (len(c.slots) - 1)
			}
			c.slots[at] = s
		}
	}
	c.nodes = append(block.Table[cacheNode](chunks + 1)[:0], c.nodes...)
}

// hash returns 32 bits that tell keys apart and say where the search for one begins: neighbours
// share all but the last three, which are the key's own.
func hash(key uint64) uint64 { return key>>3*0x9E3779B97F4A7C15>>35<<3 | key&7 }

// home returns where the search for a key of this hash begins.
func (c *readCache) home(h uint64) int { return int(h>>3>>c.shift<<3 | h&7) }

// find returns the slot of a key, or the empty one where it would go.
func (c *readCache) find(key uint64) int {
	h := hash(key)
	at := c.home(h)
	for mask := len(c.slots) - 1; ; at = (at + 1) & mask {
		s := c.slots[at]
		if s == 0 || s>>32 == h && c.nodes[uint32(s)].key == key {
			return at
		}
	}
}

// put makes an empty slot that of a node.
func (c *readCache) put(at int, i uint32) { c.slots[at] = hash(c.nodes[i].key)<<32 | uint64(i) }

// remove empties the slot of a key; those behind it that it was in the way of move up.
func (c *readCache) remove(key uint64) {
	mask := len(c.slots) - 1
	hole := c.find(key)
	for at := (hole + 1) & mask; c.slots[at] != 0; at = (at + 1) & mask {
		home := c.home(c.slots[at] >> 32)
		if (at-home)&mask >= (at-hole)&mask {
			c.slots[hole] = c.slots[at]
			hole = at
		}
	}
	c.slots[hole] = 0
}

// touch makes the chunks of a transfer the newest and tells whether all were there.
func (c *readCache) touch(medium, off, n uint64) bool {
	all := true
	for chunk := off / chunkBytes; chunk <= (off+max(n, 1)-1)/chunkBytes; chunk++ {
		key := medium<<44 | chunk
		at := c.find(key)
		i := uint32(c.slots[at])
		switch {
		case i != 0:
			c.unlink(i)
		case len(c.nodes) <= c.limit:
			all = false
			if len(c.nodes) == cap(c.nodes) {
				c.grow(min(2*len(c.nodes), c.limit))
				at = c.find(key)
			}
			i = uint32(len(c.nodes))
			c.nodes = append(c.nodes, cacheNode{key: key})
			c.put(at, i)
		default:
			all = false
			i = c.nodes[0].prev
			c.unlink(i)
			c.remove(c.nodes[i].key)
			c.nodes[i].key = key
			c.put(c.find(key), i)
		}
		head := &c.nodes[0]
		c.nodes[i].prev, c.nodes[i].next = 0, head.next
		c.nodes[head.next].prev = i
		head.next = i
	}
	return all
}

func (c *readCache) unlink(i uint32) {
	n := c.nodes[i]
	c.nodes[n.prev].next = n.next
	c.nodes[n.next].prev = n.prev
}
