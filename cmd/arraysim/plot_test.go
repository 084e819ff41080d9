package main

import (
	"strings"
	"testing"
)

// A plot rises and falls with its values, on an axis from zero to the highest.
func TestPlot(t *testing.T) {
	got := plot([]float64{0, 0, 2, 2, 1}, "latency")
	want := []string{
		"      2.00 \u2524  \u256d\u2500\u256e", "      1.80 \u2524  \u2502 \u2502", "      1.60 \u2524  \u2502 \u2502", "      1.40 \u2524  \u2502 \u2502", "      1.20 \u2524  \u2502 \u2502",
		"      1.00 \u2524  \u2502 \u2570", "      0.80 \u2524  \u2502", "      0.60 \u2524  \u2502", "      0.40 \u2524  \u2502", "      0.20 \u2524  \u2502", "      0.00 \u2524\u2500\u2500\u256f", "            latency",
	}
	if got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	for n := range 200 {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(i % 7)
		}
		for _, l := range strings.Split(plot(values, ""), "\n") {
			if len([]rune(l)) > plotWidth+12 {
				t.Fatalf("%d values: a line of %d characters: %q", n, len([]rune(l)), l)
			}
		}
	}
}
