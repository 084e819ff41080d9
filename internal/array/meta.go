package array

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/arraysim/arraysim/internal/block"
)

// What the array has in its meta store: objects, checkpoints of the maps, bad sectors. The package
// metadata keeps the books of it.

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian // of all integers in values
)

// commitMeta commits the batch that fill returns when it is its turn.
func (a *Array) commitMeta(fill func() []block.KV, done func(error)) { a.meta.Commit(fill, done) }

// entryAgain returns what an entry that is in doubt is now: the objects may have been taken back.
func (a *Array) entryAgain(e block.KV) []block.KV {
	if string(e.Key) == keyObjects {
		return a.encodeObjects()
	}
	return []block.KV{e}
}

// CheckCopies reads all copies of the meta store and names those that are damaged, a line each. It may only be called
// before the array serves. The next start makes them anew.
func (a *Array) CheckCopies() (lines []string) { return a.meta.CheckCopies() }
