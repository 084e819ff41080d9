// Package top shows what an array does between two readings of its counters, as esxtop does: the views with their
// rates, the screen with its keys, and the same as CSV.
package top

import (
	"context"
	"encoding/csv"
	"io"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/arraysim/arraysim/internal/admin"
)

// Views are the names of the views.
var Views = []string{"volumes", "pools", "hosts", "offloads", "running", "nodes"}

// Batch writes a view as CSV to out: after each interval a line for every object, in base units. It ends after count
// intervals, or, if count is 0, with the first error of the array or of out.
func Batch(ctx context.Context, array *admin.Client, out io.Writer, view string, interval time.Duration, count int) error {
	last, err := read(ctx, array, view, interval)
	if err != nil {
		return err
	}
	t := time.NewTicker(interval)
	defer t.Stop()
	w := csv.NewWriter(out)
	for n := 0; count == 0 || n < count; n++ {
		<-t.C
		now, err := read(ctx, array, view, interval)
		if err != nil {
			return err
		}
		table := newTable(view, last, now)
		if n == 0 {
			if err := table.heads(w); err != nil {
				return err
			}
		}
		if err := table.lines(w, time.Now()); err != nil {
			return err
		}
		last = now
	}
	return nil
}

// Run shows the screen on the terminal of the process until the user leaves it or ctx ends.
func Run(ctx context.Context, array *admin.Client, view string, interval time.Duration) error {
	m := newModel(view, interval, func(view string) (reading, error) { return read(ctx, array, view, interval) })
	first, err := m.read(view)
	if err != nil {
		return err
	}
	m.last, m.now = first, first
	_, err = tea.NewProgram(m, tea.WithAltScreen(), tea.WithContext(ctx)).Run()
	return err
}
