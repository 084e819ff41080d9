// Package crosspool is the way from a pool, and from the requests that work for it, to what all pools
// share: the pages of the write cache, the line for them, the log, and what survives a crash. What
// belongs to one pool its objects have (package pool), and nobody comes by it from here.
//
// Each method of a [Link] is one message. From is the pool whose command says it, to is the owner of
// what it is about. All of them are calls under the one executor yet, and are answered when they
// return or by the function that they hand over. When a pool has an executor of its own, a message is
// what crosses between two of them, and its answer comes later: who asks has to be ready for that,
// and is, where today a refusal makes it wait with a ticket.
//
// Nothing here has a state: a Link knows the owners and hands on. It is no interface, because each
// owner is there once, and a WRITE asks three of them for each piece.
//
// # What else crosses
//
//   - A piece of a copy is read by the pool that its reference is of: see package request, source.go.
//   - What a partition borrows of the cache above its floor, and returns: see package wcache, share.go.
//   - The line asks a partition who is next: see package admission, line.go.
//   - A checkpoint asks each pool for its part of a batch, and the ledger says in which order batches
//     are durable: see packages checkpoint and metadata. What there is says package directory, and
//     package provision tells the set of pools when it is durable.
//
// # Concurrency
//
// Everything runs with the executor held. There is no goroutine and no wall clock here.
package crosspool
