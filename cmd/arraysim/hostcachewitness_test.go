package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

func TestFileWitnessKeepsTheMark(t *testing.T) {
	w := &fileWitness{exec: block.NewLive(), path: filepath.Join(t.TempDir(), "mark")}
	load := func() (tier.Mark, error) {
		type answer struct {
			m   tier.Mark
			err error
		}
		ch := make(chan answer, 1)
		w.Load(func(m tier.Mark, err error) { ch <- answer{m, err} })
		a := <-ch
		return a.m, a.err
	}
	if m, err := load(); err != nil || m != (tier.Mark{}) {
		t.Fatalf("without a file: %+v, %v", m, err)
	}
	want := tier.Mark{NAA: [16]byte{0x60, 1}, Cache: 1<<63 + 5, Generation: 7}
	stored := make(chan error, 1)
	w.Store(want, func(err error) { stored <- err })
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	if m, err := load(); err != nil || m != want {
		t.Fatalf("%+v, %v; want %+v", m, err, want)
	}
	if left, _ := filepath.Glob(w.path + ".*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if err := os.WriteFile(w.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(); err == nil {
		t.Error("a damaged file counts as none")
	}
}
