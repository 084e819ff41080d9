// Package plug has the interfaces of the policies that a simulated array and the caches of its
// hosts ask: which block leaves a cache, which one gets in, how long a write is held back, what is
// destaged when, and how a copy is carried out. The policies that come with the program implement
// the same interfaces or, for eviction, are driven by the same index. Package lab runs them.
//
// # Rules
//
// A run is the same bytes on every machine, so a policy decides by what it is given and by what it
// was given before, and by nothing else: no wall clock, no global random numbers, no order of a
// map, no goroutine. Times are the simulation's, in nanoseconds. Whoever needs random numbers takes
// them from the [Random] that its constructor was given.
//
// Policies are called for each reference, write or destage, so they should not allocate there: a
// cache numbers its slots from 0 to Blocks-1 so that tables can be slices of a fixed length. [Order]
// is a list of slots for policies of eviction that keep one.
//
// Each cache, partition and array has a policy of its own, made by a constructor of [Policies].
// All calls to one policy come one after the other.
package plug

// Random is a source of random numbers that belongs to one policy: it is seeded by the run's seed
// and the policy's place.
type Random interface {
	// Uint64 returns 64 random bits.
	Uint64() uint64
	// N returns a number from 0 to n-1; n is not 0.
	N(n uint64) uint64
}

// Policies are constructors of policies by name; a scenario says by the same name where each is used.
// A constructor returns an error if there can be no such policy; the run does not begin then. An eviction may not
// have the name of one of ours. A policy that has a method Close() error is closed when the run ends, and the run
// fails if that does.
type Policies struct {
	Eviction  Evictions
	Admission Admissions
	Throttle  Throttles
	Destage   Destages
	Placement Placements
}

// Constructors of each kind by name.
type (
	Evictions  = map[string]func(Cache) (Eviction, error)
	Admissions = map[string]func(Cache) (Admission, error)
	Throttles  = map[string]func(Cache) (Throttle, error)
	Destages   = map[string]func(Partition) (Destage, error)
	Placements = map[string]func(Array) (Placement, error)
)

// Cache describes the cache that a policy is for.
type Cache struct {
	Name string // of the cache in the scenario
	// Blocks is how many blocks the cache holds, BlockBytes the size of each.
	Blocks, BlockBytes int
	Random             Random
}

// Partition describes the part of an array's write cache that a policy is for: that of a pool.
type Partition struct {
	Array  string // name of the array
	Pool   string // name of the pool
	Random Random
}

// Array describes the array that a policy is for.
type Array struct {
	Name   string
	Random Random
}

// Eviction decides which block leaves a host's cache when another one comes in.
//
// A block is in a slot from Insert to Remove. Slots are numbers from 0 to Cache.Blocks-1, and are
// used again.
type Eviction interface {
	// Insert says that a block has got a slot. The block's number is its address on the volume in
	// units of the block size.
	Insert(slot int, block uint64)
	// Hit says that the block in a slot was referenced.
	Hit(slot int)
	// Victim returns the slot of the block that leaves next; Remove follows. Blocks that are dirty
	// or under I/O are pinned and cannot leave; at least one block is not. A slot that is pinned or
	// holds no block ends the run with an error.
	Victim(pinned func(slot int) bool) (slot int)
	// Remove says that the block in a slot is gone: it was the victim, or was invalidated.
	Remove(slot int)
}

// Failing is what a policy of any kind implements that can fail, such as one in another process. Err
// returns why it did, or nil. It is asked after each Victim, every 100 ms of simulated time or more
// often, and at the end; the run ends with that error.
type Failing interface{ Err() error }

// Admission decides which blocks get into a host's cache.
type Admission interface {
	// Admit reports whether a block that is not in the cache gets in. write says that a guest writes
	// it: a write-back cache then writes past its flash if the block is refused, and a write-through
	// cache does not keep a copy. Otherwise a guest has read it.
	Admit(block uint64, write bool) bool
}

// Area is the dirty data of a write-back cache at the moment when a write has been put into it.
type Area struct {
	Now int64 // nanoseconds
	// Dirty is how many bytes are dirty, this write included, Size how many may be. Above Threshold
	// writes can be held back.
	Dirty, Size, Threshold uint64
	// Destage is the moving average of the time that a write to the volume takes, in nanoseconds; 0
	// if there was none yet. As many of them run at a time as the host has slots for destaging, which its caches share.
	Destage int64
}

// Throttle holds back the acknowledgements of writes so that a write-back cache does not fill.
type Throttle interface {
	// Delay returns by how many nanoseconds the acknowledgement of this write is put off. It is
	// called for each write. What it returns counts above the threshold only, and 5 s at the most;
	// writes that are held back are let go when the dirty data falls to the threshold.
	Delay(a Area) int64
}

// Fullness is how full the partition of a pool is.
type Fullness struct {
	Now int64 // nanoseconds
	// Used is how much of the partition is in use, Limit its cap, in bytes. CacheUsed and CacheLimit
	// are those of the whole write cache.
	Used, Limit, CacheUsed, CacheLimit int64
	// Waiting says that a write waits for room.
	Waiting bool
}

// DirtyVolume is a volume of a pool that has data to destage.
type DirtyVolume struct {
	// Volume is the volume's number in its array: 1 for the first.
	Volume int
	Dirty  int64 // bytes that wait to be destaged
	// Age is how many pages of 4 KiB became dirty in the pool since the oldest of these did whose
	// mdisk can take a write now.
	Age int
}

// Destage decides when a partition of an array's write cache writes to its disks, and what first. The
// list of volumes is made for each destage: it costs in proportion to the volumes that are dirty.
type Destage interface {
	// Rate returns the rate of destaging in bytes a second: 0 to wait, negative for as much as the
	// disks take. It is asked before each destage, and whenever the fullness has changed. What it
	// leaves is destaged anyway once the pool has had no write for half a second, or after half a
	// minute.
	Rate(f Fullness) int64
	// Next returns which of the volumes destages next, as an index into the list, which is not empty
	// and valid until Next returns. Its oldest data goes with its neighbours in address, up to
	// 256 KiB. An index that is not in the list ends the run with an error.
	Next(volumes []DirtyVolume) int
}

// Copy is what is left to do of an EXTENDED COPY or a write by token, inside one pool. Between two
// pools data always moves.
type Copy struct {
	Now   int64 // nanoseconds
	To    int   // number of the volume that is written, in its array: 1 for the first
	Bytes int64
	// Moves says that the pool is set to move data ("copy: data").
	Moves bool
	// Used and Limit are the bytes in use and the cap of the pool's partition of the write cache.
	Used, Limit int64
}

// Way is how a copy is carried out.
type Way int

// Ways.
const (
	// Reference edits the map: the data is shared until one of the two is written. Nothing is
	// read or written.
	Reference Way = iota
	// Data reads the source and writes the destination through the write cache.
	Data
)

// Placement decides whether a copy shares the data of its source or gets a place of its own.
type Placement interface {
	// Place returns the way of a copy. It is asked again for the rest of a copy that is done in
	// parts or had to wait. Reference becomes Data where there is no space to share.
	Place(c Copy) Way
}
