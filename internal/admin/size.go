package admin

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Size is a number of bytes that people write as 512MiB, 10G or 1TiB. Suffixes
// are powers of 1024, with or without "iB" or "B", in either case. It is a
// pflag.Value; in JSON it is a plain number.
type Size uint64

var units = []string{"", "K", "M", "G", "T", "P"}

// ParseSize reads a size; a number without a unit is in bytes.
func ParseSize(s string) (Size, error) {
	fail := fmt.Errorf("%q is no size; write a whole number with a unit, such as 512MiB, 10G or 1TiB", s)
	digits := strings.TrimSpace(s)
	n := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
	if n < 0 {
		n = len(digits)
	}
	v, err := strconv.ParseUint(digits[:n], 10, 64)
	if err != nil {
		return 0, fail
	}
	unit := strings.ToUpper(strings.TrimSpace(digits[n:]))
	if unit != "B" && unit != "" {
		unit = strings.TrimSuffix(strings.TrimSuffix(unit, "B"), "I")
		if unit == "" {
			return 0, fail
		}
	} else {
		unit = ""
	}
	for i, u := range units {
		if u == unit {
			hi, lo := bits.Mul64(v, 1<<(10*i))
			if hi != 0 {
				return 0, fail
			}
			return Size(lo), nil
		}
	}
	return 0, fail
}

// String writes the size so that ParseSize gives it back exactly.
func (s Size) String() string {
	i := 0
	for v := s; i < len(units)-1 && v != 0 && v%1024 == 0; v /= 1024 {
		i++
	}
	return strconv.FormatUint(uint64(s)>>(10*i), 10) + suffix(i)
}

// Human writes the size with three digits or a few more, for tables.
func (s Size) Human() string {
	v, i := float64(s), 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	if i == 0 || v == float64(int64(v)) || v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64) + " " + suffix(i)
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + suffix(i)
}

func suffix(i int) string {
	if i == 0 {
		return "B"
	}
	return units[i] + "iB"
}

// Set implements pflag.Value.
func (s *Size) Set(text string) error {
	v, err := ParseSize(text)
	if err == nil {
		*s = v
	}
	return err
}

// Type implements pflag.Value.
func (s *Size) Type() string { return "size" }
