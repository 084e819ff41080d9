package admin

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// largeConfig has as many mdisks as an array can have, and many volumes, in the style of people or of programs.
func largeConfig(block bool) []byte {
	var b bytes.Buffer
	b.WriteString("pools:\n")
	for p := range 8 {
		fmt.Fprintf(&b, "  - name: pool%d\n    mdisks:\n", p)
		for m := range 512 {
			fmt.Fprintf(&b, "      - { name: m%d, size: 4MiB }\n", p*512+m)
		}
	}
	b.WriteString("volumes:\n")
	for v := range 10_000 {
		if block {
			fmt.Fprintf(&b, "  - name: volume%d\n    pool: pool%d\n    size: 1GiB\n    export:\n      lun: %d\n      initiators:\n        - iqn.2026-01.org.example:host%d\n", v, v%8, v, v%64)
		} else {
			fmt.Fprintf(&b, "  - { name: volume%d, pool: pool%d, size: 1GiB, export: { lun: %d, initiators: [\"iqn.2026-01.org.example:host%d\"] } }\n", v, v%8, v, v%64)
		}
	}
	return b.Bytes()
}

// BenchmarkParseConfig is the time of a large configuration, and of what is refused because it would take long.
func BenchmarkParseConfig(b *testing.B) {
	for _, row := range []struct {
		name string
		text []byte
		ok   bool
	}{
		{"flow", largeConfig(false), true},
		{"block", largeConfig(true), true},
		{"empty-lines", []byte("data: |\n" + strings.Repeat("\n", 32<<10) + "store: x\n"), false},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.SetBytes(int64(len(row.text)))
			for range b.N {
				if _, err := ParseConfig("f", row.text); (err == nil) != row.ok {
					b.Fatal(err)
				}
			}
		})
	}
}
