// Package nvlog is what the firmware keeps in battery-backed memory (NVRAM): the log, the pages of
// the write cache with their descriptors, counter rows, and the block that says what is known to be
// durable. It is the only package that touches the bytes of the region. It knows neither pools nor
// volumes nor the cache: a page is a number, an address is a [layout.PageKey], and what an edit of
// the log means is its reader's business.
//
// # Who owns what
//
//	NVRAM     the layout of the region; page buffers, descriptors, tombstones   nvram.go page.go
//	Log       the ring and its numbers; a Claim is the only way to append      log.go record.go
//	Flusher   what survives a loss of power: the number up to which all was    flush.go state.go
//	          flushed, who waits for a flush, when one that failed is repeated
//	Rows      which counter row is whose                                       rows.go
//
// # What a crash leaves
//
// When the process dies, every store to the region that it has executed is there, and of the one it
// was at, a part. When power is lost, any subset of what was written since the last flush is there
// as well, in units of 512 bytes. From that follow the rules that all users of the package keep:
//
//  1. A data page is written, then its descriptor, then the record whose number the descriptor carries.
//     A page counts only if that record is in the log, or older than the position where replay begins.
//     Nothing that counts is overwritten in place.
//  2. Room for all the records of a command is claimed before its first effect. All but its last record say
//     that it goes on, so that recovery takes all of a command or nothing.
//  3. A record says how many descriptors carry its number. After a loss of power, the log ends before the
//     first unflushed record that lacks one of its pages, or a page's data.
//  4. A page goes to the back end only when NVRAM was flushed behind its record. So no destage
//     overwrites what a record that is lost had left in place. The same holds for a page of which sectors
//     were dropped: without the drop, the back end would have to have them.
//  5. A page that was overwritten or dropped keeps its descriptor until NVRAM was flushed behind the record
//     that made it so. Then, or when it is destaged and its mdisk synced, its descriptor gets a
//     tombstone, and stays. The newest descriptor of an address wins at recovery; a tombstone of a
//     destaged page that survives alone also retires what is older.
//  6. A page is used again only when a flush made its tombstone durable, and with it the number up to
//     which everything was flushed.
//  7. A checkpoint is committed only when NVRAM was flushed behind the last edit that it may have.
//
// # Flipped bits
//
// A single flipped bit in a record, a descriptor, the header or the state block is repaired when it
// is read at a start: there is one bit whose flip makes the checksum agree. Page data is not
// repaired; a sector whose checksum is wrong is reported by [NVRAM.GoodSectors].
//
// # Concurrency
//
// Everything runs with the executor held, but that data and checksums of free pages of a local region are
// written beside it. There is no goroutine and no wall clock here.
package nvlog
