// Package size is the one grammar in which people write numbers of bytes, on the command line, in
// configurations, scenarios and profiles, and on the page, and the one way in which they read them.
// docs/sizes.md describes both.
package size

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// units by their names in small letters. K, M, G, T and P alone are powers of 1024, as qemu-img has them.
var units = func() map[string]uint64 {
	m := map[string]uint64{"": 1, "b": 1}
	two, ten := uint64(1), uint64(1)
	for _, k := range []string{"k", "m", "g", "t", "p"} {
		two, ten = two<<10, ten*1000
		m[k], m[k+"i"], m[k+"ib"], m[k+"b"] = two, two, two, ten
	}
	return m
}()

var names = []string{"", "KiB", "MiB", "GiB", "TiB", "PiB"}

// Parse reads a number of bytes: digits, perhaps with a decimal point, and a unit in either case.
// The result is whole and exact, or it is an error, one line that says what to write.
func Parse(text string) (uint64, error) {
	fail := fmt.Errorf("%q is not a valid size; write one such as 512MiB, 1.5GiB, 10G (of 1024) or 100MB (of 1000)", text)
	s := strings.TrimSpace(text)
	n := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if n < 0 {
		n = len(s)
	}
	name := strings.TrimSpace(s[n:])
	unit, ok := units[strings.ToLower(name)]
	// Other letters have a small k, too: the sign of the kelvin.
	if !ok || len(strings.ToLower(name)) != len(name) || n > 40 || strings.HasPrefix(s, ".") || strings.HasSuffix(s[:n], ".") {
		return 0, fail
	}
	v, ok := new(big.Rat).SetString(s[:n])
	if !ok {
		return 0, fail
	}
	v.Mul(v, new(big.Rat).SetUint64(unit))
	if !v.IsInt() || !v.Num().IsUint64() {
		return 0, fail
	}
	return v.Num().Uint64(), nil
}

// Text writes n so that Parse gives it back exactly: in the largest binary unit that is exact, a
// plain number where none is.
func Text(n uint64) string {
	i := 0
	for n != 0 && n%1024 == 0 && i < len(names)-1 {
		n /= 1024
		i++
	}
	return strconv.FormatUint(n, 10) + names[i]
}

// Bytes is a number of bytes. It is a pflag.Value that reads the grammar; in JSON it is a plain number.
type Bytes uint64

// String writes the size so that Parse gives it back exactly.
func (b Bytes) String() string { return Text(uint64(b)) }

// Set implements pflag.Value.
func (b *Bytes) Set(text string) error {
	n, err := Parse(text)
	if err == nil {
		*b = Bytes(n)
	}
	return err
}

// Type implements pflag.Value.
func (b *Bytes) Type() string { return "size" }

// Human writes the size in binary units with three digits or a few more, for tables: 8.0 GiB.
func (b Bytes) Human() string {
	v, i := float64(b), 0
	for v >= 1024 && i < len(names)-1 {
		v /= 1024
		i++
	}
	unit := names[i]
	if i == 0 {
		unit = "B"
	}
	if i == 0 || v == float64(int64(v)) || v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64) + " " + unit
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + unit
}

// Decimal writes a number of bytes in units of 1000 with three digits, as reports and rates have
// them: 8.59 GB. From 1000 TB on there are more digits. It may be negative; what is not a number is the caller's to say.
func Decimal(bytes float64) string {
	format, unit := "%.0f %s", "B"
	for _, larger := range []string{"kB", "MB", "GB", "TB"} {
		if math.Abs(bytes) < 999.5 { // above, three digits round it to 1000
			break
		}
		bytes, unit, format = bytes/1000, larger, "%.3g %s"
	}
	if math.Abs(bytes) >= 999.5 {
		format = "%.0f %s"
	}
	return fmt.Sprintf(format, bytes, unit)
}
