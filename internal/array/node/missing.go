// What a start finds that the store lacks of entries, or has too much.

package node

import (
	"maps"
	"slices"

	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// Missing is what the first checkpoint puts before all else. Its zero value is nothing.
type Missing struct {
	// Lacks: the store lacks the entries of pages.
	Lacks bool
	list  []block.KV
	left  map[string]struct{} // entries that it has all the same
}

// Leftover hears of an entry of a page that the store has although it Lacks them: it may be of a page that is there.
func (m *Missing) Leftover(key []byte) {
	if m.left == nil {
		m.left = map[string]struct{}{}
	}
	m.left[string(key)] = struct{}{}
}

// Page hears of a page of the store. Of a leaf of NoPool nothing was counted, whatever its entry says.
func (m *Missing) Page(k Key, page []byte, sums window.Sums, pool uint16) {
	if m.Lacks || pool == NoPool && k.Level == 0 {
		key := EntryKey(k.Bytes())
		delete(m.left, string(key))
		m.list = append(m.list, block.KV{Key: key, Value: EncodeEntry(k.Level, page, sums, pool)})
	}
}

// Remove has an entry removed.
func (m *Missing) Remove(key []byte) {
	m.list = append(m.list, block.KV{Key: append([]byte(nil), key...)})
}

// End hears that no more pages come.
func (m *Missing) End() {
	for _, key := range slices.Sorted(maps.Keys(m.left)) {
		m.Remove([]byte(key))
	}
	m.left = nil
}

// Put puts one of them, and reports whether there was one.
func (m *Missing) Put(put func(key, value []byte)) bool {
	if len(m.list) == 0 {
		return false
	}
	put(m.list[0].Key, m.list[0].Value)
	m.list = m.list[1:]
	return true
}
