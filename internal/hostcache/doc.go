// Package hostcache is the caching layer of a host: what lies between virtual
// disks and the LUN they are on.
//
// # The index
//
// An [Index] says which blocks of which disks are on flash, in which slot, which
// of their sectors are valid there and which are dirty, and which block leaves
// when another one comes. It holds no data and does no I/O: a device over it
// looks up, inserts and fills, marks sectors dirty and clean, and pins what must
// stay. A slot's number is the place of the block's data on flash.
//
//	slots   [ 8 list heads | resident blocks, one a frame | ghosts ]
//	nodes   disk and block number, neighbours in a list        16 bytes a slot
//	meta    list, pins, small counter                          1
//	table   buckets of a cache line: slot numbers, tags         6.9
//	valid, dirty   a bit a sector of each frame                (bitmaps)
//
// Ghosts are blocks that left and that the policy remembers; they have a slot
// but no frame. All replacement policies ([Policies]) work on these same arrays, so that
// one can take over from another while the cache stays warm, which is what
// [Auto] does: it runs small shadow caches on a hash sample of the blocks and
// follows the one that misses least.
//
// # Determinism and bounds
//
// The package has no clock, no goroutine and no randomness beyond a fixed hash.
// What an Index does depends on its configuration and the calls alone. Its memory
// is allocated when it is made (except with [Config.Sized], and for the tree that orders dirty
// blocks). Calls allocate nothing and take amortised constant time, except [Index.Resize],
// [Index.DropDisk] and the rare moment when Auto changes the policy, which take time in
// proportion to the slots.
//
// # Concurrency
//
// An Index belongs to one executor.
package hostcache
