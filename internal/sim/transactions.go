package sim

import (
	"errors"
	"fmt"
	"math/bits"
)

// Transactions is a closed loop of users: each runs one transaction after the other, and a
// transaction is steps of I/O and computing. What limits it is the latency of its I/Os, one
// behind the other, the disks, or the processors, as the workload has it.
type Transactions struct {
	Users int `yaml:"users"`
	// CPUs is the number of the guest's processors, for which users queue; 0: computing does not queue.
	CPUs  int      `yaml:"cpus"`
	Steps []TxStep `yaml:"steps"`
	// Types are kinds of transactions that are counted separately: each user picks one after the other at random.
	Types []TxType `yaml:"types"`
}

// TxStep is a part of a transaction: this many I/Os, each followed by computing, or only computing.
type TxStep struct {
	IOs         int     `yaml:"ios"`
	Write       float64 `yaml:"write"` // fraction of the I/Os
	IO          Size    `yaml:"io"`
	Outstanding int     `yaml:"outstanding"` // at a time; 0 is 1
	// Compute is processor time, half to one and a half of it.
	Compute Duration `yaml:"compute"`
	// Pattern of the addresses, within the first Span bytes after From:
	//
	//	random      uniform; a share Hot.Reads goes to the first Hot.Span bytes
	//	loop        all blocks in an order that is not that of the addresses, repeatedly
	//	sequential  one after the other, repeatedly
	//	update      the blocks that the transaction read last
	//	sparse      as random, but what is hot has holes, see Sparse
	Pattern string   `yaml:"pattern" jsonschema:"enum=random,enum=loop,enum=sequential,enum=update,enum=sparse"`
	From    Size     `yaml:"from"`
	Span    Size     `yaml:"span"`
	Hot     *HotSpec `yaml:"hot"`
	// Sparse says how hot blocks lie together: of an area of twice the I/O's size that has one,
	// this percentage have two (the last entry); of areas twice as large that have such an area, this
	// percentage two of these (the last but one), and so on.
	Sparse []uint64 `yaml:"sparse"`
	// Skew makes the hot areas that come first hotter: the share x of them, from the first on, gets
	// the share x^(1/skew) of the hot I/Os. 0 is 1: all alike.
	Skew int `yaml:"skew"`
}

func (j *JobSpec) checkTransactions() error {
	if err := j.checkUsers(); err != nil {
		return err
	}
	if err := j.checkTypes(); err != nil {
		return err
	}
	for i := range j.Steps {
		s := &j.Steps[i]
		if s.Pattern == "" {
			s.Pattern = "random"
		}
		if s.Outstanding == 0 {
			s.Outstanding = 1
		}
		switch {
		case s.Pattern == "sparse" && (len(s.Sparse) == 0 || len(s.Sparse) > 16 || s.Hot == nil):
			return fmt.Errorf("step %d: a sparse pattern has hot, and sparse with 1 to 16 percentages", i)
		case s.IOs == 0 && s.Compute == 0:
			return fmt.Errorf("step %d does nothing; give ios or compute", i)
		case s.IOs > 0 && (s.IO == 0 || s.IO%512 != 0 || s.IO > 16<<20):
			return fmt.Errorf("step %d: an I/O of %s; sizes are multiples of 512 up to 16 MiB", i, s.IO)
		case !fraction(s.Write) || s.Hot != nil && !fraction(s.Hot.Reads):
			return errors.New("fractions go from 0 to 1")
		case s.Skew < 0 || s.Skew > 16:
			return fmt.Errorf("step %d: a skew of %d is not possible; give 1 to 16", i, s.Skew)
		case s.IOs < 0 || s.Compute < 0 || s.Outstanding < 0:
			return fmt.Errorf("step %d: numbers are not negative", i)
		case s.IOs > maxAtOnce || s.Outstanding > maxAtOnce:
			return fmt.Errorf("step %d: %d I/Os, %d at a time; give up to %d", i, s.IOs, s.Outstanding, maxAtOnce)
		}
	}
	return nil
}

// transactions is a job of this kind.
type transactions struct {
	j        *job
	d        *device
	steps    []txStep
	sessions []*session
	cpus     []int64 // when each is free
	computed int64   // nanoseconds of processor time
	ioDone   func(*command)
}

// txStep is a step with what its addresses are made of.
type txStep struct {
	TxStep
	ppm, hot   uint64 // millionths: writes, I/Os to the hot part
	base       uint64
	blocks     uint64 // of IO bytes in the span
	hotBlocks  uint64
	at, stride uint64 // of loop and sequential
}

// session is a user.
type session struct {
	t       *transactions
	rng     Rand
	began   int64
	step    int
	left    int // I/Os of the step that are not begun
	flying  int // and that are not over
	bytes   uint64
	read    []uint64 // addresses of the transaction's last step that reads
	update  int
	kind    int  // its type
	partial bool // the present transaction is not a whole one
	resume  func()
	start   func()
}

func (j *job) makeTransactions(d *device) error {
	t := &transactions{j: j, d: d}
	t.ioDone = func(c *command) { c.tx.ended(c) }
	if n := j.spec.CPUs; n > 0 {
		t.cpus = make([]int64, n)
	}
	size := d.v.info.Sectors * 512
	for i := range j.spec.Steps {
		s := txStep{TxStep: j.spec.Steps[i]}
		if s.IOs > 0 {
			if err := d.v.wholeBlocks(s.IO); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
			io := uint64(s.IO)
			s.base = uint64(s.From) / io * io
			span := uint64(s.Span)
			if span == 0 {
				span = size - min(size, s.base)
			}
			if s.blocks = span / io; s.blocks == 0 || s.base+s.blocks*io > size {
				return fmt.Errorf("step %d: from %s on, %s do not fit into volume %s", i, s.From, s.Span, d.v.name)
			}
			s.ppm = uint64(s.Write*1e6 + 0.5)
			if s.Hot != nil {
				s.hot, s.hotBlocks = uint64(s.Hot.Reads*1e6+0.5), min(uint64(s.Hot.Span)/io, s.blocks)
				if s.Pattern == "sparse" {
					s.hotBlocks &^= 1<<len(s.Sparse) - 1
				}
				if s.hotBlocks == 0 {
					return fmt.Errorf("step %d: its hot span of %s is too small", i, s.Hot.Span)
				}
			}
			s.stride = coprime(s.blocks)
		}
		t.steps = append(t.steps, s)
	}
	for i := range j.spec.Users {
		s := &session{t: t, rng: newRand(j.r.s.Seed, fmt.Sprintf("%s user %d", j.spec.Name, i))}
		s.start = s.transaction
		s.resume = s.afterCompute
		t.sessions = append(t.sessions, s)
	}
	j.tx, j.types = t, make([]txTally, len(j.spec.Types))
	return nil
}

// coprime is a stride that visits n blocks in an order far from that of their addresses: near n
// by the golden ratio.
func coprime(n uint64) uint64 {
	hi, lo := bits.Mul64(n, 618_033_989)
	a, _ := bits.Div64(hi, lo, 1_000_000_000)
	for a = max(a, 1); gcd(a, n) != 1; a++ {
	}
	return a
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// begin finds the users in the midst of a transaction, each at another I/O of its first step,
// so that they do not go in step. What they are at then is not counted.
func (t *transactions) begin() {
	for _, s := range t.sessions {
		s.partial = t.steps[0].IOs > 1
		s.transaction()
	}
}

// transaction begins the session's next transaction.
func (s *session) transaction() {
	if !s.t.j.running {
		return
	}
	s.began, s.step, s.bytes = s.t.j.r.exec.Now(), -1, 0
	s.read = s.read[:0]
	s.pickType()
	s.nextStep()
}

func (s *session) nextStep() {
	s.step++
	if s.step == len(s.t.steps) {
		s.over()
		return
	}
	p := &s.t.steps[s.step]
	s.left, s.flying, s.update = s.ios(p), 0, 0
	if s.partial && s.step == 0 {
		s.left = 1 + int(s.rng.N(uint64(s.left)))
	}
	if p.IOs == 0 {
		s.flying = 1
		s.compute()
		return
	}
	for s.left > 0 && s.flying < p.Outstanding {
		s.issue()
	}
}

// issue begins the next I/O of the step.
func (s *session) issue() {
	p := &s.t.steps[s.step]
	s.left--
	s.flying++
	c := s.t.d.get(s.t.ioDone)
	c.tx = s
	write := p.ppm == 1e6 || p.ppm > 0 && s.rng.Chance(p.ppm)
	off := s.address(p)
	if !write {
		if s.update == 0 {
			s.read = s.read[:0]
			s.update = 1
		}
		s.read = append(s.read, off)
	}
	c.rw(write, off, uint64(p.IO))
	c.issued = s.t.j.r.exec.Now()
	c.send()
}

func (s *session) address(p *txStep) uint64 {
	var b uint64
	switch {
	case p.Pattern == "update" && len(s.read) > 0:
		last := len(s.read) - 1
		off := s.read[last]
		s.read = s.read[:last]
		return off
	case p.Pattern == "loop":
		p.at = (p.at + p.stride) % p.blocks
		b = p.at
	case p.Pattern == "sequential":
		b = p.at
		p.at = (p.at + 1) % p.blocks
	case p.hot > 0 && s.rng.Chance(p.hot):
		if p.Pattern == "sparse" {
			b = s.sparse(p)
		} else {
			b = s.rng.N(p.hotBlocks)
		}
	default:
		b = s.rng.N(p.blocks)
	}
	return p.base + b*uint64(p.IO)
}

// sparse picks a hot block: an area, then half of it after half. A hash of a half's place says
// whether both halves have hot blocks, or which one.
func (s *session) sparse(p *txStep) uint64 {
	n := len(p.Sparse)
	u := s.rng.Uint64() >> 32
	share := u
	for range p.Skew - 1 {
		share = share * u >> 32
	}
	at := (p.hotBlocks >> n) * share >> 32
	for level, both := range p.Sparse {
		h := Rand{at*31 + uint64(level)}
		x := h.Uint64()
		half := x >> 63
		if x%100 < both {
			half = s.rng.Uint64() >> 63
		}
		at = at*2 + half
	}
	return at
}

// ended is the end of an I/O.
func (s *session) ended(c *command) {
	j := s.t.j
	switch {
	case c.aborted:
		j.aborted++
	case c.failed:
		j.failed++
	default:
		s.bytes += c.bytes
		c.countIO(j.r.exec.Now())
	}
	if s.t.steps[s.step].Compute > 0 {
		s.compute()
		return
	}
	s.afterCompute()
}

// compute takes processor time: that of the first processor that is free.
func (s *session) compute() {
	t := s.t
	now := t.j.r.exec.Now()
	d := int64(t.steps[s.step].Compute)
	d = d/2 + int64(s.rng.N(uint64(d)))
	t.computed += d
	end := now + d
	if len(t.cpus) > 0 {
		first := 0
		for i, at := range t.cpus {
			if at < t.cpus[first] {
				first = i
			}
		}
		t.cpus[first] = max(t.cpus[first], now) + d
		end = t.cpus[first]
	}
	t.j.r.exec.Call(end, s.resume)
}

func (s *session) afterCompute() {
	s.flying--
	if s.left > 0 && s.t.j.running {
		s.issue()
		return
	}
	if s.flying == 0 && s.t.j.running {
		s.nextStep()
	}
}

// over books a transaction.
func (s *session) over() {
	j := s.t.j
	now := j.r.exec.Now()
	wait := now - s.began
	if s.partial {
		s.partial = false
		j.r.exec.Call(now, s.start)
		return
	}
	if len(j.types) > 0 {
		j.types[s.kind].n++
		j.types[s.kind].wait += wait
	}
	j.ios++
	j.bytes += s.bytes
	j.count(s.bytes, wait)
	record(j.latency, wait)
	p := &j.phase[1]
	p.ios++
	p.bytes += s.bytes
	p.wait += wait
	p.end = j.r.now()
	think := int64(j.spec.Think)
	if think > 0 {
		think = s.rng.Exp(think)
	}
	j.r.exec.Call(now+think, s.start)
}

// transactionValue is a figure of a job over an interval: transactions a minute, their mean time.
func (j *job) transactionValue(what string, from, to int64) (float64, bool) {
	switch what {
	case "cpu_percent":
		if j.spec.CPUs == 0 {
			return 0, false
		}
		return float64(j.cpuTime()) / 1e9 / j.seconds() / float64(j.spec.CPUs) * 100, true
	case "tpm", "response_s", "response_ms":
	default:
		return j.typeValue(what)
	}
	n, wait := uint64(0), int64(0)
	first, end := max(from, j.began), min(to, j.r.ending())
	if j.over {
		end = min(end, j.ended)
	}
	for i, x := range j.steps {
		if at := j.began + int64(i+1)*stepTime; at > first && at <= end {
			n += x.IOs
			wait += x.Wait
		}
	}
	switch what {
	case "response_s":
		return meanMS(wait, n) / 1000, n > 0
	case "response_ms":
		return meanMS(wait, n), n > 0
	}
	return perSecond(n, float64(max(end-first, 0))/60e9), true
}

// cpuTime is the processor time that was given out.
func (j *job) cpuTime() int64 {
	if j.tx != nil {
		return j.tx.computed
	}
	return j.computed
}
