package wasm

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/hostcache"
	"github.com/arraysim/arraysim/lab/plug"
)

func read(t testing.TB, name string) []byte {
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// index returns an index of so many blocks whose policy is plugged in.
func index(t *testing.T, blocks int64, by plug.Eviction) *hostcache.Index {
	ix, err := hostcache.New(hostcache.Config{Policy: "test", Capacity: blocks, Plugged: func(int64) plug.Eviction { return by }})
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

// TestModuleIsThePolicy: a module in C does what the same policy does in Go, pins included.
func TestModuleIsThePolicy(t *testing.T) {
	const blocks = 500
	p := mustNew(t, read(t, "../../examples/wasm/clock.wasm"), blocks)
	theirs, ours := index(t, blocks, p), index(t, blocks, &clock{state: make([]uint8, blocks)})
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 50_000 {
		k := hostcache.Key(float64(3*blocks) * r.Float64() * r.Float64())
		if a, b := ours.Access(k, 0), theirs.Access(k, 0); a != b {
			t.Fatalf("reference %d, to %d: hit in Go %v, as a module %v; %v", i, k, a, b, theirs.Err())
		}
		if s := ours.Lookup(k); s != hostcache.None && r.IntN(50) == 0 {
			if a, b := ours.Pin(s), theirs.Pin(theirs.Lookup(k)); a != b {
				t.Fatalf("pinned in Go %v, as a module %v", a, b)
			}
		} else if s != hostcache.None && r.IntN(20) == 0 {
			ours.Unpin(s)
			theirs.Unpin(theirs.Lookup(k))
		}
	}
	if err := p.Close(); err != nil || theirs.Err() != nil {
		t.Fatal(err, theirs.Err())
	}
}

// TestBadModules: whatever a module does, there is one line that says it, and no panic.
func TestBadModules(t *testing.T) {
	t.Cleanup(func() { patience = Patience })
	for _, row := range []struct{ file, says string }{
		{"wrong", "named slot 1048576, which holds no block"},
		{"trap", "the module failed: wasm error: unreachable"},
		{"hang", "the module did not return within 400ms"},
		{"exit", "the module exited with code 3"},
	} {
		if patience = Patience; row.file == "hang" { // a busy machine may keep the others waiting for longer
			patience = 400 * time.Millisecond
		}
		p := mustNew(t, read(t, "testdata/"+row.file+".wasm"), 8)
		ix := index(t, 8, p)
		for k := range hostcache.Key(100) {
			ix.Access(k, 0)
		}
		if err := ix.Err(); err == nil || !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", row.file, err)
		}
		_ = p.Close()
	}
}

// TestNoModules: files that are no policies are refused before the run.
func TestNoModules(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "text.wasm"), []byte("not a module"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "empty.wasm"), []byte("\x00asm\x01\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{"missing.wasm": "no such file", "text.wasm": "not a valid WebAssembly module", "empty.wasm": "exports no function insert"} {
		m, err := Loader(dir)(name)
		if err == nil {
			_, err = m.Eviction(plug.Cache{Blocks: 8, Random: dice{rand.New(rand.NewPCG(1, 2))}})
		}
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
