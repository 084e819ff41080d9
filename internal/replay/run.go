package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/arraysim/arraysim/internal/trace"
)

// RunConfig says how a trace is replayed against a target.
type RunConfig struct {
	// Open makes a session with the target; it is called once for each of Depth.
	Open func() (Target, error)
	// Depth is how many requests are in flight at most.
	Depth int
	// Speed is 1 for the trace's own timing, 2 for twice as fast; 0 is as fast as
	// the target can.
	Speed float64
	// ReadOnly leaves writes out.
	ReadOnly bool
}

// Outcome is what a run measured.
type Outcome struct {
	Reads, Writes         Latency
	SkippedWrites, Folded int64
	Late                  int64 // requests that began more than lateness behind their time
	Elapsed               time.Duration
	Errors                int64
	FirstError            error
	Size                  int64 // of the target in bytes
}

// Latency is the distribution of one kind of requests. By the trace's timing it is
// counted from the moment when a request was due, so that a target which holds the replay up does not look fast for it.
type Latency struct {
	Count, Bytes int64
	Histogram    *hdrhistogram.Histogram // nanoseconds
}

const (
	lateness = 10 * time.Millisecond
	// maxTransfer bounds one command; longer requests are sent in pieces.
	maxTransfer = 1 << 20
	// maxErrors ends a run: more are no accident.
	maxErrors = 100
)

// ErrTooManyErrors ends a run against a target that fails.
var ErrTooManyErrors = errors.New("too many requests failed")

type job struct {
	op     trace.Op
	off    int64
	length int
	due    time.Time // zero: as fast as possible
	number int64
}

// Run replays a trace against a target until its end, or until ctx ends, which is no error.
// The requests of all disks go to the one target; what lies beyond its end is
// folded into it, and counted.
func Run(ctx context.Context, src Source, cfg RunConfig) (*Outcome, error) {
	if src.Objects() {
		return nil, errors.New("a trace of objects has no addresses to replay; run it through caches with --policy")
	}
	cfg.Depth = max(cfg.Depth, 1)
	var workers []*worker
	defer func() {
		for _, w := range workers {
			w.target.Close()
		}
	}()
	for range cfg.Depth {
		t, err := cfg.Open()
		if err != nil {
			return nil, err
		}
		workers = append(workers, newWorker(t))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	jobs := make(chan job)
	var failures failures
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			for j := range jobs {
				if err := w.do(j); err != nil && failures.add(err) {
					stop()
				}
			}
		})
	}
	out := &Outcome{Size: workers[0].target.Size()}
	start := time.Now()
	err := out.feed(ctx, src, cfg, workers[0].target, jobs, start)
	close(jobs)
	wg.Wait()
	out.Elapsed = time.Since(start)
	out.Reads.Histogram, out.Writes.Histogram = newHistogram(), newHistogram()
	for _, w := range workers {
		out.Reads.add(&w.reads)
		out.Writes.add(&w.writes)
		out.Late += w.late
	}
	out.Errors, out.FirstError = failures.n, failures.first
	if err == nil && out.Errors >= maxErrors {
		err = fmt.Errorf("%w: %d, the first with: %w", ErrTooManyErrors, out.Errors, out.FirstError)
	}
	return out, err
}

// feed gives the workers the requests in time.
func (out *Outcome) feed(ctx context.Context, src Source, cfg RunConfig, target Target, jobs chan<- job, start time.Time) error {
	block, size := int64(target.BlockSize()), target.Size()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var rec trace.Record
	// A select between a ready worker and an end picks either: the end is asked for first.
	for n := int64(0); ctx.Err() == nil; n++ {
		if err := src.Next(&rec); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if rec.Op == trace.Write && cfg.ReadOnly {
			out.SkippedWrites++
			continue
		}
		j := job{op: rec.Op, number: n}
		var folded bool
		j.off, j.length, folded = fit(rec.Offset, rec.Length, block, size)
		if folded {
			out.Folded++
		}
		if cfg.Speed > 0 {
			j.due = start.Add(time.Duration(float64(rec.Time) / cfg.Speed))
			if d := time.Until(j.due); d > 0 {
				timer.Reset(d)
				select {
				case <-timer.C:
				case <-ctx.Done():
					return nil
				}
			}
		}
		select {
		case jobs <- j:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// fit makes a request one of whole blocks that lies in the target, and tells
// whether it had to be moved or cut for that.
func fit(offset uint64, length uint32, block, size int64) (off int64, n int, folded bool) {
	first := offset / uint64(block) * uint64(block)
	end := (offset + uint64(length) + uint64(block) - 1) / uint64(block) * uint64(block)
	want := int64(end - first)
	room := size / block * block
	if want > room {
		want, folded = room, true
	}
	if end > uint64(room) {
		first, folded = first%uint64(room-want+block), true
	}
	return int64(first), int(want), folded
}

// worker has one session with the target.
type worker struct {
	target        Target
	buf           []byte
	reads, writes Latency
	late          int64
}

func newWorker(t Target) *worker {
	return &worker{
		target: t, buf: make([]byte, maxTransfer),
		reads: Latency{Histogram: newHistogram()}, writes: Latency{Histogram: newHistogram()},
	}
}

// newHistogram returns one for which no latency is too long: a replay by the trace's timing may be days behind.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1000, math.MaxInt64, 3) }

func (w *worker) do(j job) error {
	start := time.Now()
	if !j.due.IsZero() {
		if start.Sub(j.due) > lateness {
			w.late++
		}
		start = j.due
	}
	l := &w.reads
	if j.op == trace.Write {
		l = &w.writes
	}
	for done := 0; done < j.length; {
		p := w.buf[:min(j.length-done, maxTransfer)]
		off := j.off + int64(done)
		var err error
		if j.op == trace.Write {
			pattern(p, off, j.number)
			err = w.target.WriteAt(p, off)
		} else {
			err = w.target.ReadAt(p, off)
		}
		if err != nil {
			return fmt.Errorf("%s of %d bytes at %d: %w", j.op, len(p), off, err)
		}
		done += len(p)
	}
	l.Count++
	l.Bytes += int64(j.length)
	return l.Histogram.RecordValue(max(int64(time.Since(start)), 1))
}

// pattern is what a replay writes: each sector says where and when it was written.
func pattern(p []byte, off, number int64) {
	for i := 0; i+trace.SectorSize <= len(p); i += trace.SectorSize {
		s := p[i : i+trace.SectorSize]
		binary.LittleEndian.PutUint64(s, uint64(off)+uint64(i))
		binary.LittleEndian.PutUint64(s[8:], uint64(number))
		for n := 16; n < len(s); n *= 2 {
			copy(s[n:], s[:n])
		}
	}
}

func (l *Latency) add(o *Latency) {
	l.Count += o.Count
	l.Bytes += o.Bytes
	l.Histogram.Merge(o.Histogram)
}

// failures counts requests that failed.
type failures struct {
	mu    sync.Mutex // guards the rest
	n     int64
	first error
}

// add tells whether there are too many now.
func (f *failures) add(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.first == nil {
		f.first = err
	}
	return f.n >= maxErrors
}
