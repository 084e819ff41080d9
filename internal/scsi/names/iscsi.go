package names

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const maxNameLen = 223 // bytes of UTF-8, RFC 7143 4.2.7.1

// CheckISCSI says what is wrong with an iSCSI name, by RFC 7143 4.2.7 and the profile of stringprep for
// iSCSI names, RFC 3722. Letters may be of either case: names are compared in small ones. The text of the
// error shows no character of the name that a terminal would obey.
func CheckISCSI(name string) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%q is not a valid iSCSI name: %s; write one such as iqn.2026-01.io.arraysim:array", name, fmt.Sprintf(format, args...))
	}
	switch {
	case len(name) > maxNameLen:
		return wrong("it is longer than %d bytes", maxNameLen)
	case !utf8.ValidString(name):
		return wrong("it is not UTF-8")
	}
	for _, r := range name {
		if prohibited(r) {
			return wrong("it holds the character %U", r)
		}
	}
	// Two spellings of what looks the same must not be two initiators.
	if !norm.NFKC.IsNormalString(name) {
		return wrong("it is not in normalization form KC")
	}
	kind, rest, _ := strings.Cut(strings.ToLower(name), ".")
	var err error
	switch kind {
	case "iqn":
		err = checkQualified(rest)
	case "eui":
		err = checkHex(rest, 16)
	case "naa":
		err = checkHex(rest, 16, 32)
	default:
		err = errors.New("it begins with none of iqn., eui. and naa. (with the dot)")
	}
	if err != nil {
		return wrong("%v", err)
	}
	return nil
}

// checkQualified checks what follows "iqn.": the month in which a naming authority owned a domain, the
// domain reversed, and whatever it likes behind a colon (RFC 7143 4.2.7.4).
func checkQualified(s string) error {
	month, domain, _ := strings.Cut(s, ".")
	digits := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '0'
		}
		return r
	}, month)
	if digits != "0000-00" || month[5:] < "01" || month[5:] > "12" {
		return errors.New("after iqn. write a month such as 2026-01")
	}
	domain, _, _ = strings.Cut(domain, ":")
	if domain == "" || strings.HasPrefix(domain, ".") || strings.HasSuffix(domain, ".") || strings.Contains(domain, "..") {
		return errors.New("after the month write a reversed domain such as io.arraysim")
	}
	return nil
}

// checkHex checks the digits of an EUI-64 or of an NAA identifier.
func checkHex(s string, lengths ...int) error {
	for _, n := range lengths {
		if len(s) == n && strings.Trim(s, "0123456789abcdef") == "" {
			return nil
		}
	}
	return fmt.Errorf("after its first dot write %v hexadecimal digits", lengths)
}

// prohibited tells whether a character cannot be in a name (RFC 3722 section 6). Of ASCII there are letters, digits,
// '-', '.' and ':'. Beyond it there are letters, marks, numbers and signs that have a shape of their own: no spaces,
// controls, private characters, or what changes the direction of others.
func prohibited(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == ':')
	case r == 0x3002, r == 0x0340, r == 0x0341, r >= 0x2ff0 && r <= 0x2ffb, r == 0xfffc, r == 0xfffd:
		return true // a full stop, deprecated accents, descriptions of ideographs, placeholders
	}
	return !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S)
}
