package handlers

import (
	"math/bits"
	"sync"
)

// Bounce buffers take Data-In where the kernel's memory for it lies in pieces. They
// come in classes of powers of two, which the pools hold.
const (
	minClass = 12 // 4 KiB
	maxClass = 22
)

type buffer struct {
	b     []byte
	class int8
}

var buffers [maxClass - minClass + 1]sync.Pool

// getBuffer returns room for n bytes; its contents are arbitrary.
func getBuffer(n int) *buffer {
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	if class > maxClass {
		return &buffer{make([]byte, n), -1}
	}
	if b, ok := buffers[class-minClass].Get().(*buffer); ok {
		return b
	}
	return &buffer{make([]byte, 1<<class), int8(class)}
}

func (b *buffer) put() {
	if b.class >= 0 {
		buffers[b.class-minClass].Put(b)
	}
}
