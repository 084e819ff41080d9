// Package buffers has memory for the data of commands, which front ends take and give back for
// each: in classes of powers of two, so that nothing is allocated per command once the pools are
// filled. Its functions may be called concurrently.
package buffers

import (
	"math/bits"
	"sync"
)

// What is longer than the largest class is made as needed and left to the garbage collector.
const (
	minClass = 9  // 512 bytes
	maxClass = 22 // 4 MiB
)

// Buffer is memory that one owner has until Put.
type Buffer struct {
	B     []byte // the whole class, which may be more than was asked for
	class int8   // -1: of none
}

var pools [maxClass - minClass + 1]sync.Pool

// Get returns a buffer with room for n bytes; its contents are arbitrary.
func Get(n int) *Buffer {
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	if class > maxClass {
		return &Buffer{B: make([]byte, n), class: -1}
	}
	if b, ok := pools[class-minClass].Get().(*Buffer); ok {
		return b
	}
	return &Buffer{B: make([]byte, 1<<class), class: int8(class)}
}

// Put gives the buffer back; nobody uses it any more.
func (b *Buffer) Put() {
	if b.class >= 0 {
		pools[b.class-minClass].Put(b)
	}
}
