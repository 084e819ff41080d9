package rados

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
)

// A batch of the metadata becomes objects first (meta.EPOCH.BATCH.PART), of 4 MiB at the most each. Then
// one guarded operation on the root names it: that is the commit, and several batches that are whole may
// be committed by one. Only then it is applied to the shards, the ordered maps of 16 objects, which may be
// done again any number of times, in the order of the batches. When all shards have a batch, the next
// root says so, and its objects are removed behind that.
const (
	metaName    = "meta"
	metaShards  = 16
	metaPart    = 4 << 20
	metaLimit   = 64 << 20
	metaUploads = 4       // batches whose parts are on their way at a time
	applyBytes  = 1 << 20 // of an operation on a shard, about
	deleted     = 1<<32 - 1
)

// root is what the root object holds, as JSON: the batches that were committed and may not be in all
// shards yet, or whose objects may not all be removed yet, in their order.
type root struct {
	Epoch   int64       `json:"epoch"` // of who wrote it
	Last    uint64      `json:"last"`  // the newest batch, of any owner
	Applied uint64      `json:"applied"`
	Batches []rootBatch `json:"batches,omitempty"`
}

type rootBatch struct {
	Epoch  int64  `json:"epoch"` // in the names of its objects
	Number uint64 `json:"number"`
	Bytes  int    `json:"bytes"`
	Sum    uint32 `json:"sum"` // CRC32C
}

func (b *rootBatch) parts() int { return max(1, (b.Bytes+metaPart-1)/metaPart) }

func (b *rootBatch) object(part int) string {
	return fmt.Sprintf("%s.%x.%x.%x", metaName, b.Epoch, b.Number, part)
}

// metaState is how far a batch is.
type metaState uint8

const (
	metaWaits     metaState = iota
	metaUploading           // its objects are being written
	metaUploaded            // they are there
	metaCommitted           // the root has it; it may lack in shards
	metaFailed              // its objects could not be written
)

// metaBatch is a batch that is not in all shards yet.
type metaBatch struct {
	rootBatch
	raw   []byte // as in its objects
	pairs []Pair // that it consists of, in raw; a nil value deletes
	state metaState
	err   error
	// applied: it is committed, and on its way to the shards; left of them lack it.
	applied bool
	left    int
	done    func(error)
	now     bool // done is called with mu held and not on the executor
}

// keptBatch is a committed batch whose objects are there.
type keptBatch struct {
	rootBatch
	removing bool
}

// meta is the MetaStore. All of it is guarded by Store.mu.
type meta struct {
	s       *Store
	last    uint64       // the newest batch that was committed
	applied uint64       // the newest one that is in all shards, with all before it
	next    uint64       // number of the next batch
	batches []*metaBatch // not in all shards yet, in their order
	kept    []keptBatch  // in their order
	open    int          // batches that are uploading or uploaded
	rooting bool         // the root is being written
	pauses  int          // waits for room in the pool
	shards  [metaShards]shard
	removes int // batches whose objects are being removed
	// Of a pool that is full, while somebody waits for the end:
	stuck    bool   // what is committed does not get into a shard, and is left for the next start
	counting bool   // patience is running out
	hopeless bool   // it has: what finds no room fails
	progress uint64 // operations that found room
	crowded  bool   // batches wait because others do not get into the shards
}

// Keys in RADOS must not have a 0 byte: 0 becomes 1 1, and 1 becomes 1 2, which keeps the order.
func escape(key []byte) string {
	out := make([]byte, 0, len(key)+4)
	for _, c := range key {
		if c <= 1 {
			out = append(out, 1)
			c++
		}
		out = append(out, c)
	}
	return string(out)
}

func unescape(key string) []byte {
	out := make([]byte, 0, len(key))
	for i := 0; i < len(key); i++ {
		c := key[i]
		if c == 1 && i+1 < len(key) {
			i++
			c = key[i] - 1
		}
		out = append(out, c)
	}
	return out
}

// encode turns a batch into bytes: for each entry the length of the key and of the value, u32 each,
// 2^32-1 if it is deleted, then both.
func encode(batch []block.KV) []byte {
	n := 0
	for _, e := range batch {
		n += 8 + len(e.Key) + len(e.Value)
	}
	b := make([]byte, 0, n)
	for _, e := range batch {
		b = le.AppendUint32(b, uint32(len(e.Key)))
		if e.Value == nil {
			b = append(le.AppendUint32(b, deleted), e.Key...)
			continue
		}
		b = le.AppendUint32(b, uint32(len(e.Value)))
		b = append(append(b, e.Key...), e.Value...)
	}
	return b
}

// decode returns the entries of a batch. The values lie in b.
func decode(b []byte) (pairs []Pair, err error) {
	for len(b) > 0 {
		if len(b) < 8 {
			return nil, errors.New("it is cut off")
		}
		nk, nv := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:]))
		b = b[8:]
		gone := nv == deleted
		if gone {
			nv = 0
		}
		if nk+nv > uint64(len(b)) {
			return nil, errors.New("it is cut off")
		}
		p := Pair{Key: escape(b[:nk])}
		if b = b[nk:]; !gone {
			p.Value = b[:nv:nv]
		}
		pairs, b = append(pairs, p), b[nv:]
	}
	return pairs, nil
}

// Limit is what a batch may have.
func (m *meta) Limit() int { return metaLimit }

// Commit applies a batch.
func (m *meta) Commit(batch []block.KV, done func(error)) {
	m.s.enter()
	defer m.s.leave()
	if err := block.CheckBatch(batch, metaLimit); err != nil {
		m.s.post(done, err)
		return
	}
	m.add(batch, done, false)
}

// CommitNow applies a batch and waits.
func (m *meta) CommitNow(batch []block.KV) error {
	if err := block.CheckBatch(batch, metaLimit); err != nil {
		return err
	}
	var failed error
	over := false
	m.s.enter()
	m.add(batch, func(err error) { failed, over = err, true }, true)
	m.s.leave()
	if err := m.s.waitFor("the commit of metadata", func() bool { return over }); err != nil {
		return err
	}
	return failed
}

// add takes a batch on. Preconditions: mu is held.
func (m *meta) add(batch []block.KV, done func(error), now bool) {
	b := &metaBatch{raw: encode(batch), done: done, now: now}
	pairs, err := decode(b.raw)
	if err != nil {
		panic("rados: internal error: a batch: " + err.Error())
	}
	b.pairs = pairs
	b.rootBatch = rootBatch{Epoch: m.s.head.Epoch, Number: m.next, Bytes: len(b.raw), Sum: crc32c.Checksum(b.raw)}
	m.next++
	m.batches = append(m.batches, b)
	m.unstick()
	m.work()
}

// idle reports whether nothing is under way. Preconditions: mu is held.
func (m *meta) idle() bool {
	return m.stuck || len(m.batches) == 0 && !m.rooting && m.removes == 0 && m.pauses == 0
}

// work begins what can begin. Preconditions: mu is held.
func (m *meta) work() {
	for _, b := range m.batches {
		if b.state != metaWaits || b.err != nil {
			continue
		}
		if m.open == metaUploads || !m.room(b) {
			break
		}
		m.upload(b)
	}
	if !m.rooting {
		m.commitUploaded()
	}
}

// upload writes the objects of a batch. Preconditions: mu is held.
func (m *meta) upload(b *metaBatch) {
	m.open++
	b.state = metaUploading
	m.s.sweep(&m.s.logLane, b.parts(), func(i int) *Op {
		part := b.raw[i*metaPart : min((i+1)*metaPart, len(b.raw))]
		return &Op{Object: b.object(i), awaited: true, Steps: []Step{{Kind: Replace, Data: [][]byte{part}}}}
	}, nil, func(err error) {
		switch {
		case m.full(err):
			m.shed()
			m.later(func() {
				if b.state = metaFailed; b.err == nil {
					m.open--
					b.state = metaWaits
				}
				m.work()
			})
			return
		case err != nil:
			b.state, b.err = metaFailed, err
		case b.err != nil: // one before it has failed meanwhile
			b.state = metaFailed
		default:
			b.state = metaUploaded
			m.found()
		}
		m.work()
	})
}

// shed has the objects of batches that are in all shards removed without waiting for the next commit, which finds no room
// before that. Preconditions: mu is held.
func (m *meta) shed() {
	if !m.rooting && slices.ContainsFunc(m.kept, func(k keptBatch) bool { return k.Number <= m.applied && !k.removing }) {
		m.writeRoot(nil)
	}
}

// commitUploaded commits the batches at the front whose objects are there, and ends those of which they are not, with
// all behind them: what is committed has no gaps. Preconditions: mu is held, the root is not being written.
func (m *meta) commitUploaded() {
	var list, rest []*metaBatch
	var failed error
	whole := true // all before it are committed, or will be by this root
	for _, b := range m.batches {
		if b.err != nil && b.state != metaUploading && failed == nil {
			failed = b.err
		}
		switch {
		case b.state == metaCommitted:
		case failed != nil && b.state != metaUploading:
			m.abandon(b, failed)
			continue
		case failed != nil:
			b.err = failed
		case b.state == metaUploaded && whole:
			list = append(list, b)
		default:
			whole = false
		}
		rest = append(rest, b)
	}
	if m.batches = rest; len(list) > 0 {
		m.writeRoot(list)
	}
}

// abandon ends a batch that will not be committed, and removes its objects. Preconditions: mu is held, they are not
// being written.
func (m *meta) abandon(b *metaBatch, err error) {
	if b.err != nil {
		err = b.err
	}
	if b.state != metaWaits {
		m.open--
		m.remove(b.rootBatch)
	}
	m.tell(b, err)
}

// tell ends the wait for a batch. Preconditions: mu is held.
func (m *meta) tell(b *metaBatch, err error) {
	done := b.done
	b.done = nil
	switch {
	case done == nil:
	case b.now:
		done(err)
	default:
		m.s.post(done, err)
	}
}

// finish has the root say that all batches are in all shards, so that the next start has nothing to apply
// and their objects go. Preconditions: mu is held, nothing is under way.
func (m *meta) finish() {
	if len(m.kept) > 0 && !m.stuck {
		m.writeRoot(nil)
	}
}

// writeRoot commits batches. Preconditions: mu is held, the root is not being written.
func (m *meta) writeRoot(list []*metaBatch) {
	r := root{Epoch: m.s.head.Epoch, Last: m.last, Applied: m.applied}
	for _, k := range m.kept {
		r.Batches = append(r.Batches, k.rootBatch)
	}
	for _, b := range list {
		r.Batches, r.Last = append(r.Batches, b.rootBatch), b.Number
	}
	text, err := json.Marshal(&r)
	if err != nil {
		panic("rados: internal error: " + err.Error())
	}
	m.rooting = true
	op := &Op{Object: metaName, awaited: len(list) > 0, Steps: []Step{m.s.guard(), {Kind: Replace, Data: [][]byte{even(text)}}}}
	m.s.submit(&m.s.logLane, op, func(op *Op) {
		if m.full(op.Err) {
			m.later(func() { m.writeRoot(list) })
			return
		}
		m.rooting = false
		m.rooted(list, r.Applied, op.Err)
		m.work()
	})
}

// rooted is told what became of the root that commits batches and says which are in all shards.
// Preconditions: mu is held.
func (m *meta) rooted(list []*metaBatch, applied uint64, err error) {
	if err != nil {
		for _, b := range list { // nobody knows whether the root has it, but the next one does not
			m.drop(b)
			if errors.Is(err, block.ErrFull) {
				m.abandon(b, err)
				continue
			}
			m.open--
			m.tell(b, err)
		}
		for _, b := range m.batches {
			if b.state != metaCommitted && b.err == nil {
				b.err = err
			}
		}
		return
	}
	m.open -= len(list)
	m.found()
	for _, b := range list {
		b.state = metaCommitted
		m.last = b.Number
		m.kept = append(m.kept, keptBatch{rootBatch: b.rootBatch})
		m.tell(b, nil)
		m.apply(b)
	}
	for i := range m.kept {
		if k := &m.kept[i]; k.Number <= applied && !k.removing {
			k.removing = true
			m.remove(k.rootBatch)
		}
	}
}

// drop takes a batch from the list. Preconditions: mu is held.
func (m *meta) drop(b *metaBatch) {
	m.batches = slices.DeleteFunc(m.batches, func(o *metaBatch) bool { return o == b })
}

// remove removes the objects of a batch that is in all shards, which the root says. Preconditions: mu is
// held.
func (m *meta) remove(b rootBatch) {
	m.removes++
	m.s.sweep(&m.s.logLane, b.parts(), func(i int) *Op {
		return &Op{Object: b.object(i), Steps: []Step{{Kind: Remove}}}
	}, absent, func(err error) {
		m.removes--
		if err == nil { // else the next start does
			m.kept = slices.DeleteFunc(m.kept, func(k keptBatch) bool { return k.Number == b.Number })
		}
	})
}
