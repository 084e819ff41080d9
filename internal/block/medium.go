package block

import "fmt"

// Mdisks: what the array asks of the bytes at rest. The array owns its transfers and their buffers,
// the medium has them from Submit to Done.

// Class is what a transfer is for, and with that how urgent it is: the lower, the more. A medium
// with a queue of its own may let a transfer of a lower class pass, as long as those of others end
// as well, and two that touch the same sectors keep their order; one without takes no notice.
type Class uint8

// The classes.
const (
	ClassHost    Class = iota // a host waits for it: a read, or a write that goes through
	ClassCopy                 // the source side of a copy of data
	ClassDestage              // makes room in the write cache
	ClassRebuild              // writes again what a failed sync may have lost
	ClassScrub                // looks for damage; nobody waits
	NumClasses
)

var classNames = [NumClasses]string{"host", "copy", "destage", "rebuild", "scrub"}

func (c Class) String() string {
	if c < NumClasses {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// IO is one transfer between the array and a Medium. Buffers belong to the
// medium until Done, which is called exactly once, on the executor.
type IO struct {
	Write bool
	Class Class
	Off   uint64   // bytes, a multiple of 512
	Vec   [][]byte // nil entries are not allowed; nil Vec with N set moves no payload
	N     uint64   // bytes; equals VecLen(Vec) unless the medium keeps no payload
	// Deadline is when who waits for the transfer gives up, in ns of the executor's clock; 0: nobody does. A
	// medium may use it to choose what goes first. It ends the transfer all the same, and however late.
	Deadline int64
	// Sums of a write are the CRC32C of its sectors, from where the data entered the
	// array, so that damage on the way is found when it is read; nil: the medium
	// computes them.
	Sums []uint32
	Err  error
	Done func(*IO)
	Ctx  any
}

// ChecksumError is the error of a read whose data does not match its checksums.
type ChecksumError struct {
	Medium  string
	Sectors []uint64 // of 512 bytes, counted from the start of the medium
	Sums    []uint32 // what their checksums should be
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("mdisk %s: the checksum of sector %d is wrong, and of %d others", e.Medium, e.Sectors[0], len(e.Sectors)-1)
}

// Medium is the bytes of one mdisk. Submit may complete transfers before it
// returns (Done is then called from inside Submit) when they cannot wait for a
// disk; it never blocks. Sync completes when all writes that were done before it
// survive power loss.
type Medium interface {
	Size() uint64
	Submit([]*IO)
	Sync(done func(error))
}

// Abandoner is a Medium that gives the buffers of a read back before it has ended: a disk
// that never answers must not keep who reads from it waiting.
type Abandoner interface {
	// Abandon sets Vec of a read that Submit got and whose Done was not called yet to nil. The
	// medium does not touch the buffers any more when it returns. Done is called all the same, whenever the
	// medium is done with it. It is called with the executor held and does not wait for a disk.
	Abandon(*IO)
}

// Discarder is a Medium that gives room back.
type Discarder interface {
	// Discard says that nobody needs the n bytes from off on, both multiples of 512, and calls done when the
	// medium has given back what room it can: from inside, if that does not wait for a disk. Then they read as
	// zeros until they are written again. No transfer there is under way.
	//
	// It survives power loss with the next Sync. Where that is lost before, or where Discard failed, each sector
	// holds what it held, or zeros, or fails its checksum. What is discarded is gone, so that it has to be
	// durable before that nobody needs it. errors.ErrUnsupported: the medium cannot, and nothing has changed.
	Discard(off, n uint64, done func(error))
	// Discarded returns how many bytes Discard has discarded since the medium was opened.
	Discarded() uint64
}

// Surveyor is a Discarder that knows where it has room taken.
type Surveyor interface {
	Discarder
	// Unit returns what the medium gives back as a whole, in bytes: a power of two. Less than that is written, and
	// gives no room back or little. 0: what it wraps is no Surveyor.
	Unit() uint64
	// Survey finds the first bytes at or behind off that take room, without reading any, and calls done with where
	// they begin and end, both Size where there are none: from inside, if that does not wait for a disk. What is
	// written or discarded meanwhile may be left out or not.
	Survey(off uint64, done func(start, end uint64, err error))
}
