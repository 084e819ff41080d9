package block

// NVRAM: what a store keeps of the write cache, so that the array can go on where it was. The
// contract is made for two kinds of stores. A local one is memory that outlives the process by
// itself, such as a mapped file. A remote one has its memory elsewhere, at a partner or in a
// cluster: it sends there what the array appends and announces, and says when it has arrived.
//
// Who owns what: the array owns every byte of the memory that a Region hands out, and says what is
// where; the store only sees to it that bytes survive, and never writes there once the Region is
// open.

// Part is a part of a Region.
type Part uint8

// The parts, in the order in which what was written since the last message has to get to where it
// survives. Their memory starts at a multiple of 64 bytes.
const (
	// PartPages: buffers of 4 KiB, one behind the other. They are filled in place, read in place,
	// and handed to media as they are. A page counts when a descriptor says so.
	PartPages Part = iota
	// PartDescriptors: 64 bytes for each page, written in place, word by word. A descriptor counts
	// when the log has the record whose number it carries.
	PartDescriptors
	// PartLog: records, each written by one call of Append, and not read but at a start.
	PartLog
	// PartState: sectors of 512 bytes, written in place, each of which is old or new after a crash,
	// as a whole. What is written there may say of the other parts that they have something.
	PartState
	// PartCounters: words of 8 bytes, which count in place and are never announced.
	PartCounters
	NumParts
)

// RegionLayout is the bytes of a Region's parts. They are constant for the life of a Region: who
// opens it with others gets ErrSize.
type RegionLayout struct {
	State       int // a multiple of 512
	Counters    int // a multiple of 64
	Descriptors int // a multiple of 64
	Log         int // a multiple of 8
	Pages       int // a multiple of 4096; 0: there are none, and no descriptors
}

// regionPage is the bytes of a page buffer.
const regionPage = 4096

// Size returns the bytes of all parts in one piece of memory: see Cut.
func (l RegionLayout) Size() int {
	n := l.State + l.Counters + l.Descriptors + l.Log
	if l.Pages == 0 {
		return n
	}
	return (n+regionPage-1)&^(regionPage-1) + l.Pages
}

// Offset returns where a part begins in one piece of memory.
func (l RegionLayout) Offset(p Part) int {
	switch p {
	case PartState:
		return 0
	case PartCounters:
		return l.State
	case PartDescriptors:
		return l.State + l.Counters
	case PartLog:
		return l.State + l.Counters + l.Descriptors
	}
	return l.Size() - l.Pages
}

// Cut cuts one piece of memory into the parts: in the order of the fields, the pages from a
// multiple of 4 KiB on. Preconditions: it has Size bytes.
func (l RegionLayout) Cut(b []byte) (m RegionMemory, log []byte) {
	part := func(p Part, n int) []byte {
		at := l.Offset(p)
		return b[at : at+n : at+n]
	}
	m = RegionMemory{State: part(PartState, l.State), Counters: part(PartCounters, l.Counters),
		Descriptors: part(PartDescriptors, l.Descriptors), Pages: part(PartPages, l.Pages)}
	return m, part(PartLog, l.Log)
}

// RegionMemory is the memory of a Region in which the array works: all parts but the log.
type RegionMemory struct {
	State, Counters, Descriptors, Pages []byte
}

// Part returns the memory of a part, nil for the log.
func (m *RegionMemory) Part(p Part) []byte {
	switch p {
	case PartPages:
		return m.Pages
	case PartDescriptors:
		return m.Descriptors
	case PartState:
		return m.State
	case PartCounters:
		return m.Counters
	}
	return nil
}

// Region is NVRAM. All methods are called with the executor held, and all callbacks come on it.
//
// # What survives the death of the process
//
// All that was written before the last Commit or Flush that has ended well. Of what came after it,
// the first so and so much, in the order of the calls of Announce and Append; it may end anywhere,
// within a call as well: of a record the first bytes, of a page some sectors, of descriptors and of
// the state whole ones and whole sectors, never a part of one: where several records are on their way,
// nobody could tell a half descriptor from a damaged one. What several calls have written may get there together.
// If it can arrive in part then, it arrives in the order of the parts: pages, descriptors, records,
// state. So where a record is there, so are the descriptors that it counts, and where the state
// names a record, that is there. A local Region keeps all of it.
//
// Counters have what they had at some moment since the last Flush that ended well, word by word.
//
// # What survives a loss of power
//
// All that was written before the last Flush that has ended well began, and of what came later any
// subset, in any order, in units of 512 bytes, of which any version since then.
//
// # Faults
//
// A Commit or Flush that fails promises nothing, and takes nothing back either: what it did not
// bring there, the next one that succeeds does, whatever became of the failed one. A region that is
// sure to have lost something for good must fail every Commit and Flush from then on. A Region may
// try again for a while before it fails; the array goes on waiting meanwhile, and acknowledges
// nothing.
type Region interface {
	// Memory returns the parts in which the array works, with what a start has to find in them. The
	// memory is the same at each call, and stays until the store is closed.
	Memory() RegionMemory

	// Local tells that memory and log survive the death of the process without anybody's help. The
	// array then calls neither Announce nor Commit: a local Region costs nothing, unless it is a
	// Listener. Of a local Region it writes pages, and their descriptors, beside the executor, too,
	// while nothing that counts refers to them.
	Local() bool

	// Announce says that n bytes of a part are about to be written, from off on; never of the log or
	// of the counters. They are written until the next call of Append, Commit or Flush, and before the
	// executor is let go. The Region notes it, and takes the bytes at that call or later: until they are
	// announced again they stay as they are. A page is announced again only when nothing that counts
	// refers to it, which has survived a Flush; of a descriptor that counts, only the mark that it does not
	// any more is written, and its checksum. It must not block, and should not allocate: there are several
	// calls a command.
	Announce(part Part, off, n int)

	// Append puts a record into the log, from at on. It takes a copy: the record belongs to the caller.
	// The place is free: nothing there counts any more, which has survived a Flush. It must not block.
	Append(at int, record []byte)

	// ReadLog reads bytes of the log from at on, as a start finds them; what was never written is
	// zeros. It waits. It is only called while an array is being opened, and finds what was appended
	// meanwhile.
	ReadLog(at int, b []byte) error

	// Commit calls done when all that was appended, and announced and written, before the call survives
	// the death of the process. It calls done from inside only if it needs no time at all. Calls end in
	// their order, and many are under way at a time. On an error the array acknowledges no write that
	// came behind the last Commit that ended well, and takes no more.
	Commit(done func(error))

	// Flush calls done when all that was written before the call survives a loss of power, counters and
	// what an earlier Flush has failed to write included. It implies a Commit. One is under way at a time.
	Flush(done func(error))

	// FlushNow is Flush that waits; only used while an array is being opened.
	FlushNow() error

	// Boot identifies the life of what keeps the memory: the present start of the machine for a mapped
	// file, that of the partner for what it keeps. When it is another than at the last opening, power may
	// have been lost there, and only what was flushed can be trusted. 0: it is not known, which counts
	// as another. It is constant as long as the Region is open.
	Boot() uint64

	// Distrust says that a flush of an earlier process may have failed: the next one writes
	// everything, whatever the medium is thought to have.
	Distrust()
}

// Listener is a local Region that wants to hear what is written to it all the same. The array asks it
// once, before it writes anything, and calls Announce from then on if Listen returns true; Append tells
// of the log. It is called beside the executor, too, and so is only one in virtual time, where that is
// one thread. What keeps the bytes of such a Region has no MMU that tells it which pages are dirty:
// the simulated disk of the tests.
type Listener interface {
	Region
	Listen() bool
}

// Preparer is a local Region whose memory costs less to write where it was made ready before.
type Preparer interface {
	Region
	// Prepare makes page buffers ready, which are described in order and will be written soon, and
	// calls done. It changes nothing of what they hold. The list is the Region's until then.
	Prepare(pages []uint32, done func())
}

// LocalMemory is what all local Regions have in common: one piece of memory that outlives the
// process. They embed it, and add what makes it survive a loss of power.
type LocalMemory struct {
	parts RegionMemory
	log   []byte
}

// NewLocalMemory lays the parts out in a piece of memory. Preconditions: it has l.Size bytes.
func NewLocalMemory(b []byte, l RegionLayout) LocalMemory {
	parts, log := l.Cut(b)
	return LocalMemory{parts, log}
}

// Memory returns the parts.
func (m *LocalMemory) Memory() RegionMemory { return m.parts }

// Local is true.
func (m *LocalMemory) Local() bool { return true }

// Announce does nothing.
func (m *LocalMemory) Announce(Part, int, int) {}

// Append copies a record to its place.
func (m *LocalMemory) Append(at int, record []byte) { copy(m.log[at:at+len(record)], record) }

// ReadLog copies bytes of the log.
func (m *LocalMemory) ReadLog(at int, b []byte) error {
	copy(b, m.log[at:at+len(b)])
	return nil
}

// Commit ends at once.
func (m *LocalMemory) Commit(done func(error)) { done(nil) }
