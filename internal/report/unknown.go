package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Amount is a number of a finding that may not be known: NaN here, null in JSON, "unknown" in
// text. It is never zero for want of a counter.
type Amount float64

// Known tells whether it is.
func (a Amount) Known() bool { return !math.IsNaN(float64(a)) }

// Text returns the amount in a format of package fmt for a float64, and "unknown" if it is not known.
func (a Amount) Text(format string) string {
	if !a.Known() {
		return notKnown
	}
	return fmt.Sprintf(format, float64(a))
}

// MarshalJSON implements [encoding/json.Marshaler].
func (a Amount) MarshalJSON() ([]byte, error) {
	if !a.Known() {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(a), 'g', -1, 64), nil
}

// Answer is yes, no, or that the counters do not say; the zero value is the last.
type Answer int8

// Answers.
const (
	Unknown Answer = iota
	Yes
	No
)

// MarshalJSON implements [encoding/json.Marshaler]: true, false or null.
func (a Answer) MarshalJSON() ([]byte, error) {
	return []byte([...]string{Unknown: "null", Yes: "true", No: "false"}[a]), nil
}

// Refusal says what the counters cannot tell, of whom, and what they would need for it. What is
// refused is neither found nor absent.
type Refusal struct {
	Finding string   `json:"finding"`
	Pool    string   `json:"pool"`
	Volumes []string `json:"volumes,omitempty"`
	Missing []string `json:"missing"`
	// Partly says that some of it could be told: of other samples, or by a weaker sign.
	Partly bool `json:"partly,omitempty"`
}

// What may be missing, with the names that a mapping has for it.
const (
	needHost     = "what hosts write (write_bytes)"
	needLower    = "what leaves the cache (lower_bytes)"
	needHeld     = "what the cache holds of a volume (held_bytes)"
	needFullness = "how full the partition is (fullness)"
	needCap      = "the partition's cap (limit_bytes)"
	needOutflow  = "what leaves the cache (lower_bytes) in samples through all of which the partition was full: shorter ones have some"
	needPlace    = "where hosts wrote: more came and the disks took less, as they do of what lies scattered, and as slow ones do"
	needOps      = "operations (reads, writes)"
	needTime     = "response times (read_seconds, write_seconds)"
	needUsual    = "response times of a second sample: one alone does not say what is usual"
)

// anyKnown tells whether a sample of any of these series is known.
func anyKnown(all ...Series) bool {
	return slices.ContainsFunc(all, func(s Series) bool { return slices.ContainsFunc(s, func(x float64) bool { return !math.IsNaN(x) }) })
}

// refuse notes what cannot be told, volumes that lack the same together.
func (f *Findings) refuse(r Refusal) {
	at := slices.IndexFunc(f.Refused, func(o Refusal) bool {
		return o.Finding == r.Finding && o.Pool == r.Pool && o.Partly == r.Partly && slices.Equal(o.Missing, r.Missing)
	})
	if at < 0 {
		f.Refused = append(f.Refused, r)
		return
	}
	f.Refused[at].Volumes = append(f.Refused[at].Volumes, r.Volumes...)
}

// The findings that can be refused.
const (
	findPartition  = "how full the partition was"
	findHolders    = "who held the partition"
	findUndercover = "undercover writes"
	findTowers     = "response-time towers"
)

// refuseUndercover notes of v what keeps its undercover writes from being told.
func (f *Findings) refuseUndercover(v *Volume) {
	there, judged := 0, 0
	for i := range v.Held {
		if !math.IsNaN(highest(v.Span[i], v.Held[i], v.Lower[i], v.Host[write][i])) {
			there++
		}
		if _, _, _, ok := v.excess(i); ok {
			judged++
		}
	}
	if there == judged && there > 0 {
		return
	}
	r := Refusal{Finding: findUndercover, Pool: v.Pool, Volumes: []string{v.Name}, Partly: judged > 0}
	for _, n := range [...]struct {
		what string
		of   Series
	}{{needHost, v.Host[write]}, {needLower, v.Lower}, {needHeld, v.Held}} {
		if !anyKnown(n.of) {
			r.Missing = append(r.Missing, n.what)
		}
	}
	switch {
	case len(r.Missing) == 0:
		r.Missing = []string{"readings of all of its counters, one after the other"}
	case len(r.Missing) == 1 && r.Missing[0] == needLower:
		r.Partly = true // by what it holds
	}
	f.refuse(r)
}

// refusePool notes what of a pool cannot be told.
func (f *Findings) refusePool(p *Pool, vols []*Volume) {
	ask := func(finding string, needs ...string) {
		needs = slices.DeleteFunc(needs, func(n string) bool { return n == "" })
		if len(needs) > 0 {
			f.refuse(Refusal{Finding: finding, Pool: p.Name, Missing: needs})
		}
	}
	lacks := func(need string, of ...Series) string {
		if anyKnown(of...) {
			return ""
		}
		return need
	}
	var held, ops, time []Series
	for _, v := range vols {
		held, ops, time = append(held, v.Held), append(ops, v.Ops[:]...), append(time, v.Time[:]...)
	}
	ask(findPartition, lacks(needFullness, p.Full, p.Peak))
	if len(vols) > 0 {
		ask(findHolders, lacks(needFullness, p.Peak), lacks(needCap, p.Cap), lacks(needHeld, held...))
		usual, answered := "", 0
		for i := range p.Full {
			if mean, _ := response(vols, i); !math.IsNaN(mean) {
				answered++
			}
		}
		if answered == 1 {
			usual = needUsual
		}
		ask(findTowers, lacks(needOps, ops...), lacks(needTime, time...), usual)
	}
}
