package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
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
		return z, z, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.IOReadCloser(), nil
	case bytes.Equal(magic, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		z, err := xz.ReaderConfig{DictCap: 1 << 20}.NewReader(b)
		if err != nil {
			return nil, nil, fmt.Errorf("xz: %w", err)
		}
		return z, io.NopCloser(nil), nil
	}
	return b, io.NopCloser(nil), nil
}

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
