package trace

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// xzMagic begins each stream of an xz file.
const xzMagic = "\xfd7zXZ\x00"

const (
	xzBlockFlags = 0x3c // reserved
	xzLZMA2      = 0x21
	// xzLeast is the dictionary of blocks that ask for less, in bytes.
	xzLeast = 1 << 20
)

// xzReader reads the container of an xz file: streams of blocks, each stream with an
// index. The library decodes what is in a block. Its reader of the container takes as much memory as a header asks
// for, and cannot be stopped from outside: it goes on where the data of a chunk ends, which need not be where the chunk says
// that it ends.
type xzReader struct {
	in      *bufio.Reader
	n       int64 // bytes read of the block or the index
	flags   [2]byte
	stream  bool // in one
	err     error
	blocks  hash.Hash // of the records that the index must have
	records uint64    // their number

	block  *lzma.Reader2 // nil between blocks
	head   int64         // length of its header
	sum    hash.Hash     // nil without a check
	size   int64         // of what came out of it
	claims [2]int64      // its compressed and uncompressed sizes as the header says, -1 without
}

var (
	errXZ        = errors.New("the xz file is damaged")
	xzTable      = crc64.MakeTable(crc64.ECMA)
	errXZUnknown = errors.New("the xz file has a filter or a check that is not supported; compress it again, such as with xz -9")
)

// newXZ reads the first header. in begins with xzMagic.
func newXZ(in *bufio.Reader) (*xzReader, error) {
	x := &xzReader{in: in}
	err := x.begin()
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errCut
	}
	return x, err
}

// Read implements io.Reader. io.EOF comes only where a stream ends.
func (x *xzReader) Read(p []byte) (n int, err error) {
	for n == 0 && x.err == nil && len(p) > 0 {
		if x.block == nil {
			x.err = x.next()
			continue
		}
		n, err = x.block.Read(p)
		x.size += int64(n)
		if x.sum != nil {
			x.sum.Write(p[:n])
		}
		if errors.Is(err, io.EOF) {
			err = x.endBlock()
		}
		x.err = err
	}
	return n, x.err
}

// counted reads what is counted for the block or the index.
type counted struct{ x *xzReader }

func (c counted) Read(p []byte) (int, error) {
	n, err := c.x.in.Read(p)
	c.x.n += int64(n)
	return n, err
}

// take reads n bytes.
func (x *xzReader) take(n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(counted{x}, b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// takeSummed reads n bytes and the CRC of before and them behind them.
func (x *xzReader) takeSummed(before []byte, n int) ([]byte, error) {
	b, err := x.take(n + 4)
	if err != nil {
		return nil, err
	}
	if crc32.Update(crc32.ChecksumIEEE(before), crc32.IEEETable, b[:n]) != binary.LittleEndian.Uint32(b[n:]) {
		return nil, errXZ
	}
	return b[:n], nil
}

// begin reads the header of a stream.
func (x *xzReader) begin() error {
	magic, err := x.take(len(xzMagic))
	if err != nil {
		return err
	}
	flags, err := x.takeSummed(nil, 2)
	if err != nil {
		return err
	}
	if string(magic) != xzMagic {
		return errXZ
	}
	x.flags, x.stream, x.blocks, x.records = [2]byte(flags), true, sha256.New(), 0
	if _, ok := x.check(); !ok || flags[0] != 0 {
		return errXZUnknown
	}
	return nil
}

// check makes what sums up a block, nil if nothing does.
func (x *xzReader) check() (sum hash.Hash, ok bool) {
	switch x.flags[1] {
	case 0:
		return nil, true
	case 1:
		return crc32.NewIEEE(), true
	case 4:
		return crc64.New(xzTable), true
	case 10:
		return sha256.New(), true
	}
	return nil, false
}

// next goes on behind a block or a stream.
func (x *xzReader) next() error {
	x.n = 0
	for !x.stream {
		four, err := x.in.Peek(4)
		switch {
		case len(four) == 0:
			return err // io.EOF at the end
		case len(four) < 4:
			return io.ErrUnexpectedEOF
		case !bytes.Equal(four, make([]byte, 4)): // else it is padding
			if err := x.begin(); err != nil {
				return err
			}
			x.n = 0
		default:
			x.in.Discard(4)
		}
	}
	first, err := x.take(1)
	switch {
	case err != nil:
		return err
	case first[0] == 0:
		return x.endStream()
	}
	rest, err := x.takeSummed(first, int(first[0])*4-1)
	if err != nil {
		return err
	}
	dictionary, err := x.blockHeader(rest)
	if err != nil {
		return err
	}
	if dictionary > maxWindow {
		return fmt.Errorf("the xz file has a dictionary that is larger than %d MiB; compress it again, such as with xz -9", maxWindow>>20)
	}
	x.head, x.n, x.size = x.n, 0, 0
	x.sum, _ = x.check()
	x.block, err = lzma.Reader2Config{DictCap: int(max(dictionary, xzLeast))}.NewReader2(counted{x})
	return err
}

// blockHeader reads a block's header behind its first byte, which has the length, and returns the size of the dictionary.
func (x *xzReader) blockHeader(b []byte) (dictionary int64, err error) {
	flags, r := b[0], bytes.NewReader(b[1:])
	if flags&(xzBlockFlags|3) != 0 { // two bits are the number of filters, less one
		return 0, errXZUnknown
	}
	x.claims = [2]int64{-1, -1}
	for i := range x.claims {
		if flags&(0x40<<i) == 0 {
			continue
		}
		size, err := binary.ReadUvarint(r)
		if err != nil || size >= 1<<63 {
			return 0, errXZ
		}
		x.claims[i] = int64(size)
	}
	var filter [3]byte
	if _, err := io.ReadFull(r, filter[:]); err != nil || filter[0] != xzLZMA2 || filter[1] != 1 || filter[2] > 40 {
		return 0, errXZUnknown
	}
	if padding := b[len(b)-r.Len():]; len(bytes.Trim(padding, "\x00")) > 0 {
		return 0, errXZ
	}
	code := int64(filter[2])
	return (2 | code&1) << (code/2 + 11), nil
}

// endBlock reads what is behind the data of a block.
func (x *xzReader) endBlock() error {
	compressed := x.n
	padding, err := x.take(int(-compressed & 3))
	if err != nil {
		return err
	}
	var sum []byte
	if x.sum != nil {
		sum = x.sum.Sum(nil)
		if x.flags[1] != 10 { // the others are kept with their lowest byte first
			for i := range len(sum) / 2 {
				sum[i], sum[len(sum)-1-i] = sum[len(sum)-1-i], sum[i]
			}
		}
	}
	kept, err := x.take(len(sum))
	if err != nil {
		return err
	}
	if len(bytes.Trim(padding, "\x00")) > 0 || !bytes.Equal(kept, sum) || x.claims[0] >= 0 && x.claims[0] != compressed || x.claims[1] >= 0 && x.claims[1] != x.size {
		return errXZ
	}
	record(x.blocks, uint64(x.head+compressed)+uint64(len(sum)), uint64(x.size))
	x.records++
	x.block = nil
	return nil
}

// record adds an entry of an index to its sum.
func record(to hash.Hash, unpadded, size uint64) {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], unpadded)
	binary.LittleEndian.PutUint64(b[8:], size)
	to.Write(b[:])
}

// endStream reads the index behind its first byte, and the stream's footer.
func (x *xzReader) endStream() error {
	sum := crc32.NewIEEE()
	sum.Write([]byte{0})
	in := bytewise{io.TeeReader(counted{x}, sum)}
	n, err := binary.ReadUvarint(in)
	if err == nil && n != x.records {
		err = errXZ
	}
	index := sha256.New()
	for ; n > 0 && err == nil; n-- {
		var unpadded, size uint64
		if unpadded, err = binary.ReadUvarint(in); err == nil {
			size, err = binary.ReadUvarint(in)
		}
		record(index, unpadded, size)
	}
	for x.n&3 != 0 && err == nil {
		var b byte
		if b, err = in.ReadByte(); b != 0 {
			err = errXZ
		}
	}
	length := x.n
	if err == nil {
		var kept []byte
		if kept, err = x.take(4); err == nil && binary.LittleEndian.Uint32(kept) != sum.Sum32() {
			err = errXZ
		}
	}
	var footer []byte
	if err == nil {
		footer, err = x.take(12)
	}
	switch {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	}
	backward := int64(binary.LittleEndian.Uint32(footer[4:])) // length of the index with its sum, in fours, less one
	if string(footer[10:]) != "YZ" || crc32.ChecksumIEEE(footer[4:10]) != binary.LittleEndian.Uint32(footer) || [2]byte(footer[8:10]) != x.flags ||
		backward*4 != length || !bytes.Equal(index.Sum(nil), x.blocks.Sum(nil)) {
		return errXZ
	}
	x.stream = false
	return nil
}

// bytewise reads byte by byte.
type bytewise struct{ io.Reader }

func (b bytewise) ReadByte() (byte, error) {
	var one [1]byte
	_, err := io.ReadFull(b, one[:])
	return one[0], err
}
