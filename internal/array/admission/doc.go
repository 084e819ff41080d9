// Package admission says who may bring pages into the write cache, and who is next. It knows
// partitions of the cache and tickets, and neither pools nor volumes nor requests.
//
// # Who waits for what
//
// A write is admitted piece by piece, each with a [Claim]. A piece that its partition, or what all
// share, has no room for waits in its partition's queue, one out, one in, in the order of the
// policy: a newcomer goes straight in only if it fits and nobody waits. What all share goes round
// the partitions that wait: see line.go. An offload that would hold more than its budget waits in a
// queue of its host, and nobody waits behind it: see budget.go.
//
// # Who owns what
//
// The queues and their order are a [Gate]'s and its Pools'; a waiter queues its own ticket, and may
// take it out at any time. The books of pages are the cache's: a Gate reads them, and books there
// only what it promises to an offload that waits for room.
//
// Who gives room or budget back says so (Freed, Relieved). The Gate wakes those at the head when
// its user asks it to: [Gate.Serve], [Gate.ServeBudgets].
package admission
