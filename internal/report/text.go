package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	bytesize "github.com/arraysim/arraysim/internal/size"
)

// number is a figure of a finding, known or not.
type number interface{ ~float64 }

// notKnown is how text has what is not known.
const notKnown = "unknown"

// size is a number of bytes as people read it.
func size[T number](n T) string {
	x := float64(n)
	if math.IsNaN(x) {
		return notKnown
	}
	return bytesize.Decimal(x)
}

// rate is a number of bytes a second as people read it.
func rate[T number](n T) string {
	if math.IsNaN(float64(n)) {
		return notKnown
	}
	return size(n) + "/s"
}

func millis[T number](n T) string {
	x := float64(n)
	if math.IsNaN(x) {
		return notKnown
	}
	if x*1e3 >= 100 {
		return fmt.Sprintf("%.0f ms", x*1e3)
	}
	return fmt.Sprintf("%.2g ms", x*1e3)
}

// less is a share by which something shrinks, or grows.
func less(x float64) string {
	switch {
	case x >= 0.005:
		return "-" + percent(x)
	case x <= -0.005:
		return "+" + percent(-x)
	}
	return "0 %"
}

// String is what the share is, where a figure is founded, or that it is none.
func (r Range) String() string {
	switch {
	case r.Open != "" && r.High <= shareBound/5:
		return "no help"
	case r.Open != "":
		return "not determined"
	case less(r.Low) == less(r.High):
		return less(r.Low)
	}
	return less(r.High) + " to " + less(r.Low)
}

func percent[T number](x T) string { return figure("%.0f %%", 100*x) }

// figure is a number in a format, if it is known.
func figure[T number](format string, x T) string {
	if math.IsNaN(float64(x)) {
		return notKnown
	}
	return fmt.Sprintf(format, float64(x))
}

// String is how people read an answer about whose bytes a volume holds.
func (a Answer) String() string {
	return [...]string{Unknown: notKnown, Yes: "by hosts", No: "NO"}[a]
}

// String says what cannot be told, and what is missing.
func (r Refusal) String() string {
	of := "pool " + r.Pool
	if n := len(r.Volumes); n > 0 {
		shown := strings.Join(r.Volumes[:min(n, namesShown)], ", ")
		if n > namesShown {
			shown += fmt.Sprintf(" and %d more", n-namesShown)
		}
		of += ", volume " + shown
	}
	how := "cannot be told"
	if r.Partly {
		how = "is only partly known"
	}
	return fmt.Sprintf("%s (%s): %s, these counters lack %s", r.Finding, of, how, strings.Join(r.Missing, ", "))
}

// namesShown is how many names a sentence has.
const namesShown = 5

// String says what the counters prove nothing below.
func (x *Floor) String() string {
	seconds := fmt.Sprintf("%.2g", x.Seconds)
	if x.Seconds >= 10 {
		seconds = fmt.Sprintf("%.0f", x.Seconds)
	}
	s := fmt.Sprintf("Below %s in %s s these counters prove nothing", size(x.Bytes), seconds)
	if x.Volume != "" {
		s += fmt.Sprintf("; of volume %s, whose hosts' own writes can hide an offload's, nothing below %s", x.Volume, size(x.VolumeBytes))
	}
	return s + ". What was replaced in the cache before it left it does not show."
}

// Verdict says what there is to say of undercover writes where no volume was found: it is not
// that there were none.
func (f *Findings) Verdict() string {
	switch {
	case len(f.Undercover) > 0:
		return ""
	case f.Floor == nil:
		return "Undercover writes: unknown from these counters."
	}
	return "Undercover writes: none is proved by what the cache held and destaged."
}

// NoTowers says what there is to say of towers where none was found.
func (f *Findings) NoTowers() string {
	if f.towersUnknown() {
		return "Response-time towers: these counters do not cover every pool."
	}
	return fmt.Sprintf("Response-time towers: no sample of %.4g s has a mean response of %s.", f.Step, towerFrom)
}

// advise says what to do about what was found.
func advise(f *Findings) []string {
	var out []string
	say := func(format string, args ...any) {
		if s := fmt.Sprintf(format, args...); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, t := range f.Towers {
		switch t.Cause {
		case "undercover":
			say("Limit what offloads may hold of pool %s's write cache (an offload budget), or copy to volume %s at a quiet time or from the host: an offloaded copy keeps as much waiting at the cap as it has outstanding.", t.Pool, t.Culprit)
			if t.Shares != nil {
				switch {
				case t.Shares.Cap.Low > 0.7:
					say("A larger partition for pool %s would have taken the copy: fewer pools in the I/O group, or more cache.", t.Pool)
				case t.Shares.Cap.High < 0.3:
					say("A larger partition for pool %s would only delay the towers: the copy is larger than what it could absorb.", t.Pool)
				}
			}
		case "hosts":
			say("Hosts write more to pool %s than its back end takes, most of all to %s: more or faster disks, or another pool for that volume.", t.Pool, t.Culprit)
		case "cache":
			say("Pool %s's partition is full although hosts write no more than usual: look at its back end first.", t.Pool)
		case "unknown":
			say("The cause of the tower in pool %s is unknown: these counters lack %s.", t.Pool, strings.Join(t.Missing, ", "))
		case "back end":
			if t.full {
				say("The write cache of pool %s was full because its back end took less than at other times: look at the back end and at reads.", t.Pool)
				break
			}
			say("The write cache of pool %s had room: look at the back end and at reads.", t.Pool)
		}
	}
	for _, p := range f.Pools {
		if p.Mean >= 0.8 && p.Peak >= fullFrom {
			say("Pool %s is close to its limit: its partition is %s full on average, so a little more load makes it wait. More nodes (cache and back-end paths), or fewer pools.", p.Pool, percent(p.Mean))
		}
	}
	if len(f.Towers) == 0 && len(f.Undercover) > 0 && !f.towersUnknown() {
		say("Offloads wrote below what hosts see, without a response-time tower in these counters: nothing has to be done.")
	}
	return out
}

// WriteText prints findings for people.
func (f *Findings) WriteText(w io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s\n\n", f.Sentence())
	fmt.Fprintf(b, "%s: %s to %s, samples of %.4g s\n", f.Source, f.From, f.To, f.Step)
	for _, n := range f.Notes {
		fmt.Fprintf(b, "note: %s\n", n)
	}
	section(b, "Write cache by pool", len(f.Pools) > 0, func(t *tabwriter.Writer) {
		fmt.Fprintln(t, "POOL\tMEAN\tPEAK\tCAP\tFULL FOR\tSINCE")
		for _, p := range f.Pools {
			since := "-"
			if len(p.Spans) > 0 {
				since = p.Spans[0].From
				if len(p.Spans) > 1 {
					since += fmt.Sprintf(" and %d times more", len(p.Spans)-1)
				}
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Pool, percent(p.Mean), percent(p.Peak), size(p.Cap), figure("%.0f s", p.Full), since)
		}
	})
	section(b, "Who held a full partition", len(f.Holders) > 0, func(t *tabwriter.Writer) {
		fmt.Fprintln(t, "VOLUME\tPOOL\tAT\tHELD\tOF CAP\tHOST WRITES\tEXPLAINED\tBUSIEST ELSE\tITS WRITES\tHELD")
		for _, h := range f.Holders {
			busiest := h.Busiest
			if busiest == "" {
				busiest = "-"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.Volume, h.Pool, h.At, size(h.Held), percent(h.Share), rate(h.Host), h.Explained, busiest, rate(h.BusiestHost), size(h.BusiestHeld))
		}
	})
	section(b, "Undercover writes", len(f.Undercover) > 0, func(t *tabwriter.Writer) {
		fmt.Fprintln(t, "VOLUME\tPOOL\tFROM\tTO\tAT LEAST\tRATE\tHOSTS WROTE\tMARGIN")
		for _, u := range f.Undercover {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\tx %.1f\n", u.Volume, u.Pool, u.From, u.To, size(u.Bytes), rate(u.Rate), size(u.Host), u.Margin)
		}
	})
	if text := f.Verdict(); text != "" {
		fmt.Fprintf(b, "\n%s\n", text)
	} else {
		b.WriteByte('\n')
	}
	if f.Floor != nil {
		fmt.Fprintln(b, f.Floor)
	}
	f.writeLabels(b)
	if len(f.Towers) == 0 {
		fmt.Fprintf(b, "\n%s\n", f.NoTowers())
	}
	section(b, "Response-time towers", len(f.Towers) > 0, func(t *tabwriter.Writer) {
		fmt.Fprintln(t, "POOL\tFROM\tTO\tHEIGHT\tUSUALLY\tLOAD\tVOLUMES\tCAUSE\tSOURCE\tOFFLOAD GONE\tCAP DOUBLED\tCAP GONE")
		for _, x := range f.Towers {
			offload, double, limit := "-", "-", "-"
			if x.Shares != nil {
				offload, double, limit = less(x.Shares.Offload), x.Shares.Double.String(), x.Shares.Cap.String()
			}
			culprit := x.Culprit
			if culprit == "" {
				culprit = "-"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\t%s\t%s\t%s\n", x.Pool, x.From, x.To, millis(x.Height), millis(x.Base), figure("x %.2f", x.Load), x.Volumes, x.Of, x.Cause, culprit, offload, double, limit)
		}
	})
	for i, x := range f.Towers {
		if len(x.Worst) > 0 {
			fmt.Fprintf(b, "\nhit most by tower %d:", i+1)
			for _, h := range x.Worst[:min(5, len(x.Worst))] {
				fmt.Fprintf(b, " %s %s (%s I/O a second)", h.Volume, millis(h.Response), figure("%.2g", h.Ops))
			}
			b.WriteByte('\n')
		}
	}
	for i, x := range f.Towers {
		if x.Shares == nil {
			continue
		}
		for _, r := range [...]struct {
			what string
			Range
		}{{"cap doubled", x.Shares.Double}, {"cap gone", x.Shares.Cap}} {
			if r.Open != "" {
				fmt.Fprintf(b, "\ntower %d, %s: between %s and %s; %s.\n", i+1, r.what, less(r.High), less(r.Low), r.Open)
			}
		}
	}
	if len(f.Refused) > 0 {
		b.WriteString("\nWhat these counters do not show\n")
		for _, r := range f.Refused {
			fmt.Fprintf(b, "- %s\n", r)
		}
	}
	for _, a := range f.Advice {
		fmt.Fprintf(b, "\n* %s\n", a)
	}
	f.writeColumns(b)
	_, err := io.WriteString(w, b.String())
	return err
}

func section(b *strings.Builder, title string, any bool, rows func(*tabwriter.Writer)) {
	if !any {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	rows(t)
	t.Flush()
}

// writeLabels says what the origin label says, where there is one.
func (f *Findings) writeLabels(b *strings.Builder) {
	if f.NothingLabelled() {
		b.WriteString("\n" + noLabelled + "\n")
	}
	section(b, "What the array's origin label says was written undercover", len(f.Labelled) > 0, func(t *tabwriter.Writer) {
		fmt.Fprintln(t, "VOLUME\tPOOL\tORIGIN\tFROM\tTO\tBYTES\tPROVED WITHOUT IT")
		for _, l := range f.Labelled {
			proved := "no"
			if l.Proved {
				proved = "yes"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Volume, l.Pool, l.Origin, l.From, l.To, size(l.Bytes), proved)
		}
	})
}

// NothingLabelled tells whether there is an origin label that was on nothing.
func (f *Findings) NothingLabelled() bool { return f.Labelled != nil && len(f.Labelled) == 0 }

// noLabelled is for an array that has the label, and had nothing to put on it.
const noLabelled = "The array's origin label says that nothing was written undercover."
