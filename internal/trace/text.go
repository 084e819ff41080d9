package trace

import (
	"bytes"
	"math"
)

// fields splits a line into at most len(out) fields, by separators if sep is 0
// spaces and tabs, and returns how many there are; what is behind the last one counts as one more.
func fields(line []byte, sep byte, out [][]byte) int {
	n := 0
	for {
		if sep == 0 {
			line = bytes.TrimLeft(line, " \t")
			if len(line) == 0 {
				return n
			}
		}
		if n == len(out) {
			return n + 1
		}
		end := bytes.IndexByte(line, sep)
		if sep == 0 {
			end = bytes.IndexAny(line, " \t")
		}
		if end < 0 {
			out[n] = line
			return n + 1
		}
		out[n] = line[:end]
		line = line[end+1:]
		n++
	}
}

// number reads an unsigned decimal number.
func number(b []byte) (uint64, bool) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// hex reads an unsigned hexadecimal number, with or without 0x.
func hex(b []byte) (uint64, bool) {
	b = bytes.TrimSpace(b)
	if len(b) > 2 && b[0] == '0' && b[1]|0x20 == 'x' {
		b = b[2:]
	}
	if len(b) == 0 || len(b) > 16 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		n = n<<4 | uint64(c)
	}
	return n, true
}

// seconds reads a decimal number of seconds with a fraction, as nanoseconds.
func seconds(b []byte) (int64, bool) {
	b = bytes.TrimSpace(b)
	whole, frac, _ := bytes.Cut(b, []byte{'.'})
	s, ok := number(whole)
	if !ok || s > math.MaxInt64/2_000_000_000 {
		return 0, false
	}
	ns := int64(s) * 1e9
	unit := int64(1e8)
	for _, c := range frac {
		if c < '0' || c > '9' {
			return 0, false
		}
		ns += int64(c-'0') * unit
		unit /= 10
	}
	return ns, true
}

// lines calls fn with the first whole lines of the beginning of a trace that are
// not empty, until it returns false; it tells whether it never did and there was one.
func lines(head []byte, eof bool, limit int, fn func(line []byte) bool) bool {
	if !text(head) {
		return false
	}
	n := 0
	for n < limit {
		line, rest, found := bytes.Cut(head, []byte{'\n'})
		if !found && !eof {
			break
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if !fn(line) {
				return false
			}
			n++
		}
		if !found {
			break
		}
		head = rest
	}
	return n > 0
}

// looksLike makes a detector: half of the first lines or more are requests.
func looksLike(f **format) func(head []byte, eof bool) bool {
	return func(head []byte, eof bool) bool {
		good, all := 0, 0
		probe := &Reader{format: *f, diskNum: make(map[string]uint16), action: firstAction(head)}
		lines(head, eof, 200, func(line []byte) bool {
			var rec Record
			ok, err := (*f).parse(probe, line, &rec)
			if err == nil && ok && rec.check(*f) == nil {
				good++
			}
			if ok || err != nil {
				all++
			}
			return true
		})
		return good > 0 && good*2 >= all
	}
}

// cloudPhysics is the CSV form of the CloudPhysics traces: version, time in
// seconds, operation code in hexadecimal, size in bytes, first sector.
var cloudPhysics = &format{
	name: "cloudphysics", about: "CloudPhysics CSV: version,time,op,size,lbn", times: true,
	parse: func(_ *Reader, b []byte, rec *Record) (bool, error) {
		if len(b) == 0 || bytes.HasPrefix(b, []byte("version,")) {
			return false, nil
		}
		var f [5][]byte
		if fields(b, ',', f[:]) != 5 {
			return false, errBad("it does not have 5 fields")
		}
		if v, ok := number(f[0]); !ok || v > 255 {
			return false, errBad("its first field is not a version")
		}
		t, ok := seconds(f[1])
		if !ok {
			return false, errBad("its time is not a number")
		}
		cmd, ok := hex(f[2])
		if !ok || cmd > 0xff {
			return false, errBad("its operation code is not hexadecimal, of 8 bits")
		}
		size, ok := number(f[3])
		if !ok || size > maxLength {
			return false, errBad("its size is not a number, or more than 1 GiB")
		}
		lbn, ok := number(f[4])
		if !ok || lbn > maxOffset/SectorSize {
			return false, errBad("its block number is not a number, or beyond 1 EiB")
		}
		op, ok := scsiOps[cmd]
		*rec = Record{Time: t, Op: op, Offset: lbn * SectorSize, Length: uint32(size)}
		return ok, nil
	},
}

// msr is the CSV form of the MSR Cambridge traces: time in units of 100 ns, host,
// disk number, Read or Write, offset and size in bytes, response time.
var msr = &format{
	name: "msr", about: "MSR Cambridge CSV: timestamp,host,disk,type,offset,size,response", times: true,
	parse: func(r *Reader, b []byte, rec *Record) (bool, error) {
		if len(b) == 0 || bytes.HasPrefix(b, []byte("Timestamp,")) {
			return false, nil
		}
		var f [7][]byte
		if n := fields(b, ',', f[:]); n != 7 && n != 6 {
			return false, errBad("it does not have 7 fields")
		}
		t, ok := number(f[0])
		if !ok || t > math.MaxInt64 {
			return false, errBad("its time is not a number")
		}
		switch {
		case bytes.EqualFold(f[3], []byte("Read")):
		case bytes.EqualFold(f[3], []byte("Write")):
			rec.Op = Write
		default:
			return false, errBad("its type is neither Read nor Write")
		}
		offset, ok1 := number(f[4])
		size, ok2 := number(f[5])
		if !ok1 || !ok2 || size > maxLength || offset > maxOffset {
			return false, errBad("its offset or size is not a number, or out of range")
		}
		host, disk := bytes.TrimSpace(f[1]), bytes.TrimSpace(f[2])
		if _, ok := number(disk); !ok || len(host) == 0 || len(host)+len(disk) > 255 {
			return false, errBad("its host or disk number is not a number")
		}
		var name [256]byte
		full := append(append(append(name[:0], host...), '.'), disk...)
		n, err := r.disk(full)
		if err != nil {
			return false, err
		}
		rec.Disk, rec.Offset, rec.Length = n, offset, uint32(size)
		// File times are beyond the range of nanoseconds in 63 bits: the first is 0.
		if !r.started {
			r.base = int64(t)
		}
		if d := int64(t) - r.base; d > 0 && d < math.MaxInt64/100 {
			rec.Time = d * 100
		}
		return true, nil
	},
}

// fioLog is an I/O log of fio, version 2 or 3: file, action, offset and length in bytes. Version 3 begins with the time in
// microseconds since the log began. In version 2 a wait line has the milliseconds since fio's start before which the next
// request does not begin; one that is over waits for nothing. The units are those of fio 3.42's iolog.c, and 3.33 does
// the same: log_io_u and log_file write utime_since_now, and iolog_delay waits by it for the differences that read_iolog
// takes. For a wait, read_iolog_get sleeps until mtime_since_genesis is there. fio's HOWTO says microseconds since the wait
// before, and does not give the unit of version 3.
var fioLog = &format{
	name: "fio", about: "fio I/O log, version 2 or 3", times: true,
	detect: func(head []byte, _ bool) bool { return bytes.HasPrefix(head, []byte("fio version ")) },
	parse: func(r *Reader, b []byte, rec *Record) (bool, error) {
		if len(b) == 0 {
			return false, nil
		}
		if v, ok := bytes.CutPrefix(b, []byte("fio version ")); ok {
			if len(v) == 0 || v[0] != '2' && v[0] != '3' {
				return false, errBad("this version of the log is unknown")
			}
			r.version = v[0]
			return false, nil
		}
		var f [5][]byte
		n := fields(b, 0, f[:])
		a := f[:min(n, 5)]
		if r.version == '3' {
			us, ok := number(f[0])
			if !ok || us > math.MaxInt64/1000 {
				return false, errBad("its time is not a number")
			}
			rec.Time = int64(us) * 1000
			a, n = a[1:], n-1
		} else {
			rec.Time = r.base
		}
		if n < 2 || n > 4 {
			return false, errBad("it is not a file and action")
		}
		switch string(a[1]) {
		case "add", "open", "close", "sync", "datasync", "sync_file_range", "syncfs", "trim": // io_ddir_name of fio's io_ddir.h
			return false, nil
		case "wait":
			if r.version == '3' { // read_iolog leaves it out, too
				return false, nil
			}
			ms, ok := number(a[min(2, n-1)]) // a line without it has no number there
			if !ok || ms > math.MaxInt64/1_000_000 {
				return false, errBad("its wait is not a number")
			}
			r.base = max(r.base, int64(ms)*1e6)
			return false, nil
		case "read":
		case "write":
			rec.Op = Write
		default:
			return false, errBad("its action is unknown")
		}
		if n != 4 {
			return false, errBad("it has no offset and length")
		}
		offset, ok1 := number(a[2])
		size, ok2 := number(a[3])
		if !ok1 || !ok2 || size > maxLength || offset > maxOffset {
			return false, errBad("its offset or length is not a number, or out of range")
		}
		d, err := r.disk(a[0])
		rec.Disk, rec.Offset, rec.Length = d, offset, uint32(size)
		return err == nil, err
	},
}
