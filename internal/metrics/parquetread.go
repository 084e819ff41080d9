package metrics

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/zstd"
)

// Reading Parquet files of the table: ours of all versions, and what other tools make of them,
// with columns that may be null, dictionaries or plain values, pages of both versions, and the
// codecs that are usual. Whatever a file says, a length is checked before it is believed.

// maxPage bounds the memory that a page of a file may ask for.
const maxPage = 1 << 30

// readColumn is a column of the table in a file.
type readColumn struct {
	kind     int64 // physical type
	optional bool
	scale    int64 // of a time: nanoseconds a unit
	leaf     int   // which of the file's columns it is
}

// readChunk is where a column of a row group lies.
type readChunk struct {
	codec, values, offset, size int64
}

type parquetReader struct {
	r       io.ReaderAt
	size    int64
	columns []readColumn // in the table's order
	groups  [][]readChunk
	rows    []int64 // of each group
	group   int     // the next one
	row, n  int     // of the values that are read
	numbers [2][]uint64
	words   [][]string // of text columns
}

// NewParquetReader reads what NewParquet wrote, and what other tools made of it.
func NewParquetReader(r io.ReaderAt, size int64) (RowReader, error) {
	p := &parquetReader{r: r, size: size}
	err := p.open()
	if err != nil {
		return nil, fmt.Errorf("this is no Parquet file that can be read: %w", err)
	}
	return p, nil
}

func (p *parquetReader) bytes(at, n int64) ([]byte, error) {
	if at < 0 || n < 0 || n > p.size || at > p.size-n {
		return nil, errors.New("it ends in the middle")
	}
	b := make([]byte, n)
	_, err := p.r.ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}

func (p *parquetReader) open() error {
	tail, err := p.bytes(p.size-8, 8)
	if err != nil || string(tail[4:]) != parquetMagic {
		return errors.New("it does not end as one")
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	meta, err := p.bytes(p.size-8-n, n)
	if err != nil {
		return err
	}
	t := &thriftReader{b: meta}
	var leaves []leaf
	t.fields(func(id int, _ byte) bool {
		switch id {
		case 2:
			t.list(func() { leaves = append(leaves, t.leaf()) })
		case 4:
			t.list(func() { p.readGroup(t) })
		default:
			return false
		}
		return true
	})
	if t.err != nil {
		return t.err
	}
	if len(leaves) == 0 || int(leaves[0].children) != len(leaves)-1 {
		return errors.New("its columns are nested; the table of counters is flat")
	}
	leaves = leaves[1:]
	for _, g := range p.groups {
		if len(g) != len(leaves) {
			return errThrift
		}
	}
	return p.find(leaves)
}

// leaf is an element of the schema.
type leaf struct {
	name                       string
	kind, repetition, children int64
	scale                      int64
}

func (t *thriftReader) leaf() (l leaf) {
	l.scale = 1
	t.fields(func(id int, _ byte) bool {
		switch id {
		case 1:
			l.kind = t.int()
		case 3:
			l.repetition = t.int()
		case 4:
			l.name = t.text()
		case 5:
			l.children = t.int()
		case 6:
			switch t.int() {
			case 9:
				l.scale = 1e6 // TIMESTAMP_MILLIS
			case 10:
				l.scale = 1e3 // and _MICROS
			}
		case 10:
			t.logical(&l)
		default:
			return false
		}
		return true
	})
	return l
}

// logical reads a logical type: of a timestamp the unit.
func (t *thriftReader) logical(l *leaf) {
	inside := func(want int, fn func()) {
		t.fields(func(id int, kind byte) bool {
			if id != want || kind != thriftStruct {
				return false
			}
			fn()
			return true
		})
	}
	inside(8, func() {
		inside(2, func() {
			t.fields(func(id int, _ byte) bool {
				if id >= 1 && id <= 3 {
					l.scale = [...]int64{1e6, 1e3, 1}[id-1]
				}
				return false
			})
		})
	})
}

func (p *parquetReader) readGroup(t *thriftReader) {
	var chunks []readChunk
	rows := int64(0)
	t.fields(func(id int, _ byte) bool {
		switch id {
		case 1:
			t.list(func() { chunks = append(chunks, t.chunk()) })
		case 3:
			rows = t.size()
		default:
			return false
		}
		return true
	})
	p.groups, p.rows = append(p.groups, chunks), append(p.rows, rows)
}

func (t *thriftReader) chunk() (c readChunk) {
	dict := int64(0)
	t.fields(func(id int, kind byte) bool {
		if id != 3 || kind != thriftStruct {
			return false
		}
		t.fields(func(id int, _ byte) bool {
			switch id {
			case 4:
				c.codec = t.int()
			case 5:
				c.values = t.size()
			case 7:
				c.size = t.size()
			case 9:
				c.offset = t.size()
			case 11:
				dict = t.size()
			default:
				return false
			}
			return true
		})
		return true
	})
	if dict > 0 && dict < c.offset {
		c.offset = dict
	}
	return c
}

// find finds the table's columns among the file's.
func (p *parquetReader) find(leaves []leaf) error {
	for i, name := range Columns() {
		at := -1
		for k, l := range leaves {
			if l.name == name {
				at = k
			}
		}
		if at < 0 {
			return fmt.Errorf("it is no table of counters: it has no column %q", name)
		}
		l := leaves[at]
		if l.kind != parquetType(i) || l.repetition > 1 || l.children > 0 {
			return fmt.Errorf("it is no table of counters: column %q is of another type", name)
		}
		p.columns = append(p.columns, readColumn{kind: l.kind, optional: l.repetition == 1, scale: l.scale, leaf: at})
	}
	p.words = make([][]string, len(p.columns))
	return nil
}

func (p *parquetReader) Read(row *Row) error {
	for p.row == p.n {
		if p.group == len(p.groups) {
			return io.EOF
		}
		if err := p.next(); err != nil {
			return fmt.Errorf("row group %d: %w", p.group, err)
		}
	}
	k, last := p.row, len(p.columns)-1
	p.row++
	row.Time, row.Value = int64(p.numbers[0][k])*p.columns[0].scale, math.Float64frombits(p.numbers[1][k])
	row.Layer, row.Family, row.Labels = p.words[1][k], p.words[2][k], row.Labels[:0]
	for i := 3; i < last; i++ {
		row.Labels = append(row.Labels, p.words[i][k])
	}
	return nil
}

// next reads the columns of the next row group.
func (p *parquetReader) next() error {
	g := p.groups[p.group]
	rows := p.rows[p.group]
	p.group++
	p.row, p.n = 0, 0
	for i := range p.columns {
		c := g[p.columns[i].leaf]
		if c.values != rows || rows > maxPage/16 {
			return errThrift
		}
		v, err := p.values(&p.columns[i], c)
		if err != nil {
			return fmt.Errorf("column %s: %w", Columns()[i], err)
		}
		switch i {
		case 0:
			p.numbers[0] = v.numbers
		case len(p.columns) - 1:
			p.numbers[1] = v.numbers
		default:
			p.words[i] = v.words
		}
	}
	p.n = int(rows)
	return nil
}

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
