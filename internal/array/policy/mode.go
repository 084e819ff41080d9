// How a partition takes writes.

package policy

// Mode is how a partition takes writes, and how a write was taken.
type Mode uint8

// Modes.
const (
	// Fast acknowledges when the cache has the data.
	Fast Mode = iota
	// FlushThrough takes the data into the partition and acknowledges when the back end has it.
	FlushThrough
	// WriteThrough keeps the data out of the partition, and acknowledges when the back
	// end has it. A cache that has lost its mirror is in this mode.
	WriteThrough
	// ShortOfMemory is WriteThrough of a single write because the partition has no room for it. No
	// partition is in this mode.
	ShortOfMemory
)
