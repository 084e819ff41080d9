package buffers

import (
	"sync"
	"testing"
)

// TestRoom: a buffer has room for what was asked for, and never twice that above the smallest class.
func TestRoom(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 4096, 4097, 1<<22 - 1, 1 << 22, 1<<22 + 1, 1 << 24} {
		b := Get(n)
		if len(b.B) < n || n > 512 && len(b.B) >= 2*n {
			t.Errorf("%d bytes for %d", len(b.B), n)
		}
		b.Put()
	}
}

// TestOneOwner: nobody has a buffer that another one has.
func TestOneOwner(t *testing.T) {
	var wg sync.WaitGroup
	for who := range byte(8) {
		wg.Go(func() {
			for n := range 2000 {
				b := Get(512 << (n % 4))
				for i := range b.B {
					b.B[i] = who
				}
				for i, v := range b.B {
					if v != who {
						t.Errorf("byte %d is another owner's", i)
						return
					}
				}
				b.Put()
			}
		})
	}
	wg.Wait()
}
