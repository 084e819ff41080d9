package metrics

import (
	"encoding/binary"
	"io"
	"math"
	"math/bits"

	"github.com/klauspost/compress/zstd"
)

// Parquet files of the table: flat, all columns required, time as TIMESTAMP(nanoseconds, UTC), text
// in dictionaries, value as DOUBLE, a row group of some 100,000 rows with one page a column,
// compressed by zstd. Absent labels are empty strings, as in CSV. The format is that of
// https://parquet.apache.org/docs/file-format.

// parquetRows is how many rows are kept until they are written as a row group.
const parquetRows = 1 << 17

const parquetMagic = "PAR1"

// Types, encodings, codecs and kinds of pages that a file may have.
const (
	parquetInt64     = 2
	parquetDouble    = 5
	parquetByteArray = 6

	parquetPlain     = 0
	parquetPlainDict = 2
	parquetRLE       = 3
	parquetRLEDict   = 8

	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecZstd   = 6

	pageData   = 0
	pageDict   = 2
	pageDataV2 = 3
)

// parquetType is the physical type of column i of the table.
func parquetType(i int) int64 {
	switch i {
	case 0:
		return parquetInt64
	case len(LabelColumns) + 3:
		return parquetDouble
	}
	return parquetByteArray
}

// parquetColumn is a column of the row group that is being gathered.
type parquetColumn struct {
	numbers []byte            // of time and value, as the file has them
	words   []byte            // the dictionary, as the file has it
	known   map[string]uint32 // the place of a word in it
	at      []uint32          // of each row
}

// chunk is a column of a row group in the file.
type chunk struct {
	dict, data  int64 // offsets; dict is 0 without a dictionary
	raw, packed int64 // bytes, with the headers of pages
}

type rowGroup struct {
	rows   int64
	chunks []chunk
}

type parquetWriter struct {
	w       io.Writer
	offset  int64
	zstd    *zstd.Encoder
	columns []parquetColumn
	rows    int // gathered
	groups  []rowGroup
	packed  []byte
	err     error // the first of writing; what follows would be damage
}

// NewParquet writes the table as Parquet, compressed by zstd. The file is complete
// when Close has returned.
func NewParquet(w io.Writer) SnapshotWriter {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic("metrics: internal error: " + err.Error()) // its options are constants
	}
	p := &parquetWriter{w: w, zstd: z, columns: make([]parquetColumn, len(Columns()))}
	for i := range p.columns {
		p.columns[i].known = map[string]uint32{}
	}
	p.write([]byte(parquetMagic))
	return p
}

func (w *parquetWriter) write(b []byte) {
	if w.err == nil {
		var n int
		n, w.err = w.w.Write(b)
		w.offset += int64(n)
	}
}

func (c *parquetColumn) number(bits uint64) {
	c.numbers = binary.LittleEndian.AppendUint64(c.numbers, bits)
}

func (c *parquetColumn) text(s string) {
	at, ok := c.known[s]
	if !ok {
		at = uint32(len(c.known))
		c.known[s] = at
		c.words = append(binary.LittleEndian.AppendUint32(c.words, uint32(len(s))), s...)
	}
	c.at = append(c.at, at)
}

func (w *parquetWriter) Write(s *Snapshot) error {
	if err := s.rows(func(r *Row) error {
		last := len(w.columns) - 1
		w.columns[0].number(uint64(r.Time))
		w.columns[1].text(r.Layer)
		w.columns[2].text(r.Family)
		for i, l := range r.Labels {
			w.columns[3+i].text(l)
		}
		w.columns[last].number(math.Float64bits(r.Value))
		w.rows++
		return nil
	}); err != nil {
		return err
	}
	if w.rows >= parquetRows {
		w.flush()
	}
	return w.err
}

// flush writes what is gathered as a row group.
func (w *parquetWriter) flush() {
	if w.rows == 0 {
		return
	}
	g := rowGroup{rows: int64(w.rows)}
	for i := range w.columns {
		c := &w.columns[i]
		var x chunk
		if parquetType(i) == parquetByteArray {
			x.dict = w.offset
			w.page(&x, pageDict, len(c.known), parquetPlain, c.words)
			x.data = w.offset
			w.page(&x, pageData, w.rows, parquetRLEDict, hybrid(c.at, len(c.known)))
		} else {
			x.data = w.offset
			w.page(&x, pageData, w.rows, parquetPlain, c.numbers)
		}
		g.chunks = append(g.chunks, x)
		clear(c.known)
		c.numbers, c.words, c.at = c.numbers[:0], c.words[:0], c.at[:0]
	}
	w.groups, w.rows = append(w.groups, g), 0
}

// page writes a page of values.
func (w *parquetWriter) page(x *chunk, kind int64, values int, encoding int64, body []byte) {
	w.packed = w.zstd.EncodeAll(body, w.packed[:0])
	var t thriftWriter
	t.open()
	t.i32(1, kind)
	t.i32(2, int64(len(body)))
	t.i32(3, int64(len(w.packed)))
	if kind == pageDict {
		t.in(7)
		t.i32(1, int64(values))
		t.i32(2, encoding)
	} else {
		t.in(5)
		t.i32(1, int64(values))
		t.i32(2, encoding)
		t.i32(3, parquetRLE) // of levels, which required columns do not have
		t.i32(4, parquetRLE)
	}
	t.close()
	t.close()
	w.write(t.b)
	w.write(w.packed)
	x.raw += int64(len(t.b) + len(body))
	x.packed += int64(len(t.b) + len(w.packed))
}

// hybrid encodes places in a dictionary of so many words: runs of eight equal ones and more are one
// value each, others are packed in groups of eight.
func hybrid(at []uint32, words int) []byte {
	width := bits.Len(uint(max(words-1, 0)))
	out := []byte{byte(width)}
	run := func(i int) int {
		n := 1
		for i+n < len(at) && at[i+n] == at[i] {
			n++
		}
		return n
	}
	for i := 0; i < len(at); {
		if n := run(i); n >= 8 {
			out = binary.AppendUvarint(out, uint64(n)<<1)
			for k := 0; k < width; k += 8 {
				out = append(out, byte(at[i]>>k))
			}
			i += n
			continue
		}
		end := i + 8
		for end < len(at) && run(end) < 8 {
			end += 8
		}
		out = binary.AppendUvarint(out, uint64((end-i)/8)<<1|1)
		word, have := uint64(0), 0
		for ; i < end; i++ {
			if i < len(at) { // the last group is filled up
				word |= uint64(at[i]) << have
			}
			for have += width; have >= 8; have -= 8 {
				out = append(out, byte(word))
				word >>= 8
			}
		}
		i = min(i, len(at))
	}
	return out
}

func (w *parquetWriter) Close() error {
	w.flush()
	meta := w.metadata()
	w.write(meta)
	w.write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(meta))), parquetMagic...))
	return w.err
}

// metadata is the directory at the file's end.
func (w *parquetWriter) metadata() []byte {
	var t thriftWriter
	rows := int64(0)
	for _, g := range w.groups {
		rows += g.rows
	}
	columns := Columns()
	t.open()
	t.i32(1, 1)
	t.list(2, 1+len(columns), thriftStruct)
	t.open()
	t.text(4, "counters")
	t.i32(5, int64(len(columns)))
	t.close()
	for i, name := range columns {
		schemaElement(&t, i, name)
	}
	t.i64(3, rows)
	t.list(4, len(w.groups), thriftStruct)
	for _, g := range w.groups {
		t.open()
		t.list(1, len(g.chunks), thriftStruct)
		total := int64(0)
		for i, x := range g.chunks {
			chunkMetadata(&t, i, columns[i], g.rows, x)
			total += x.raw
		}
		t.i64(2, total)
		t.i64(3, g.rows)
		t.close()
	}
	t.text(6, "arraysim version 1")
	t.close()
	return t.b
}

func schemaElement(t *thriftWriter, i int, name string) {
	t.open()
	t.i32(1, parquetType(i))
	t.i32(3, 0) // required
	t.text(4, name)
	switch parquetType(i) {
	case parquetInt64: // TIMESTAMP, UTC, nanoseconds
		t.in(10)
		t.in(8)
		t.field(1, thriftTrue)
		t.in(2)
		t.in(3)
		for range 4 {
			t.close()
		}
	case parquetByteArray: // STRING
		t.i32(6, 0)
		t.in(10)
		t.in(1)
		t.close()
		t.close()
	}
	t.close()
}

func chunkMetadata(t *thriftWriter, i int, name string, rows int64, x chunk) {
	t.open()
	t.i64(2, 0)
	t.in(3)
	t.i32(1, parquetType(i))
	if x.dict > 0 {
		t.list(2, 2, thriftI32)
		t.b = binary.AppendVarint(binary.AppendVarint(t.b, parquetPlain), parquetRLEDict)
	} else {
		t.list(2, 1, thriftI32)
		t.b = binary.AppendVarint(t.b, parquetPlain)
	}
	t.list(3, 1, thriftBinary)
	t.bytes(name)
	t.i32(4, codecZstd)
	t.i64(5, rows)
	t.i64(6, x.raw)
	t.i64(7, x.packed)
	t.i64(9, x.data)
	if x.dict > 0 {
		t.i64(11, x.dict)
	}
	t.close()
	t.close()
}
