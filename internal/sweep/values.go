package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/arraysim/arraysim/internal/size"
	"github.com/arraysim/arraysim/internal/tidy"
)

// Random is points of random values.
type Random struct {
	Points int `yaml:"points"`
	// Seed is that of the values: a parameter's values depend on it and on the parameter's name, not
	// on the other parameters.
	Seed       uint64           `yaml:"seed"`
	Parameters map[string]Range `yaml:"parameters"`
}

// Range says where values come from: evenly from From to To, which are numbers, sizes or times, evenly
// by logarithm if Scale is log, in whole numbers if Integer; or one of Choose.
type Range struct {
	From    any    `yaml:"from"`
	To      any    `yaml:"to"`
	Scale   string `yaml:"scale"`
	Integer bool   `yaml:"integer"`
	Choose  []any  `yaml:"choose"`

	unit     unit
	from, to float64 // whole numbers if Integer
}

// unit is what a value counts.
type unit uint8

const (
	plain   unit = iota // a number
	seconds             // written such as 10ms
	octets              // written such as 64KiB
	truth
	words
)

// measure reads a value of a unit as a number.
func (u unit) measure(v any) (float64, bool) {
	text, isText := v.(string)
	switch u {
	case plain:
		return number(v)
	case seconds:
		d, err := time.ParseDuration(text)
		return d.Seconds(), isText && err == nil
	case octets:
		if isText {
			n, err := size.Parse(text)
			return float64(n), err == nil
		}
		x, ok := number(v)
		return x, ok && x >= 0 && x == math.Trunc(x)
	}
	return 0, false
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	}
	return 0, false
}

// unitOf returns the unit that all values have.
func unitOf(values []any) unit {
	for _, u := range []unit{plain, seconds, octets} {
		if !slices.ContainsFunc(values, func(v any) bool { _, ok := u.measure(v); return !ok }) {
			return u
		}
	}
	if !slices.ContainsFunc(values, func(v any) bool { _, ok := v.(bool); return !ok }) {
		return truth
	}
	return words
}

// parameter is a setting with its column.
type parameter struct {
	key    string
	unit   unit
	column tidy.Column
}

func newParameter(key string, values []any) parameter {
	p := parameter{key: key, unit: unitOf(values), column: tidy.Column{Name: key, Kind: tidy.Number}}
	switch p.unit {
	case seconds:
		p.column.Name += "_seconds"
	case octets:
		p.column.Name += "_bytes"
	case truth:
		p.column.Kind = tidy.Bool
	case words:
		p.column.Kind = tidy.Text
	}
	return p
}

// cell returns a value as the column has it; lists and maps are JSON.
func (p parameter) cell(v any) any {
	switch p.unit {
	case truth:
		return v
	case words:
		if s, ok := v.(string); ok {
			return s
		}
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(b)
	}
	x, _ := p.unit.measure(v)
	return x
}

// possible refuses values that YAML has and JSON, of which a run's hash is, does not.
func possible(values []any) error {
	_, err := json.Marshal(values)
	if bad, ok := errors.AsType[*json.UnsupportedValueError](err); ok {
		return fmt.Errorf("%s is not a number that a run can have", bad.Str)
	}
	return err
}

func (x *Range) check() error {
	if err := possible(x.examples()); err != nil {
		return err
	}
	if len(x.Choose) > 0 {
		if x.From != nil || x.To != nil || x.Scale != "" || x.Integer {
			return errors.New("choose goes without from, to, scale and integer")
		}
		return nil
	}
	x.unit = unitOf([]any{x.From, x.To})
	if x.unit > octets {
		return fmt.Errorf("from %v to %v: give two numbers, two sizes or two times, or choose", x.From, x.To)
	}
	x.from, _ = x.unit.measure(x.From)
	x.to, _ = x.unit.measure(x.To)
	switch {
	case x.to < x.from:
		return fmt.Errorf("from %v to %v is descending; swap the two", x.From, x.To)
	case x.Scale != "" && x.Scale != "log" && x.Scale != "linear":
		return fmt.Errorf("scale is %q; it is linear or log", x.Scale)
	case x.Scale == "log" && x.from <= 0:
		return fmt.Errorf("from %v: a logarithmic scale begins above 0", x.From)
	case x.unit == octets && math.Ceil(x.from/sector) > math.Floor(x.to/sector):
		return fmt.Errorf("from %v to %v: there is no multiple of %d bytes between them; give one with choose", x.From, x.To, sector)
	case x.Integer && x.unit == seconds:
		return errors.New("integer is for numbers; leave it out with times, which are drawn to the nanosecond")
	}
	if x.Integer && x.unit == plain {
		x.from, x.to = math.Ceil(x.from), math.Floor(x.to)
		if x.from > x.to {
			return fmt.Errorf("from %v to %v: there is no whole number between them; give one with choose", x.From, x.To)
		}
		if max(-x.from, x.to) > mostWhole {
			return fmt.Errorf("from %v to %v: whole numbers are drawn up to %d; give smaller ones", x.From, x.To, int64(mostWhole))
		}
	}
	return nil
}

// mostWhole is the largest number below which a float has all whole ones.
const mostWhole = 1 << 53

// sector is what sizes that are drawn are multiples of.
const sector = 512

// combinations is how many points there are that differ: +Inf where a parameter is no whole number and not chosen.
func (r *Random) combinations() float64 {
	n := 1.0
	for _, x := range r.Parameters {
		switch {
		case len(x.Choose) > 0:
			n *= float64(len(distinct(x.Choose)))
		case x.unit == octets:
			n *= math.Floor(x.to/sector) - math.Ceil(x.from/sector) + 1
		case x.unit == plain && x.Integer:
			n *= x.to - x.from + 1
		case x.to > x.from:
			n = math.Inf(1)
		}
	}
	return n
}

// point returns the values of a point by their settings.
func (r *Random) point(n int) map[string]any {
	out := make(map[string]any, len(r.Parameters))
	for k, x := range r.Parameters {
		out[k] = x.draw(r.Seed, k, n)
	}
	return out
}

// examples are values that show the unit.
func (x *Range) examples() []any {
	if len(x.Choose) > 0 {
		return x.Choose
	}
	return []any{x.From, x.To}
}

// draw returns the value of a point. It is rounded (times to nanoseconds, sizes to sectors, numbers to 9
// digits), so that no machine's last bit of a logarithm shows.
func (x *Range) draw(seed uint64, key string, point int) any {
	h := fnv.New64a()
	h.Write([]byte(key))
	src := rand.New(rand.NewPCG(seed^h.Sum64(), uint64(point)))
	if len(x.Choose) > 0 {
		return x.Choose[src.IntN(len(x.Choose))]
	}
	v := x.from + (x.to-x.from)*src.Float64()
	if x.Scale == "log" {
		v = math.Exp(math.Log(x.from) + (math.Log(x.to)-math.Log(x.from))*src.Float64())
	}
	v = max(x.from, min(x.to, v)) // a logarithm's last bit may be beyond
	switch {
	case x.unit == seconds:
		return time.Duration(math.Round(v * 1e9)).String()
	case x.unit == octets:
		return uint64(max(math.Ceil(x.from/sector), min(math.Floor(x.to/sector), math.Round(v/sector)))) * sector
	case x.Integer:
		if x.to <= x.from {
			return int64(x.from)
		}
		return min(int64(math.Floor(x.from+(v-x.from)/(x.to-x.from)*(x.to-x.from+1))), int64(x.to))
	}
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 9, 64), 64)
	if err != nil || short < x.from || short > x.to {
		return v
	}
	return short
}
