package fio

import (
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

// ReadLog reads a latency log (NAME_lat.1.log): time, value, direction, block size, and columns that some
// versions add behind.
func ReadLog(in io.Reader) ([]LogEntry, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	var out []LogEntry
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		f := strings.Split(line, ",")
		if len(f) < 4 {
			return nil, fmt.Errorf("line %d is not one of a latency log: it lacks time, latency, direction and size", n)
		}
		var v [4]int64
		for i := range v {
			if v[i], err = strconv.ParseInt(strings.TrimSpace(f[i]), 10, 64); err != nil || v[i] < 0 {
				return nil, fmt.Errorf("line %d is not one of a latency log: %q is not a number", n, strings.TrimSpace(f[i]))
			}
		}
		if v[2] > 1 { // a trim
			continue
		}
		out = append(out, LogEntry{v[0], float64(v[1]), v[2] == 1, uint64(v[3])})
	}
	if len(out) == 0 {
		return nil, errors.New("the latency log has no reads and no writes")
	}
	return out, nil
}
