package experiment

import (
	"bytes"
	"io"
	"os"

	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/trace"
)

// fioFile is the log that fio and replay take.
const fioFile = "io.fio"

// IOLogs are the forms of a log of single I/Os: fio's log to replay with its latency log, and blktrace's text.
var IOLogs = []string{"fio", "blkparse"}

// ioLogs are the files of each form.
var ioLogs = map[string][]struct {
	name  string
	write func(io.Writer, *ioLog) error
}{
	"fio": {
		{fioFile, func(w io.Writer, l *ioLog) error { return trace.WriteFioIOLog(w, l.disks, l.all) }},
		{"io_lat.1.log", func(w io.Writer, l *ioLog) error { return trace.WriteFioLatencyLog(w, l.all) }},
	},
	"blkparse": {{"io.blkparse", func(w io.Writer, l *ioLog) error { return trace.WriteBlkparse(w, l.all) }}},
}

// isIOLog tells whether a file begins as the log does that fio and replay take: a job file of fio may have its name.
func isIOLog(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	want := []byte("fio version ")
	head := make([]byte, len(want))
	n, _ := io.ReadFull(f, head)
	return bytes.Equal(head[:n], want)
}

// ioLog has every I/O of a run, in 56 bytes of memory each.
type ioLog struct {
	all   []trace.Request
	disks []string
}

// logIOs begins to log r, if a log is asked for.
func (o *Outputs) logIOs(r *sim.Run) *ioLog {
	l := &ioLog{}
	if len(o.IOLogs) == 0 {
		return l
	}
	number := map[string]uint16{}
	r.Watch(func(x sim.IO) {
		n, ok := number[x.Volume]
		if !ok {
			n = uint16(len(l.disks))
			number[x.Volume], l.disks = n, append(l.disks, x.Volume)
		}
		op := trace.Read
		if x.Write {
			op = trace.Write
		}
		l.all = append(l.all, trace.Request{Record: trace.Record{Time: x.Issued, Op: op, Disk: n, Offset: x.Offset, Length: uint32(x.Bytes)}, Latency: x.Done - x.Issued})
	})
	return l
}
