package metrics

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/zstd"
)

// values are those of a column of a row group, numbers or words, with its dictionary.
type values struct {
	numbers, dictNumbers []uint64
	words, dictWords     []string
}

func (v *values) len() int { return len(v.numbers) + len(v.words) }

// page is a page's header.
type page struct {
	kind, raw, packed, values, encoding int64
	levels                              int64 // bytes of levels before the values, in version 2
	plain                               bool  // version 2: not compressed
}

func (t *thriftReader) page() (g page) {
	header := func(values, encoding int, more func(id int, kind byte) bool) {
		t.fields(func(id int, kind byte) bool {
			switch id {
			case values:
				g.values = t.size()
			case encoding:
				g.encoding = t.int()
			default:
				return more != nil && more(id, kind)
			}
			return true
		})
	}
	t.fields(func(id int, _ byte) bool {
		switch id {
		case 1:
			g.kind = t.int()
		case 2:
			g.raw = t.size()
		case 3:
			g.packed = t.size()
		case 5, 7:
			header(1, 2, nil)
		case 8:
			header(1, 4, func(id int, kind byte) bool {
				switch id {
				case 5, 6:
					g.levels += t.size()
					return true
				case 7:
					g.plain = kind == thriftFalse
				}
				return false
			})
		default:
			return false
		}
		return true
	})
	return g
}

// values reads all pages of a column.
func (p *parquetReader) values(col *readColumn, c readChunk) (*values, error) {
	b, err := p.bytes(c.offset, c.size)
	if err != nil {
		return nil, err
	}
	v := &values{}
	for int64(v.len()) < c.values {
		t := &thriftReader{b: b}
		g := t.page()
		if t.err != nil || g.packed > int64(len(t.b)) || g.raw > maxPage || g.levels > g.packed || g.values > maxPage {
			return nil, errThrift
		}
		if g.kind != pageDict && g.values > c.values-int64(v.len()) {
			return nil, errThrift
		}
		body := t.b[:g.packed]
		b = t.b[g.packed:]
		// Levels of version 2 are before what is compressed.
		levels := body[:g.levels]
		if body = body[g.levels:]; !g.plain {
			if body, err = unpack(c.codec, body, g.raw-g.levels); err != nil {
				return nil, err
			}
		}
		if err := v.page(col, g, levels, body); err != nil {
			return nil, err
		}
	}
	if int64(v.len()) != c.values {
		return nil, errThrift
	}
	return v, nil
}

// unpack decompresses a page of so many bytes.
func unpack(codec int64, b []byte, raw int64) (out []byte, err error) {
	if raw < 0 {
		return nil, errThrift
	}
	switch codec {
	case codecNone:
		out = b
	case codecZstd:
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPage))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		if out, err = z.DecodeAll(b, nil); err != nil {
			return nil, err
		}
	case codecSnappy:
		if n, err := snappy.DecodedLen(b); err != nil || int64(n) != raw {
			return nil, errThrift
		}
		if out, err = snappy.Decode(nil, b); err != nil {
			return nil, err
		}
	case codecGzip:
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		if out, err = io.ReadAll(io.LimitReader(z, raw+1)); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("it is compressed by codec %d; write it by zstd, snappy, gzip or none", codec)
	}
	if int64(len(out)) != raw {
		return nil, errThrift
	}
	return out, nil
}

// page takes the values of one page in.
func (v *values) page(col *readColumn, g page, levels, b []byte) error {
	switch g.kind {
	case pageDict:
		words := &values{}
		if err := words.plain(col.kind, b, int(g.values)); err != nil {
			return err
		}
		v.dictNumbers, v.dictWords = words.numbers, words.words
		return nil
	case pageData, pageDataV2:
	default:
		return nil // an index
	}
	var there []uint32 // whether each value is: 1, or 0 for null
	n := int(g.values)
	if col.optional {
		if g.kind == pageData {
			if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
				return errThrift
			}
			size := binary.LittleEndian.Uint32(b)
			levels, b = b[4:4+size], b[4+size:]
		}
		var err error
		if there, err = unhybrid(levels, 1, n); err != nil {
			return err
		}
		n = 0
		for _, x := range there {
			n += int(x)
		}
	}
	known := v
	if there != nil {
		known = &values{dictNumbers: v.dictNumbers, dictWords: v.dictWords}
	}
	var err error
	switch g.encoding {
	case parquetPlain:
		err = known.plain(col.kind, b, n)
	case parquetPlainDict, parquetRLEDict:
		err = known.dict(col.kind, b, n)
	default:
		return fmt.Errorf("its values have encoding %d; write them plain or with dictionaries", g.encoding)
	}
	if err != nil || there == nil {
		return err
	}
	v.spread(col.kind, there, known)
	return nil
}

// spread puts what is known between what is null: an empty word, no number.
func (v *values) spread(kind int64, there []uint32, known *values) {
	k := 0
	for _, x := range there {
		switch {
		case kind == parquetByteArray && x == 0:
			v.words = append(v.words, "")
		case kind == parquetByteArray:
			v.words = append(v.words, known.words[k])
		case x == 0:
			v.numbers = append(v.numbers, math.Float64bits(math.NaN()))
		default:
			v.numbers = append(v.numbers, known.numbers[k])
		}
		k += int(x)
	}
}

func (v *values) plain(kind int64, b []byte, n int) error {
	if kind != parquetByteArray {
		if n > len(b)/8 {
			return errThrift
		}
		for i := range n {
			v.numbers = append(v.numbers, binary.LittleEndian.Uint64(b[8*i:]))
		}
		return nil
	}
	for range n {
		if len(b) < 4 {
			return errThrift
		}
		size := uint64(binary.LittleEndian.Uint32(b))
		if size > uint64(len(b)-4) {
			return errThrift
		}
		v.words = append(v.words, string(b[4:4+size]))
		b = b[4+size:]
	}
	return nil
}

func (v *values) dict(kind int64, b []byte, n int) error {
	if len(b) == 0 {
		if n == 0 {
			return nil
		}
		return errThrift
	}
	at, err := unhybrid(b[1:], int(b[0]), n)
	if err != nil {
		return err
	}
	for _, i := range at {
		switch {
		case kind == parquetByteArray && int(i) < len(v.dictWords):
			v.words = append(v.words, v.dictWords[i])
		case kind != parquetByteArray && int(i) < len(v.dictNumbers):
			v.numbers = append(v.numbers, v.dictNumbers[i])
		default:
			return errThrift
		}
	}
	return nil
}

// unhybrid decodes n values of runs and of groups of eight, of so many bits each.
func unhybrid(b []byte, width, n int) ([]uint32, error) {
	if width < 0 || width > 32 || n < 0 || n > maxPage/4 {
		return nil, errThrift
	}
	var out []uint32
	for len(out) < n {
		head, size := binary.Uvarint(b)
		if size <= 0 || head > math.MaxInt32 {
			return nil, errThrift
		}
		b = b[size:]
		count := int(head >> 1)
		if head&1 == 0 {
			bytes := (width + 7) / 8
			if len(b) < bytes || count == 0 {
				return nil, errThrift
			}
			x := uint32(0)
			for k := range bytes {
				x |= uint32(b[k]) << (8 * k)
			}
			if bits.Len32(x) > width {
				return nil, errThrift
			}
			b = b[bytes:]
			for range min(count, n-len(out)) {
				out = append(out, x)
			}
			continue
		}
		if count == 0 || count > len(b)/max(width, 1) && width > 0 {
			return nil, errThrift
		}
		word, have, at := uint64(0), 0, 0
		for range min(8*count, n-len(out)) {
			for ; have < width; have += 8 {
				word |= uint64(b[at]) << have
				at++
			}
			out = append(out, uint32(word&(1<<width-1)))
			word, have = word>>width, have-width
		}
		b = b[count*width:]
	}
	return out, nil
}
