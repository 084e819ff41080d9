package fio

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseSize reads a size of fio: a number with a suffix k, m, g, t or p and perhaps ib or b. As in fio
// with kb_base=1024, all of them are powers of 1024, but "kB" with kb_base=1000 is not known here.
func ParseSize(text string) (uint64, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	s = strings.TrimSuffix(strings.TrimSuffix(s, "b"), "i")
	shift := 0
	if s != "" {
		if k := strings.IndexByte("kmgtp", s[len(s)-1]); k >= 0 {
			shift, s = 10*(k+1), s[:len(s)-1]
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if strings.HasPrefix(s, "0x") {
		var x uint64
		x, err = strconv.ParseUint(s, 0, 64)
		n = float64(x)
	}
	if err != nil || !(n >= 0 && n*float64(uint64(1)<<shift) < 1<<63) {
		return 0, fmt.Errorf("%q is not a valid size for fio, such as 4k or 1g", text)
	}
	return uint64(n * float64(uint64(1)<<shift)), nil
}

// ParseTime reads a time of fio in nanoseconds: a number with d, h, m, s, ms, us; without, it counts in the
// option's own unit.
func ParseTime(text string, unit int64) (int64, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	for _, u := range []struct {
		name string
		ns   int64
	}{{"usec", 1e3}, {"msec", 1e6}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9}} {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = rest, u.ns
			break
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0 && n*float64(unit) < 1<<62) {
		return 0, fmt.Errorf("%q is not a valid time for fio, such as 30, 30s or 500ms", text)
	}
	return int64(n * float64(unit)), nil
}
