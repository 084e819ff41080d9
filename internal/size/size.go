// Package size is the one grammar in which people write numbers of bytes: on the command line, in
// configurations, scenarios and profiles, and on the page. docs/sizes.md describes it.
package size

import (
	"fmt"
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
	unit, ok := units[strings.ToLower(strings.TrimSpace(s[n:]))]
	if !ok || n > 40 || strings.HasPrefix(s, ".") || strings.HasSuffix(s[:n], ".") {
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
