// Package wcache is the write cache: pages of NVRAM that hold what the back end does not have yet,
// found by physical address. It knows pools and volumes as numbers (partitions and owners), and
// neither maps nor requests.
//
// # Who owns what
//
// A [Cache] owns the pages: their states, lists and masks, the index of the newest page of each
// address, and the ring of those that are free. Nobody else changes a page; state.go has the table
// of transitions. What is in a page lies in NVRAM and is the business of package nvlog: the user
// fills it before [Cache.Install], and from then on it does not change until the page is free
// again.
//
// A [Partition] owns a pool's numbers: what it holds of the cache and of the reserve, the order and
// the pace of its destaging. An [Owner] owns what is counted of a volume: its dirty bytes and the
// counters of the cache, which are written here and nowhere else.
//
// # The way of a page
//
//	user: TakeFree, Compose, log record, Install
//	      NextDestage gives a Batch, the user writes it to the mdisk, Destaged
//	      BeginSync, the user syncs all mdisks, EndSync
//	      FlushBegun, FlushEnded                                 the page is free
//
// # Concurrency
//
// A state machine on one block.Executor, like all of the array. It calls its user only by Hooks.
package wcache
