package report

import (
	"fmt"
	"math"
	"strings"
)

// lines draws lines and areas over time.
func (s *svg) lines() {
	p := s.p
	var names []string
	for _, l := range p.Lines {
		names = append(names, l.Name)
	}
	right := 24.0
	if len(p.Y) > 1 {
		right = 74
	}
	s.begin(74, right, 46, 244, names, func(i int, x, y float64) {
		s.put(`<path d="M%.1f %.1fh18" %s/>`, x, y, s.stroke(i))
	})
	steps := len(p.X) < fewPoints
	across := s.timeScale(steps)
	base, top := s.stacks()
	up := make([]scale, len(p.Y))
	for i, y := range p.Y {
		up[i] = valueScale(top[i], y.Max, s.bottom, s.top, 5)
		s.valueAxis(i, up[i])
	}
	s.marks(across)
	s.put(`<clipPath id="plot"><rect x="%.1f" y="%.1f" width="%.1f" height="%.1f"/></clipPath><g clip-path="url(#plot)">`, s.left, s.top-2, s.right-s.left, s.bottom-s.top+4)
	for i, l := range p.Lines {
		s.series(i, l, base[i], across, up[l.Axis], steps)
	}
	s.put(`</g>`)
	s.timeAxis(across)
}

// stroke is how line i is drawn.
func (s *svg) stroke(i int) string {
	l, width, dash := &s.p.Lines[i], 2, svgDashes[i/len(svgColours)%len(svgDashes)]
	if l.Thin {
		width = 1
	}
	if l.Dash {
		dash = svgDashes[1]
	}
	out := fmt.Sprintf(`fill="none" stroke="%s" stroke-width="%d" stroke-linejoin="round"`, svgColours[i%len(svgColours)], width)
	if dash != "" {
		out += fmt.Sprintf(` stroke-dasharray="%s"`, dash)
	}
	return out
}

// stacks returns what lies below each value of each line, and the highest value of each axis.
func (s *svg) stacks() (base [][]float64, top []float64) {
	top = make([]float64, len(s.p.Y))
	sums := map[string][]float64{}
	for _, l := range s.p.Lines {
		below := make([]float64, len(l.Values))
		sum := sums[l.Stack]
		if sum == nil || l.Stack == "" {
			sum = make([]float64, len(l.Values))
		}
		for k, v := range l.Values {
			below[k] = sum[k]
			if x := float64(v); !math.IsNaN(x) && !math.IsInf(x, 0) {
				sum[k] += x
				top[l.Axis] = max(top[l.Axis], sum[k])
			}
		}
		if l.Stack != "" {
			sums[l.Stack] = sum
		}
		base = append(base, below)
	}
	return base, top
}

func (s *svg) marks(across scale) {
	for _, m := range s.p.Marks {
		from, to := max(across.at(m.From), s.left), min(across.at(m.To), s.right)
		s.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity="0.16"/>`, from, s.top, max(to-from, 1), s.bottom-s.top, svgMark)
		s.text((from+to)/2, s.top+12, 11, svgFaint, "middle", m.Name)
	}
}

// series draws one line, broken where its values are not known. With steps, a value stands for
// the time before it, as a sample does.
func (s *svg) series(i int, l line, base []float64, across, up scale, steps bool) {
	var path, area, under strings.Builder
	var dots []string
	x := s.p.X
	begin := func(k int) float64 {
		switch {
		case k > 0:
			return across.at(x[k-1])
		case len(x) > 1:
			return across.at(2*x[0] - x[1])
		}
		return across.from
	}
	open := -1
	finish := func(end int) {
		if open < 0 {
			return
		}
		if l.Area {
			// Back along what lies below.
			under.Reset()
			for k := end; k >= open; k-- {
				fmt.Fprintf(&under, "L%.1f %.1f", across.at(x[k]), up.at(base[k]))
				if steps {
					fmt.Fprintf(&under, "L%.1f %.1f", begin(k), up.at(base[k]))
				}
			}
			area.WriteString(under.String() + "Z")
		}
		open = -1
	}
	for k, v := range l.Values {
		n := float64(v)
		if math.IsNaN(n) || math.IsInf(n, 0) {
			finish(k - 1)
			continue
		}
		y, at := up.at(base[k]+n), across.at(x[k])
		var step string
		switch {
		case open < 0 && steps:
			step = fmt.Sprintf("M%.1f %.1fL%.1f %.1f", begin(k), y, at, y)
		case open < 0:
			step = fmt.Sprintf("M%.1f %.1f", at, y)
		case steps:
			step = fmt.Sprintf("V%.1fH%.1f", y, at)
		default:
			step = fmt.Sprintf("L%.1f %.1f", at, y)
		}
		if open < 0 {
			open = k
		}
		path.WriteString(step)
		area.WriteString(step)
		if steps && !l.Thin {
			dots = append(dots, fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="2.2"/>`, at, y))
		}
	}
	finish(len(l.Values) - 1)
	if path.Len() == 0 {
		return
	}
	if l.Area {
		s.put(`<path d="%s" fill="%s" fill-opacity="0.35"/>`, area.String(), svgColours[i%len(svgColours)])
	}
	s.put(`<path d="%s" %s/>`, path.String(), s.stroke(i))
	if len(dots) > 0 {
		s.put(`<g fill="%s">%s</g>`, svgColours[i%len(svgColours)], strings.Join(dots, ""))
	}
}

// fit cuts a name to what fits into so many pixels.
func fitName(name string, pixels, size float64) string {
	r := []rune(name)
	if n := int(pixels / (0.56 * size)); len(r) > n {
		return string(r[:n-1]) + "\u2026"
	}
	return name
}

// bars draws bars by name, of two quantities with an axis each.
func (s *svg) bars() {
	p := s.p
	var names []string
	for _, b := range p.Bars {
		names = append(names, b.Name)
	}
	s.begin(140, 60, 46, barRow*float64(len(p.Names)), names, func(i int, x, y float64) {
		s.put(`<rect x="%.1f" y="%.1f" width="18" height="10" fill="%s"/>`, x, y-5, svgColours[i])
	})
	if len(p.Y) > 1 { // the second axis is above
		s.top, s.bottom, s.height = s.top+36, s.bottom+36, s.height+36
	}
	top := make([]float64, len(p.Y))
	for _, b := range p.Bars {
		for _, v := range b.Values {
			if x := float64(v); x > top[b.Axis] {
				top[b.Axis] = x
			}
		}
	}
	across := make([]scale, len(p.Y))
	for i, y := range p.Y {
		across[i] = valueScale(top[i], y.Max, s.left, s.right, 6)
		at, off, name := s.bottom, 17.0, 36.0
		if i > 0 {
			at, off, name = s.top, -8, -26
		}
		across[i].each(func(x, pixel float64) {
			if i == 0 {
				s.line(pixel, s.top, pixel, s.bottom, svgGrid)
			}
			s.text(pixel, at+off, 11, svgText, "middle", short(x))
		})
		s.line(s.left, at, s.right, at, svgFaint)
		s.text((s.left+s.right)/2, at+name, 12, svgFaint, "middle", y.Name+" ("+y.Unit+")")
	}
	s.line(s.left, s.top, s.left, s.bottom, svgFaint)
	thick := min(14, 0.8*barRow/float64(max(len(p.Bars), 1)))
	for k, name := range p.Names {
		middle := s.top + barRow*(float64(k)+0.5)
		s.text(s.left-8, middle+4, 11, svgText, "end", fitName(name, 130, 11))
		for i, b := range p.Bars {
			x := float64(b.Values[k])
			if math.IsNaN(x) {
				continue
			}
			y := middle + thick*(float64(i)-float64(len(p.Bars))/2)
			end := across[b.Axis].at(max(x, 0))
			s.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, s.left, y+1, end-s.left, thick-2, svgColours[i])
			s.text(end+5, y+thick/2+3.5, 10, svgFaint, "start", short(x))
		}
	}
}

// cividis is even in lightness, and the same for all kinds of colour vision.
var cividis = [...][3]float64{{255, 249, 201}, {232, 212, 98}, {176, 164, 115}, {124, 123, 120}, {68, 78, 108}, {0, 32, 77}}

// shades is how many colours a heat map has.
const shades = 48

func shade(i int) string {
	at := float64(i) / (shades - 1) * float64(len(cividis)-1)
	k := min(int(at), len(cividis)-2)
	var c [3]int
	for j := range c {
		c[j] = int(math.Round(cividis[k][j] + (at-float64(k))*(cividis[k+1][j]-cividis[k][j])))
	}
	return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2])
}

// heat draws a row of cells for each name, with the scale of their colours below.
func (s *svg) heat() {
	p := s.p
	rows, columns := float64(len(p.Names)), float64(len(p.X))
	s.begin(130, 24, 92, max(rows*rowHeight, 120), nil, nil)
	tall, wide := (s.bottom-s.top)/rows, (s.right-s.left)/columns
	of := func(x float64) int {
		if p.High <= p.Low {
			return 0
		}
		return min(int((x-p.Low)/(p.High-p.Low)*shades), shades-1)
	}
	for k := 0; k < len(p.Cells); {
		// Neighbours of one colour are one rectangle.
		c, end := p.Cells[k], k+1
		for end < len(p.Cells) && p.Cells[end][1] == c[1] && p.Cells[end][0] == p.Cells[end-1][0]+1 && of(p.Cells[end][2]) == of(c[2]) {
			end++
		}
		s.put(`<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"/>`, s.left+c[0]*wide, s.top+c[1]*tall, float64(end-k)*wide+0.3, tall, shade(of(c[2])))
		k = end
	}
	for i, name := range p.Names {
		s.text(s.left-6, s.top+(float64(i)+0.5)*tall+3, 9, svgText, "end", fitName(name, 120, 9))
	}
	for _, m := range p.Spans {
		from, to := s.left+float64(m.From)*wide, s.left+float64(m.To+1)*wide
		s.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="none" stroke="%s" stroke-width="2"/>`, from, s.top, to-from, s.bottom-s.top, svgMark)
		s.text((from+to)/2, s.top-4, 11, svgMark, "middle", m.Name)
	}
	every := int(math.Ceil(columns / 10))
	for c := 0; c < len(p.X); c += every {
		s.text(s.left+(float64(c)+0.5)*wide, s.bottom+15, 11, svgText, "middle", clock(p.X[c]))
	}
	s.text((s.left+s.right)/2, s.bottom+34, 12, svgFaint, "middle", "time (UTC)")
	const bar = 240.0
	from := (s.left + s.right - bar) / 2
	for i := range shades {
		s.put(`<rect x="%.2f" y="%.1f" width="%.2f" height="12" fill="%s"/>`, from+bar/shades*float64(i), s.bottom+52, bar/shades+0.3, shade(i))
	}
	s.text(from-8, s.bottom+62, 11, svgText, "end", short(math.Pow(10, p.Low))+" ms")
	s.text(from+bar+8, s.bottom+62, 11, svgText, "start", short(math.Pow(10, p.High))+" ms")
}
