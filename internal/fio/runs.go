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
//
// A result has no options that were written without a value, such as stonewall, so that jobs of two groups are taken to have
// run one after the other unless the later one has new_group=1. If they cannot have, since all took too short, that is an error.
// It lacks time_based, too: a job with a runtime that read and wrote more than its length had it.
func (r *Result) Ran() ([]Ran, error) {
	var out []Ran
	var stages [][]int // places in out of what ran at the same time
	entries := []int{} // of fio's, by place
	group := []int{}   // by place
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if j.Error != 0 {
			return nil, fmt.Errorf("job %s ended with error %d; measure again", j.Name, j.Error)
		}
		all := maps.Clone(r.Global)
		if all == nil {
			all = Options{}
		}
		all.merge(j.Options)
		wall := on(all, "stonewall")
		if len(stages) > 0 {
			stage := stages[len(stages)-1]
			if at := slices.IndexFunc(stage, func(k int) bool { return out[k].Name == j.Name && group[k] == j.Group }); at >= 0 {
				k := stage[at]
				if clones, err := strconv.Atoi(all["numjobs"]); err == nil && entries[k] < clones {
					entries[k]++
					out[k].Read, out[k].Write = pool(&out[k].Read, &j.Read), pool(&out[k].Write, &j.Write)
					continue
				} else if !wall {
					return nil, fmt.Errorf("two jobs %s ran at the same time; rename one", j.Name)
				}
			}
		}
		if err := j.alone(all); err != nil {
			return nil, err
		}
		later := len(out) > 0 && (wall || j.Group != group[len(out)-1] && !on(all, "new_group"))
		if delete(all, "stonewall"); later {
			all["stonewall"] = ""
		}
		if later || len(out) == 0 {
			stages = append(stages, nil)
		}
		s := &stages[len(stages)-1]
		*s = append(*s, len(out))
		out, entries, group = append(out, Ran{Job: Job{j.Name, all}, Read: j.Read, Write: j.Write}), append(entries, 1), append(group, j.Group)
	}
	for i := range out {
		if j := &out[i]; j.timed(entries[i]) {
			j.Options["time_based"] = ""
		}
	}
	sum := 0.0 // milliseconds that the stages took at least
	for _, g := range stages {
		longest := 0.0
		for _, k := range g {
			longest = max(longest, out[k].Read.RuntimeMS, out[k].Write.RuntimeMS)
			for _, other := range g {
				if other != k {
					out[k].Beside = append(out[k].Beside, out[other].Name)
				}
			}
		}
		sum += longest
	}
	if n := len(r.Jobs); n > 0 && r.Jobs[n-1].Elapsed > 0 && sum > 1e3*r.Jobs[n-1].Elapsed {
		return nil, fmt.Errorf("jobs of several groups ran at the same time: one after the other they take %.1f s, and fio took %.0f; write new_group=1, which the result has, instead of new_group", sum/1e3, r.Jobs[n-1].Elapsed)
	}
	return out, nil
}

// timed tells whether a job went on beyond its length, which so many entries of fio's had each.
func (j *Ran) timed(clones int) bool {
	if _, said := j.Options["time_based"]; said || j.Options["runtime"] == "" {
		return false
	}
	if n, err := strconv.Atoi(j.Options["numjobs"]); err == nil {
		clones = max(clones, n) // of one entry, with group_reporting
	}
	length, sized, err := lengthOf(j.Options)
	return err == nil && sized && uint64(j.Read.Bytes+j.Write.Bytes)/uint64(max(clones, 1)) > length
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
