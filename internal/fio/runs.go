package fio

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// Ran is a job of a result, all its clones together.
type Ran struct {
	Job
	Read, Write Direction
	// Beside are the names of other jobs that ran at the same time.
	Beside []string
}

// Ran returns the jobs of a result. Clones that fio reports one by one (numjobs without group_reporting) are one job: what
// each of them measured is under the load of all. The options are such that Scenario starts the jobs as fio did.
func (r *Result) Ran() ([]Ran, error) {
	var out []Ran
	groups := map[int][]int{} // places in out
	entries := []int{}        // of fio's, by place
	last := math.MinInt
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if j.Error != 0 {
			return nil, fmt.Errorf("job %s ended with error %d; measure again", j.Name, j.Error)
		}
		all := maps.Clone(r.Global)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, j.Options)
		_, wall := all["stonewall"]
		same := slices.IndexFunc(groups[j.Group], func(k int) bool { return out[k].Name == j.Name })
		if same >= 0 {
			k := groups[j.Group][same]
			if clones, err := strconv.Atoi(all["numjobs"]); err == nil && entries[k] < clones {
				entries[k]++
				out[k].Read, out[k].Write = pool(&out[k].Read, &j.Read), pool(&out[k].Write, &j.Write)
				continue
			} else if !wall {
				return nil, fmt.Errorf("two jobs %s ran at the same time; give one another name", j.Name)
			}
		}
		if err := j.alone(all); err != nil {
			return nil, err
		}
		// fio leaves options without a value out of a result; the number of the group tells.
		if delete(all, "stonewall"); i > 0 && (j.Group != last || wall) {
			all["stonewall"] = ""
		}
		if last = j.Group; wall {
			groups[j.Group] = nil
		}
		groups[j.Group] = append(groups[j.Group], len(out))
		out, entries = append(out, Ran{Job: Job{j.Name, all}, Read: j.Read, Write: j.Write}), append(entries, 1)
	}
	for _, g := range groups {
		for _, k := range g {
			for _, other := range g {
				if other != k {
					out[k].Beside = append(out[k].Beside, out[other].Name)
				}
			}
		}
	}
	return out, nil
}

// alone refuses an entry that sums up several jobs: with group_reporting fio gives one entry a group, which has the name of
// the first job and the options of the last.
func (j *JobResult) alone(options map[string]string) error {
	clones, err := strconv.Atoi(options["numjobs"])
	if err != nil {
		clones = 1
	}
	if longest := max(j.Read.RuntimeMS, j.Write.RuntimeMS); longest > 0 && j.ThreadMS > (float64(clones)+0.5)*longest {
		return fmt.Errorf("the entry %s sums up several jobs that ran at the same time; measure with a stonewall between them, or without group_reporting", j.Name)
	}
	return nil
}

// pool puts what two clones measured together. Percentiles of both cannot be told from those of each, and are dropped.
func pool(a, b *Direction) Direction {
	if a.Count == 0 {
		return *b
	}
	if b.Count == 0 {
		return *a
	}
	return Direction{Count: a.Count + b.Count, Bytes: a.Bytes + b.Bytes, IOPS: a.IOPS + b.IOPS, RuntimeMS: max(a.RuntimeMS, b.RuntimeMS),
		Latency: poolSpread(&a.Latency, &b.Latency), Completion: poolSpread(&a.Completion, &b.Completion)}
}

func poolSpread(a, b *Spread) Spread {
	if a.N == 0 || b.N == 0 {
		return Spread{}
	}
	n, m := float64(a.N), float64(b.N)
	s := Spread{Min: min(a.Min, b.Min), Max: max(a.Max, b.Max), N: a.N + b.N, Mean: (n*a.Mean + m*b.Mean) / (n + m)}
	da, db := a.Mean-s.Mean, b.Mean-s.Mean
	s.Deviation = math.Sqrt((n*(a.Deviation*a.Deviation+da*da) + m*(b.Deviation*b.Deviation+db*db)) / (n + m))
	return s
}
