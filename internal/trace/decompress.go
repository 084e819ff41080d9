package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory that a compressed trace may ask for, in each of its frames or blocks. gzip always has 32 KiB.
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
		return whole{z}, z, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return whole{z}, z.IOReadCloser(), nil
	case string(magic) == xzMagic:
		x, err := newXZ(b)
		if err != nil {
			return nil, nil, err
		}
		return whole{x}, io.NopCloser(nil), nil
	}
	return b, io.NopCloser(nil), nil
}

// whole reads a compressed stream. If the stream is cut off, an unknown part of the trace is missing, which is more than
// the bad record that io.ErrUnexpectedEOF is to a Reader.
type whole struct{ in io.Reader }

func (w whole) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errCut
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
