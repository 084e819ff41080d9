package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// size is a number of bytes as people read it.
func size(x float64) string {
	for _, u := range [...]struct {
		name string
		n    float64
	}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if math.Abs(x) >= u.n {
			return fmt.Sprintf("%.3g %s", x/u.n, u.name)
		}
	}
	return fmt.Sprintf("%.0f B", x)
}

func millis(x float64) string {
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

func percent(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }

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
		case "back end":
			say("The write cache of pool %s had room: look at the back end and at reads.", t.Pool)
		}
	}
	for _, p := range f.Pools {
		if p.Mean >= 0.8 && p.Peak >= fullFrom {
			say("Pool %s lives on the edge: its partition is %s full in the mean, so little more makes it wait. More nodes (cache and back-end paths), or fewer pools.", p.Pool, percent(p.Mean))
		}
	}
	if len(f.Towers) == 0 && len(f.Undercover) > 0 {
		say("Offloads wrote below what hosts see, without a response-time tower in these counters: nothing has to be done.")
	}
	return out
}

// WriteText prints findings for people.
func (f *Findings) WriteText(w io.Writer) error {
	b := &strings.Builder{}
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
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.0f s\t%s\n", p.Pool, percent(p.Mean), percent(p.Peak), size(p.Cap), p.Full, since)
		}
	})
	section(b, "Who held a full partition", len(f.Holders) > 0, func(t *tabwriter.Writer) {
		fmt.Fprintln(t, "VOLUME\tPOOL\tAT\tHELD\tOF CAP\tHOST WRITES\tEXPLAINED\tBUSIEST ELSE\tITS WRITES\tHELD")
		for _, h := range f.Holders {
			yes := "by hosts"
			if !h.Explained {
				yes = "NO"
			}
			busiest := h.Busiest
			if busiest == "" {
				busiest = "-"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s/s\t%s\t%s\t%s/s\t%s\n", h.Volume, h.Pool, h.At, size(h.Held), percent(h.Share), size(h.Host), yes, busiest, size(h.BusiestHost), size(h.BusiestHeld))
		}
	})
	section(b, "Undercover writes", len(f.Undercover) > 0, func(t *tabwriter.Writer) {
		fmt.Fprintln(t, "VOLUME\tPOOL\tFROM\tTO\tAT LEAST\tRATE\tHOSTS WROTE\tCONFIDENCE")
		for _, u := range f.Undercover {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s/s\t%s\t%s\n", u.Volume, u.Pool, u.From, u.To, size(u.Bytes), size(u.Rate), size(u.Host), percent(u.Confidence))
		}
	})
	if len(f.Undercover) == 0 {
		b.WriteString("\nNo undercover writes: hosts explain what went below.\n")
	}
	section(b, "Response-time towers", len(f.Towers) > 0, func(t *tabwriter.Writer) {
		fmt.Fprintln(t, "POOL\tFROM\tTO\tHEIGHT\tUSUALLY\tLOAD\tVOLUMES\tCAUSE\tCULPRIT\tOFFLOAD GONE\tCAP DOUBLED\tCAP GONE")
		for _, x := range f.Towers {
			offload, double, limit := "-", "-", "-"
			if x.Shares != nil {
				offload, double, limit = less(x.Shares.Offload), x.Shares.Double.String(), x.Shares.Cap.String()
			}
			culprit := x.Culprit
			if culprit == "" {
				culprit = "-"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\tx %.2f\t%d of %d\t%s\t%s\t%s\t%s\t%s\n", x.Pool, x.From, x.To, millis(x.Height), millis(x.Base), x.Load, x.Volumes, x.Of, x.Cause, culprit, offload, double, limit)
		}
	})
	for i, x := range f.Towers {
		if len(x.Worst) > 0 {
			fmt.Fprintf(b, "\nhit most by tower %d:", i+1)
			for _, h := range x.Worst[:min(5, len(x.Worst))] {
				fmt.Fprintf(b, " %s %s (%.2g I/O a second)", h.Volume, millis(h.Response), h.Ops)
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
	if len(f.Towers) > 0 {
		b.WriteString("\nOFFLOAD GONE, CAP DOUBLED and CAP GONE: by how much less writes wait when the firmware runs a model, fitted to the tower, without the offload or with more cache for the pool. No help: not at either end of what the counters leave open.\n")
	}
	for _, a := range f.Advice {
		fmt.Fprintf(b, "\n* %s\n", a)
	}
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
