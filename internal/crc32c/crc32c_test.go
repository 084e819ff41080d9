package crc32c

import (
	"hash/crc32"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// source returns a random source whose seed the test prints; CRC_SEED repeats one.
func source(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("CRC_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("CRC_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// with runs a test with and without the processor's instructions.
func with(t *testing.T, fn func(t *testing.T)) {
	was := native
	defer func() { native = was }()
	for _, native = range []bool{false, was} { // where there are no instructions, none may be tried
		t.Run(map[bool]string{false: "portable", true: "native"}[native], fn)
	}
}

func sumsOf(b []byte) []uint32 {
	var sums []uint32
	for ; len(b) > 0; b = b[SectorSize:] {
		sums = append(sums, crc32.Checksum(b[:SectorSize], crc32.MakeTable(crc32.Castagnoli)))
	}
	return sums
}

func TestSector(t *testing.T) {
	r := source(t)
	with(t, func(t *testing.T) {
		for n := range 500 {
			b := random(r, SectorSize)
			if n == 0 {
				clear(b)
			}
			if got, want := Sector(b), sumsOf(b)[0]; got != want {
				t.Fatalf("sector %d: %08x, hash/crc32 says %08x", n, got, want)
			}
		}
	})
}

// TestSectors: any number of sectors, anywhere in memory, and nothing else is written.
func TestSectors(t *testing.T) {
	r := source(t)
	with(t, func(t *testing.T) {
		for n := range 70 {
			b := random(r, n*SectorSize+8)[r.IntN(8):]
			got := make([]uint32, n+2)
			Sectors(got[1:n+1:n+1], b)
			want := append(append([]uint32{0}, sumsOf(b[:n*SectorSize])...), 0)
			if !slices.Equal(got, want) {
				t.Fatalf("%d sectors: %08x, hash/crc32 says %08x", n, got, want)
			}
		}
	})
}

func TestSparse(t *testing.T) {
	r := source(t)
	for n := 48; n <= 1024; n += 8 {
		b, before := random(r, n), r.Uint32()
		if got, want := sparse(b, before), raw(b, before); got != want {
			t.Fatalf("%d bytes: %08x, by table %08x", n, got, want)
		}
	}
}

// TestOffsets: a bit and those at the offsets behind it have the remainder 0.
func TestOffsets(t *testing.T) {
	b := make([]byte, 48)
	for _, o := range append([]int{0}, offsets[:]...) {
		b[o/8] ^= 1 << (o % 8)
	}
	if got := raw(b, 0); got != 0 {
		t.Fatalf("the remainder is %08x", got)
	}
}

func TestVerify(t *testing.T) {
	r := source(t)
	with(t, func(t *testing.T) {
		for _, n := range []int{0, 1, 2, 7, 8, 9, 15, 16, 31, 32, 33, 64, 71, 512} {
			b := random(r, n*SectorSize+1)[1:] // on no boundary
			sums := sumsOf(b)
			if !Verify(b, sums) {
				t.Fatalf("%d sectors: not their checksums", n)
			}
			for range 40 * min(n, 1) {
				at, bit := r.IntN(len(b)), byte(1)<<r.IntN(8)
				b[at] ^= bit
				if Verify(b, sums) {
					t.Fatalf("%d sectors: bit %#x of byte %d flipped, and nothing said", n, bit, at)
				}
				b[at] ^= bit
				i, mask := r.IntN(n), uint32(1)<<r.IntN(32)
				sums[i] ^= mask
				if Verify(b, sums) {
					t.Fatalf("%d sectors: checksum %d changed by %#x, and nothing said", n, i, mask)
				}
				sums[i] ^= mask
			}
		}
	})
}

// TestVerifyPlaces: sectors in each other's place, and the same damage to two of them, do
// not cancel.
func TestVerifyPlaces(t *testing.T) {
	r := source(t)
	with(t, func(t *testing.T) {
		b := random(r, foldSectors*SectorSize)
		sums := sumsOf(b)
		for range 200 {
			i, j := r.IntN(foldSectors), r.IntN(foldSectors)
			if i == j {
				continue
			}
			x, y := b[i*SectorSize:(i+1)*SectorSize], b[j*SectorSize:(j+1)*SectorSize]
			swap := func() {
				for k := range x {
					x[k], y[k] = y[k], x[k]
				}
			}
			if swap(); Verify(b, sums) {
				t.Fatalf("sectors %d and %d swapped, and nothing said", i, j)
			}
			swap()
			at, bit := r.IntN(SectorSize), byte(1)<<r.IntN(8)
			x[at] ^= bit
			if y[at] ^= bit; Verify(b, sums) {
				t.Fatalf("the same bit of sectors %d and %d flipped, and nothing said", i, j)
			}
			x[at] ^= bit
			y[at] ^= bit
		}
	})
}

// TestNoAllocation: with or without instructions.
func TestNoAllocation(t *testing.T) {
	b := random(source(t), 40*SectorSize)
	sums := sumsOf(b)
	with(t, func(t *testing.T) {
		if n := testing.AllocsPerRun(100, func() { Sector(b) }); n != 0 {
			t.Errorf("Sector: %g allocations", n)
		}
		own := make([]uint32, len(sums))
		if n := testing.AllocsPerRun(100, func() { Sectors(own, b) }); n != 0 {
			t.Errorf("Sectors: %g allocations", n)
		}
		if n := testing.AllocsPerRun(100, func() { Verify(b, sums) }); n != 0 {
			t.Errorf("Verify: %g allocations", n)
		}
	})
}

func BenchmarkSector(b *testing.B)         { benchmarkSector(b, true) }
func BenchmarkSectorPortable(b *testing.B) { benchmarkSector(b, false) }

func benchmarkSector(b *testing.B, on bool) {
	was := native
	defer func() { native = was }()
	native = native && on
	data := random(source(b), SectorSize)
	b.SetBytes(SectorSize)
	for b.Loop() {
		Sector(data)
	}
}

func BenchmarkSectors(b *testing.B) {
	data, sums := random(source(b), 8*SectorSize), make([]uint32, 8)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		Sectors(sums, data)
	}
}

func BenchmarkVerify(b *testing.B)         { benchmarkVerify(b, true) }
func BenchmarkVerifyPortable(b *testing.B) { benchmarkVerify(b, false) }

func benchmarkVerify(b *testing.B, on bool) {
	was := native
	defer func() { native = was }()
	native = native && on
	for _, n := range []int{8, 32, 512} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			data := random(source(b), n*SectorSize)
			sums := sumsOf(data)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				Verify(data, sums)
			}
		})
	}
}

func BenchmarkTables(b *testing.B) {
	data := random(source(b), SectorSize)
	t := crc32.MakeTable(crc32.Castagnoli)
	b.SetBytes(SectorSize)
	for b.Loop() {
		crc32.Checksum(data, t)
	}
}
