// Package zstd stands for the library in C of the same name in builds with the race detector, which have C: Pebble takes
// that library there, and the one in Go everywhere else. Nothing of ours is compressed with either, and its compiler
// would take eight seconds. scripts/test.py puts it in place.
package zstd

import (
	"io"

	"github.com/klauspost/compress/zstd"
)

// Decompress appends what src was before it was compressed to nothing of dst, whose room it takes if that is enough.
func Decompress(dst, src []byte) ([]byte, error) {
	d, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(src, dst[:0])
}

// NewWriterLevel returns a writer that compresses at a level of the library in C.
func NewWriterLevel(w io.Writer, level int) io.WriteCloser {
	e, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)))
	if err != nil {
		panic(err) // the options are not valid
	}
	return e
}
