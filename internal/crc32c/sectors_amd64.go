package crc32c

// hasFours: there is a sumFours.
const hasFours = true

// sumFours writes the checksums of so many times four sectors, at least once. Preconditions: native.
//
//go:noescape
func sumFours(b *byte, sums *uint32, fours int)
