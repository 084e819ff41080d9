package top

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	"github.com/arraysim/arraysim/internal/admin"
)

// model is the state of the screen.
type model struct {
	read      func(view string) (reading, error)
	interval  time.Duration
	last, now reading
	err       error

	view          string
	sort          map[string]int // column, by view
	reverse       bool
	paused        bool
	filter        string
	typing        bool
	help          bool
	hideIdle      bool
	at            int // the first row shown
	width, height int
}

// answer is what the daemon said, or why it said nothing.
type answer struct {
	c   reading
	err error
}

type tick struct{}

func newModel(view string, interval time.Duration, read func(view string) (reading, error)) *model {
	// Who writes below the host layer stands above at first, and what is fullest.
	return &model{read: read, interval: interval, view: view, width: 80, height: 24,
		sort: map[string]int{"volumes": 5, "pools": 3, "hosts": 1, "offloads": 3, "running": 5, "nodes": 0}}
}

func (m *model) wait() tea.Cmd {
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return tick{} })
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.wait() }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tick:
		if m.paused {
			return m, m.wait()
		}
		view := m.view
		return m, func() tea.Msg {
			c, err := m.read(view)
			return answer{c, err}
		}
	case answer:
		m.err = msg.err
		if msg.err == nil && !m.paused {
			m.last, m.now = m.now, msg.c
		}
		return m, m.wait()
	case tea.KeyMsg:
		// Keys that arrive together, over a slow line, come as one message.
		if msg.Type == tea.KeyRunes && len(msg.Runes) > 1 {
			var cmds []tea.Cmd
			for _, r := range msg.Runes {
				cmds = append(cmds, m.key(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}}))
			}
			return m, tea.Batch(cmds...)
		}
		return m, m.key(msg)
	}
	return m, nil
}

func (m *model) key(k tea.KeyMsg) tea.Cmd {
	if m.typing {
		switch k.Type {
		case tea.KeyEnter:
			m.typing = false
		case tea.KeyEsc:
			m.typing, m.filter = false, ""
		case tea.KeyBackspace:
			if r := []rune(m.filter); len(r) > 0 {
				m.filter = string(r[:len(r)-1])
			}
		case tea.KeyRunes, tea.KeySpace:
			m.filter += string(k.Runes)
		case tea.KeyCtrlC:
			return tea.Quit
		}
		return nil
	}
	show := func(view string) {
		m.view, m.at, m.reverse = view, 0, false
	}
	columns := len(newTable(m.view, m.last, m.now).columns)
	if m.help && k.String() != "q" && k.String() != "ctrl+c" {
		m.help = false // any key leaves it, and does nothing else
		return nil
	}
	switch k.String() {
	case "q", "ctrl+c":
		return tea.Quit
	case "v":
		show("volumes")
	case "p":
		show("pools")
	case "h":
		show("hosts")
	case "o":
		show("offloads")
	case "i":
		show("running")
	case "n":
		show("nodes")
	case "tab":
		show(Views[(slices.Index(Views, m.view)+1)%len(Views)])
	case "right", ">":
		m.sort[m.view] = (m.sort[m.view] + 1) % columns
	case "left", "<":
		m.sort[m.view] = (m.sort[m.view] + columns - 1) % columns
	case "u":
		for i, c := range newTable(m.view, m.last, m.now).columns {
			if c.alarm {
				m.sort[m.view] = i
			}
		}
	case "r":
		m.reverse = !m.reverse
	case "?":
		m.help = !m.help
	case "z":
		m.hideIdle, m.at = !m.hideIdle, 0
	case " ":
		m.paused = !m.paused
	case "/":
		m.typing = true
	case "down", "j":
		m.at++
	case "up", "k":
		m.at--
	case "pgdown":
		m.at += m.height
	case "pgup":
		m.at -= m.height
	}
	return nil
}

var (
	headStyle  = lipgloss.NewStyle().Reverse(true)
	alarmStyle = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.AdaptiveColor{Light: "130", Dark: "214"})
	softStyle  = lipgloss.NewStyle().Faint(true)
)

// keys is the last line, on a terminal of 80 columns whole.
const keys = "? help  q quit  v p h o i n view  < > sort  u undercover  / filter  space pause"

// View implements tea.Model.
func (m *model) View() string {
	t := newTable(m.view, m.last, m.now)
	t.keep(m.filter)
	all := len(t.rows)
	if m.hideIdle {
		t.busy()
	}
	t.sort(m.sort[m.view], m.reverse)
	var b strings.Builder
	b.WriteString(m.fit(m.summary()) + "\n")
	b.WriteString(m.fit(m.state(len(t.rows), all)) + "\n")
	room := max(1, m.height-4)
	if m.help {
		b.WriteString(headStyle.Render(m.pad("Keys and columns")) + "\n")
		lines := helpLines(room)
		for _, l := range lines {
			b.WriteString(m.fit(l) + "\n")
		}
		b.WriteString(strings.Repeat("\n", room-len(lines)))
		b.WriteString(softStyle.Render(m.fit("any key goes back  q quit")))
		return b.String()
	}
	width := t.widths()
	kept, hidden := t.give(width, m.sort[m.view], m.width)
	b.WriteString(headStyle.Render(m.head(t, width, kept, hidden)) + "\n")
	m.at = max(0, min(m.at, len(t.rows)-room))
	shown := t.rows[m.at:min(len(t.rows), m.at+room)]
	for _, r := range shown {
		text := m.fit(m.line(t, width, kept, r))
		for i, c := range t.columns {
			if c.alarm && r[i].n > 0 {
				text = alarmStyle.Render(text)
			}
		}
		b.WriteString(text + "\n")
	}
	b.WriteString(strings.Repeat("\n", room-len(shown))) // the keys stand on the last line
	b.WriteString(softStyle.Render(m.fit(keys)))
	return b.String()
}

// summary says in one line what the array does; 80 columns hold it up to a GB/s.
func (m *model) summary() string {
	rate := rates(m.last, m.now)
	var upper, lower, hidden float64
	old := volumesBefore(m.last.Counters, m.now.Counters)
	for _, v := range m.now.Volumes {
		b := old[v.Volume]
		upper += rate(uint64(b.Written), uint64(v.Written))
		lower += rate(total(b.Admitted), total(v.Admitted))
		hidden += rate(uint64(b.Undercover), uint64(v.Undercover))
	}
	used := admin.Size(0)
	for _, p := range m.now.Pools {
		used += p.CacheUsed
	}
	return fmt.Sprintf("hosts write %s, cache %s, undercover %s MB/s; %s of %s held",
		showRate(upper), showRate(lower), showRate(hidden), used.Human(), m.now.CacheSize.Human())
}

func (m *model) state(rows, all int) string {
	s := fmt.Sprintf("%s: %d, every %v", m.view, rows, m.interval)
	if m.hideIdle {
		s += fmt.Sprintf(", %d idle hidden", all-rows)
	}
	if m.paused {
		s += ", PAUSED"
	}
	if m.filter != "" || m.typing {
		s += ", filter: " + m.filter
	}
	if m.typing {
		s += "_"
	}
	if m.err != nil {
		s = m.err.Error()
	}
	return s
}

// widths returns what each column needs.
func (t *table) widths() []int {
	w := make([]int, len(t.columns))
	for i, c := range t.columns {
		w[i] = lipgloss.Width(c.head) + 1
		for _, r := range t.rows {
			w[i] = max(w[i], lipgloss.Width(r[i].string(c)))
		}
	}
	return w
}

func (c cell) string(col column) string {
	if col.show == nil {
		return admin.Printable(c.text)
	}
	if math.IsNaN(c.n) {
		return "-"
	}
	return col.show(c.n)
}

// fit cuts a line to the screen's width.
func (m *model) fit(s string) string {
	r := []rune(admin.Printable(s))
	for len(r) > 0 && lipgloss.Width(string(r)) > m.width {
		r = r[:len(r)-1]
	}
	return string(r)
}

func (m *model) pad(s string) string {
	s = m.fit(s)
	return s + strings.Repeat(" ", max(0, m.width-lipgloss.Width(s)))
}
