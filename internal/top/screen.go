package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/arraysim/arraysim/internal/admin"
)

// help says what the keys do and what the heads mean.
var help = []string{
	"v p h o i n volumes, pools, hosts, offloads by volume, offloads in flight, nodes; Tab the next view",
	"< >         sort by the column to the left or right; r reverses the order",
	"u           sort by UNDERCOVER",
	"/           show only rows with a text; Enter keeps it, Esc clears it",
	"z           hide idle rows, or show them again",
	"space       pause, and resume",
	"j k         scroll, as do the arrows and the page keys",
	"q           quit",
	"",
	"UNDERCOVER  what offloads wrote below the host layer: no host sent it over the wire",
	"DESCRIBED   what offload commands covered, as hosts count it",
	"LAT         mean time from a command to its status since the last reading; - if there was none",
	"P99         of reads and writes, in the worst second; - where the history has none",
	"CACHE       what a volume holds of the write cache; %CAP is its share of the pool's cap",
	"COPYING     data copies under way",
	"»2          two columns do not fit: widen the terminal, or sort by one to see it",
	"",
	"MB is 10^6 bytes, MiB 2^20. Rates are a second, over the interval on the second line.",
}

// helpLines are those of the help for a screen of this many lines.
func helpLines(room int) []string { return help[:min(len(help), room)] }

// standing are the figures that an object has while it rests; all others make it busy.
var standing = []string{"cache_limit_bytes", "commands", "failed", "operations", "id", "epoch"}

// busy leaves only the rows that do something or hold something.
func (t *table) busy() {
	t.rows = slices.DeleteFunc(t.rows, func(r []cell) bool {
		for i, c := range r {
			if c.n > 0 && !slices.Contains(standing, t.columns[i].name) {
				return false
			}
		}
		return true
	})
}

// givesWay lists columns in the order in which they give way where the screen is narrow. Last is what tells who holds
// the cache and who waits for it.
var givesWay = []string{"DESCRIBED MB/s", "READ MB/s", "POOL", "CMD/s", "QUEUE", "WRITE MB/s", "CACHE", "P99 ms", "%CAP", "LAT ms",
	"BE READ MB/s", "PINNED", "BE QUEUE", "BE WRITE MB/s", "CAP"}

// give leaves out columns until a line of these widths fits, and returns how many: those of givesWay in their order, then
// the last ones first. The name, what stands out and the column sorted by stay.
func (t *table) give(width []int, sorted, room int) (kept []bool, hidden int) {
	kept = make([]bool, len(width))
	need := -1
	for i, w := range width {
		kept[i] = true
		need += w + 1
	}
	const mark = 4
	leave := func(i int) {
		if i > 0 && kept[i] && i != sorted && !t.columns[i].alarm && need > room-min(hidden, 1)*mark {
			kept[i] = false
			need -= width[i] + 1
			hidden++
		}
	}
	for _, head := range givesWay {
		leave(slices.IndexFunc(t.columns, func(c column) bool { return c.head == head }))
	}
	for i := len(width) - 1; i > 0; i-- {
		leave(i)
	}
	return kept, hidden
}

const barCells = 5

// showShare is a percentage with a bar in front of it.
func showShare(n float64) string {
	full := min(barCells, int(n*barCells/100+0.5))
	if n > 0 {
		full = max(full, 1)
	}
	full = max(full, 0)
	return strings.Repeat("█", full) + strings.Repeat("░", barCells-full) + fmt.Sprintf("%4.0f", n)
}

// line lays out the columns that are kept of a row, or of the heads when there is none.
func (m *model) line(t table, width []int, kept []bool, r []cell) string {
	var parts []string
	for i, c := range t.columns {
		if !kept[i] {
			continue
		}
		text := c.head
		if r != nil {
			text = r[i].string(c)
		} else if i == m.sort[m.view] {
			text += "▾"
			if m.reverse {
				text = c.head + "▴"
			}
		}
		gap := strings.Repeat(" ", max(0, width[i]-lipgloss.Width(text)))
		if c.show == nil {
			parts = append(parts, text+gap)
		} else {
			parts = append(parts, gap+text)
		}
	}
	return strings.Join(parts, " ")
}

// head is the line of heads, with a mark at its end for columns that gave way.
func (m *model) head(t table, width []int, kept []bool, hidden int) string {
	text := m.line(t, width, kept, nil)
	if hidden == 0 {
		return m.pad(text)
	}
	mark := fmt.Sprintf(" »%d", hidden)
	r := []rune(admin.Printable(text))
	for len(r) > 0 && lipgloss.Width(string(r))+lipgloss.Width(mark) > m.width {
		r = r[:len(r)-1]
	}
	gap := max(0, m.width-lipgloss.Width(string(r))-lipgloss.Width(mark))
	return string(r) + strings.Repeat(" ", gap) + mark
}
