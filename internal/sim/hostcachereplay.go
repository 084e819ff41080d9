package sim

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/arraysim/arraysim/internal/trace"
)

// Source is a trace to be replayed: Next fills in the next request and returns io.EOF behind the last.
type Source interface {
	Next(*trace.Record) error
}

// TraceSpec says how a job of kind trace replays the scenario's source.
type TraceSpec struct {
	// Speed is 1 for the trace's own timing, 2 for twice as fast; 0 is as fast as possible, with Depth
	// requests in flight. With the trace's timing, Depth limits them too, if it is given.
	Speed    float64 `yaml:"speed"`
	Depth    int     `yaml:"depth"`
	ReadOnly bool    `yaml:"read_only"`
}

// Replayed is what became of the requests of one kind. Latency counts from when a request was due.
type Replayed struct {
	Count, Bytes int64
	Histogram    *hdrhistogram.Histogram // nanoseconds
}

// ReplayOutcome is what a job of kind trace did.
type ReplayOutcome struct {
	Reads, Writes         Replayed
	SkippedWrites, Folded int64
	Failed                int64
	Nanoseconds           int64 // from the first request to the end of the last
	VolumeBytes           int64
}

// replaying is a job of this kind.
type replaying struct {
	j      *job
	d      *device
	src    Source
	rec    trace.Record
	ready  bool // rec is the next request
	ended  bool // there is none any more
	flying int
	size   uint64
	block  uint64
	out    *ReplayOutcome
	timer  bool
	turn   func()
	piece  func(*command)
	free   *replayIO
}

// replayIO is a request on its way; a long one goes in pieces.
type replayIO struct {
	p     *replaying
	write bool
	off   uint64
	left  uint64
	bytes uint64
	due   int64
	fail  bool
	next  *replayIO
}

// replayPiece is the most that one command of a replay carries, as of one against a LUN.
const replayPiece = 1 << 20

func (j *job) makeReplay(d *device) error {
	if j.r.s.Replay == nil {
		return errors.New("a job of kind trace needs a trace; run the scenario with arraysim replay TRACE --virtual")
	}
	p := &replaying{j: j, d: d, src: j.r.s.Replay, size: d.v.info.Sectors * 512, block: uint64(d.v.info.BlockSize)}
	p.out = &ReplayOutcome{VolumeBytes: int64(p.size), Reads: Replayed{Histogram: newLatencies(3)}, Writes: Replayed{Histogram: newLatencies(3)}}
	j.replayed = p.out
	p.turn = func() {
		p.timer = false
		p.feed()
	}
	p.piece = func(c *command) { c.replay.pieceDone(c) }
	j.work = p.feed
	return nil
}

// Replayed returns what the first job of kind trace did; nil if there is none.
func (r *Run) Replayed() *ReplayOutcome {
	for _, j := range r.jobs {
		if j.replayed != nil {
			j.replayed.Failed = int64(j.failed)
			j.replayed.Nanoseconds = int64(j.seconds() * 1e9)
			return j.replayed
		}
	}
	return nil
}

// feed begins the requests that are due.
func (p *replaying) feed() {
	s := &p.j.spec.Trace
	depth := s.Depth
	if depth == 0 && s.Speed == 0 {
		depth = 8
	}
	for p.j.running && (depth == 0 || p.flying < depth) {
		if !p.ready && !p.read() {
			break
		}
		due := p.j.r.exec.Now()
		if s.Speed > 0 {
			at := p.j.r.start + p.j.began + int64(float64(p.rec.Time)/s.Speed)
			if at > due {
				if !p.timer {
					p.timer = true
					p.j.r.exec.Call(at, p.turn)
				}
				return
			}
			due = at
		}
		p.ready = false
		p.begin(due)
	}
	if p.ended && p.flying == 0 && p.j.running {
		p.j.stop()
	}
}

// read gets the next request that is wanted.
func (p *replaying) read() bool {
	for !p.ended {
		if err := p.src.Next(&p.rec); err != nil {
			p.ended = true
			if !errors.Is(err, io.EOF) {
				p.j.r.problem = fmt.Errorf("job %s: %w", p.j.spec.Name, err)
			}
			return false
		}
		if p.rec.Op == trace.Write && p.j.spec.Trace.ReadOnly {
			p.out.SkippedWrites++
			continue
		}
		p.ready = true
		return true
	}
	return false
}

func (p *replaying) begin(due int64) {
	x := p.free
	if x == nil {
		x = &replayIO{p: p}
	} else {
		p.free = x.next
	}
	off, n, folded := fold(p.rec.Offset, uint64(p.rec.Length), p.block, p.size)
	if folded {
		p.out.Folded++
	}
	*x = replayIO{p: p, write: p.rec.Op == trace.Write, off: off, left: n, bytes: n, due: due}
	p.flying++
	x.send()
}

// fold makes a request one of whole blocks that lies in a volume, and tells whether it had to be moved
// or cut for that.
func fold(off, bytes, block, size uint64) (at, n uint64, folded bool) {
	first, end := off/block*block, (off+bytes+block-1)/block*block
	room := size / block * block
	if n = end - first; n > room {
		n, folded = room, true
	}
	if end > room {
		first, folded = first%(room-n+block), true
	}
	return first, n, folded
}

func (x *replayIO) send() {
	n := min(x.left, replayPiece)
	c := x.p.d.get(x.p.piece)
	c.replay = x
	c.rw(x.write, x.off, n)
	c.issued = x.p.j.r.exec.Now()
	x.off, x.left = x.off+n, x.left-n
	c.send()
}

func (x *replayIO) pieceDone(c *command) {
	p := x.p
	if c.failed || c.aborted {
		x.fail = true
	} else {
		c.countIO(p.j.r.exec.Now())
	}
	if x.left > 0 && !x.fail {
		x.send()
		return
	}
	p.flying--
	l := &p.out.Reads
	if x.write {
		l = &p.out.Writes
	}
	wait := p.j.r.exec.Now() - x.due
	if x.fail {
		p.j.failed++
	} else {
		l.Count++
		l.Bytes += int64(x.bytes)
		record(l.Histogram, max(wait, 1))
		p.j.ios++
		p.j.bytes += x.bytes
		p.j.count(x.bytes, wait)
		record(p.j.latency, wait)
		p.j.phase[1].ios++
		p.j.phase[1].bytes += x.bytes
		p.j.phase[1].wait += wait
		p.j.phase[1].end = p.j.r.now()
	}
	x.next = p.free
	p.free = x
	p.feed()
}

// AddReplay adds a job that replays the scenario's source to a volume, in the place of those of kind trace that
// it has; "" is the first cached volume, else the first of all. Other jobs run beside it.
func (s *Scenario) AddReplay(volume string, t TraceSpec) error {
	host := &s.Hosts[0]
	for i := range s.Hosts {
		for _, c := range s.Hosts[i].Cache {
			if volume == "" || volume == c.Volume {
				host, volume = &s.Hosts[i], c.Volume
			}
		}
	}
	for _, a := range s.Arrays {
		if volume == "" && len(a.Volumes) > 0 {
			volume = numbered(a.Volumes[0].Name, 0, a.Volumes[0].Count)
		}
	}
	j := JobSpec{Name: "trace", Kind: "trace", Host: host.Name, Volume: volume, Disk: diskRaw, Trace: t}
	if err := j.check(); err != nil {
		return err
	}
	jobs := []JobSpec{j}
	for _, o := range s.Jobs {
		if o.Kind != "trace" && o.Name != j.Name {
			jobs = append(jobs, o)
		}
	}
	s.Jobs = jobs
	return nil
}

// Problem is what went wrong in the run itself, such as a source that cannot be read.
func (r *Run) Problem() error { return r.problem }

// CacheReport returns the table of the host caches, "" if there are none.
func (r *Run) CacheReport() string {
	var b strings.Builder
	r.reportCaches(&b)
	return b.String()
}
