// Package pool has the objects of an array as they are now: pools, their mdisks, and volumes. What
// belongs to a pool has one owner each: its space, its partition of the write cache, the queues of
// its mdisks, the maps of its volumes, their counters. All of them hang at a [Set].
//
// # Who may change what
//
// The array says which objects there are: it adds and removes pools and volumes, and changes a
// volume's description and limits. Requests change a volume's map, and book with a pool what they
// wait for. What is dirty this package destages by itself: the cache says what a pool sends now, a
// [Unit] of it is on its way to an mdisk, and its pages are on the back end when all of it is.
//
// It knows no request and no checkpoint. Of NVRAM it uses the counter rows, and applies to a map an
// edit that somebody else has logged; it appends no record. What those above have to hear of goes
// through [Hooks].
//
// # Concurrency
//
// Everything runs with the executor held. There is no goroutine and no wall clock here.
package pool
