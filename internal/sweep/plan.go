// Package sweep runs a scenario with many values of its parameters, on one machine or many, and keeps
// one row a run in Parquet files.
//
// A [Plan] says which runs there are: cases, a grid, random points, seeds. Each run has a hash of all
// that determines its figures: the scenario, the values, the seed, the version of the program. A [Dir]
// holds rows by their hash, so that work can be divided in any way, repeated and resumed, and the rows
// put together in the end ([Plan.Merge]) are the same bytes however that was done.
package sweep

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/size"
	"github.com/arraysim/arraysim/internal/tidy"
)

// File is what the file of a plan says.
type File struct {
	// Scenario is the path of the scenario, from the plan's own folder.
	Scenario string `yaml:"scenario"`
	// Cases are those of the scenario to run; without any, all of them.
	Cases []string `yaml:"cases"`
	// Seed is the first seed (default: the scenario's), Seeds how many follow each other (default: 1).
	Seed  uint64 `yaml:"seed"`
	Seeds int    `yaml:"seeds"`
	// Grid has lists of values by setting: every combination is run.
	Grid map[string][]any `yaml:"grid"`
	// Random has points with random values; each is run with every combination of the grid.
	Random *Random `yaml:"random"`
	// Figures are the figures of a row by their names, as in expectations; without any, all main ones.
	Figures []string `yaml:"figures"`
}

// maxRuns bounds a plan, so that a slip of a digit is an error and not a week.
const maxRuns = 100_000_000

// Plan is a sweep: a numbered list of runs.
type Plan struct {
	file    File
	base    *sim.Scenario
	version string
	digest  [sha256.Size]byte // of all that the runs have in common
	cases   []string          // at least one, "" if the scenario has none
	keys    []string          // of the grid, sorted
	params  []parameter       // by key, sorted
	figures []string
	points  []int // of the random points those that differ, by their numbers; nil is all
	total   int
	broken  map[string]error // profiles in files that are none
}

// Load reads a plan. A scenario that is given takes the place of the plan's. The version is that of the
// program: rows of another one are not taken for this one's.
func Load(path, scenario, version string) (*Plan, error) {
	text, err := size.ReadFile(path, size.MaxDocument)
	if err != nil {
		return nil, fmt.Errorf("sweep: %w; give the path of a YAML file", err)
	}
	var f File
	if err := profile.DecodeYAML(text, &f); err != nil {
		return nil, fmt.Errorf("sweep %s: %w", path, err)
	}
	switch {
	case scenario != "":
	case f.Scenario == "":
		return nil, fmt.Errorf("sweep %s: it names no scenario; add scenario: PATH, or give one on the command line", path)
	case filepath.IsAbs(f.Scenario):
		scenario = f.Scenario
	default:
		scenario = filepath.Join(filepath.Dir(path), f.Scenario)
	}
	if text, err = size.ReadFile(scenario, size.MaxDocument); err != nil {
		return nil, fmt.Errorf("sweep %s: scenario: %w", path, err)
	}
	s, err := sim.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", scenario, err)
	}
	p, err := New(f, s, version)
	if err != nil {
		return nil, fmt.Errorf("sweep %s: %w", path, err)
	}
	return p, nil
}

// New makes a plan over a scenario.
func New(f File, s *sim.Scenario, version string) (*Plan, error) {
	p := &Plan{file: f, base: s, version: version, cases: f.Cases, keys: slices.Sorted(maps.Keys(f.Grid))}
	if f.Seed == 0 {
		p.file.Seed = s.Seed
	}
	if p.file.Seeds = max(f.Seeds, 1); f.Seeds < 0 || f.Seeds > maxRuns {
		return nil, fmt.Errorf("seeds: %d is not possible; give 1 or more", f.Seeds)
	}
	if len(p.cases) == 0 {
		for _, c := range s.Cases {
			p.cases = append(p.cases, c.Name)
		}
	}
	for _, name := range f.Cases {
		if !slices.ContainsFunc(s.Cases, func(c sim.Case) bool { return c.Name == name }) {
			return nil, fmt.Errorf("cases: the scenario has no case %q", name)
		}
	}
	if len(p.cases) == 0 {
		p.cases = []string{""}
	}
	p.cases = distinct(p.cases)
	if err := p.addParameters(); err != nil {
		return nil, err
	}
	if err := p.count(); err != nil {
		return nil, err
	}
	if err := p.drawPoints(); err != nil {
		return nil, err
	}
	if err := p.hashBase(); err != nil {
		return nil, err
	}
	return p, p.probe()
}

// distinct leaves out what appears again: the same values are the same run, in whichever shard. Values are the same if they
// are as JSON, which a run's hash is of: 1 and 1.0 are.
func distinct[T any](list []T) []T {
	seen := map[string]bool{}
	var out []T
	for _, v := range list {
		b, err := json.Marshal(v)
		if err != nil {
			b = fmt.Appendf(nil, "%T %v", v, v) // YAML has keys that JSON has not
		}
		if !seen[string(b)] {
			seen[string(b)] = true
			out = append(out, v)
		}
	}
	return out
}

func (p *Plan) addParameters() error {
	p.file.Grid = maps.Clone(p.file.Grid)
	for _, k := range p.keys {
		p.file.Grid[k] = distinct(p.file.Grid[k])
		if len(p.file.Grid[k]) == 0 {
			return fmt.Errorf("grid: %s has no values", k)
		}
		if err := possible(p.file.Grid[k]); err != nil {
			return fmt.Errorf("grid: %s: %w", k, err)
		}
		p.params = append(p.params, newParameter(k, p.file.Grid[k]))
	}
	if r := p.file.Random; r != nil {
		if r.Points < 1 || len(r.Parameters) == 0 {
			return errors.New("random: it needs points, 1 or more, and parameters")
		}
		for _, k := range slices.Sorted(maps.Keys(r.Parameters)) {
			if _, twice := p.file.Grid[k]; twice {
				return fmt.Errorf("random: %s is in the grid, too", k)
			}
			x := r.Parameters[k]
			if err := x.check(); err != nil {
				return fmt.Errorf("random: %s: %w", k, err)
			}
			r.Parameters[k] = x
			p.params = append(p.params, newParameter(k, x.examples()))
		}
		if n := r.combinations(); float64(r.Points) > n {
			return fmt.Errorf("random: %d points have %.0f values to choose from, and would repeat each other; put the values into the grid", r.Points, n)
		}
	}
	slices.SortFunc(p.params, func(a, b parameter) int { return strings.Compare(a.key, b.key) })
	for _, x := range p.params {
		if x.key == "seed" || slices.ContainsFunc(fixed, func(c tidy.Column) bool { return c.Name == x.column.Name }) {
			return fmt.Errorf("%s is not a parameter; use seed and seeds, or cases", x.key)
		}
	}
	return nil
}

// count multiplies what the runs are made of.
func (p *Plan) count() error {
	p.total = 1
	factors := []int{len(p.cases), p.file.Seeds}
	if p.file.Random != nil {
		factors = append(factors, p.file.Random.Points)
	}
	for _, k := range p.keys {
		factors = append(factors, len(p.file.Grid[k]))
	}
	for _, f := range factors {
		if f > 0 && p.total > maxRuns/f {
			return fmt.Errorf("the plan has more than %d runs; make it smaller", maxRuns)
		}
		p.total *= f
	}
	return nil
}

// likelyRepeats is how many repeated points a plan is expected to draw from which on they are looked for. Below, one that
// comes all the same is a run that is carried out twice, with the same row.
const likelyRepeats = 1e-3

// drawPoints looks for random points that differ, where repeats are likely: of p points among n, p(p-1)/2n.
func (p *Plan) drawPoints() error {
	x := p.file.Random
	if x == nil {
		return nil
	}
	if points := float64(x.Points); points*(points-1)/2 < likelyRepeats*x.combinations() {
		return nil
	}
	seen := map[[16]byte]bool{}
	for n := 0; len(p.points) < x.Points; n++ {
		if n > 100*x.Points+1000 {
			return fmt.Errorf("random: %d points of %.0f are too many to draw at random; put the values into the grid", x.Points, x.combinations())
		}
		values, err := json.Marshal(x.point(n))
		if err != nil {
			return fmt.Errorf("random: %w", err)
		}
		h := sha256.Sum256(values)
		if key := [16]byte(h[:16]); !seen[key] {
			seen[key] = true
			p.points = append(p.points, n)
		}
	}
	return nil
}

// hashBase hashes what all runs have in common, the contents of profiles in files included.
func (p *Plan) hashBase() error {
	files := map[string]string{}
	p.broken = map[string]error{}
	profiles := maps.Clone(p.base.Profiles)
	if profiles == nil {
		profiles = map[string]*profile.Profile{}
	}
	add := func(name string) error {
		if !strings.HasSuffix(name, ".yaml") || profiles[name] != nil {
			return nil
		}
		b, err := size.ReadFile(name, size.MaxDocument)
		if err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		files[name] = string(b)
		x, err := profile.Parse(b)
		if err != nil { // the runs that take it say so, whatever becomes of the file
			p.broken[name] = fmt.Errorf("profile %s: %w", name, err)
			return nil
		}
		profiles[name] = x
		return nil
	}
	errs := []error{add(p.base.Profile)}
	for _, a := range p.base.Arrays {
		errs = append(errs, add(a.Profile))
	}
	var values []any
	for _, k := range p.keys {
		values = append(values, p.file.Grid[k]...)
	}
	if p.file.Random != nil {
		for _, x := range p.file.Random.Parameters {
			values = append(values, x.Choose...)
		}
	}
	for _, c := range p.base.Cases {
		values = append(values, slices.Collect(maps.Values(c.Set))...)
	}
	for _, v := range values {
		if name, ok := v.(string); ok {
			errs = append(errs, add(name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	b, err := json.Marshal(map[string]any{"version": p.version, "scenario": p.base.Tree(), "profiles": files})
	p.digest = sha256.Sum256(b)
	// The runs take what was hashed, whatever becomes of the files meanwhile.
	own := *p.base
	own.Profiles = profiles
	p.base = &own
	return err
}

// probe looks at the first run for mistakes that all have, and for the names of figures.
func (p *Plan) probe() error {
	s, err := p.scenario(p.Run(0))
	if err != nil {
		return err
	}
	r, err := sim.New(s)
	if err != nil {
		return err
	}
	r.Finish()
	main := slices.Sorted(maps.Keys(r.Result().Figures))
	if p.figures = p.file.Figures; len(p.figures) == 0 {
		p.figures = main
	}
	for i, f := range p.figures {
		if slices.Contains(p.figures[:i], f) {
			return fmt.Errorf("figures: %s appears twice", f)
		}
		// A right name may have no value before the run: only what can have none at all is refused here.
		kind, _, _ := strings.Cut(f, ".")
		if !slices.Contains([]string{"job", "host", "volume", "group", "pool", "metric", "cache", "array"}, kind) || !strings.Contains(f, ".") {
			return fmt.Errorf("figures: %q is not the name of a figure, such as %s", f, main[0])
		}
	}
	return nil
}

// Total returns how many runs the plan has.
func (p *Plan) Total() int { return p.total }

// Run is one of a plan.
type Run struct {
	Number int // in the plan, from 0
	Case   string
	Seed   uint64
	Values map[string]any // by setting
	Hash   string
}

// Run returns a run of the plan by its number: cases turn slowest, then the grid by its keys, then the
// random points, and seeds fastest.
func (p *Plan) Run(number int) Run {
	r := Run{Number: number, Values: map[string]any{}}
	rest := number
	digit := func(base int) int {
		d := rest % base
		rest /= base
		return d
	}
	r.Seed = p.file.Seed + uint64(digit(p.file.Seeds))
	if x := p.file.Random; x != nil {
		point := digit(x.Points)
		if p.points != nil {
			point = p.points[point]
		}
		maps.Copy(r.Values, x.point(point))
	}
	for _, k := range slices.Backward(p.keys) {
		r.Values[k] = p.file.Grid[k][digit(len(p.file.Grid[k]))]
	}
	r.Case = p.cases[digit(len(p.cases))]
	b, err := json.Marshal([]any{r.Case, r.Values, r.Seed})
	if err != nil {
		panic("sweep: internal error: " + err.Error()) // addParameters has refused what JSON does not have
	}
	h := sha256.Sum256(append(p.digest[:], b...))
	r.Hash = hex.EncodeToString(h[:16])
	return r
}

// scenario returns the scenario of a run.
func (p *Plan) scenario(r Run) (*sim.Scenario, error) {
	s := p.base
	for _, c := range s.Cases {
		if c.Name == r.Case {
			var err error
			if s, err = s.Case(c); err != nil {
				return nil, fmt.Errorf("case %s: %w", c.Name, err)
			}
			break
		}
	}
	values := maps.Clone(r.Values)
	values["seed"] = r.Seed
	s, err := s.SetAll(values)
	if err != nil {
		return nil, err
	}
	errs := []error{p.broken[s.Profile]}
	for _, a := range s.Arrays {
		errs = append(errs, p.broken[a.Profile])
	}
	return s, errors.Join(errs...)
}
