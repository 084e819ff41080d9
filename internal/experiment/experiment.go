// Package experiment carries out simulations as people ask for them: a scenario from a file, with other settings, its cases
// times the values of a sweep, side by side and watched. It has the experiments that are no scenario of somebody's, too:
// fio's result beside the simulated one, and the move of a machine with its cache.
//
// What a run computes is package sim's. Here are the files and the wall clock.
package experiment

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/arraysim/arraysim/internal/fio"
	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/size"
)

// Setting is a value of a scenario's setting, as text: the key is a path such as arrays.svc.cache.
type Setting struct{ Key, Value string }

// Load reads a scenario from a file, with the policies that it has in WebAssembly modules beside it. A file whose name
// ends in .fio is a job file of fio, which runs against a volume of an array of the profile; notes say what of it was
// left out.
func Load(path, profile string) (s *sim.Scenario, notes []string, err error) {
	text, err := size.ReadFile(path, size.MaxDocument)
	if err != nil {
		return nil, nil, fmt.Errorf("scenario: %w; give the path of a YAML file", err)
	}
	if strings.HasSuffix(path, ".fio") {
		var jobs []fio.Job
		if jobs, err = fio.ParseJobs(string(text)); err == nil {
			text, notes, err = fio.Scenario(jobs, fio.Array{Profile: profile, Mdisks: 1})
		}
	}
	if err == nil {
		s, err = sim.Parse(text)
	}
	if err != nil {
		return nil, notes, fmt.Errorf("%s: %w", path, err)
	}
	loadModules(s, filepath.Dir(path))
	return s, notes, nil
}

// Apply returns the scenario with these settings.
func Apply(s *sim.Scenario, settings []Setting) (*sim.Scenario, error) {
	for _, x := range settings {
		v, err := sim.ParseValue(x.Value)
		if err != nil {
			return nil, err
		}
		if s, err = s.Set(x.Key, v); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Choice says which runs of a scenario there are: those of its cases that are named, or all, times every combination of
// the axes' values.
type Choice struct {
	Cases []string
	Axes  []Axis
}

// Axis is a setting with the values that it takes, as text.
type Axis struct {
	Key    string
	Values []string
}

// Grid returns the runs in their order, each with a name of its own. It is an error if there is one twice.
func (c *Choice) Grid(s *sim.Scenario) ([]*sim.Scenario, error) {
	runs, err := s.Runs()
	if err != nil {
		return nil, err
	}
	if len(c.Cases) > 0 {
		byName := map[string]*sim.Scenario{}
		for _, r := range runs {
			byName[r.Name] = r
		}
		runs = nil
		for _, name := range c.Cases {
			if byName[name] == nil {
				return nil, fmt.Errorf("there is no case %q", name)
			}
			runs = append(runs, byName[name])
		}
	}
	for _, axis := range c.Axes {
		var next []*sim.Scenario
		for _, r := range runs {
			for _, text := range axis.Values {
				one, err := Apply(r, []Setting{{axis.Key, text}})
				if err != nil {
					return nil, err
				}
				last := axis.Key[strings.LastIndexByte(axis.Key, '.')+1:]
				one.Name = strings.TrimSpace(r.Name + " " + last + "=" + text)
				next = append(next, one)
			}
		}
		runs = next
	}
	seen := map[string]bool{}
	for _, r := range runs {
		if seen[r.Name] {
			return nil, fmt.Errorf("the run %q appears twice; give each case and each value once", r.Name)
		}
		seen[r.Name] = true
	}
	return runs, nil
}

// Expected returns the expectations of the cases that run.
func (c *Choice) Expected(s *sim.Scenario) []sim.Expect {
	if len(c.Cases) == 0 {
		return s.Expect
	}
	var out []sim.Expect
	for _, e := range s.Expect {
		for _, name := range c.Cases {
			if e.Case == name {
				out = append(out, e)
			}
		}
	}
	return out
}

// Begun leaves out of a grid what has no run, because it was interrupted before.
func Begun(grid []*sim.Scenario, runs []*sim.Run) (begun []*sim.Scenario, those []*sim.Run) {
	for i, r := range runs {
		if r != nil {
			begun, those = append(begun, grid[i]), append(those, r)
		}
	}
	return begun, those
}

// Compare holds the runs of a grid to expectations.
func Compare(expect []sim.Expect, grid []*sim.Scenario, runs []*sim.Run) []sim.Outcome {
	return sim.Compare(expect, byCase(grid, runs))
}

func byCase(grid []*sim.Scenario, runs []*sim.Run) map[string]*sim.Run {
	out := map[string]*sim.Run{}
	for i, r := range runs {
		out[grid[i].Name] = r
	}
	return out
}

// Replicate runs all cases with n seeds, from the scenario's on, and returns what the expectations say of the means. No run
// is kept.
func Replicate(ctx context.Context, s *sim.Scenario, c *Choice, n int, w Work) ([]sim.Outcome, error) {
	all := sim.NewReplicates(c.Expected(s))
	for i := range n {
		seed := s.Seed + uint64(i)
		one, err := s.Set("seed", seed)
		if err != nil {
			return nil, err
		}
		grid, err := c.Grid(one)
		if err != nil {
			return nil, err
		}
		runs, err := w.Run(ctx, grid)
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted in the run with seed %d of %d to %d", seed, s.Seed, s.Seed+uint64(n)-1)
		}
		all.Add(seed, byCase(grid, runs))
	}
	return all.Outcomes(), nil
}

// Folder is where one of so many runs leaves its files: dir itself, or a folder in it that is named after the run.
func Folder(dir string, runs int, s *sim.Scenario) string {
	if runs <= 1 {
		return dir
	}
	return filepath.Join(dir, strings.Map(func(c rune) rune {
		if c == '/' || c == ' ' {
			return '_'
		}
		return c
	}, s.Name))
}

// CheckFolders refuses runs that would not each have a folder of their own in dir.
func CheckFolders(dir string, grid []*sim.Scenario) error {
	if len(grid) <= 1 {
		return nil
	}
	if hasRun(dir) || exists(filepath.Join(dir, wholeFolder)) {
		return fmt.Errorf("%s has the files of a single run; give another --out for the folders of %d", dir, len(grid))
	}
	of := map[string]string{}
	for _, s := range grid {
		at := Folder(dir, len(grid), s)
		if s.Name == "" || s.Name == "." || s.Name == ".." {
			return fmt.Errorf("a run called %q cannot have a folder in %s; rename its case", s.Name, dir)
		}
		if other, ok := of[at]; ok {
			return fmt.Errorf("the runs %q and %q would both leave their files in %s; rename one", other, s.Name, at)
		}
		of[at] = s.Name
	}
	return nil
}
