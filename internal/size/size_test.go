package size

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

func TestParse(t *testing.T) {
	for _, row := range []struct {
		in   string
		want uint64
	}{
		{"0", 0}, {"512", 512}, {"512B", 512}, {" 1k ", 1 << 10}, {"4KiB", 4 << 10}, {"512MiB", 512 << 20},
		{"10G", 10 << 30}, {"10 gib", 10 << 30}, {"1TiB", 1 << 40}, {"1T", 1 << 40}, {"1Gi", 1 << 30},
		{"1TB", 1e12}, {"1tb", 1e12}, {"100MB", 1e8}, {"1kB", 1000}, {"1KB", 1000},
		{"1.5GiB", 3 << 29}, {"1.5G", 3 << 29}, {"0.5k", 512}, {"1.25MB", 1_250_000},
		{"16383PiB", 16383 << 50}, {"18446744073709551615", 1<<64 - 1},
	} {
		if got, err := Parse(row.in); err != nil || got != row.want {
			t.Errorf("%q is read as %d, %v, want %d", row.in, got, err, row.want)
		}
	}
	for _, bad := range []string{"", "GiB", "-1", "+1", "1e3", "1.3", "1.3B", "1iB", "1GiBB", "1 G i", "1..5G", ".5G", "1.G", "1/2G", "0x10",
		"16384PiB", "18446744073709551616", "1E", "one", "1G 1M", "1_000"} {
		if got, err := Parse(bad); err == nil {
			t.Errorf("%q is read as %d", bad, got)
		}
	}
}

// What Text writes, Parse reads.
func TestText(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := range 20_000 {
		n := rnd.Uint64() >> rnd.IntN(64) << rnd.IntN(64)
		if i < 3 {
			n = []uint64{0, 1536, 1<<64 - 1}[i]
		}
		if back, err := Parse(Text(n)); err != nil || back != n {
			t.Fatalf("%d is written %q and read as %d, %v", n, Text(n), back, err)
		}
	}
	for n, want := range map[uint64]string{0: "0", 512: "512", 1536: "1536", 1 << 20: "1MiB", 1 << 60: "1024PiB", 3 << 29: "1536MiB"} {
		if got := Text(n); got != want {
			t.Errorf("%d is written %q, want %q", n, got, want)
		}
	}
}
