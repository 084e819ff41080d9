package sim

import (
	"fmt"
	"strings"
)

// Transactions of several types, as benchmarks count them.

// TxType is a type of transactions: all steps, with Percent of their I/Os, picked by its weight.
type TxType struct {
	Name    string `yaml:"name"`
	Weight  int    `yaml:"weight"`  // 0 is 1
	Percent int    `yaml:"percent"` // 0 is 100
}

// txTally is what became of the transactions of a type.
type txTally struct {
	n    uint64
	wait int64
}

func (j *JobSpec) checkTypes() error {
	for i := range j.Types {
		x := &j.Types[i]
		if x.Weight == 0 {
			x.Weight = 1
		}
		if x.Percent == 0 {
			x.Percent = 100
		}
		if x.Name == "" || x.Weight < 0 || x.Percent < 0 || x.Weight > 1e9 || x.Percent > 1e6 {
			return fmt.Errorf("type %d of transactions: it has a name, a weight of 1 to 10^9, and a percent of 1 to 10^6", i)
		}
	}
	return nil
}

// pickType chooses the type of the next transaction.
func (s *session) pickType() {
	types := s.t.j.spec.Types
	total := 0
	for _, x := range types {
		total += x.Weight
	}
	if total == 0 {
		return
	}
	at := int(s.rng.N(uint64(total)))
	for s.kind = 0; at >= types[s.kind].Weight; s.kind++ {
		at -= types[s.kind].Weight
	}
}

// ios is how many I/Os a step has in the present transaction.
func (s *session) ios(p *txStep) int {
	if types := s.t.j.spec.Types; len(types) > 0 && p.IOs > 0 {
		return max(1, p.IOs*types[s.kind].Percent/100)
	}
	return p.IOs
}

// typeValue is a figure of the transactions of a type, of the whole run: type.NAME.count or response_s.
func (j *job) typeValue(what string) (float64, bool) {
	rest, ok := strings.CutPrefix(what, "type.")
	name, figure, _ := strings.Cut(rest, ".")
	for i := range j.types {
		if x := &j.types[i]; ok && j.spec.Types[i].Name == name {
			switch figure {
			case "count":
				return float64(x.n), true
			case "response_s":
				return meanMS(x.wait, x.n) / 1000, x.n > 0
			}
		}
	}
	return 0, false
}
