package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/trace"
)

// ioLogs are the forms of a log of single I/Os, each with what it is.
var ioLogs = []string{"fio", "blkparse"}

// ioLog writes every I/O of a run into its folder. It keeps 56 bytes of each until the run ends.
type ioLog struct {
	forms []string
	dir   func(*sim.Scenario) string
}

func newIOLog(forms []string, dir func(*sim.Scenario) string) (*ioLog, error) {
	for _, f := range forms {
		if !slices.Contains(ioLogs, f) {
			return nil, fmt.Errorf("--io-log: %q is not known; it is one of %s", f, strings.Join(ioLogs, ", "))
		}
	}
	return &ioLog{forms, dir}, nil
}

// attach begins to log r; done writes the files.
func (l *ioLog) attach(s *sim.Scenario, r *sim.Run) (done func() error, err error) {
	dir := l.dir(s)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	var all []trace.Request
	var disks []string
	number := map[string]uint16{}
	r.Watch(func(x sim.IO) {
		n, ok := number[x.Volume]
		if !ok {
			n = uint16(len(disks))
			number[x.Volume], disks = n, append(disks, x.Volume)
		}
		op := trace.Read
		if x.Write {
			op = trace.Write
		}
		all = append(all, trace.Request{Record: trace.Record{Time: x.Issued, Op: op, Disk: n, Offset: x.Offset, Length: uint32(x.Bytes)}, Latency: x.Done - x.Issued})
	})
	return func() error {
		write := func(name string, fn func(io.Writer) error) error {
			f, err := os.Create(filepath.Join(dir, name))
			if err != nil {
				return fmt.Errorf("output: %w", err)
			}
			return errors.Join(fn(f), f.Close())
		}
		var errs []error
		for _, form := range l.forms {
			if form == "blkparse" {
				errs = append(errs, write("io.blkparse", func(w io.Writer) error { return trace.WriteBlkparse(w, all) }))
				continue
			}
			errs = append(errs, write("io.fio", func(w io.Writer) error { return trace.WriteFioIOLog(w, disks, all) }),
				write("io_lat.1.log", func(w io.Writer) error { return trace.WriteFioLatencyLog(w, all) }))
		}
		return errors.Join(errs...)
	}, nil
}

// attachment watches a run from its beginning; what it returns ends that.
type attachment func(*sim.Scenario, *sim.Run) (func() error, error)

// together is several of them, nil if there is none.
func together(all []attachment) attachment {
	if len(all) == 0 {
		return nil
	}
	return func(s *sim.Scenario, r *sim.Run) (func() error, error) {
		var ends []func() error
		for _, a := range all {
			end, err := a(s, r)
			if err != nil {
				return nil, err
			}
			ends = append(ends, end)
		}
		return func() error {
			var errs []error
			for _, end := range ends {
				errs = append(errs, end())
			}
			return errors.Join(errs...)
		}, nil
	}
}
