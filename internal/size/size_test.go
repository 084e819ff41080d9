package size

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/arraysim/arraysim/internal/testkit"
)

// The page reads the same table: tests/test_page_states.py.
func TestParse(t *testing.T) {
	b, err := os.ReadFile("testdata/sizes.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Sizes   map[string]string
		Refused []string
	}
	if err := json.Unmarshal(b, &table); err != nil || len(table.Sizes) < 20 || len(table.Refused) < 20 {
		t.Fatalf("%d sizes and %d that are none: %v", len(table.Sizes), len(table.Refused), err)
	}
	for text, want := range table.Sizes {
		if got, err := Parse(text); err != nil || strconv.FormatUint(got, 10) != want {
			t.Errorf("%q is read as %d, %v, want %s", text, got, err, want)
		}
	}
	for _, bad := range table.Refused {
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

// TestBytes: a flag reads the grammar, and leaves the value alone when it cannot; tables have binary units.
func TestBytes(t *testing.T) {
	for n, want := range map[Bytes][2]string{
		0: {"0", "0 B"}, 1000: {"1000", "1000 B"}, 1 << 10: {"1KiB", "1 KiB"}, 1536: {"1536", "1.5 KiB"}, 256 << 20: {"256MiB", "256 MiB"},
		1 << 60: {"1024PiB", "1024 PiB"}, 1<<64 - 1: {"18446744073709551615", "16384 PiB"}, 8236 << 20: {"8236MiB", "8.0 GiB"},
	} {
		if n.String() != want[0] || n.Human() != want[1] {
			t.Errorf("%d is %q and %q, want %q", uint64(n), n.String(), n.Human(), want)
		}
		var back Bytes
		if err := back.Set(n.String()); err != nil || back != n {
			t.Errorf("%s is read as %d, %v", n, uint64(back), err)
		}
	}
	b := Bytes(7)
	if err := b.Set("10X"); err == nil || b != 7 {
		t.Errorf("10X is %d, %v", uint64(b), err)
	}
	if text, err := json.Marshal(Bytes(4096)); err != nil || string(text) != "4096" {
		t.Errorf("in JSON: %s, %v", text, err)
	}
}

// TestDecimal: reports and rates have units of 1000.
func TestDecimal(t *testing.T) {
	for n, want := range map[float64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 1 << 20: "1.05 MB", 8.59e9: "8.59 GB", -2.5e12: "-2.5 TB", 1e15: "1000 TB", 1.2345e16: "12345 TB",
		999.4: "999 B", 999.5: "1 kB", 999_499: "999 kB", 999_500: "1 MB", 999_999: "1 MB", -999_999: "-1 MB", 999.9e6: "1 GB", 999.9e9: "1 TB", 999.9e12: "1000 TB"} {
		if got := Decimal(n); got != want {
			t.Errorf("%g is %q, want %q", n, got, want)
		}
	}
}
