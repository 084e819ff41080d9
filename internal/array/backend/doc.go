// Package backend is the mdisks, as the firmware uses them: their queues and limits, what they have
// under way, what fails, and what they have counted. It knows no array, no pool, no volume and no
// page of the cache, only numbers of pools, physical sectors, and bytes to be moved.
//
// # Shape
//
// A [Backend] is the mdisks of one executor. An [Op] is one operation of an [Mdisk].
//
//	bad.go       the list of bad sectors, and how it is written
//	backend.go   the mdisks that there are; what they tell upwards
//	mdisk.go     an mdisk: what it is, what may be asked of it
//	counters.go  what it has moved, in counter rows
//	op.go        an operation from Mdisk.Read or Write down to its medium, and its end
//	health.go    failures, silence, absence; how long anybody waits for them
//	redo.go      writing again what a failed sync may have lost
//	sync.go      syncing all mdisks
//	discard.go   giving room back, and what is counted of that
//	scrub.go     reading data at rest, again where it looks wrong; mending it
//
// # Invariants
//
//   - An operation that was started ends exactly once, in [Hooks] or in its scrub; then the Op is
//     reused. A read that was given up has ended for whoever waited for it: it is Abandoned, and
//     what its medium answers later is only counted.
//   - A medium gets operations in [Backend.Submit] alone, at the end of a step of the firmware: what
//     completes inside it finds nothing half done.
//   - While an mdisk redoes, nothing that was written to it counts as durable, and it is not synced
//     for others.
//   - A sector on the list of bad ones is one whose data is lost. It leaves the list when it is
//     written anew or when nobody refers to it any more.
//
// # Ownership
//
// A Backend belongs to one executor, and everything goes through its methods and those of its
// mdisks. Buffers of an operation are the medium's from Submit to its end. Upwards go the calls of
// Hooks, which are set once; no operation carries a function of its caller.
package backend
