package hostcache

import (
	"fmt"
	"strings"

	"github.com/arraysim/arraysim/lab/plug"
)

// Key names a block: the disk's number in the upper 16 bits, the block's number
// on the disk in the others. In a cache of objects ([Config.Sized]) it is any number.
type Key uint64

// blockBits is the width of a block number in a Key: 2^48 blocks of 4 KiB are an exbibyte.
const blockBits = 48

// MaxBlocks is how many blocks a disk may have: a Key has no room for a larger number.
const MaxBlocks = 1 << blockBits

// MakeKey returns the key of a block of a disk.
func MakeKey(disk uint16, block uint64) Key {
	return Key(uint64(disk)<<blockBits | block&(1<<blockBits-1))
}

// Disk returns the disk's number.
func (k Key) Disk() uint16 { return uint16(k >> blockBits) }

// Block returns the number of the block on its disk.
func (k Key) Block() uint64 { return uint64(k) & (1<<blockBits - 1) }

// Slot is the number of a resident block's frame: its data lies at Slot times
// the block size on flash. It stays the same until the block is evicted.
type Slot int32

// None is no slot.
const None Slot = -1

// Block sizes that a virtual disk may have.
const (
	MinBlockSectors = 8    // 4 KiB
	MaxBlockSectors = 2048 // 1 MiB
)

// maxSlots bounds resident and ghost slots together: slot numbers have 31 bits.
const maxSlots = 1<<31 - 1 - numLists

// MaxResident is how many blocks of one size an Index can hold.
const MaxResident = maxSlots / 3

// Config describes an Index.
type Config struct {
	// Policy decides what is evicted; see [Policies].
	Policy string
	// Plugged makes the policy in place of one of ours, of which Policy is then the name; see
	// package plug. It is called when the index is made, and when it is resized. Not with Sized.
	Plugged func(capacity int64) plug.Eviction
	// Capacity in blocks; in bytes with Sized.
	Capacity int64
	// BlockSectors is the size of a block in sectors of 512 bytes, a power of two
	// from MinBlockSectors to MaxBlockSectors. 0 keeps no sector bitmaps: every
	// sector of a resident block counts as valid.
	BlockSectors int
	// Dirty keeps track of dirty sectors, for a write-back tier.
	Dirty bool
	// MaxPinned bounds the blocks that are pinned at once, dirty ones included,
	// so that evictions stay cheap; 0 is 7/8 of the capacity.
	MaxPinned int64
	// Sized makes a cache of objects that have a size each, for traces of object stores: slots
	// then grow with the number of objects, and a slot's number is no place on flash.
	Sized bool
	// OnEvict hears of every block that leaves to make room, before its slot is
	// used again. It must not call the Index. What is dropped or invalidated is
	// not reported.
	OnEvict func(Slot, Key)
}

// The low 3 bits of meta are the state of a slot: which list it is on. Policies
// give the states names of their own; those from firstGhost on have no frame.
// Then two pins, and a small counter for the policy.
const (
	numLists   = 8
	stateMask  = numLists - 1
	stateFree  = 0
	firstGhost = 5

	pinDirty  = 1 << 3
	pinBusy   = 1 << 4
	pinMask   = pinDirty | pinBusy
	countUnit = 1 << 5
	countMax  = 7
)

// node is what nearly every reference looks at: a slot's key and its neighbours, together, so that
// they are one miss of the processor's caches. Lists are rings through their head, whose slot number
// is the number of the list.
type node struct {
	key        Key
	prev, next uint32
}

// Index is the table of blocks on flash. See the package documentation.
type Index struct {
	cfg      Config
	capacity int64
	used     int64 // resident, in the unit of the capacity
	resident int64 // resident blocks
	pinned   int64
	policy   policy
	recency  bool // the policy is lru, of blocks that have one size: replace does the work

	nodes []node
	meta  []uint8
	sizes []uint32 // Sized only
	table table

	units    [numLists]int64 // by state, in the unit of the capacity
	blocks   [numLists]int64 // by state
	pinnedIn [numLists]int64

	frames    slots // where resident blocks go; everything if Sized
	ghosts    slots
	ghostsMax int64 // in the unit of the capacity

	bitmaps bitmaps
	dirty   dirtySet
	stats   Stats
}

// Stats counts what an Index did since it was made.
type Stats struct {
	Hits, Misses int64 // of Access
	Inserted     int64
	Evicted      int64
	Refused      int64 // inserts that found only pinned blocks, or that were larger than the cache
	Switches     int64 // changes of policy by Auto
}

// New makes an Index.
func New(cfg Config) (*Index, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	ix := &Index{cfg: cfg}
	p, err := newPolicy(cfg.Policy, ix)
	if err != nil {
		return nil, err
	}
	ix.policy = p
	_, ix.recency = p.(*lru)
	ix.recency = ix.recency && !cfg.Sized
	ix.layOut(cfg.Capacity)
	p.resize(cfg.Capacity)
	return ix, nil
}

func (cfg *Config) check() error {
	if cfg.Capacity < 1 {
		return fmt.Errorf("hostcache: a capacity of %d is not possible; give 1 or more", cfg.Capacity)
	}
	if n := cfg.BlockSectors; n != 0 && (n < MinBlockSectors || n > MaxBlockSectors || n&(n-1) != 0) {
		return fmt.Errorf("hostcache: a block of %d sectors is not possible; give a power of two from %d to %d (4KiB to 1MiB)", n, MinBlockSectors, MaxBlockSectors)
	}
	if cfg.Sized && cfg.Plugged != nil {
		return fmt.Errorf("hostcache: objects of different sizes work only with the policies %s", strings.Join(Policies(), ", "))
	}
	if cfg.Sized && (cfg.BlockSectors != 0 || cfg.Dirty) {
		return fmt.Errorf("hostcache: objects of different sizes have no sector bitmaps")
	}
	if cfg.Dirty && cfg.BlockSectors == 0 {
		return fmt.Errorf("hostcache: dirty sectors need a block size")
	}
	if !cfg.Sized && cfg.Capacity > MaxResident {
		return fmt.Errorf("hostcache: %d blocks are more than the %d an index can hold; use larger blocks", cfg.Capacity, MaxResident)
	}
	return nil
}

// layOut makes the arrays for a capacity; nothing is resident in them.
func (ix *Index) layOut(capacity int64) {
	ix.capacity = capacity
	ix.ghostsMax = ix.policy.ghosts(capacity)
	n := int64(numLists)
	if ix.cfg.Sized {
		ix.frames = slots{fresh: numLists, end: maxSlots}
	} else {
		n += capacity + ix.ghostsMax
		ix.frames = slots{fresh: numLists, end: uint32(numLists + capacity)}
		ix.ghosts = slots{fresh: ix.frames.end, end: uint32(n)}
	}
	ix.nodes = make([]node, n)
	ix.meta = make([]uint8, n)
	if ix.cfg.Sized {
		ix.sizes = make([]uint32, n)
	}
	ix.emptyLists()
	ix.table.init(n - numLists)
	ix.bitmaps.layOut(&ix.cfg, capacity)
	ix.used, ix.resident, ix.pinned = 0, 0, 0
}

// Access is one reference of a workload: a hit tells the policy, a miss inserts
// the block (size in bytes with Sized, else ignored). It tells whether it hit.
func (ix *Index) Access(k Key, size uint32) bool {
	h := hash(k)
	s := ix.findHash(k, h)
	if s != 0 && ix.meta[s]&stateMask < firstGhost {
		ix.stats.Hits++
		if ix.recency {
			ix.renew(s)
		} else {
			ix.policy.hit(s)
		}
		return true
	}
	ix.stats.Misses++
	ix.insert(k, h, s, size)
	return false
}

// Ahead fetches into the processor's caches what Access will need of up to [AheadMax] keys, and changes
// nothing. An index larger than those caches waits for memory once for the table and once for the key on
// each reference; here the waits of all keys overlap. It returns nothing of meaning; the compiler must not know.
func (ix *Index) Ahead(keys []Key) uint32 {
	var at [AheadMax]uint32
	t := &ix.table
	for i, k := range keys {
		h := hash(k)
		b := &t.buckets[t.home(h)]
		at[i] = b.slots[place(b.matches(tag(h))|lastPlace)]
	}
	sum := uint32(0)
	for _, s := range at[:len(keys)] {
		sum += uint32(ix.nodes[s].key)
	}
	return sum
}

// AheadMax is how many keys Ahead takes: more than the misses that a processor has under way
// at one time help no further.
const AheadMax = 16

// Lookup returns the slot of a resident block, else None. The policy does not
// hear of it.
func (ix *Index) Lookup(k Key) Slot {
	s := ix.find(k)
	if s == 0 || ix.meta[s]&stateMask >= firstGhost {
		return None
	}
	return Slot(s) - numLists
}

// Touch tells the policy that a resident block was referenced.
func (ix *Index) Touch(s Slot) {
	ix.stats.Hits++
	ix.policy.hit(ix.slot(s))
}

// Insert makes room for a block that is not resident and gives it a slot, with
// no valid sector. It returns None if nothing can leave because all is pinned:
// the caller then passes the I/O through.
func (ix *Index) Insert(k Key) Slot {
	g := ix.find(k)
	if g != 0 && ix.meta[g]&stateMask < firstGhost {
		panic(fmt.Sprintf("hostcache: insert of %x, which is resident", uint64(k)))
	}
	ix.stats.Misses++
	s := ix.insert(k, hash(k), g, 1)
	if s == 0 {
		return None
	}
	return Slot(s) - numLists
}

// Drop forgets a resident block, pinned or dirty or not, and its history.
func (ix *Index) Drop(s Slot) {
	t := ix.slot(s)
	ix.policy.drop(t)
	ix.release(t)
}

// DropDisk forgets all blocks of a disk and their history.
func (ix *Index) DropDisk(disk uint16) {
	for s := uint32(numLists); s < uint32(len(ix.nodes)); s++ {
		if ix.meta[s]&stateMask != stateFree && ix.nodes[s].key.Disk() == disk {
			ix.policy.drop(s)
			ix.release(s)
		}
	}
}

// Key returns the block that a slot holds.
func (ix *Index) Key(s Slot) Key { return ix.nodes[ix.slot(s)].key }

// Len returns the number of resident blocks.
func (ix *Index) Len() int64 { return ix.resident }

// Used returns how much of the capacity is in use, in its unit.
func (ix *Index) Used() int64 { return ix.used }

// Capacity returns the capacity, in blocks, or in bytes with Sized.
func (ix *Index) Capacity() int64 { return ix.capacity }

// Pinned returns the number of blocks that cannot be evicted now.
func (ix *Index) Pinned() int64 { return ix.pinned }

// Stats returns what was counted.
func (ix *Index) Stats() Stats { return ix.stats }

// Policy returns the name of the policy at work: with Auto the one it follows now.
func (ix *Index) Policy() string { return ix.policy.name() }

// Pin keeps a block from being evicted while I/O on its data is in flight. It
// reports false, and pins nothing, if that would leave too few blocks to evict.
// Pins of a slot do not add up.
func (ix *Index) Pin(s Slot) bool { return ix.pin(ix.slot(s), pinBusy) }

// Unpin undoes Pin. A block that has dirty sectors stays.
func (ix *Index) Unpin(s Slot) { ix.unpin(ix.slot(s), pinBusy) }

func (ix *Index) maxPinned() int64 {
	if ix.cfg.MaxPinned > 0 {
		return min(ix.cfg.MaxPinned, ix.capacity)
	}
	return ix.capacity - (ix.capacity+7)/8
}

func (ix *Index) pin(s uint32, bit uint8) bool {
	if ix.meta[s]&pinMask == 0 {
		if ix.pinned >= ix.maxPinned() {
			return false
		}
		ix.pinned++
		ix.pinnedIn[ix.meta[s]&stateMask]++
	}
	ix.meta[s] |= bit
	return true
}

func (ix *Index) unpin(s uint32, bit uint8) {
	if ix.meta[s]&pinMask == 0 {
		return
	}
	ix.meta[s] &^= bit
	if ix.meta[s]&pinMask == 0 {
		ix.pinned--
		ix.pinnedIn[ix.meta[s]&stateMask]--
	}
}

// slot checks a number that came from outside: a wrong one is a bug of the caller.
func (ix *Index) slot(s Slot) uint32 {
	t := uint32(s) + numLists
	if s < 0 || int(t) >= len(ix.meta) || ix.meta[t]&stateMask == stateFree || ix.meta[t]&stateMask >= firstGhost {
		panic(fmt.Sprintf("hostcache: slot %d holds no block", s))
	}
	return t
}
