package metrics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
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
