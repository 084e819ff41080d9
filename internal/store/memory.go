// Package store keeps an array's bytes: [Memory] in the process, [Files] in a
// folder, and the store that keeps none of the payload, for simulations of
// terabytes ([MemoryOptions].Discard).
//
// All of them implement block.Store and belong to one executor.
package store

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"

	"github.com/arraysim/arraysim/internal/block"
)

// MemoryOptions configure a Memory store.
type MemoryOptions struct {
	// Discard keeps no payload: reads give zeros and the array moves no data.
	Discard bool
	// BatchLimit is what a batch of the meta store may have, in bytes; 0: as much as in a folder.
	BatchLimit int
}

// Memory is a store in the memory of the process. Opening it again finds what was
// there, as after the death of a process that had files.
type Memory struct {
	exec   block.Executor
	opt    MemoryOptions
	media  map[string]*memMedium
	region []byte
	kv     map[string][]byte
}

var _ block.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory(exec block.Executor, opt MemoryOptions) *Memory {
	return &Memory{exec: exec, opt: opt, media: map[string]*memMedium{}, kv: map[string][]byte{}}
}

// Clone returns a store with a copy of everything: what a process that died now
// would leave behind.
func (m *Memory) Clone(exec block.Executor) *Memory {
	c := NewMemory(exec, m.opt)
	for name, x := range m.media {
		d := &memMedium{m: c, size: x.size, chunks: maps.Clone(x.chunks), shared: make(map[uint64]bool, len(x.chunks))}
		if x.shared == nil {
			x.shared = make(map[uint64]bool, len(x.chunks))
		}
		for i := range x.chunks {
			d.shared[i], x.shared[i] = true, true
		}
		c.media[name] = d
	}
	c.region = bytes.Clone(m.region)
	for k, v := range m.kv {
		c.kv[k] = v // values are never changed in place
	}
	return c
}

// Dump writes all that the store holds: two stores that hold the same give the same bytes.
func (m *Memory) Dump(w io.Writer) {
	for _, name := range slices.Sorted(maps.Keys(m.media)) {
		d := m.media[name]
		fmt.Fprintf(w, "medium %s %d\n", name, d.size)
		d.dump(w)
	}
	fmt.Fprintf(w, "region %d\n", len(m.region))
	w.Write(m.region)
	for _, key := range slices.Sorted(maps.Keys(m.kv)) {
		fmt.Fprintf(w, "key %q %d\n", key, len(m.kv[key]))
		w.Write([]byte(m.kv[key]))
	}
}

func (d *memMedium) dump(w io.Writer) {
	const parts = dumpChunk / memChunk
	var empty []byte
	next := uint64(0) // the first that was not written
	fill := func(end uint64) {
		for ; next < end; next++ {
			if empty == nil {
				empty = make([]byte, memChunk)
			}
			w.Write(empty)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(d.chunks)) {
		if first := i - i%parts; first >= next {
			fill((next + parts - 1) / parts * parts)
			fmt.Fprintf(w, "chunk %d\n", i/parts)
			next = first
		}
		fill(i)
		w.Write(d.chunks[i])
		next = i + 1
	}
	fill((next + parts - 1) / parts * parts)
}

// Payload tells whether bytes are kept.
func (m *Memory) Payload() bool { return !m.opt.Discard }

// Medium returns the mdisk with this name.
func (m *Memory) Medium(name string, size uint64) (block.Medium, error) {
	d := m.media[name]
	if d == nil {
		d = &memMedium{m: m, size: size, chunks: map[uint64][]byte{}}
		m.media[name] = d
	}
	if d.size != size {
		return nil, fmt.Errorf("mdisk %s has %d bytes, not %d", name, d.size, size)
	}
	return d, nil
}

// FindMedium reports an mdisk that is not there.
func (m *Memory) FindMedium(name string) error {
	if m.media[name] == nil {
		return fmt.Errorf("mdisk %s is missing", name)
	}
	return nil
}

// Vacant reports an mdisk that is there; done is called at once.
func (m *Memory) Vacant(name string, done func(error)) {
	if m.media[name] != nil {
		done(fmt.Errorf("mdisk %s is there already", name))
		return
	}
	done(nil)
}

// MakeMedium forgets what was under the name; done is called at once.
func (m *Memory) MakeMedium(name string, _ uint64, done func(error)) {
	delete(m.media, name)
	done(nil)
}

// RemoveMedium deletes an mdisk; done is called at once.
func (m *Memory) RemoveMedium(name string, done func(error)) {
	delete(m.media, name)
	done(nil)
}

// Region returns the NVRAM.
func (m *Memory) Region(_ string, l block.RegionLayout) (block.Region, bool, error) {
	if m.region != nil && len(m.region) != l.Size() {
		return nil, false, fmt.Errorf("the write cache has %d bytes, not %d: %w", len(m.region), l.Size(), block.ErrSize)
	}
	fresh := m.region == nil
	if fresh {
		m.region = make([]byte, l.Size())
	}
	return &memRegion{block.NewLocalMemory(m.region, l)}, fresh, nil
}

// NVRAM returns the bytes of the region as they are, nil if there is none: for tests that damage it.
func (m *Memory) NVRAM() []byte { return m.region }

// Meta returns the ordered map.
func (m *Memory) Meta() (block.MetaStore, error) { return memMeta{m}, nil }

// Close does nothing.
func (m *Memory) Close() error { return nil }

// memRegion survives whatever the process does: a flush has nothing to do.
type memRegion struct{ block.LocalMemory }

func (r *memRegion) Flush(done func(error)) { done(nil) }
func (r *memRegion) FlushNow() error        { return nil }
func (r *memRegion) Distrust()              {}
func (r *memRegion) Boot() uint64           { return 1 }

// memChunk is how much of an mdisk becomes memory at once; dumpChunk is how much of it Dump has under one title.
const (
	memChunk  = 64 << 10
	dumpChunk = 1 << 20
)

// memMedium is a sparse byte array.
type memMedium struct {
	m      *Memory
	size   uint64
	chunks map[uint64][]byte
	// shared are the chunks that a clone has, too: nobody writes to them.
	shared map[uint64]bool
	// discarded are the bytes that Discard was given.
	discarded uint64
}

func (d *memMedium) Size() uint64 { return d.size }

func (d *memMedium) Submit(ios []*block.IO) {
	var writes []*block.IO
	budget := uint64(smallBatch)
	for _, io := range ios {
		if !d.m.opt.Discard {
			d.transfer(io)
		}
		// As with files: what is small is done at once.
		if io.Write && io.N > budget {
			writes = append(writes, io)
			continue
		}
		if io.Write {
			budget -= io.N
		}
		io.Done(io)
	}
	if len(writes) > 0 {
		d.m.exec.Post(func() {
			for _, io := range writes {
				io.Done(io)
			}
		})
	}
}

// Abandon has nothing to take back: data moves in Submit.
func (d *memMedium) Abandon(io *block.IO) { io.Vec = nil }

func (d *memMedium) transfer(io *block.IO) {
	off := io.Off
	for _, b := range io.Vec {
		for len(b) > 0 {
			in := off % memChunk
			n := min(uint64(len(b)), memChunk-in)
			c := d.chunks[off/memChunk]
			switch {
			case io.Write && n == memChunk && (c == nil || d.shared[off/memChunk]): // nothing is cleared or copied first
				d.chunks[off/memChunk] = bytes.Clone(b[:n])
				delete(d.shared, off/memChunk)
			case io.Write:
				copy(d.own(off / memChunk)[in:], b[:n])
			case c == nil:
				clear(b[:n])
			default:
				copy(b[:n], c[in:])
			}
			b = b[n:]
			off += n
		}
	}
}

// own returns a chunk to write to, which no clone of the store has.
func (d *memMedium) own(i uint64) []byte {
	c := d.chunks[i]
	switch {
	case c == nil:
		c = make([]byte, memChunk)
		d.chunks[i] = c
	case d.shared[i]:
		c = bytes.Clone(c)
		d.chunks[i] = c
		delete(d.shared, i)
	}
	return c
}

func (d *memMedium) Sync(done func(error)) { done(nil) }

// Discard gives whole chunks back and clears parts of others.
func (d *memMedium) Discard(off, n uint64, done func(error)) {
	d.discarded += n
	for n > 0 {
		in := off % memChunk
		k := min(n, memChunk-in)
		if i := off / memChunk; k == memChunk {
			delete(d.chunks, i)
			delete(d.shared, i)
		} else if d.chunks[i] != nil {
			clear(d.own(i)[in : in+k])
		}
		off, n = off+k, n-k
	}
	done(nil)
}

func (d *memMedium) Discarded() uint64 { return d.discarded }

// Unit returns the size of a chunk.
func (d *memMedium) Unit() uint64 { return memChunk }

// Survey looks for the next chunk.
func (d *memMedium) Survey(off uint64, done func(start, end uint64, err error)) {
	first, found := off/memChunk, d.chunks[off/memChunk] != nil
	if !found {
		for i := range d.chunks { // the least: order does not matter
			if i >= off/memChunk && (!found || i < first) {
				first, found = i, true
			}
		}
	}
	if !found {
		done(d.size, d.size, nil)
		return
	}
	next := first + 1
	for d.chunks[next] != nil {
		next++
	}
	done(max(off, first*memChunk), min(next*memChunk, d.size), nil)
}

type memMeta struct{ m *Memory }

// batchLimit is what a batch may have: far below the 4 GiB that Pebble takes, and what it takes of
// memory.
const batchLimit = 256 << 20

func (k memMeta) Limit() int {
	if n := k.m.opt.BatchLimit; n != 0 {
		return n
	}
	return batchLimit
}

func (k memMeta) Get(key []byte) ([]byte, error) { return bytes.Clone(k.m.kv[string(key)]), nil }

func (k memMeta) Read(key []byte, done func([]byte, error)) {
	value := bytes.Clone(k.m.kv[string(key)])
	k.m.exec.Post(func() { done(value, nil) })
}

func (k memMeta) CommitNow(batch []block.KV) error {
	if err := block.CheckBatch(batch, k.Limit()); err != nil {
		return err
	}
	for _, e := range batch {
		if e.Value == nil {
			delete(k.m.kv, string(e.Key))
		} else {
			k.m.kv[string(e.Key)] = e.Value
		}
	}
	return nil
}

func (k memMeta) Commit(batch []block.KV, done func(error)) {
	err := k.CommitNow(batch)
	k.m.exec.Post(func() { done(err) })
}

func (k memMeta) Load(prefix []byte, fn func(key, value []byte) error) error {
	var keys []string
	for s := range k.m.kv {
		if bytes.HasPrefix([]byte(s), prefix) {
			keys = append(keys, s)
		}
	}
	sort.Strings(keys)
	for _, s := range keys {
		if err := fn([]byte(s), k.m.kv[s]); err != nil {
			return err
		}
	}
	return nil
}
