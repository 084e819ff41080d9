package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// maxWindow bounds the memory that a compressed trace may ask for.
const maxWindow = 256 << 20

// decompress recognises a compressed stream by its first bytes.
func decompress(in io.Reader) (io.Reader, io.Closer, error) {
	b := bufio.NewReaderSize(in, 64<<10)
	magic, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, nil, fmt.Errorf("gzip: %w", err)
		}
		return whole{in: z}, z, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return whole{in: z}, z.IOReadCloser(), nil
	case bytes.Equal(magic, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		if head, _ := b.Peek(64); xzDictionary(head) > maxWindow { // a shorter one is cut off, which the library says
			return nil, nil, fmt.Errorf("xz: its dictionary is larger than %d MiB; compress it again, such as with xz -9", maxWindow>>20)
		}
		end := &lastBytes{in: b}
		z, err := xz.ReaderConfig{DictCap: 1 << 20}.NewReader(end)
		if err != nil {
			return nil, nil, fmt.Errorf("xz: %w", err)
		}
		return whole{z, end}, io.NopCloser(nil), nil
	}
	return b, io.NopCloser(nil), nil
}

// xzDictionary returns the size of the dictionary that the first block of an xz file asks for, for which the library takes
// the memory; 0: it is not there. The blocks of a file have the same one, unless somebody made them so.
func xzDictionary(head []byte) int64 {
	const block = 12
	if len(head) < block+2 {
		return 0
	}
	rest := head[block+2:]
	for sizes := head[block+1] >> 6; sizes > 0; sizes &= sizes - 1 { // compressed, uncompressed: each a number of variable length
		_, n := binary.Uvarint(rest)
		rest = rest[max(n, 0):]
	}
	if len(rest) < 3 || rest[0] != 0x21 || rest[1] != 1 { // LZMA2, and one byte that says the size
		return 0
	}
	code := int64(rest[2] & 0x3f)
	return (2 | code&1) << (code/2 + 11)
}

// whole reads a compressed stream. If the stream is cut off, an unknown part of the trace is missing, which is more than
// the bad record that io.ErrUnexpectedEOF is to a Reader.
type whole struct {
	in io.Reader
	xz *lastBytes // nil for other formats
}

func (w whole) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) && w.xz != nil && w.xz.last != [2]byte{'Y', 'Z'} {
		err = errCut
	}
	return n, err
}

// lastBytes remembers the last two bytes that are not padding. Those of an xz file are YZ. The library also ends
// without an error where the file is cut between two of its blocks.
type lastBytes struct {
	in   io.Reader
	last [2]byte
}

func (l *lastBytes) Read(p []byte) (int, error) {
	n, err := l.in.Read(p)
	if data := bytes.TrimRight(p[:n], "\x00"); len(data) > 1 {
		l.last = [2]byte(data[len(data)-2:])
	} else if len(data) == 1 {
		l.last = [2]byte{l.last[1], data[0]}
	}
	return n, err
}

var errCut = errors.New("the compressed file is cut off")

// closers closes in order and returns the first error.
type closers []io.Closer

func (c closers) Close() error {
	var first error
	for _, x := range c {
		if err := x.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
