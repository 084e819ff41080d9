package lab

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/arraysim/arraysim/internal/sim"
)

// Compare runs the scenario once with each value of a setting, and writes a table of figures: a row for each
// value, a column for each figure. key is a path as in `arraysim sim --set`, such as hosts.h.cache.db.eviction;
// what is in a list goes by its name, a cache without one by its volume, or by its number from 0. The value ""
// means what the scenario does without the setting. Figures have the names of [Result.Value]; one that a run does not
// have is an error, and nothing is written then.
func (s *Scenario) Compare(ctx context.Context, w io.Writer, key string, values []string, figures ...string) error {
	text, err := s.YAML()
	if err != nil {
		return err
	}
	c, err := parse(text, s.Plugged)
	if err != nil {
		return err
	}
	cols := make([]sim.Column, len(figures))
	for i, f := range figures {
		cols[i] = sim.Column{Title: f, Value: f}
	}
	grid, runs := make([]*sim.Scenario, len(values)), make([]*sim.Run, len(values))
	for i, value := range values {
		if grid[i], err = c.Set(key, value); err != nil {
			return err
		}
		if grid[i].Name = value; value == "" {
			grid[i].Name = "default"
		}
		res, err := runScenario(ctx, grid[i])
		if err != nil {
			return fmt.Errorf("%s %q: %w", key, value, err)
		}
		for _, f := range figures {
			if _, err := res.Value(f); err != nil {
				return fmt.Errorf("%s %q: %w", key, value, err)
			}
		}
		runs[i] = res.r
	}
	sim.WriteTable(w, cols, grid, runs)
	return nil
}

// Main is the main function of a program that compares policies: it writes Compare's table to standard output.
// An error goes to standard error, and the program exits with status 1.
func Main(s Scenario, key string, values []string, figures ...string) {
	log.SetFlags(0)
	if err := s.Compare(context.Background(), os.Stdout, key, values, figures...); err != nil {
		log.Fatal(err)
	}
}
