package iscsi

import (
	"math/bits"
	"sync"
)

// Data buffers come in classes of powers of two. Longer ones are made as needed
// and left to the garbage collector.
const (
	minClass = 9  // 512 bytes
	maxClass = 22 // 4 MiB
)

type buffer struct {
	b     []byte
	class int8
}

var bufferPools [maxClass - minClass + 1]sync.Pool

// getBuffer returns a buffer with room for n bytes; its contents are arbitrary.
func getBuffer(n int) *buffer {
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	if class > maxClass {
		return &buffer{b: make([]byte, n), class: -1}
	}
	if b, ok := bufferPools[class-minClass].Get().(*buffer); ok {
		return b
	}
	return &buffer{b: make([]byte, 1<<class), class: int8(class)}
}

func putBuffer(b *buffer) {
	if b.class >= 0 {
		bufferPools[b.class-minClass].Put(b)
	}
}
