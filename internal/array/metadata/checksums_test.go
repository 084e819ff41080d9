package metadata

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// TestChecksumsByKey compares checksums with a map of them, with keys that are neighbours, and others.
func TestChecksumsByKey(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 8))
	var c checksums
	want := map[string]uint32{}
	anyKey := func() []byte {
		key := []byte("nabc")[:1+rnd.IntN(4)]
		return append(key[:len(key):len(key)], byte(rnd.IntN(256)))[rnd.IntN(2):]
	}
	for step := range 50_000 {
		key := anyKey()
		if rnd.IntN(2+step/10_000%2) == 0 { // now more come, now more go
			c.set(key, uint32(step))
			want[string(key)] = uint32(step)
		} else {
			c.remove(key)
			delete(want, string(key))
		}
		key = anyKey()
		got, ok := c.get(key)
		if is, have := want[string(key)]; got != is || ok != have {
			t.Fatalf("-seed %d, step %d: %q has %d, %v, and not %d, %v", seed, step, key, got, ok, is, have)
		}
	}
	n := 0
	for shared, f := range c.families {
		if n += len(f.sums); len(f.sums) == 0 {
			t.Errorf("-seed %d: nothing is left of %q, and it is kept", seed, shared)
		}
	}
	if n != len(want) {
		t.Errorf("-seed %d: there are %d, not %d", seed, n, len(want))
	}
}

// TestChecksumsAreSmall: pages beside each other take little more than their checksums.
func TestChecksumsAreSmall(t *testing.T) {
	const pages = 1 << 20
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var d digest
	for i := range uint64(pages) {
		d.set(binary.BigEndian.AppendUint64([]byte("nvvvvl"), i), []byte{1})
	}
	each := float64(heap()-before) / pages
	t.Logf("%.1f bytes a page", each)
	if each > 6 {
		t.Errorf("the checksum of a page takes %.1f bytes", each)
	}
	runtime.KeepAlive(&d)
}
