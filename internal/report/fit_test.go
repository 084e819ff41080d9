package report

import "testing"

// Two questions about a tower that are one scenario cost one run of the firmware.
func TestScenarioRunsOnce(t *testing.T) {
	m := &fitted{scale: 1, whole: 64 << 20, cap: 32 << 20, level: 0.5, usual: 4e6, hosts: 8e6, drain: 24e6, copyRate: 48e6,
		copyBytes: 64 << 20, outstanding: 1 << 20, seconds: 10, areas: map[string]float64{}}
	first, err := m.run(1, true)
	if err != nil || first <= 0 {
		t.Fatalf("area %g, %v", first, err)
	}
	text, _ := m.scenario(1, true)
	m.areas[text] = -1
	fast := *m // as the second model of a tower
	if again, err := fast.run(min(2*0.66, 1), true); again != -1 || err != nil {
		t.Errorf("the same scenario: area %g, %v; it has run again", again, err)
	}
	fast.outstanding *= 4
	if other, err := fast.run(1, true); other <= 0 || err != nil {
		t.Errorf("another scenario: area %g, %v", other, err)
	}
}
