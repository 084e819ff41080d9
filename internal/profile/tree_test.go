package profile

import (
	"reflect"
	"testing"
)

// TestTemplateStaysAsItIs: what is made from a template is what With makes of the profile, in any order.
func TestTemplateStaysAsItIs(t *testing.T) {
	p, err := Load("svc")
	if err != nil {
		t.Fatal(err)
	}
	from, err := p.Template()
	if err != nil {
		t.Fatal(err)
	}
	for _, settings := range []map[string]any{
		{"mdisks.default.base": "3ms", "cache.read": "1us"},
		nil,
		{"policy.ramp.points": []any{map[string]any{"at": 500, "rate": 0}}},
		{"cache.read": "7us"},
	} {
		want, err := p.With(settings)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := from.With(settings); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %v\n%+v\nnot\n%+v", settings, err, got, want)
		}
	}
	if _, err := from.With(map[string]any{"cache.nothing": 1}); err == nil {
		t.Error("a setting that there is not was changed")
	}
}
