package report

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
)

//go:embed assets
var assets embed.FS

func asset(name string) string {
	b, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic("report: internal error: " + err.Error())
	}
	return string(b)
}

// Run is a run in a report. Data and Findings are nil where only the caches of its hosts are
// known.
type Run struct {
	Name     string
	Data     *Data
	Findings *Findings
	Caches   []*HostCache
	// Idle is a simulated run in which no volume did anything.
	Idle bool
	// Text is what a simulated run says of itself, "" if there is nothing.
	Text string

	source string // that it was read from; "": from nowhere
}

// Report is a page about one run, or about several side by side.
type Report struct {
	Title    string
	Runs     []Run
	Pictures []*Picture
	// Empty has the titles of the pictures that are left out, for all in them is 0 or unknown.
	Empty []string
}

// New makes a report of runs. Of several, the pictures that compare them come first,
// and the pictures of each have its name in their titles.
func New(title string, runs ...Run) *Report {
	runs = slices.Clone(runs)
	tellApart(runs)
	r := &Report{Title: title, Runs: runs}
	counted := slices.DeleteFunc(slices.Clone(runs), func(run Run) bool { return run.Data == nil })
	if len(counted) > 1 {
		r.Pictures = compare(counted)
	}
	for i, run := range runs {
		var all []*Picture
		if run.Data != nil {
			all = Pictures(run.Data, run.Findings)
		}
		for _, p := range append(all, HostCachePictures(run.Caches)...) {
			if len(runs) > 1 {
				p.ID = fmt.Sprintf("run%d-%s", i+1, p.ID)
				p.Title = run.Name + ": " + p.Title
			}
			r.Pictures = append(r.Pictures, p)
		}
	}
	r.Pictures = slices.DeleteFunc(r.Pictures, func(p *Picture) bool {
		if p.empty() {
			r.Empty = append(r.Empty, p.Title)
			return true
		}
		return false
	})
	return r
}

// capLine is the name of a line to compare with: alone it shows nothing.
const capLine = "cap"

// empty tells whether a picture would show nothing: all in it is 0 or unknown.
func (p *Picture) empty() bool {
	something := func(v value) bool { return v != 0 && !math.IsNaN(float64(v)) }
	if len(p.Cells) > 0 || slices.ContainsFunc(p.Bars, func(b bar) bool { return slices.ContainsFunc(b.Values, something) }) {
		return false
	}
	return !slices.ContainsFunc(p.Lines, func(l line) bool { return l.Name != capLine && slices.ContainsFunc(l.Values, something) })
}

// compare draws runs over one another, by the time since each began.
func compare(runs []Run) []*Picture {
	mean := &Picture{ID: "compare-response", Kind: "lines", Title: "Response time of all volumes, run by run", Y: []axis{{Name: "mean response", Unit: "ms"}},
		Text: "The mean response of all I/O, by the time since each run began."}
	full := &Picture{ID: "compare-fullness", Kind: "lines", Title: "Fullness of the fullest partition, run by run", Y: []axis{{"fullness of the cap", "%", 100}},
		Text: "The partition that was fullest in each run."}
	longest := 0
	for i, r := range runs {
		if len(r.Data.Times) > len(runs[longest].Data.Times) {
			longest = i
		}
	}
	base := runs[longest].Data
	for _, t := range base.Times {
		x := float64(t-base.Start) / 1e6
		mean.X, full.X = append(mean.X, x), append(full.X, x)
	}
	for _, r := range runs {
		m, f := line{Name: r.Name}, line{Name: r.Name}
		var pool *Pool
		for _, p := range r.Data.Pools {
			if pool == nil || rank(quantile(p.Full, 0.9)) > rank(quantile(pool.Full, 0.9)) {
				pool = p
			}
		}
		at := 0
		for _, x := range mean.X {
			// The sample of this run that covers the time.
			for at < len(r.Data.Times) && float64(r.Data.Times[at]-r.Data.Start)/1e6 < x-1e-6 {
				at++
			}
			a, b := math.NaN(), math.NaN()
			if at < len(r.Data.Times) {
				a, _ = response(r.Data.Volumes, at)
				if pool != nil {
					b = pool.Full[at]
				}
			}
			m.Values, f.Values = append(m.Values, value(a*toMS)), append(f.Values, value(b*100))
		}
		mean.Lines, full.Lines = append(mean.Lines, m), append(full.Lines, f)
	}
	return []*Picture{mean, full}
}

// page is the template of the page, parsed when a report is first written: most commands write none.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"size": size[float64], "amount": size[Amount], "rate": rate[Amount], "percent": percent[float64], "share": percent[Amount], "less": less, "millis": millis[float64],
		"figure": figure[Amount], "noLabelled": func() string { return noLabelled }, "columns": func() any { return columns }, "join": strings.Join,
	}).Parse(asset("page.html")))
})

// WriteHTML writes the report as one page that loads nothing from anywhere.
func (r *Report) WriteHTML(w io.Writer) error {
	pictures := r.Pictures
	if pictures == nil {
		pictures = []*Picture{}
	}
	data, err := json.Marshal(pictures)
	if err != nil {
		return err
	}
	script := func(name string) template.JS {
		// A script ends where its text says so, even inside of a string.
		return template.JS(strings.ReplaceAll(asset(name), "</script", `<\/script`))
	}
	return page().Execute(w, struct {
		*Report
		Data                  template.JS // json.Marshal escapes < and >
		ECharts, Charts, Page template.JS
	}{r, template.JS(data), script("echarts.min.js"), script("report.js"), script("page.js")})
}
