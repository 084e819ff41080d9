package store

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestClone: what is written, cleared or discarded in a store or in its clone changes no other of them.
func TestClone(t *testing.T) {
	const size = 4 * memChunk
	v := &block.Virtual{}
	first := NewMemory(v, MemoryOptions{})
	transfer := func(s *Memory, write bool, off uint64, b []byte) {
		m, err := s.Medium("m", size)
		if err != nil {
			t.Fatal(err)
		}
		m.Submit([]*block.IO{{Write: write, Off: off, N: uint64(len(b)), Vec: [][]byte{b}, Done: func(*block.IO) {}}})
		v.RunUntil(v.Now() + 1)
	}
	all := []*Memory{first}
	model := [][]byte{make([]byte, size)}
	put := func(i int, off uint64, c byte, n int) {
		b := bytes.Repeat([]byte{c}, n)
		copy(model[i][off:], b)
		transfer(all[i], true, off, b)
	}
	discard := func(i int, off, n uint64) {
		clear(model[i][off : off+n])
		all[i].media["m"].Discard(off, n, func(error) {})
	}
	reopen := func(i int) { all[i] = all[i].Reopen(v) }
	clone := func(i int) {
		all, model = append(all, all[i].Clone(v)), append(model, bytes.Clone(model[i]))
	}
	put(0, 100, 'a', 3*memChunk)
	clone(0)
	reopen(0)
	clone(1)
	put(1, 512, 'b', memChunk)
	put(0, 0, 'c', 512)
	discard(2, memChunk+512, 2*memChunk)
	discard(0, 2*memChunk+512, 512)
	clone(0)
	reopen(3)
	put(3, 2*memChunk, 'd', 4096)
	put(0, 3*memChunk, 'e', 512)
	for i, s := range all {
		got := make([]byte, size)
		if transfer(s, false, 0, got); !bytes.Equal(got, model[i]) {
			t.Errorf("store %d has what was written to another one", i)
		}
	}
}
