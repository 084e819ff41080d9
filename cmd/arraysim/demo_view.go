package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/demo"
)

// demoRates adds a sample's volumes up, in MB/s.
func demoRates(s *demo.Sample) (written, undercover float64) {
	for _, v := range s.Volumes {
		written += s.Rate(v.Written)
		undercover += s.Rate(v.Undercover)
	}
	return written, undercover
}

// demoShare returns n of the partition's cap, in percent.
func demoShare(s *demo.Sample, n admin.Size) float64 {
	if s.Limit == 0 {
		return 0
	}
	return 100 * float64(n) / float64(s.Limit)
}

// demoLines prints a line a sample, for what is no terminal.
type demoLines struct {
	out   io.Writer
	begun bool
}

func newDemoLines(out io.Writer) *demoLines { return &demoLines{out: out} }

func (l *demoLines) show(s demo.Sample) {
	if !l.begun {
		fmt.Fprintf(l.out, "%7s  %-7s %16s %16s %10s %10s %18s\n", "SECONDS", "PHASE", "HOST WRITE MB/s", "UNDERCOVER MB/s", "CACHE", "OF CLONE", "VICTIM ms (mean)")
		l.begun = true
	}
	written, undercover := demoRates(&s)
	latency := "-"
	if s.Latency.Mean > 0 {
		latency = fmt.Sprintf("%.1f", s.Latency.Mean.Seconds()*1e3)
	}
	fmt.Fprintf(l.out, "%7.1f  %-7s %16.1f %16.1f %8.0f %% %8.0f %% %18s\n", s.Since.Seconds(), s.Phase, written, undercover,
		demoShare(&s, s.Used), demoShare(&s, s.Volumes[1].Dirty), latency)
}

// demoScreen redraws a few lines of a terminal.
type demoScreen struct {
	out     *os.File
	drawn   int             // lines on the screen
	rate    float64         // the highest so far, in MB/s
	slowest time.Duration   // the longest mean latency so far
	history []time.Duration // latencies, one a sample
}

func newDemoScreen(out *os.File) *demoScreen { return &demoScreen{out: out} }

const (
	demoBar = 30 // characters
	// No bar is full below these.
	demoLeastRate    = 20.0
	demoLeastLatency = 20 * time.Millisecond
)

// demoPhases say what happens.
var demoPhases = map[demo.Phase]string{
	demo.Filling: "a host fills " + demo.Golden + " over the wire",
	demo.Before:  "another host writes to " + demo.Victim + ", alone",
	demo.Cloning: demo.Golden + " is cloned to " + demo.Clone + " by XCOPY: no data on the wire",
	demo.After:   "the clone is complete, and " + demo.Victim + " is written alone again",
}

func (d *demoScreen) show(s demo.Sample) {
	written, undercover := demoRates(&s)
	d.rate = max(d.rate, written, undercover, demoLeastRate)
	d.slowest = max(d.slowest, s.Latency.Mean, demoLeastLatency)
	d.history = append(d.history, s.Latency.Mean)
	done := ""
	if s.Total > 0 {
		done = fmt.Sprintf(", %.0f %% of %s", 100*float64(s.Done)/float64(s.Total), s.Total.Human())
	}
	rate := func(head string, n float64) string {
		return fmt.Sprintf("%-12s %7.1f MB/s  %s", head, n, bar(n/d.rate))
	}
	lines := []string{
		fmt.Sprintf("%5.1f s  %s%s", s.Since.Seconds(), demoPhases[s.Phase], done), "",
		rate("HOSTS WRITE", written),
		rate("UNDERCOVER", undercover), "",
		fmt.Sprintf("%-12s %7.0f %%     %s  of pool %s", "WRITE CACHE", demoShare(&s, s.Used), bar(demoShare(&s, s.Used)/100), demo.SharedPool),
		fmt.Sprintf("%-12s %7.0f %%     %s", "  the clone", demoShare(&s, s.Volumes[1].Dirty), bar(demoShare(&s, s.Volumes[1].Dirty)/100)),
		fmt.Sprintf("%-12s %7.0f %%     %s", "  the victim", demoShare(&s, s.Volumes[2].Dirty), bar(demoShare(&s, s.Volumes[2].Dirty)/100)), "",
		fmt.Sprintf("%-12s %7.1f ms    %s  latency of a write of 4 KiB", "VICTIM", s.Latency.Mean.Seconds()*1e3, bar(float64(s.Latency.Mean)/float64(d.slowest))),
		fmt.Sprintf("%26s%s", "", d.spark(2*demoBar)),
	}
	d.draw(lines)
}

// draw replaces what it has drawn before.
func (d *demoScreen) draw(lines []string) {
	width := 80
	if ws, err := unix.IoctlGetWinsize(int(d.out.Fd()), unix.TIOCGWINSZ); err == nil && ws.Col > 0 {
		width = int(ws.Col)
	}
	var b strings.Builder
	if d.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", d.drawn)
	}
	for _, l := range lines {
		if r := []rune(l); len(r) >= width {
			l = string(r[:width-1])
		}
		b.WriteString("\r" + l + "\x1b[K\n")
	}
	d.drawn = len(lines)
	_, _ = io.WriteString(d.out, b.String()) // who has closed the terminal looks at nothing
}

// bar draws a share from 0 to 1, in eighths of a character.
func bar(share float64) string {
	n := int(max(0, min(share, 1))*demoBar*8 + 0.5)
	b := strings.Repeat("█", n/8)
	if n%8 > 0 {
		b += string([]rune(" ▏▎▍▌▋▊▉")[n%8])
	}
	return b + strings.Repeat(" ", demoBar-(n+7)/8)
}

// spark draws the last latencies, a character each.
func (d *demoScreen) spark(width int) string {
	steps := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, l := range d.history[max(0, len(d.history)-width):] {
		b.WriteRune(steps[min(len(steps)-1, int(float64(l)/float64(d.slowest)*float64(len(steps))))])
	}
	return b.String()
}
