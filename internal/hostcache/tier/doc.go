// Package tier is the caching device of a host: a [Disk] is a block.Device over a
// block.Device, with a flash device beside it.
//
// # Two policies
//
// Write-through: reads are answered from flash where it has the sectors, else from
// below, and fill the flash afterwards; writes go below and to flash. Nothing is lost
// with the flash. Without a journal ([Options].Volatile) that is all, and the cache
// is empty after a start.
//
// Write-back: a write is acknowledged when the host's own flash and the peers that
// the policy asks for have it. A destager moves it below: all disks of a [Destager]
// side by side, in the order of addresses, adjacent sectors together. When the dirty
// sectors exceed a threshold of the destaging area, latency is injected into the
// writes that exceed it (see throttle); when they would exceed the area, writes go
// past the flash. Neither is an error.
//
// What was requested and what is in effect differ while dirty data is destaged, when
// peers are short, or when the flash is lost: see [State].
//
// # Offloads
//
// COPY, WRITE SAME and UNMAP are carried out by the device below, under the cache. One
// that reads (a hold) waits until the dirty part of its range is below, and nothing
// else is destaged for it. One that writes locks its range against everything,
// destages that are under way included; it is entered in the journal, forwarded, and
// on success what the cache has of the range is void. When it fails, what was dirty is
// still dirty, and what was clean is forgotten, since part of it may have been changed.
//
// # Crashes
//
// The journal is described at its type. What was acknowledged survives the death of the
// process; with [Options].PowerSafe, or after a flush or FUA, also the loss of power. A
// frame is used for another block only when the journal has forgotten the first.
//
// # Members
//
// The host's flash and its peers are members. Each has a label that says whose it is, and a generation: when
// one is left out, the others get a higher one before anything more is acknowledged (see marks), and an
// Open that is given an older one refuses it. A [Witness] knows the generation where the others
// cannot be asked.
//
// # Concurrency and determinism
//
// Everything is called with the executor held. There is no goroutine, no wall clock and
// no randomness.
package tier
