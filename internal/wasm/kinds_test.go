package wasm

import (
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/lab/plug"
)

// TestBadKinds: a module of any kind that traps, hangs or exits has one line that says it, and answers from then on what
// does no harm, without being asked.
func TestBadKinds(t *testing.T) {
	t.Cleanup(func() { patience = Patience })
	random := dice{rand.New(rand.NewPCG(1, 2))}
	for _, row := range []struct{ file, says string }{
		{"trap", "the module failed: wasm error: unreachable"},
		{"hang", "the module did not return within 400ms"},
		{"exit", "the module exited with code 3"},
	} {
		if patience = Patience; row.file == "hang" { // a busy machine may keep the others waiting for longer
			patience = 400 * time.Millisecond
		}
		m := &Module{read(t, "testdata/"+row.file+".wasm")}
		cache := plug.Cache{Blocks: 8, BlockBytes: 8192, Random: random}
		a, err := m.Admission(cache)
		if err != nil {
			t.Fatal(err)
		}
		h, err := m.Throttle(cache)
		if err != nil {
			t.Fatal(err)
		}
		d, err := m.Destage(plug.Partition{Random: random})
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.Placement(plug.Array{Random: random})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if !a.Admit(1, false) || h.Delay(plug.Area{Dirty: 2}) != 0 || d.Rate(plug.Fullness{}) >= 0 || d.Next(make([]plug.DirtyVolume, 3)) != 0 || p.Place(plug.Copy{}) != plug.Data {
				t.Errorf("%s: a module that has failed does harm", row.file)
			}
		}
		for _, p := range []any{a, h, d, p} {
			if err := p.(plug.Failing).Err(); err == nil || !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %T says %v", row.file, p, err)
			}
			if err := p.(io.Closer).Close(); err != nil {
				t.Errorf("%s: %v", row.file, err)
			}
		}
	}
}

// TestVolumesOutsideOfNext: what a module asks of volumes that are not there is 0, and so is what it asks outside of next.
func TestVolumesOutsideOfNext(t *testing.T) {
	m := &Module{asking}
	d, err := m.Destage(plug.Partition{Random: dice{rand.New(rand.NewPCG(1, 2))}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.(io.Closer).Close()
	volumes := []plug.DirtyVolume{{Volume: 7, Dirty: 1 << 40, Age: 5}}
	if got := d.Rate(plug.Fullness{}); got != 0 {
		t.Errorf("outside of next the first volume has %d bytes", got)
	}
	if got := d.Next(volumes); got != 7 { // volume(0)
		t.Errorf("its number is %d", got)
	}
	if got := d.Next(nil); got != 0 {
		t.Errorf("of no volume the number is %d", got)
	}
	if got := d.Rate(plug.Fullness{}); got != 0 {
		t.Errorf("behind next the first volume has %d bytes", got)
	}
	if err := d.(plug.Failing).Err(); err != nil {
		t.Error(err)
	}
}

// asking is a module whose rate is dirty(0), and whose next is volume(0).
var asking = []byte{0, 'a', 's', 'm', 1, 0, 0, 0,
	1, 24, 4, 0x60, 1, 0x7F, 1, 0x7F, 0x60, 1, 0x7F, 1, 0x7E, 0x60, 6, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0x7F, 1, 0x7E, 0x60, 0, 0, // types: volume and next, dirty, rate, none
	2, 36, 2, 8, 'a', 'r', 'r', 'a', 'y', 's', 'i', 'm', 6, 'v', 'o', 'l', 'u', 'm', 'e', 0, 0,
	8, 'a', 'r', 'r', 'a', 'y', 's', 'i', 'm', 5, 'd', 'i', 'r', 't', 'y', 0, 1,
	3, 3, 2, 2, 0, // functions 2 and 3: rate, next
	7, 15, 2, 4, 'r', 'a', 't', 'e', 0, 2, 4, 'n', 'e', 'x', 't', 0, 3,
	10, 15, 2, 6, 0, 0x41, 0, 0x10, 1, 0x0B, 6, 0, 0x41, 0, 0x10, 0, 0x0B}

// BenchmarkAnswers is what a question costs: in Go by its interface, and as a module.
func BenchmarkAnswers(b *testing.B) {
	code, err := os.ReadFile("../../examples/wasm/policies.wasm")
	if err != nil {
		b.Fatal(err)
	}
	m, random := &Module{code}, dice{rand.New(rand.NewPCG(1, 2))}
	cache := plug.Cache{Blocks: 1 << 16, BlockBytes: 8192, Random: random}
	a, err := m.Admission(cache)
	if err != nil {
		b.Fatal(err)
	}
	h, err := m.Throttle(cache)
	if err != nil {
		b.Fatal(err)
	}
	d, err := m.Destage(plug.Partition{Random: random})
	if err != nil {
		b.Fatal(err)
	}
	volumes := make([]plug.DirtyVolume, 250)
	for _, row := range []struct {
		name string
		ask  func(i int)
	}{
		{"admit", func(i int) { a.Admit(uint64(i), false) }},
		{"delay", func(i int) {
			h.Delay(plug.Area{Dirty: uint64(i) << 20, Size: 1 << 40, Threshold: 1 << 20, Destage: 1000})
		}},
		{"rate", func(i int) { d.Rate(plug.Fullness{Used: int64(i), Limit: 1 << 30}) }},
		{"next of 250 volumes", func(int) { d.Next(volumes) }},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			began := cpuSeconds()
			for i := range b.N {
				row.ask(i)
			}
			b.ReportMetric((cpuSeconds()-began)/float64(b.N)*1e9, "cpu-ns/op")
		})
	}
	for _, p := range []any{a, h, d} {
		if err := p.(io.Closer).Close(); err != nil {
			b.Fatal(err)
		}
	}
}
