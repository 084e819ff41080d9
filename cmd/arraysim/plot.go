package main

import (
	"fmt"
	"math"
	"strings"
)

// plotWidth and plotHeight are the characters of a plot in the terminal.
const (
	plotWidth  = 64
	plotHeight = 10
)

// plot draws values from zero up as a line of characters, with an axis on the left. More values
// than columns are their means.
func plot(values []float64, caption string) string {
	columns := make([]float64, min(len(values), plotWidth))
	top := 0.0
	for i := range columns {
		from, to := i*len(values)/len(columns), (i+1)*len(values)/len(columns)
		for _, v := range values[from:to] {
			columns[i] += v / float64(to-from)
		}
		top = max(top, columns[i])
	}
	if top == 0 {
		top = 1
	}
	row := func(i int) int { return int(math.Round(columns[i] / top * plotHeight)) }
	var b strings.Builder
	for r := plotHeight; r >= 0; r-- {
		fmt.Fprintf(&b, "%10.2f \u2524", top*float64(r)/plotHeight)
		line := make([]rune, len(columns))
		for i := range columns {
			was, now := row(max(i-1, 0)), row(i)
			switch {
			case was == now && r == now:
				line[i] = '\u2500'
			case r == now && now > was:
				line[i] = '\u256d'
			case r == now:
				line[i] = '\u2570'
			case r == was && now > was:
				line[i] = '\u256f'
			case r == was:
				line[i] = '\u256e'
			case r > min(was, now) && r < max(was, now):
				line[i] = '\u2502'
			default:
				line[i] = ' '
			}
		}
		b.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	fmt.Fprintf(&b, "%12s%s", "", caption)
	return b.String()
}
