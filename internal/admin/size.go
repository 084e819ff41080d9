package admin

import (
	"strconv"

	"github.com/arraysim/arraysim/internal/size"
)

// Size is a number of bytes that people write as 512MiB, 10G or 100MB: the grammar of package size.
// It is a pflag.Value; in JSON it is a plain number.
type Size uint64

var units = []string{"", "K", "M", "G", "T", "P"}

// ParseSize reads a size; a number without a unit is in bytes.
func ParseSize(s string) (Size, error) {
	n, err := size.Parse(s)
	return Size(n), err
}

// String writes the size so that ParseSize gives it back exactly.
func (s Size) String() string { return size.Text(uint64(s)) }

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
