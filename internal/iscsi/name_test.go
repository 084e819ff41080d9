package iscsi

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckName(t *testing.T) {
	for _, good := range []string{
		"iqn.2026-01.io.arraysim:array", "iqn.1994-05.com.RedHat:ABC", "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-ls",
		"iqn.1993-08.org.debian:01:1234", "iqn.2001-04.com.example", "IQN.2001-04.com.example:x", "eui.02004567A425678D",
		"naa.52004567BA64678D", "naa.62004567BA64678D0123456789ABCDEF", "iqn.2026-01.de.grün:größe", "iqn.2026-01.jp.例え:名前",
		"iqn.2026-01.a:" + strings.Repeat("x", 223-14),
	} {
		if err := CheckName(good); err != nil {
			t.Error(err)
		}
	}
	for bad, why := range map[string]string{
		"":                          "none of iqn.",
		"host":                      "none of iqn.",
		"iqn.":                      "month",
		"iqn.2026-13.io.x":          "month",
		"iqn.2026-00.io.x":          "month",
		"iqn.26-01.io.x":            "month",
		"iqn.2026-01":               "domain",
		"iqn.2026-01.:x":            "domain",
		"iqn.2026-01.io..x":         "domain",
		"eui.02004567A425678":       "hexadecimal",
		"eui.02004567A425678G":      "hexadecimal",
		"naa.52004567BA64678D0":     "hexadecimal",
		"iqn.2000-01.x:\x1b[2J":     "U+001B",
		"iqn.2000-01.x:\u009b2J":    "U+009B",
		"iqn.2000-01.x:\x9b2J":      "not UTF-8",
		"iqn.2000-01.x:\x7f":        "U+007F",
		"iqn.2000-01.x:a b":         "U+0020",
		"iqn.2000-01.x:a\u00a0b":    "U+00A0",
		"iqn.2000-01.x:a,b":         "U+002C",
		"iqn.2000-01.x:a/b":         "U+002F",
		"iqn.2000-01.x:a_b":         "U+005F",
		"iqn.2000-01.x:a\u202eb":    "U+202E",
		"iqn.2000-01.x:a\u200bb":    "U+200B",
		"iqn.2000-01.x:a\u3002b":    "U+3002",
		"iqn.2000-01.x:a\ue000b":    "U+E000",
		"iqn.2026-01.de.gru\u0308n": "form KC",
		"iqn.2026-01.de:\uff21":     "form KC",
		"iqn.2026-01.a:" + strings.Repeat("x", 224-14): "longer",
	} {
		err := CheckName(bad)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", bad, err, why)
		}
		if err != nil && (strings.ContainsAny(err.Error(), "\x1b\u009b\x7f\u202e") || !utf8.ValidString(err.Error())) {
			t.Errorf("the error holds what it is about: %q", err)
		}
	}
}
