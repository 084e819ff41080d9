package trace

import "bytes"

// blkparse is the default text of blkparse: device, CPU, sequence number, time in
// seconds, process, action, kind, first sector + sectors, program.
var blkparse = &format{
	name: "blkparse", about: "blkparse text (blktrace)", times: true,
	parse: func(r *Reader, b []byte, rec *Record) (bool, error) {
		var f [10][]byte
		n := fields(b, 0, f[:])
		if n < 6 || bytes.IndexByte(f[0], ',') < 0 {
			// Empty lines, messages of processes, and the summary at the end.
			return false, nil
		}
		if len(f[5]) != 1 || f[5][0] != r.action {
			return false, nil
		}
		t, ok := seconds(f[3])
		if !ok {
			return false, errBad("its time is not a number")
		}
		if n < 10 || !bytes.Equal(f[8], []byte("+")) {
			return false, nil // a flush: no range
		}
		for _, c := range f[6] {
			switch c {
			case 'W':
				rec.Op = Write
			case 'D', 'N':
				return false, nil // discard, or no data
			}
		}
		sector, ok1 := number(f[7])
		count, ok2 := number(f[9])
		if !ok1 || !ok2 || sector > maxOffset/SectorSize || count > maxLength/SectorSize {
			return false, errBad("its sectors are not numbers, or out of range")
		}
		if count == 0 {
			return false, nil
		}
		d, err := r.disk(f[0])
		rec.Time, rec.Disk, rec.Offset, rec.Length = t, d, sector*SectorSize, uint32(count*SectorSize)
		return err == nil, err
	},
}

// firstAction returns the best event to take requests from: the first of queued, issued
// and completed that is there.
func firstAction(head []byte) byte {
	best := byte(0)
	const order = "QDC"
	lines(head, false, 2000, func(line []byte) bool {
		var f [6][]byte
		if fields(line, 0, f[:]) < 6 || len(f[5]) != 1 {
			return true
		}
		i := bytes.IndexByte([]byte(order), f[5][0])
		if i >= 0 && (best == 0 || i < bytes.IndexByte([]byte(order), best)) {
			best = f[5][0]
		}
		return best != order[0]
	})
	if best == 0 {
		return order[0]
	}
	return best
}

// arcList is the form of the traces of the ARC paper: first block, number of
// blocks, a field without meaning, number of the request. Blocks have 512 bytes.
var arcList = &format{
	name: "arc", about: "list of start, count, 0, number (traces of the ARC paper)", unit: SectorSize,
	parse: func(r *Reader, b []byte, rec *Record) (bool, error) {
		if len(b) == 0 {
			return false, nil
		}
		var f [4][]byte
		if fields(b, 0, f[:]) != 4 {
			return false, errBad("it does not have 4 fields")
		}
		start, ok1 := number(f[0])
		count, ok2 := number(f[1])
		_, ok3 := number(f[2])
		_, ok4 := number(f[3])
		if !ok1 || !ok2 || !ok3 || !ok4 {
			return false, errBad("one of its fields is not a number")
		}
		return blocks(r, rec, start, count)
	},
}

// textList is one block number a line, or a first block and a number of blocks. A line that begins with # is a comment.
var textList = &format{
	name: "list", about: "list of block numbers, or of start and count (text)", unit: 4096,
	parse: func(r *Reader, b []byte, rec *Record) (bool, error) {
		if len(b) == 0 || b[0] == '#' {
			return false, nil
		}
		var f [2][]byte
		n := fields(b, 0, f[:])
		switch {
		case n == 0:
			return false, nil
		case n > 2:
			return false, errBad("it has more than 2 fields")
		}
		start, ok := number(f[0])
		count := uint64(1)
		if n == 2 && ok {
			count, ok = number(f[1])
		}
		if !ok {
			return false, errBad("it is not a number")
		}
		return blocks(r, rec, start, count)
	},
}

// blocks fills a record from a range of blocks of the list's unit.
func blocks(r *Reader, rec *Record, start, count uint64) (bool, error) {
	u := uint64(r.Unit())
	if start > maxOffset/u || count > maxLength/u {
		return false, errBad("its block numbers are out of range")
	}
	rec.Offset, rec.Length = start*u, uint32(count*u)
	return true, nil
}

func init() {
	// Set here because the detectors of text formats try their own parsers.
	for _, f := range []**format{&cloudPhysics, &msr, &blkparse, &arcList, &textList} {
		(*f).detect = looksLike(f)
	}
}
