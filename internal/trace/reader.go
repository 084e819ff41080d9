package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// Options say how to read a trace.
type Options struct {
	// Format forces a format of FormatNames; empty detects it.
	Format string
	// MaxBad is the share of records that may be bad, 0.01 is one in a hundred.
	// Negative allows none.
	MaxBad float64
	// Unit is the size in bytes of the blocks that a list of block numbers counts;
	// 0 is the format's own.
	Unit int64
	// Action is the event of blkparse text that makes a request: Q (queued), D (issued), C
	// (completed); 0 takes the first of these that the beginning of the trace has.
	Action byte
	// Columns reads CSV by a mapping of its columns, in place of a format.
	Columns *Columns
}

const (
	headSize = 64 << 10 // looked at to detect the format
	maxLine  = 4096
	// The share of bad records is judged from here on, and at the end.
	judgeFrom = 1000
	keepBad   = 10
	maxDisks  = 1 << 16
)

// Bad is a record that was left out.
type Bad struct {
	Place int64 // line, or number of a binary record, from 1
	Why   string
}

// Reader reads the records of a trace in order.
type Reader struct {
	name   string
	opt    Options
	format *format
	in     *bufio.Reader
	closer io.Closer
	raw    *counter

	place   int64
	records int64
	badN    int64
	bad     []Bad
	err     error

	disks   []string
	diskNum map[string]uint16
	started bool
	first   int64 // time of the first record
	last    int64
	base    int64 // msr: the first time in the format's unit; fio: the end of the last wait
	action  byte
	version byte // fio
	buf     []byte
}

// counter counts what was read from the file, compressed or not.
type counter struct {
	r io.Reader
	n atomic.Int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// Open opens a trace file; "-" is the standard input.
func Open(path string, opt Options) (*Reader, error) {
	if path == "-" {
		return NewReader(os.Stdin, "standard input", opt)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	r, err := NewReader(f, path, opt)
	if err != nil {
		f.Close()
		return nil, err
	}
	decoder := r.closer
	r.closer = closers{decoder, f}
	return r, nil
}

// NewReader reads a trace from in; name stands in errors.
func NewReader(in io.Reader, name string, opt Options) (*Reader, error) {
	r := &Reader{name: name, opt: opt, diskNum: make(map[string]uint16), raw: &counter{r: in}}
	plain, closer, err := decompress(r.raw)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", name, err)
	}
	r.closer = closer
	r.in = bufio.NewReaderSize(plain, headSize)
	head, err := r.in.Peek(headSize)
	eof := errors.Is(err, io.EOF)
	if err != nil && !eof {
		return nil, fmt.Errorf("trace %s: %w", name, err)
	}
	if plain, found := bytes.CutPrefix(head, []byte("\ufeff")); found && text(plain) { // spreadsheets begin a CSV with it
		_, _ = r.in.Discard(len(head) - len(plain)) // it is there
		head = plain
	}
	if len(head) == 0 {
		return nil, fmt.Errorf("trace %s is empty", name)
	}
	if opt.Columns != nil {
		r.format = opt.Columns.format()
	} else if opt.Format != "" {
		if r.format, err = formatByName(opt.Format); err != nil {
			return nil, err
		}
	} else if r.format = detect(head, eof); r.format == nil {
		return nil, fmt.Errorf("trace %s has an unknown format; name it with --format", name)
	}
	if r.action = opt.Action; r.action == 0 && r.format == blkparse {
		r.action = firstAction(head)
	}
	if r.action == 0 && r.format == blktrace {
		r.action = firstBinaryAction(head)
	}
	r.buf = make([]byte, max(r.format.size, 1))
	return r, nil
}

func detect(head []byte, eof bool) *format {
	for _, f := range formats {
		if f.detect(head, eof) {
			return f
		}
	}
	return nil
}

// Next fills rec with the next good record. It returns io.EOF at the end, and
// another error when the trace cannot be read or too much of it is bad.
func (r *Reader) Next(rec *Record) error {
	for r.err == nil {
		b, err := r.next()
		if err != nil {
			r.finish(err)
			break
		}
		*rec = Record{}
		ok, err := r.format.parse(r, b, rec)
		if err == nil && ok {
			err = rec.check(r.format)
		}
		if err != nil {
			r.reject(err)
			continue
		}
		if !ok {
			continue
		}
		r.records++
		r.setTime(rec)
		return nil
	}
	return r.err
}

// next returns the next line, without its end, or binary record; it is valid
// until the next call.
func (r *Reader) next() ([]byte, error) {
	r.place++
	if n := r.format.size; n > 0 {
		k, err := io.ReadFull(r.in, r.buf[:n])
		if errors.Is(err, io.ErrUnexpectedEOF) {
			r.reject(errBad(fmt.Sprintf("the trace ends after %d of its %d bytes", k, n)))
			err = io.EOF
		}
		if err == nil && r.format.tail != nil {
			// A payload that is cut off ends the trace; its record is whole.
			_, _ = r.in.Discard(r.format.tail(r.buf[:n]))
		}
		return r.buf[:n], err
	}
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.in.ReadSlice('\n')
		}
		if err == nil || errors.Is(err, io.EOF) {
			return []byte(tooLong), nil
		}
	}
	if len(line) > 0 && (err == nil || errors.Is(err, io.EOF)) {
		if len(line) > maxLine {
			return []byte(tooLong), nil
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
	return nil, err
}

// tooLong takes the place of a line that is; no format takes it for a request.
const tooLong = "\x00line longer than 4096 bytes"

// reject counts a bad record.
func (r *Reader) reject(why error) {
	r.badN++
	if len(r.bad) < keepBad {
		r.bad = append(r.bad, Bad{r.place, why.Error()})
	}
	if r.badN+r.records >= judgeFrom {
		r.judge()
	}
}

// judge ends a trace of which too much is bad.
func (r *Reader) judge() {
	total := r.badN + r.records
	if float64(r.badN) <= r.opt.MaxBad*float64(total) || r.badN == 0 {
		return
	}
	what := "line"
	if r.format.size > 0 {
		what = "record"
	}
	r.err = fmt.Errorf("trace %s, read as %s: %d of %d records are bad, more than the share of %g that is allowed; the first is %s %d: %s; choose the format with --format, or allow more with --max-bad",
		r.name, r.format.name, r.badN, total, max(r.opt.MaxBad, 0), what, r.bad[0].Place, r.bad[0].Why)
}

func (r *Reader) finish(err error) {
	if !errors.Is(err, io.EOF) {
		r.err = fmt.Errorf("trace %s, after %d records: %w", r.name, r.records, err)
		return
	}
	r.judge()
	if r.err == nil && r.records == 0 {
		r.err = fmt.Errorf("trace %s, read as %s, has no request; choose the format with --format", r.name, r.format.name)
	}
	if r.err == nil {
		r.err = io.EOF
	}
}

// setTime makes times start at 0 and never go back.
func (r *Reader) setTime(rec *Record) {
	if !r.format.times {
		return
	}
	if !r.started {
		r.started, r.first = true, rec.Time
	}
	r.last = max(r.last, rec.Time-r.first)
	rec.Time = r.last
}

// Err returns what ended the trace, nil if it was its end.
func (r *Reader) Err() error {
	if r.err == io.EOF {
		return nil
	}
	return r.err
}

// Close gives back what Open took.
func (r *Reader) Close() error { return r.closer.Close() }

// Format returns the name of the trace's format.
func (r *Reader) Format() string { return r.format.name }

// Times tells whether records have times.
func (r *Reader) Times() bool {
	return r.format.times && (r.format != fioLog || r.version == '3' || r.base > 0)
}

// Objects tells whether records name objects in place of ranges of a disk.
func (r *Reader) Objects() bool { return r.format.objects }

// Unit returns the block size in bytes of a list of block numbers, 0 for others.
func (r *Reader) Unit() int64 {
	if r.format.unit != 0 && r.opt.Unit > 0 {
		return r.opt.Unit
	}
	return r.format.unit
}

// Disks returns the names of the disks so far, by number.
func (r *Reader) Disks() []string {
	if len(r.disks) == 0 {
		return []string{"disk"}
	}
	return r.disks
}

// Records returns the number of good records so far.
func (r *Reader) Records() int64 { return r.records }

// Bad returns how many records were bad and the first of them.
func (r *Reader) Bad() (int64, []Bad) { return r.badN, r.bad }

// BytesRead returns how far the file, as it is stored, has been read. It may be
// called from any goroutine.
func (r *Reader) BytesRead() int64 { return r.raw.n.Load() }

// disk returns the number of a disk by name.
func (r *Reader) disk(name []byte) (uint16, error) {
	if n, ok := r.diskNum[string(name)]; ok {
		return n, nil
	}
	if len(r.disks) == maxDisks {
		return 0, errBad("it is the 65537th disk")
	}
	n := uint16(len(r.disks))
	r.disks = append(r.disks, string(name))
	r.diskNum[string(name)] = n
	return n, nil
}
