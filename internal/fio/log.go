package fio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// LogEntry is a line of a latency log: milliseconds since the job's start, nanoseconds, direction,
// bytes. A log that averages (log_avg_msec) has a mean a line.
type LogEntry struct {
	TimeMS    int64
	LatencyNS float64
	Write     bool
	Bytes     uint64
}

// mostEntries bounds what is read of a log: an hour of 9,000 I/Os a second, which takes 1 GiB of memory.
const mostEntries = 1 << 25

// ReadLog reads a latency log (NAME_lat.1.log): time, value, direction, block size, and columns that some
// versions add behind. What is no log, as /dev/zero, does not take the memory.
func ReadLog(in io.Reader) ([]LogEntry, error) {
	var out []LogEntry
	n := 0
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 4096)
	for lines.Scan() {
		n++
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		f := strings.Split(line, ",")
		if len(f) < 4 {
			return nil, fmt.Errorf("line %d is not from a latency log: it does not have time, latency, direction and size", n)
		}
		var v [4]int64
		for i := range v {
			var err error
			if v[i], err = strconv.ParseInt(strings.TrimSpace(f[i]), 10, 64); err != nil || v[i] < 0 {
				return nil, fmt.Errorf("line %d is not from a latency log: %q is not a number", n, strings.TrimSpace(f[i]))
			}
		}
		if v[2] > 1 { // a trim
			continue
		}
		if len(out) == mostEntries {
			return nil, fmt.Errorf("the latency log has more than %d I/Os; give a part of it", mostEntries)
		}
		out = append(out, LogEntry{v[0], float64(v[1]), v[2] == 1, uint64(v[3])})
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d is not from a latency log: it is longer than 4096 bytes", n+1)
	} else if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, errors.New("the latency log has no reads and no writes")
	}
	return out, nil
}
