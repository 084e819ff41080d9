package fio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// Job is a section of a job file with the options of the global sections before it.
type Job struct {
	Name    string
	Options Options
}

// Options are values by their options; an option without a value has "".
type Options map[string]string

// aliases are second names of options. In fio both names are one option, which the last one decides.
var aliases = map[string]string{"readwrite": "rw", "blocksize": "bs", "blockalign": "ba", "blocksize_range": "bsrange", "io_limit": "io_size",
	"timeout": "runtime", "wait_for_previous": "stonewall", "iodepth_batch_submit": "iodepth_batch", "iodepth_batch_complete": "iodepth_batch_complete_min"}

// opposites are options of which each sets the other one, too.
var opposites = map[string]string{"direct": "buffered", "buffered": "direct", "rwmixread": "rwmixwrite", "rwmixwrite": "rwmixread"}

// set sets an option in place of what was written before, under whichever of its names.
func (o Options) set(option, value string) {
	if name, ok := aliases[option]; ok {
		option = name
	}
	delete(o, opposites[option])
	o[option] = value
}

// merge sets all options of a section whose own options are set already, so that it has one of two opposites at most.
func (o Options) merge(section Options) {
	for k, v := range section {
		o.set(k, v)
	}
}

// UnmarshalJSON implements [encoding/json.Unmarshaler]: the order of the options counts.
func (o *Options) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	switch first, err := d.Token(); {
	case err != nil:
		return err
	case first == nil: // null
		return nil
	case first != json.Delim('{'):
		return errors.New("options are an object of strings")
	}
	*o = Options{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var value string
		if err := d.Decode(&value); err != nil {
			return err
		}
		o.set(key.(string), value)
	}
	return nil
}

// ParseJobs reads a job file. Options are not judged here.
func ParseJobs(text string) ([]Job, error) {
	global := Options{}
	var jobs []Job
	to := Options(nil)
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
		to.set(strings.TrimSpace(key), strings.TrimSpace(value))
	}
	if len(jobs) == 0 {
		return nil, errors.New("it has no jobs; a job is a section such as [randread]")
	}
	return jobs, nil
}
