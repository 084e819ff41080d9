package fio

import (
	"errors"
	"fmt"
	"maps"
	"strings"
)

// Job is a section of a job file with the options of the global sections before it.
type Job struct {
	Name    string
	Options map[string]string // an option without a value has ""
}

// ParseJobs reads a job file. Options are not judged here.
func ParseJobs(text string) ([]Job, error) {
	global := map[string]string{}
	var jobs []Job
	to := map[string]string(nil)
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			name, _, ok := strings.Cut(line[1:], "]")
			if !ok {
				return nil, fmt.Errorf("line %d: a section ends with ]", n)
			}
			if to = global; name != "global" {
				to = maps.Clone(global)
				jobs = append(jobs, Job{name, to})
			}
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		if to == nil {
			return nil, fmt.Errorf("line %d: %q comes before any section; write [global] or [NAME] above it", n, key)
		}
		// A comment behind a value begins with a blank and # or ;.
		for _, mark := range []string{" #", "\t#", " ;", "\t;"} {
			value, _, _ = strings.Cut(value, mark)
		}
		to[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	if len(jobs) == 0 {
		return nil, errors.New("it has no jobs; a job is a section such as [randread]")
	}
	return jobs, nil
}
