// Package testkit has what the tests of several packages need: seeds, a watch over what
// tests leave behind, archives of files. Only tests import it.
package testkit

import (
	"archive/tar"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 takes one from the clock")

// Seed returns the seed of a random test, that of -seed or one from the clock, and
// says how to run the test again with it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	s := GivenSeed()
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("run again with -run '^%s$' -seed %d", t.Name(), s)
	return s
}

var (
	turnsLock sync.Mutex
	turns     = map[string]uint64{} // by test: how often NextSeeds was asked
)

// NextSeeds returns the first of n seeds of a random test whose seeds are fixed: given, or, where
// that is 0, 1 and, as -count repeats the test, what follows on the seeds of the run before.
func NextSeeds(t testing.TB, given, n uint64) uint64 {
	if given != 0 {
		return given
	}
	turnsLock.Lock()
	defer turnsLock.Unlock()
	turn := turns[t.Name()]
	turns[t.Name()]++
	return 1 + turn*n
}

// Fill makes all bytes of b random. It asks r for eight at a time: under the race detector a number takes as long as the
// work of many a test.
func Fill(r *rand.Rand, b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, r.Uint64())
	}
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// GivenSeed is the seed of -seed, or 0.
func GivenSeed() uint64 { return *seedFlag }

// Unpack writes what a .tar.gz contains into a new folder, which is removed after the test.
func Unpack(t testing.TB, archive string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err == nil {
			err = unpackOne(filepath.Join(dir, filepath.Clean("/"+h.Name)), h.FileInfo().IsDir(), r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func unpackOne(path string, folder bool, from io.Reader) error {
	if folder {
		return os.MkdirAll(path, 0o700)
	}
	b, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
