package profile

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// sizeText and durationText are what the decoder reads by their texts alone.
type (
	sizeText     struct{ Size }
	durationText struct{ Duration }
)

func (s *sizeText) UnmarshalText(b []byte) error     { return s.Size.UnmarshalText(b) }
func (d *durationText) UnmarshalText(b []byte) error { return d.Duration.UnmarshalText(b) }

// UnmarshalYAML hides the promoted one: it has another form, which is none of the decoder's.
func (*sizeText) UnmarshalYAML()     {}
func (*durationText) UnmarshalYAML() {}

// TestScalarsAreTheirTexts: sizes and times are read as the decoder would read them by UnmarshalText, whatever the scalar is,
// and what is no scalar is refused.
func TestScalarsAreTheirTexts(t *testing.T) {
	type text struct {
		X any          `yaml:"x"`
		S sizeText     `yaml:"s"`
		D durationText `yaml:"d"`
	}
	type direct struct {
		X any      `yaml:"x"`
		S Size     `yaml:"s"`
		D Duration `yaml:"d"`
	}
	for _, doc := range []string{
		"s: 4096", "s: 64KiB", "s: '64KiB'", `s: "1 TiB"`, "s: 0x1000", "s: 1e6", "s: 1.5MiB", "s: 1_000", "s: 0o17", "s: true", "s: -1",
		"s: ~", "s: null", "s:", "s: ''", "s: !!str 4096", "s: |\n  4KiB\n", "s: >-\n  4KiB\n", "s: 4KiB # for now", "s: .inf",
		"s: 2026-11-28", "s: [4096]", "s: {a: 1}", "x: &a 64KiB\ns: *a", "s: &a 64KiB\nx: *a", "s: *none",
		"d: 2ms", "d: 0", "d: 1", "d: '1.75ms'", `d: " 2h "`, "d: 0s", "d: -1s", "d: null", "d:", "d: !!str 5m", "d: 1h # an hour",
		"d: [1s]", "d: {a: 1s}", "x: &a 1s\nd: *a", "d: |\n  5s\n", "d: .5s", "d: 1_0s", "d: true",
	} {
		var want text
		var got direct
		wrong := yaml.UnmarshalWithOptions([]byte(doc), &want, yaml.Strict())
		err := yaml.UnmarshalWithOptions([]byte(doc), &got, yaml.Strict())
		if (err == nil) != (wrong == nil) || err == nil && (got.S != want.S.Size || got.D != want.D.Duration) {
			t.Errorf("%q is %v %v (%v), by the text %v %v (%v)", doc, got.S, got.D, err, want.S.Size, want.D.Duration, wrong)
		}
		if scalar := !strings.ContainsAny(doc, "[{"); !scalar && (err == nil || !strings.HasPrefix(err.Error(), "[1:4] ")) {
			t.Errorf("%q is refused without its place: %v", doc, err)
		}
	}
}
