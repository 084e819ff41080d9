package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Pictures as SVG files. The page draws the same pictures by ECharts, where a reader can point at
// them; a still picture needs a few hundred lines and no browser. Colours, sizes and marks are those
// of assets/report.js.

// SVGWidth is the width of the pictures that SVG draws, in pixels.
const SVGWidth = 960

const (
	svgText, svgFaint, svgGrid = "#1d1d1f", "#5c5f66", "#dcdfe4"
	svgMark                    = "#d55e00"
	fewPoints                  = 40 // with fewer, samples are steps and have dots
	rowHeight                  = 11.0
	barRow                     = 38.0
)

// Okabe and Ito's colours, told apart by all kinds of colour vision.
var svgColours = [...]string{"#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442", "#999999"}

var svgDashes = [...]string{"", "7 4", "2 3"}

// SVG draws every picture, in light colours, and gives each to write with its file's name.
func (r *Report) SVG(write func(name, svg string) error) error {
	for _, p := range r.Pictures {
		var b strings.Builder
		if err := p.WriteSVG(&b); err != nil {
			return err
		}
		if err := write(p.ID+".svg", b.String()); err != nil {
			return err
		}
	}
	return nil
}

// WriteSVG draws the picture in light colours.
func (p *Picture) WriteSVG(w io.Writer) error {
	s := &svg{p: p}
	switch p.Kind {
	case "heat":
		s.heat()
	case "bars":
		s.bars()
	default:
		s.lines()
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%.0f" viewBox="0 0 %[1]d %.0[2]f" font-family="system-ui, sans-serif" role="img">
<title>%s</title>
<rect width="100%%" height="100%%" fill="#ffffff"/>
%s</svg>
`, SVGWidth, s.height, svgEscape(p.Title), s.b.String())
	return err
}

// svg is a picture on its way to a file. The plot is what lies between the axes, in pixels.
type svg struct {
	p                        *Picture
	b                        strings.Builder
	height                   float64
	left, right, top, bottom float64 // of the plot
}

func (s *svg) put(format string, args ...any) { fmt.Fprintf(&s.b, format+"\n", args...) }

// text writes words at a point; anchor is start, middle or end.
func (s *svg) text(x, y, size float64, colour, anchor, words string, more ...string) {
	s.put(`<text x="%.1f" y="%.1f" font-size="%g" fill="%s" text-anchor="%s"%s>%s</text>`, x, y, size, colour, anchor, strings.Join(more, ""), svgEscape(words))
}

// svgEscape is text as an SVG file may have it: XML has no control characters, and no bytes that are not UTF-8.
func svgEscape(text string) string {
	return html.EscapeString(strings.Map(func(c rune) rune {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0xFFFE || c == 0xFFFF {
			return utf8.RuneError
		}
		return c
	}, text))
}

func (s *svg) line(x1, y1, x2, y2 float64, colour string) {
	s.put(`<path d="M%.1f %.1fL%.1f %.1f" stroke="%s"/>`, x1, y1, x2, y2, colour)
}

// begin writes the title and sets the plot's borders; what names things lies above it.
func (s *svg) begin(left, right, bottom, plot float64, names []string, swatch func(i int, x, y float64)) {
	s.text(8, 19, 14, svgText, "start", s.p.Title, ` font-weight="600"`)
	y := 40.0
	if len(names) > 1 {
		y = s.legend(names, swatch, y)
	}
	s.left, s.right, s.top = left, SVGWidth-right, y+14
	s.bottom = s.top + plot
	s.height = s.bottom + bottom
}

// legend writes names from y on, at most three lines of them, and returns where it ends.
func (s *svg) legend(names []string, swatch func(i int, x, y float64), y float64) float64 {
	x, lines := 70.0, 1
	for i, n := range names {
		width := 34 + 6.1*float64(len([]rune(n)))
		if x+width > SVGWidth-20 {
			if lines == 3 {
				s.text(x, y+4, 11, svgFaint, "start", fmt.Sprintf("and %d more", len(names)-i))
				break
			}
			x, y, lines = 70, y+17, lines+1
		}
		swatch(i, x, y)
		s.text(x+24, y+4, 11, svgText, "start", n)
		x += width + 8
	}
	return y + 8
}

// niceStep is a step of 1, 2 or 5 times a power of ten that divides span into n parts or fewer.
func niceStep(span float64, n int) float64 {
	if !(span > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(span/float64(n))))
	for _, m := range [...]float64{1, 2, 5} {
		if span <= m*power*float64(n) {
			return m * power
		}
	}
	return 10 * power
}

// short is a figure as axes and labels have it.
func short(x float64) string {
	switch a := math.Abs(x); {
	case a == 0:
		return "0" // not -0
	case math.IsNaN(x):
		return "-"
	case a >= 1000:
		text := fmt.Sprintf("%.0f", x)
		for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
		return text
	case a >= 10:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0")
	case a >= 0.1:
		return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", x), "0"), ".")
	default:
		return fmt.Sprintf("%.2g", x)
	}
}

// scale is a linear axis from 0 (or low) at one end of the plot to high at the other.
type scale struct {
	low, high, step float64
	from, to        float64 // pixels
}

func (c scale) at(x float64) float64 { return c.from + (x-c.low)/(c.high-c.low)*(c.to-c.from) }

// valueScale is the axis of values up to top, or of the bound that the axis has.
func valueScale(top, bound float64, from, to float64, n int) scale {
	if bound > 0 {
		return scale{0, bound, niceStep(bound, n), from, to}
	}
	if !(top > 0) {
		top = 1
	}
	step := niceStep(top, n)
	return scale{0, math.Ceil(top/step-1e-9) * step, step, from, to}
}

// each calls fn for every tick.
func (c scale) each(fn func(x, pixel float64)) {
	for i := math.Ceil(c.low/c.step - 1e-9); i*c.step <= c.high+c.step*1e-9; i++ {
		fn(i*c.step, c.at(i*c.step))
	}
}

// timeSteps are what ticks of a time axis may be apart, in milliseconds.
var timeSteps = [...]float64{100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 10800e3, 21600e3, 43200e3, 86400e3}

func clock(ms float64) string {
	t := time.UnixMilli(int64(math.Round(ms))).UTC()
	if t.Second() == 0 {
		return t.Format("15:04")
	}
	return t.Format("15:04:05")
}

// timeScale is the axis of the picture's times. With steps, the first sample has its width too.
func (s *svg) timeScale(steps bool) scale {
	x := s.p.X
	c := scale{low: x[0], high: x[len(x)-1], from: s.left, to: s.right}
	if steps && len(x) > 1 {
		c.low -= x[1] - x[0]
	}
	if c.high <= c.low {
		c.high = c.low + 1
	}
	c.step = timeSteps[len(timeSteps)-1]
	for _, step := range slices.Backward(timeSteps[:]) {
		if (c.high-c.low)/step <= 9 {
			c.step = step
		}
	}
	return c
}

func (s *svg) timeAxis(c scale) {
	name, label := "time (UTC)", clock
	if s.p.Seconds {
		name, label = "seconds", func(ms float64) string { return short(ms / 1e3) }
		c.step = niceStep(c.high-c.low, 9)
	}
	c.each(func(x, at float64) {
		s.line(at, s.bottom, at, s.bottom+4, svgFaint)
		s.text(at, s.bottom+17, 11, svgText, "middle", label(x))
	})
	s.line(s.left, s.bottom, s.right, s.bottom, svgFaint)
	s.text((s.left+s.right)/2, s.bottom+36, 12, svgFaint, "middle", name)
}

// valueAxis draws the y axis i.
func (s *svg) valueAxis(i int, c scale) {
	at, tick, anchor, name := s.left, -6.0, "end", s.left-52
	if i > 0 {
		at, tick, anchor, name = s.right, 6, "start", s.right+60
	}
	c.each(func(x, y float64) {
		if i == 0 {
			s.line(s.left, y, s.right, y, svgGrid)
		}
		s.text(at+tick, y+4, 11, svgText, anchor, short(x))
	})
	s.line(at, s.top, at, s.bottom, svgFaint)
	middle := (s.top + s.bottom) / 2
	s.text(name, middle, 12, svgFaint, "middle", s.p.Y[i].Name+" ("+s.p.Y[i].Unit+")", fmt.Sprintf(` transform="rotate(-90 %.1f %.1f)"`, name, middle))
}
