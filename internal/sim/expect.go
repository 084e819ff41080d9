package sim

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/arraysim/arraysim/internal/profile"
)

// Kind says what it means that an expectation holds.
type Kind string

// The kinds of expectation.
const (
	// Predicted is what a source or a law says and no parameter was set by: it shows that a
	// mechanism is right.
	Predicted Kind = "predicted"
	// Fitted is what a parameter was set by: it shows that such a value exists.
	Fitted Kind = "fitted"
	// Input was typed into a job or a profile: it shows that the run is the one that is meant.
	Input Kind = "input"
	// Pinned is what nobody published: it shows that the model is what it was.
	Pinned Kind = "pinned"
)

// Kinds are all kinds, in the order in which they are counted.
var Kinds = []Kind{Predicted, Fitted, Input, Pinned}

// Expect is a figure that a run must have.
type Expect struct {
	What string `yaml:"what"`
	Kind Kind   `yaml:"kind" jsonschema:"enum=predicted,enum=fitted,enum=input,enum=pinned"`
	// Fitted are the parameters that were set by this figure, From those among them that a
	// predicted figure follows from, too: keys as Set takes them, or keys of the array's profile.
	Fitted []string `yaml:"fitted"`
	From   []string `yaml:"from"`
	Case   string   `yaml:"case"`
	// Value is the figure's name, taken over the interval that ends At and is Over long.
	Value string   `yaml:"value"`
	At    Duration `yaml:"at"`
	Over  Duration `yaml:"over"`
	// Document is the published figure, as written there; "-" is none.
	Document string   `yaml:"document" jsonschema:"oneof_type=string;number"`
	Want     *float64 `yaml:"want"`
	Within   float64  `yaml:"within"` // percent of Want
	Min      *float64 `yaml:"min"`
	Max      *float64 `yaml:"max"`
	// Times is another figure by which Want, Min and Max are multiplied, of TimesCase and over the
	// interval that ends TimesAt, if these are given.
	Times     string   `yaml:"times"`
	TimesCase string   `yaml:"times_case"`
	TimesAt   Duration `yaml:"times_at"`
}

// check returns what is wrong with an expectation, and how to mend it.
func (e *Expect) check() error {
	published := e.Document != "" && e.Document != "-"
	switch {
	case e.Kind == "":
		return errors.New("has no kind; add kind: predicted, fitted, input or pinned")
	case e.Kind == Fitted && len(e.Fitted) == 0:
		return errors.New("is fitted and does not say to which parameters; add fitted: with the keys of the parameters that it set")
	case e.Kind != Fitted && len(e.Fitted) > 0:
		return fmt.Errorf("is %s and names parameters that were fitted to it; make its kind fitted", e.Kind)
	case e.Kind != Predicted && len(e.From) > 0:
		return fmt.Errorf("is %s and follows from others; only a predicted one can", e.Kind)
	case !published && (e.Kind == Predicted || e.Kind == Fitted):
		return fmt.Errorf("is %s, but its document says nothing about it; make it pinned", e.Kind)
	case e.Want == nil && e.Min == nil && e.Max == nil:
		return errors.New("has no want, min or max")
	}
	return nil
}

// checkExpect looks at each expectation for itself; the text of the scenario is for the line.
func (s *Scenario) checkExpect(text []byte) error {
	for i := range s.Expect {
		if err := s.Expect[i].check(); err != nil {
			return expectError(text, i, &s.Expect[i], err)
		}
	}
	return nil
}

func expectError(text []byte, i int, e *Expect, err error) error {
	where := ""
	if p, bad := yaml.PathString(fmt.Sprintf("$.expect[%d]", i)); bad == nil {
		if n, bad := p.ReadNode(bytes.NewReader(text)); bad == nil && n.GetToken() != nil {
			where = fmt.Sprintf(" in line %d", n.GetToken().Position.Line)
		}
	}
	what := e.What
	if e.Case != "" {
		what = e.Case + ": " + what
	}
	return fmt.Errorf("expectation %d%s (%s) %w", i+1, where, what, err)
}

// checkParameters finds the parameters that were fitted, and gives those of a profile its name.
func (s *Scenario) checkParameters(text []byte) error {
	byCase := map[string]*Scenario{"": s}
	resolve := func(i int, keys []string) error {
		e := &s.Expect[i]
		if len(keys) > 0 && byCase[e.Case] == nil {
			k := slices.IndexFunc(s.Cases, func(c Case) bool { return c.Name == e.Case })
			if k < 0 {
				return expectError(text, i, e, fmt.Errorf("names the case %q, which does not exist", e.Case))
			}
			c, err := s.Case(s.Cases[k])
			if err != nil {
				return fmt.Errorf("case %s: %w", e.Case, err)
			}
			byCase[e.Case] = c
		}
		for k := range keys {
			name, ok := byCase[e.Case].parameter(keys[k])
			if !ok {
				return expectError(text, i, e, fmt.Errorf("names the parameter %q; there is no such key, neither in the scenario nor in the profile of its arrays", keys[k]))
			}
			keys[k] = name
		}
		return nil
	}
	fitted := map[string]bool{}
	for i := range s.Expect {
		if err := resolve(i, s.Expect[i].Fitted); err != nil {
			return err
		}
		for _, k := range s.Expect[i].Fitted {
			fitted[k] = true
		}
	}
	for i := range s.Expect {
		if err := resolve(i, s.Expect[i].From); err != nil {
			return err
		}
		for _, k := range s.Expect[i].From {
			if !fitted[k] {
				return expectError(text, i, &s.Expect[i], fmt.Errorf("follows from %s, to which nothing is fitted", k))
			}
		}
	}
	return nil
}

// parameter finds a key in the scenario or in the profile of an array, and returns its full name.
func (s *Scenario) parameter(key string) (string, bool) {
	if profile.HasPath(s.tree, key) {
		return key, true
	}
	for i := range s.Arrays {
		a := &s.Arrays[i]
		p, err := s.profileOf(a)
		if err != nil {
			continue
		}
		text, err := yaml.Marshal(p)
		if err != nil {
			continue
		}
		var tree any
		if yaml.Unmarshal(text, &tree) == nil && profile.HasPath(tree, key) {
			return a.Profile + ":" + key, true
		}
	}
	return "", false
}

// Outcome is an expectation against a run's figure.
type Outcome struct {
	What       string   `json:"what"`
	Kind       Kind     `json:"kind"`
	Fitted     []string `json:"fitted,omitempty"`
	From       []string `json:"from,omitempty"`
	Case       string   `json:"case,omitempty"`
	Document   string   `json:"document"`
	Want       string   `json:"want"`
	Ours       float64  `json:"ours"`
	Difference string   `json:"difference"`
	OK         bool     `json:"ok"`
	Problem    string   `json:"problem,omitempty"`
	// Of several runs: how many, and half the width of the 95 % interval of their mean.
	Replicates int     `json:"replicates,omitempty"`
	Half       float64 `json:"half,omitempty"`
}

// Compare returns what the expectations of a scenario say about its runs, by case name.
func Compare(expect []Expect, runs map[string]*Run) []Outcome {
	var out []Outcome
	for _, e := range expect {
		out = append(out, e.compare(runs))
	}
	return out
}

// figures returns the expectation's figure of these runs, and what its bounds are multiplied with.
func (e *Expect) figures(runs map[string]*Run) (v, factor float64, err error) {
	run := func(name string) *Run {
		if r := runs[name]; r != nil {
			return r
		}
		if len(runs) == 1 && name == "" {
			return runs[sortedKeys(runs)[0]]
		}
		return nil
	}
	r := run(e.Case)
	if r == nil {
		return 0, 0, fmt.Errorf("there is no run of case %q", e.Case)
	}
	if v, err = r.Value(e.Value, e.At, e.Over); err != nil || e.Times == "" {
		return v, 1, err
	}
	name, at := e.TimesCase, e.TimesAt
	if name == "" {
		name = e.Case
	}
	if at == 0 {
		at = e.At
	}
	q := run(name)
	if q == nil {
		return 0, 0, fmt.Errorf("there is no run of case %q", name)
	}
	if factor, err = q.Value(e.Times, at, e.Over); err == nil && factor == 0 {
		err = fmt.Errorf("%s, to which it is relative, is 0", e.Times)
	}
	return v, factor, err
}

func (e *Expect) outcome() Outcome {
	return Outcome{What: e.What, Kind: e.Kind, Fitted: e.Fitted, From: e.From, Case: e.Case, Document: e.Document}
}

func (e *Expect) compare(runs map[string]*Run) Outcome {
	o := e.outcome()
	v, factor, err := e.figures(runs)
	if err != nil {
		o.Problem = err.Error()
		return o
	}
	o.Ours, o.OK = v, e.holds(v, factor)
	o.Want = e.bounds(factor)
	if e.Want != nil {
		o.Difference = difference(v, *e.Want*factor)
	}
	return o
}

// difference prints how far a figure is from what is wanted, in percent of that; from 0 it is the figure.
func difference(v, want float64) string {
	if want == 0 {
		return fmt.Sprintf("%+.3g", v)
	}
	return fmt.Sprintf("%+.1f %%", (v-want)/want*100)
}

// holds tells whether a figure is within the bounds.
func (e *Expect) holds(v, factor float64) bool {
	ok := !math.IsNaN(v)
	if e.Want != nil {
		want := *e.Want * factor
		ok = ok && math.Abs(v-want) <= math.Abs(want)*e.Within/100
	}
	if e.Min != nil {
		ok = ok && v >= *e.Min*factor
	}
	if e.Max != nil {
		ok = ok && v <= *e.Max*factor
	}
	return ok
}

// bounds prints what is expected.
func (e *Expect) bounds(factor float64) string {
	var out []string
	if e.Want != nil {
		out = append(out, fmt.Sprintf("%s +-%g %%", figure(*e.Want*factor), e.Within))
	}
	if e.Min != nil {
		out = append(out, ">= "+figure(*e.Min*factor))
	}
	if e.Max != nil {
		out = append(out, "<= "+figure(*e.Max*factor))
	}
	return strings.Join(out, " ")
}
