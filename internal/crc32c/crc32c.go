// Package crc32c computes and compares the CRC32C checksums of sectors (the polynomial
// of Castagnoli, as in RFC 7143 13.1), which are the most frequent work that the array does with a byte.
//
// Where the processor has an instruction for CRC32C, hash/crc32 uses it. Where it has
// none, or an emulator makes it a loop, this package is faster than tables: sectors
// are reduced by shifts and XORs first (sparse.go), and many are compared with their
// checksums at once ([Verify]), at the price of little more than reading them.
//
// All functions are safe for concurrent use and allocate nothing.
package crc32c

import (
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// SectorSize is the number of bytes that one checksum is for.
const SectorSize = 512

var table = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// native: hash/crc32 uses instructions of the processor.
var native = func() bool {
	switch runtime.GOARCH {
	case "amd64":
		return cpu.X86.HasSSE42
	case "arm64":
		return cpu.ARM64.HasCRC32
	}
	return true // not known to be slower
}()

// Sector returns the checksum of the first 512 bytes of b.
func Sector(b []byte) uint32 {
	b = b[:SectorSize]
	if native {
		return crc32.Checksum(b, table)
	}
	return ^sparse(b, ^uint32(0))
}

// Sectors writes the checksums of the first len(sums) sectors of b. It is faster than [Sector] for each.
func Sectors(sums []uint32, b []byte) {
	b = b[:len(sums)*SectorSize]
	if fours := len(sums) / 4; hasFours && native && fours > 0 {
		sumFours(&b[0], &sums[0], fours)
		sums, b = sums[4*fours:], b[4*fours*SectorSize:]
	}
	for i := range sums {
		sums[i] = Sector(b[i*SectorSize:])
	}
}

// Checksum returns the checksum of b, whatever its length.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, table) }

// Update returns the checksum of what crc is the checksum of, and of b behind that. That of nothing is 0.
func Update(crc uint32, b []byte) uint32 { return crc32.Update(crc, table, b) }

// EachSector calls fn with the checksum of each sector of a list of buffers, whose sectors may cross from one
// into the next. What is left of a last sector that is not whole is passed over. It does not allocate.
func EachSector(vec [][]byte, fn func(i int, crc uint32)) {
	i, in, crc := 0, 0, uint32(0)
	for _, b := range vec {
		for ; in == 0 && len(b) >= SectorSize; b = b[SectorSize:] {
			fn(i, Sector(b))
			i++
		}
		for len(b) > 0 {
			n := min(len(b), SectorSize-in)
			crc = Update(crc, b[:n])
			b = b[n:]
			if in += n; in == SectorSize {
				fn(i, crc)
				i, in, crc = i+1, 0, 0
			}
		}
	}
}

// Zeros is the checksum of a sector of zeros.
var Zeros = crc32.Checksum(make([]byte, SectorSize), table)

// foldSectors is the number of sectors that one CRC stands for, at most.
const foldSectors = 32

const sectorWords = SectorSize / 8

// words gives the remainder of 8 bytes, by table for each of them.
var words = func() (t [8][256]uint32) {
	for i := range t {
		for b := range t[i] {
			m := make([]byte, 8)
			m[i] = byte(b)
			t[i][b] = raw(m, 0)
		}
	}
	return t
}()

// word is the remainder of the 8 bytes of x in little-endian order. That of bytes behind a
// remainder is the one of the bytes with the remainder added to their first four.
func word(x uint64) uint32 {
	return words[0][byte(x)] ^ words[1][byte(x>>8)] ^ words[2][byte(x>>16)] ^ words[3][byte(x>>24)] ^
		words[4][byte(x>>32)] ^ words[5][byte(x>>40)] ^ words[6][byte(x>>48)] ^ words[7][x>>56]
}

// start is what the initial value of a CRC contributes to that of a sector.
var start = ^Zeros

// raw is the remainder of b after what went before, without the inversions of CRC32C.
func raw(b []byte, before uint32) uint32 { return ^crc32.Update(^before, table, b) }

// Verify tells whether each sector of b has its checksum in sums. A false answer says that
// at least one may not have it; look at each with [Sector] then.
//
// Without an instruction it uses that CRCs are linear. Instead of the CRC of every sector that of a weighted sum of
// the sectors is computed, and compared with the sum of the checksums in the same weights:
//
//	crc(sum of s[i] * x^(64*i)) == sum of crc(s[i]) * x^(64*i)
//
// The weights are shifts by words: to sum up is to load and XOR. Damage to one sector
// is found exactly if its own CRC finds it, for a power of x has an inverse. Sectors that
// changed places are found because their weights differ. Damage to more than one sector that the CRCs of
// each find goes undetected if the weighted remainders happen to cancel: once in 2^31.
func Verify(b []byte, sums []uint32) bool {
	for len(sums) > 0 {
		n := min(len(sums), foldSectors)
		if !verify(b[:n*SectorSize], sums[:n]) {
			return false
		}
		b, sums = b[n*SectorSize:], sums[n:]
	}
	return true
}

// verify is Verify of at most foldSectors.
func verify(b []byte, sums []uint32) bool {
	if native {
		var own [foldSectors]uint32
		have := own[:len(sums)]
		Sectors(have, b)
		return slices.Equal(have, sums)
	}
	if len(sums) == 1 {
		return Sector(b) == sums[0]
	}
	var acc [sectorWords + foldSectors]uint64
	i := 0
	for ; i+8 <= len(sums); i += 8 {
		fold8(&acc, i, (*[8 * SectorSize]byte)(b[i*SectorSize:]))
	}
	for ; i < len(sums); i++ {
		s := (*[SectorSize]byte)(b[i*SectorSize:])
		to := acc[i : i+sectorWords]
		for k := range to {
			to[k] ^= *(*uint64)(unsafe.Pointer(&s[k*8]))
		}
	}
	// The accumulator's words are in the order of the bytes in memory on any machine.
	sum := unsafe.Slice((*byte)(unsafe.Pointer(&acc)), (sectorWords+len(sums)-1)*8)
	got, want := sparse(sum, 0), uint32(0)
	for _, c := range sums {
		want = words[0][byte(want)] ^ words[1][byte(want>>8)] ^ words[2][byte(want>>16)] ^ words[3][want>>24]
		want ^= ^c ^ start
	}
	return got == want
}

// fold8 adds 8 sectors to an accumulator from word at on, each one word behind that before it.
func fold8(acc *[sectorWords + foldSectors]uint64, at int, b *[8 * SectorSize]byte) {
	// Word k of the sum is word k of the first sector, word k-1 of the second...: these
	// lie step bytes apart. The 7 words at either end have fewer parts.
	const step = SectorSize - 8
	p := unsafe.Pointer(b)
	word := func(off int) uint64 { return *(*uint64)(unsafe.Add(p, off)) }
	to := acc[at : at+sectorWords+7]
	for k := range 7 {
		for i := 0; i <= k; i++ {
			to[k] ^= word(k*8 + i*step)
		}
		for i := k + 1; i < 8; i++ {
			to[sectorWords+k] ^= word(sectorWords*8 + k*8 + i*step)
		}
	}
	for k := 7; k < sectorWords; k++ {
		to[k] ^= word(k*8) ^ word(k*8+step) ^ word(k*8+2*step) ^ word(k*8+3*step) ^
			word(k*8+4*step) ^ word(k*8+5*step) ^ word(k*8+6*step) ^ word(k*8+7*step)
	}
}
