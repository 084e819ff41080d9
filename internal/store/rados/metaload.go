package rados

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
)

// Meta opens or creates the metadata. What is committed and not in all shards is applied; until it is,
// who reads finds it in memory.
func (s *Store) Meta() (block.MetaStore, error) {
	m := &meta{s: s}
	r, err := m.openRoot()
	if err != nil {
		return nil, fmt.Errorf("the metadata cannot be opened: %w", err)
	}
	if err := s.openReserve(); err != nil {
		return nil, fmt.Errorf("the room reserved for metadata cannot be examined: %w", err)
	}
	m.last, m.applied, m.next = r.Last, r.Applied, r.Last+1
	if err := m.removeOrphans(r); err != nil {
		return nil, fmt.Errorf("the metadata that an earlier owner left cannot be removed: %w", err)
	}
	var again []*metaBatch
	for _, k := range r.Batches {
		m.kept = append(m.kept, keptBatch{rootBatch: k})
		if k.Number <= r.Applied {
			continue
		}
		b, err := m.readBatch(k)
		if err != nil {
			return nil, fmt.Errorf("batch %d of the metadata, which was committed, cannot be read: %w", k.Number, err)
		}
		again = append(again, b)
	}
	s.enter()
	defer s.leave()
	s.meta, m.batches = m, again
	for _, b := range again {
		m.apply(b)
	}
	m.settle()
	return m, nil
}

// openRoot keeps earlier owners from writing to the metadata, and reads the root; it makes both if there
// are none. The root is first: what is not committed yet never will be. One without contents is that of
// metadata that are being made.
func (m *meta) openRoot() (r root, err error) {
	s := m.s
	if err := s.claim(metaName); err != nil {
		return r, err
	}
	b, err := s.readAll(metaName, 64<<10)
	if err != nil {
		return r, err
	}
	if len(b) == 0 {
		return r, m.create()
	}
	err = s.doAll(metaShards, func(i int) *Op { return &Op{Object: shardObject(i), Steps: s.stamp()} }, nil)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

// create makes the shards, and then what the root holds.
func (m *meta) create() error {
	s := m.s
	err := s.doAll(metaShards, func(i int) *Op { return &Op{Object: shardObject(i), Steps: s.create()} }, present)
	if err == nil {
		err = s.doAll(metaShards, func(i int) *Op { return &Op{Object: shardObject(i), Steps: s.stamp()} }, nil)
	}
	if err != nil {
		return err
	}
	text, _ := json.Marshal(&root{Epoch: s.head.Epoch})
	return s.do(&Op{Object: metaName, Steps: []Step{s.guard(), {Kind: Replace, Data: [][]byte{text}}}})
}

// removeOrphans removes what earlier owners wrote of batches that they did not commit. They had a few
// under way at the most, with the numbers behind the last one.
func (m *meta) removeOrphans(r root) error {
	const parts = metaLimit/metaPart + 1
	for epoch := max(r.Epoch, m.s.head.Epoch-64); epoch < m.s.head.Epoch; epoch++ {
		err := m.s.doAll(2*metaUploads*parts, func(i int) *Op {
			b := rootBatch{Epoch: epoch, Number: r.Last + 1 + uint64(i/parts)}
			return &Op{Object: b.object(i % parts), Steps: []Step{{Kind: Remove}}}
		}, absent)
		if err != nil {
			return err
		}
	}
	return nil
}

// readBatch reads a committed batch from its objects.
func (m *meta) readBatch(k rootBatch) (*metaBatch, error) {
	raw := make([]byte, k.Bytes)
	err := m.s.doAll(k.parts(), func(i int) *Op {
		return &Op{Object: k.object(i), Steps: []Step{{Kind: Read, Buf: raw[i*metaPart : min((i+1)*metaPart, len(raw))]}}}
	}, nil)
	if err == nil && crc32c.Checksum(raw) != k.Sum {
		err = errors.New("its checksum is wrong")
	}
	if err != nil {
		return nil, err
	}
	pairs, err := decode(raw)
	return &metaBatch{rootBatch: k, raw: raw, pairs: pairs, state: metaCommitted}, err
}

// Get returns a value: of a committed batch that is not in all shards, or of the shard.
func (m *meta) Get(key []byte) ([]byte, error) {
	name := escape(key)
	m.s.mu.Lock()
	value, ok := m.committed(name)
	m.s.mu.Unlock()
	if ok {
		return value, nil
	}
	op := getOp(name)
	if err := m.s.do(op); err != nil {
		return nil, err
	}
	return op.Steps[0].Pairs[0].Value, nil
}

// Read is Get that does not wait.
func (m *meta) Read(key []byte, done func([]byte, error)) {
	name := escape(key)
	m.s.enter()
	defer m.s.leave()
	if value, ok := m.committed(name); ok {
		m.s.post(func(error) { done(value, nil) }, nil)
		return
	}
	m.s.submit(&m.s.dataLane, getOp(name), func(op *Op) {
		m.s.post(func(err error) {
			if err != nil {
				done(nil, err)
				return
			}
			done(op.Steps[0].Pairs[0].Value, nil)
		}, op.Err)
	})
}

// committed returns the value of a key in the newest committed batch that has it and may not be in all
// shards, and whether there is one. Preconditions: mu is held.
func (m *meta) committed(name string) (value []byte, ok bool) {
	for _, b := range slices.Backward(m.batches) {
		if b.state != metaCommitted {
			continue
		}
		for _, p := range slices.Backward(b.pairs) {
			if p.Key == name {
				return bytes.Clone(p.Value), true
			}
		}
	}
	return nil, false
}

// getOp reads an entry of its shard.
func getOp(name string) *Op {
	return &Op{Object: shardObject(shardOf(name)), Steps: []Step{{Kind: OmapGet, Pairs: []Pair{{Key: name}}}}}
}

// loadPage is how many entries of a shard are read at a time.
const loadPage = 512

// cursor walks through the entries of a shard.
type cursor struct {
	page  []Pair
	more  bool
	after string
}

// Load merges the shards, and lays over them what is committed and not in all of them.
func (m *meta) Load(prefix []byte, fn func(key, value []byte) error) error {
	begin := escape(prefix)
	over := m.overlay(begin)
	keys := make([]string, 0, len(over))
	for k := range over {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	cursors := make([]cursor, metaShards)
	if err := m.fill(cursors, begin); err != nil {
		return err
	}
	for {
		least := -1
		for i := range cursors {
			if c := &cursors[i]; len(c.page) > 0 && (least < 0 || c.page[0].Key < cursors[least].page[0].Key) {
				least = i
			}
		}
		var p Pair
		switch {
		case least < 0 && len(keys) == 0:
			return nil
		case least < 0 || len(keys) > 0 && keys[0] < cursors[least].page[0].Key:
			p = Pair{keys[0], over[keys[0]]}
			keys = keys[1:]
		default:
			c := &cursors[least]
			p = c.page[0]
			c.page = c.page[1:]
			if len(keys) > 0 && keys[0] == p.Key {
				p.Value = over[p.Key]
				keys = keys[1:]
			}
			if len(c.page) == 0 && c.more {
				if err := m.fill(cursors[least:least+1], begin, least); err != nil {
					return err
				}
			}
		}
		if p.Value == nil {
			continue
		}
		if err := fn(unescape(p.Key), p.Value); err != nil {
			return err
		}
	}
}

// overlay returns the entries with a prefix that are committed and may not be in the shards.
func (m *meta) overlay(prefix string) map[string][]byte {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	over := map[string][]byte{}
	for _, b := range m.batches {
		if b.state != metaCommitted {
			continue
		}
		for _, p := range b.pairs {
			if strings.HasPrefix(p.Key, prefix) {
				over[p.Key] = p.Value
			}
		}
	}
	return over
}

// fill reads the next entries of cursors, which are those of the shards from first on.
func (m *meta) fill(cursors []cursor, prefix string, first ...int) error {
	from := 0
	if len(first) > 0 {
		from = first[0]
	}
	return m.s.doAll(len(cursors), func(i int) *Op {
		return &Op{Object: shardObject(from + i), Steps: []Step{{Kind: OmapList, After: cursors[i].after, Prefix: prefix, Max: loadPage}}}
	}, func(i int, op *Op) error {
		c, st := &cursors[i], &op.Steps[0]
		if c.page, c.more = st.Pairs, st.More; len(c.page) > 0 {
			c.after = c.page[len(c.page)-1].Key
		} else {
			c.more = false
		}
		return op.Err
	})
}
