package trace

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// spc is the format of the Storage Performance Council's traces (SPC Trace File Format Specification, revision 1.0.1):
// application specific unit, block of 512 bytes, bytes, R or W, seconds, and further fields that are not read.
var spc = &format{
	name: "spc", about: "SPC text: unit,block,bytes,R or W,seconds", times: true,
	parse: func(r *Reader, b []byte, rec *Record) (bool, error) {
		if len(b) == 0 {
			return false, nil
		}
		var f [5][]byte
		if fields(b, ',', f[:]) < 5 {
			return false, errBad("it does not have 5 fields")
		}
		if last := f[4]; bytes.IndexByte(last, ',') >= 0 {
			f[4] = last[:bytes.IndexByte(last, ',')]
		}
		lba, ok1 := number(f[1])
		size, ok2 := number(f[2])
		t, ok3 := seconds(f[4])
		if _, ok := number(f[0]); !ok || !ok1 || !ok2 || !ok3 || lba > maxOffset/SectorSize || size > maxLength {
			return false, errBad("its unit, block, size or time is not a number, or out of range")
		}
		if err := letter(f[3]); err != nil {
			return false, err
		}
		return r.request(rec, f[0], f[3], t, lba*SectorSize, size)
	},
}

// alibaba is the format of io_traces.csv of the Alibaba block traces of 2020: device, R or W, offset and length in
// bytes, time in microseconds.
var alibaba = &format{
	name: "alibaba", about: "Alibaba block traces CSV: device,R or W,offset,length,microseconds", times: true,
	parse: func(r *Reader, b []byte, rec *Record) (bool, error) {
		if len(b) == 0 || bytes.HasPrefix(b, []byte("device_id,")) {
			return false, nil
		}
		var f [5][]byte
		if fields(b, ',', f[:]) != 5 {
			return false, errBad("it does not have 5 fields")
		}
		offset, ok1 := number(f[2])
		size, ok2 := number(f[3])
		us, ok3 := number(f[4])
		if _, ok := number(f[0]); !ok || !ok1 || !ok2 || !ok3 || offset > maxOffset || size > maxLength || us > math.MaxInt64/1000 {
			return false, errBad("its device, offset, length or time is not a number, or out of range")
		}
		if err := letter(f[1]); err != nil {
			return false, err
		}
		return r.request(rec, f[0], f[1], int64(us)*1000, offset, size)
	},
}

// tencent is the format of the traces of Tencent's cloud block storage (SNIA IOTTA, 2018): Unix time in seconds, offset and
// size in sectors of 512 bytes, 0 for a read and 1 for a write, volume.
var tencent = &format{
	name: "tencent", about: "Tencent CBS CSV: seconds,sector,sectors,0 or 1,volume", times: true,
	parse: func(r *Reader, b []byte, rec *Record) (bool, error) {
		if len(b) == 0 || bytes.HasPrefix(b, []byte("Timestamp,Offset,")) {
			return false, nil
		}
		var f [5][]byte
		if fields(b, ',', f[:]) != 5 {
			return false, errBad("it does not have 5 fields")
		}
		t, ok1 := number(f[0])
		sector, ok2 := number(f[1])
		count, ok3 := number(f[2])
		if _, ok := number(f[4]); !ok || !ok1 || !ok2 || !ok3 || t > math.MaxInt64/2_000_000_000 || sector > maxOffset/SectorSize || count > maxLength/SectorSize {
			return false, errBad("its time, sectors or volume is not a number, or out of range")
		}
		if len(f[3]) != 1 || f[3][0] != '0' && f[3][0] != '1' {
			return false, errBad("its type is neither 0 nor 1")
		}
		return r.request(rec, f[4], f[3], int64(t)*1e9, sector*SectorSize, count*SectorSize)
	},
}

// letter refuses an operation that is not the one letter R or W.
func letter(op []byte) error {
	if op = bytes.TrimSpace(op); len(op) != 1 || op[0]|0x20 != 'r' && op[0]|0x20 != 'w' {
		return errBad("its operation is neither R nor W")
	}
	return nil
}

// request fills a record. The operation begins with R or W in either case, or is 0 or 1.
func (r *Reader) request(rec *Record, disk, op []byte, t int64, offset, size uint64) (bool, error) {
	switch op = bytes.TrimSpace(op); {
	case len(op) == 0:
		return false, errBad("it has no operation")
	case op[0] == 'R' || op[0] == 'r' || string(op) == "0": // 0x2a is a SCSI command's code, and no 0
	case op[0] == 'W' || op[0] == 'w' || string(op) == "1":
		rec.Op = Write
	default:
		return false, errBad("its operation is neither R nor W")
	}
	d, err := r.disk(bytes.TrimSpace(disk))
	rec.Time, rec.Disk, rec.Offset, rec.Length = t, d, offset, uint32(size)
	return err == nil, err
}

// Columns say where the values of a request are in a CSV file that no format describes. What is nil is not there:
// offset and length have to be.
type Columns struct {
	Time, Op, Offset, Length, Disk *column
	// Write is the value of Op that makes a write; empty: what begins with w or W, or is 1.
	Write     string
	Separator byte // 0 is a comma
	named     bool // columns go by the names of a head
}

// column is one of a file, with what its numbers count.
type column struct {
	name string
	at   int // from 0; -1 until a head has said
	unit float64
}

// ParseColumns reads "time=1:us,op=3,offset=4:sectors,length=5,disk=2": a column goes by its number from 1, or by its name
// in the file's first line. Times count s (the default), ms, us, ns or filetime (100 ns); offset and length B (the
// default), KiB or sectors. "write=VALUE" says which op is a write, "separator=tab" (or space, or a character) what
// stands between columns.
func ParseColumns(text string) (*Columns, error) {
	c := &Columns{}
	times := map[string]float64{"": 1e9, "s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1, "filetime": 100}
	sizes := map[string]float64{"": 1, "B": 1, "KiB": 1024, "sectors": SectorSize}
	for part := range strings.SplitSeq(text, ",") {
		role, where, _ := strings.Cut(part, "=")
		name, unit, _ := strings.Cut(where, ":")
		units := map[string]float64{"": 1}
		var to **column
		switch role {
		case "time":
			to, units = &c.Time, times
		case "op":
			to = &c.Op
		case "offset":
			to, units = &c.Offset, sizes
		case "length":
			to, units = &c.Length, sizes
		case "disk":
			to = &c.Disk
		case "write":
			c.Write = where
			continue
		case "separator":
			switch {
			case where == "tab":
				c.Separator = '\t'
			case where == "space":
				c.Separator = ' '
			case len(where) == 1:
				c.Separator = where[0]
			default:
				return nil, fmt.Errorf("separator=%s: give one character, tab or space", where)
			}
			continue
		default:
			return nil, fmt.Errorf("%q is unknown; write time=, op=, offset=, length=, disk=, write= or separator=", role)
		}
		u, ok := units[unit]
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not a column such as offset=4:sectors; times count s, ms, us, ns or filetime, sizes B, KiB or sectors", part)
		}
		n, err := strconv.Atoi(name)
		if err != nil {
			c.named, n = true, 0
		} else if n < 1 || n > maxColumns {
			return nil, fmt.Errorf("%s: columns count from 1 to %d", part, maxColumns)
		}
		*to = &column{name: name, at: n - 1, unit: u}
	}
	if c.Offset == nil || c.Length == nil {
		return nil, fmt.Errorf("%q lacks offset= or length=, which a request needs", text)
	}
	if c.Write != "" && c.Op == nil {
		return nil, fmt.Errorf("write=%s says which op is a write; add op=, the column that has it", c.Write)
	}
	return c, nil
}

const maxColumns = 64

// format makes one of the columns, for one reader.
func (c *Columns) format() *format {
	sep := c.Separator
	if sep == 0 {
		sep = ','
	}
	head := c.named
	var f [maxColumns][]byte
	return &format{
		name: "columns", about: "CSV with given columns", times: c.Time != nil, custom: true,
		parse: func(r *Reader, b []byte, rec *Record) (bool, error) {
			if len(b) == 0 {
				return false, nil
			}
			n := 0
			if bytes.IndexByte(b, '"') >= 0 {
				if sep == ' ' {
					b = mergeBlanks(b)
				}
				in := csv.NewReader(bytes.NewReader(b))
				in.Comma = rune(sep)
				line, err := in.Read()
				if err != nil {
					return false, errBad("it has an unclosed quote")
				}
				for n = 0; n < min(len(line), maxColumns); n++ {
					f[n] = []byte(line[n])
				}
			} else if sep == ' ' {
				n = min(fields(b, 0, f[:]), maxColumns)
			} else {
				n = min(fields(b, sep, f[:]), maxColumns)
			}
			if head {
				head = false
				return false, c.find(r, f[:n])
			}
			return c.request(r, f[:n], rec)
		},
	}
}

// mergeBlanks makes one space of the blanks between fields, and none of those before the first and behind the last. Those
// in quotes stay.
func mergeBlanks(line []byte) []byte {
	out := make([]byte, 0, len(line))
	quoted := false
	for _, c := range line {
		if c == '"' {
			quoted = !quoted
		}
		if blank := c == ' ' || c == '\t'; !blank || quoted {
			out = append(out, c)
		} else if n := len(out); n > 0 && out[n-1] != ' ' {
			out = append(out, ' ')
		}
	}
	return bytes.TrimSuffix(out, []byte{' '})
}

// find looks up names in the file's first line. One that is missing ends the trace.
func (c *Columns) find(r *Reader, head [][]byte) error {
	for _, x := range []*column{c.Time, c.Op, c.Offset, c.Length, c.Disk} {
		if x == nil || x.at >= 0 {
			continue
		}
		for i, h := range head {
			if string(bytes.TrimSpace(h)) == x.name {
				x.at = i
			}
		}
		if x.at < 0 {
			r.err = fmt.Errorf("trace %s has no column %q in its first line: %.100s", r.name, x.name, bytes.Join(head, []byte(", ")))
			return r.err
		}
	}
	return nil
}

func (c *Columns) request(r *Reader, f [][]byte, rec *Record) (bool, error) {
	for _, x := range []*column{c.Time, c.Op, c.Offset, c.Length, c.Disk} {
		if x != nil && x.at >= len(f) {
			return false, errBad("it has fewer columns")
		}
	}
	bad := ""
	get := func(x *column, limit float64) float64 {
		v, err := strconv.ParseFloat(string(bytes.TrimSpace(f[x.at])), 64)
		if err != nil || !(v >= 0 && v*x.unit <= limit) {
			bad = "column " + x.name + " is not a number, or out of range"
		}
		return v * x.unit
	}
	offset, length := get(c.Offset, maxOffset), get(c.Length, maxLength)
	if c.Time != nil {
		t, ok := c.time(r, bytes.TrimSpace(f[c.Time.at]))
		if !ok {
			bad = "column " + c.Time.name + " is not a number, or out of range"
		}
		rec.Time = t
	}
	op, disk := []byte("R"), []byte("disk")
	if c.Op != nil {
		op = bytes.TrimSpace(f[c.Op.at])
		if c.Write != "" {
			op = []byte{"RW"[boolByte(string(op) == c.Write)]}
		}
	}
	if c.Disk != nil {
		disk = f[c.Disk.at]
	}
	if bad != "" {
		return false, errBad(bad)
	}
	return r.request(rec, disk, op, rec.Time, uint64(offset), uint64(length))
}

// time reads a time in nanoseconds from the whole number of the first one on, which keeps all digits: times since 1970 in
// nanoseconds, and of files, have more than a float.
func (c *Columns) time(r *Reader, text []byte) (int64, bool) {
	whole, fraction, _ := bytes.Cut(text, []byte{'.'})
	n, ok := number(whole)
	part := 0.0
	if len(fraction) > 0 {
		var err error
		part, err = strconv.ParseFloat("0."+string(fraction), 64)
		digits := !bytes.ContainsFunc(fraction, func(c rune) bool { return c < '0' || c > '9' })
		ok = ok && err == nil && digits // no exponent, which would be that of the whole number, too
	}
	if !ok || n > math.MaxInt64 {
		return 0, false
	}
	if !r.started {
		r.base = int64(n)
	}
	unit := int64(c.Time.unit)
	d := int64(n) - r.base
	if d > math.MaxInt64/2/unit || d < -math.MaxInt64/2/unit {
		return 0, false
	}
	return d*unit + int64(math.Round(part*c.Time.unit)), true
}

func boolByte(b bool) int {
	if b {
		return 1
	}
	return 0
}

func init() {
	for _, f := range []**format{&spc, &alibaba, &tencent} {
		(*f).detect = looksLike(f)
	}
}
