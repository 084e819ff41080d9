package sim

import (
	"os"
	"testing"
)

func BenchmarkScenario(b *testing.B) {
	text, err := os.ReadFile(os.Getenv("SCENARIO"))
	if err != nil {
		b.Skip("set SCENARIO to a file")
	}
	for range b.N {
		s, err := Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		runs, err := s.Runs()
		if err != nil {
			b.Fatal(err)
		}
		r, err := New(runs[0])
		if err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		r.Advance(120e9)
		r.Finish()
		ops := uint64(0)
		for _, v := range r.volumes {
			ops += v.host.ops[0] + v.host.ops[1]
		}
		b.ReportMetric(float64(ops)/b.Elapsed().Seconds(), "hostIO/s")
	}
}
