package block

// Piece is a read of a part of a [Readable], as its reader sees it.
type Piece interface {
	// Unwanted reports whether nobody waits for the read any more: a device that is silent need not be waited for. It is
	// called with the executor of the Readable held.
	Unwanted() bool
	// Served ends the read.
	Served(Status)
}

// Readable is a Ref whose data can be read by whoever has no device that could place it, such as a link to another array.
type Readable interface {
	Ref
	// States calls fn for the runs of one state that cover sectors [off, off+n) of what is held, in order and with Start
	// counted from the beginning of that, until fn returns false. Runs beside each other may be of one state.
	States(off, n uint64, fn func(Extent) bool)
	// Read reads sectors [off, off+n) of what is held into buf, which belongs to it until it calls Served of p, perhaps at
	// once. What an origin has read is counted as the source side of a copy.
	Read(off, n uint64, buf []byte, origin Origin, p Piece)
}

// Remote is a Readable of another array, which a device may place: its data comes by messages. All of its methods but Read
// may be called with whatever executor held; its runs do not change.
type Remote interface {
	Readable
	// Home is the executor with which Read is called.
	Home() Executor
	// Account is where reads of it are counted that were given up and have not come back: one for each array and each initiator
	// that copies from there. It can be compared, and is nothing else.
	Account() any
}
