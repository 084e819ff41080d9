package profile

import (
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Size is a number of bytes, written such as 64KiB, 1TiB, 100MB, or 4096.
type Size uint64

var sizeUnits = []struct {
	suffix string
	bytes  uint64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
	{"KB", 1e3}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"P", 1 << 50}, {"B", 1}, {"", 1},
}

// ParseSize reads a size. K, M, G and T alone are powers of 1024, as qemu-img has them.
func ParseSize(s string) (Size, error) {
	text := strings.TrimSpace(s)
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, ok := new(big.Rat).SetString(strings.TrimSpace(number))
		if !ok || n.Sign() < 0 || strings.ContainsAny(number, "eE/") {
			break
		}
		n.Mul(n, new(big.Rat).SetUint64(u.bytes))
		if !n.IsInt() || !n.Num().IsUint64() {
			break
		}
		return Size(n.Num().Uint64()), nil
	}
	return 0, fmt.Errorf("%q is no size; write one such as 64KiB, 1.5GiB or 100MB", s)
}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(b []byte) error {
	v, err := ParseSize(string(b))
	*s = v
	return err
}

// MarshalText writes the size in the largest binary unit that is exact.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Size) String() string {
	for i := 4; i >= 0; i-- {
		if u := sizeUnits[i]; s != 0 && uint64(s)%u.bytes == 0 {
			return fmt.Sprintf("%d%s", uint64(s)/u.bytes, u.suffix)
		}
	}
	return fmt.Sprint(uint64(s))
}

// Duration is a time in nanoseconds, written such as 1.75ms or 2h.
type Duration int64

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(strings.TrimSpace(string(b)))
	if err != nil {
		return fmt.Errorf("%q is no time; write one such as 450us, 1.75ms or 5m", b)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string { return time.Duration(d).String() }
