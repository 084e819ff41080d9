package sim

import (
	"math"
	"testing"
)

func TestRandomVariates(t *testing.T) {
	r := newRand(7, "variates")
	const n = 400000
	var exp, exp2, nor, nor2 float64
	for range n {
		x := float64(r.Exp(1e9)) / 1e9
		exp, exp2 = exp+x, exp2+x*x
		y := float64(r.normal()) / 65536
		nor, nor2 = nor+y, nor2+y*y
	}
	for _, row := range []struct {
		name      string
		got, want float64
	}{
		{"mean of Exp", exp / n, 1},
		{"second moment of Exp", exp2 / n, 2},
		{"mean of normal", nor/n + 1, 1},
		{"second moment of normal", nor2 / n, 1},
	} {
		if math.Abs(row.got-row.want) > 0.02*row.want {
			t.Errorf("%s is %.4f, not %.4f", row.name, row.got, row.want)
		}
	}
	for x := int64(-6 << 16); x <= 6<<16; x += 4099 {
		want := math.Exp(float64(x) / 65536)
		if got := float64(expFixed(x)) / 65536; math.Abs(got-want) > 0.001*want+2.0/65536 {
			t.Errorf("exp(%v) is %v, not %v", float64(x)/65536, got, want)
		}
	}
	counts := [5]int{}
	for range n {
		counts[r.N(5)]++
	}
	for i, c := range counts {
		if math.Abs(float64(c)-n/5) > 1500 {
			t.Errorf("%d came %d times of %d", i, c, n/5)
		}
	}
	a, b := newRand(1, "a"), newRand(1, "b")
	if a.Uint64() == b.Uint64() {
		t.Error("two names have one stream")
	}
}
