// Package pool has the objects of an array as they are now: pools, their mdisks, and volumes. What
// belongs to a pool has one owner each, and hangs at its [Pool]: its space, its partition of the
// write cache, its mdisks and their queues, its volumes with their maps, its bad sectors, what is
// counted. A [Set] finds all of them, by number and by name. What a pool says to what pools share
// goes through its Link (package crosspool); nothing that belongs to one pool finds another one.
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
