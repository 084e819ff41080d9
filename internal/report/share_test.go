package report

import (
	"math"
	"testing"
)

// A share is a figure where the ends of its range agree.
func TestRangeOfAShare(t *testing.T) {
	for _, c := range []struct {
		a, b float64
		text string
	}{
		{1, 1, "-100 %"},
		{0.9, 1, "-100 % to -90 %"},
		{1, 0.9, "-100 % to -90 %"},
		{-0.02, 0.03, "-3 % to +2 %"},
		{-0.3, -0.2, "+20 % to +30 %"},
		{-0.06, 0.06, "not determined"}, // they differ in sign
		{0.3, 0.9, "not determined"},
		{-0.9, 0.02, "no help"}, // how much worse it gets is open
		{math.Inf(-1), -0.5, "no help"},
		{math.NaN(), 0.5, "not determined"},
		{math.Inf(-1), 0.5, "not determined"},
	} {
		r := rangeOf(c.a, c.b)
		open := c.text == "not determined" || c.text == "no help"
		if r.String() != c.text || (r.Open != "") != open {
			t.Errorf("%.2f and %.2f: %v, %q; want %s", c.a, c.b, r, r.Open, c.text)
		}
	}
}
