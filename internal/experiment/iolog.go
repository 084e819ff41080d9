package experiment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/tidy"
	"github.com/arraysim/arraysim/internal/trace"
)

// IOLogs are the forms of a log of single I/Os: fio's log to replay with its latency log, and blktrace's text.
var IOLogs = []string{"fio", "blkparse"}

// IOLog writes every I/O of a run into its folder. It keeps 56 bytes of each until the run ends.
type IOLog struct {
	forms []string
	dir   func(*sim.Scenario) string
}

// NewIOLog returns a log in some of the forms of IOLogs.
func NewIOLog(forms []string, dir func(*sim.Scenario) string) (*IOLog, error) {
	for _, f := range forms {
		if !slices.Contains(IOLogs, f) {
			return nil, fmt.Errorf("%q is unknown; it is one of %s", f, strings.Join(IOLogs, ", "))
		}
	}
	return &IOLog{forms, dir}, nil
}

// Attach begins to log r; done writes the files of a run that is to keep them.
func (l *IOLog) Attach(s *sim.Scenario, r *sim.Run) (done func(keep bool) error, err error) {
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
	return func(keep bool) error {
		if !keep {
			return nil
		}
		write := func(name string, fn func(io.Writer) error) error {
			if err := tidy.Replace(filepath.Join(dir, name), fn); err != nil {
				return fmt.Errorf("output: %w", err)
			}
			return nil
		}
		var errs []error
		for _, form := range l.forms {
			if form == "blkparse" {
				errs = append(errs, write(blkparseFile, func(w io.Writer) error { return trace.WriteBlkparse(w, all) }))
				continue
			}
			errs = append(errs, write(fioFile, func(w io.Writer) error { return trace.WriteFioIOLog(w, disks, all) }),
				write(fioLatencyFile, func(w io.Writer) error { return trace.WriteFioLatencyLog(w, all) }))
		}
		return errors.Join(errs...)
	}, nil
}
