package wasm

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/hostcache"
	"github.com/arraysim/arraysim/lab/plug"
)

// clock is examples/wasm/clock.c in Go.
type clock struct {
	state []uint8
	hand  int
}

func (c *clock) Insert(slot int, _ uint64) { c.state[slot] = 1 }
func (c *clock) Hit(slot int)              { c.state[slot] = 2 }
func (c *clock) Remove(slot int)           { c.state[slot] = 0 }
func (c *clock) Victim(pinned func(int) bool) int {
	for {
		if c.hand++; c.hand >= len(c.state) {
			c.hand = 0
		}
		if c.state[c.hand] == 1 && !pinned(c.hand) {
			return c.hand
		}
		if c.state[c.hand] == 2 {
			c.state[c.hand] = 1
		}
	}
}

// piped is what BenchmarkReferences compares with: a policy in another process. Calls that have no answer are
// gathered, and sent with the next question.
type piped struct {
	cmd *exec.Cmd
	to  *bufio.Writer
	in  io.WriteCloser
	out *bufio.Reader
	err error
}

func newPiped(b *testing.B, blocks int64) *piped {
	p := &piped{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), "PIPED_CLOCK=1")
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	p.to, p.out = bufio.NewWriterSize(p.in, 64<<10), bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	p.send(0, uint64(blocks))
	return p
}

func (p *piped) send(op byte, n uint64) {
	var m [9]byte
	m[0] = op
	binary.LittleEndian.PutUint64(m[1:], n)
	if _, err := p.to.Write(m[:]); err != nil {
		p.err = err
	}
}

func (p *piped) Insert(slot int, _ uint64) { p.send(1, uint64(slot)) }
func (p *piped) Hit(slot int)              { p.send(2, uint64(slot)) }
func (p *piped) Remove(slot int)           { p.send(3, uint64(slot)) }
func (p *piped) Err() error                { return p.err }
func (p *piped) Victim(func(int) bool) int {
	p.send(4, 0)
	p.err = p.to.Flush()
	var m [8]byte
	if _, err := io.ReadFull(p.out, m[:]); err != nil {
		p.err = err
	}
	return int(binary.LittleEndian.Uint64(m[:]))
}

// serveClock is the other process.
func serveClock() {
	in, out := bufio.NewReaderSize(os.Stdin, 64<<10), os.Stdout
	c := &clock{}
	var m [9]byte
	for {
		if _, err := io.ReadFull(in, m[:]); err != nil {
			return
		}
		n := binary.LittleEndian.Uint64(m[1:])
		switch m[0] {
		case 0:
			c.state = make([]uint8, n)
		case 1:
			c.Insert(int(n), 0)
		case 2:
			c.Hit(int(n))
		case 3:
			c.Remove(int(n))
		case 4:
			v := c.Victim(func(int) bool { return false })
			if _, err := out.Write(binary.LittleEndian.AppendUint64(nil, uint64(v))); err != nil {
				return
			}
		}
	}
}

func TestMain(m *testing.M) {
	if os.Getenv("PIPED_CLOCK") != "" {
		serveClock()
		return
	}
	os.Exit(m.Run())
}

// cpuSeconds is the processor time of this process.
func cpuSeconds() float64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // it cannot fail for oneself
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkReferences prints references a second, of wall time and of this process's processor time, of an index
// whose CLOCK is built in, plugged in as Go, a module, and another process behind pipes; with a cache that hits nine
// times in ten, and with one that misses nine times in ten.
func BenchmarkReferences(b *testing.B) {
	code, err := os.ReadFile("../../examples/wasm/clock.wasm")
	if err != nil {
		b.Fatal(err)
	}
	const blocks = 1 << 18
	r := rand.New(rand.NewPCG(1, 2))
	skewed, flat := make([]hostcache.Key, 1<<21), make([]hostcache.Key, 1<<21)
	for i := range skewed {
		skewed[i] = hostcache.Key(math.Exp(r.Float64()*math.Log(blocks))) * 7919 % blocks
		flat[i] = hostcache.Key(r.Uint64N(blocks))
	}
	for _, load := range []struct {
		name     string
		refs     []hostcache.Key
		capacity int64
		warm     int
	}{{"hits", skewed, blocks / 5, 1 << 20}, {"misses", flat, blocks / 10, blocks / 4}} {
		for name, mk := range map[string]func(int64) plug.Eviction{
			"built-in": nil,
			"go":       func(n int64) plug.Eviction { return &clock{state: make([]uint8, n)} },
			"wasm":     func(n int64) plug.Eviction { return mustNew(b, code, int(n)) },
			"pipe":     func(n int64) plug.Eviction { return newPiped(b, n) },
		} {
			b.Run(load.name+"/"+name, func(b *testing.B) {
				var made plug.Eviction
				cfg := hostcache.Config{Policy: "clock", Capacity: load.capacity}
				if mk != nil {
					cfg.Plugged = func(n int64) plug.Eviction { made = mk(n); return made }
				}
				ix, err := hostcache.New(cfg)
				if err != nil {
					b.Fatal(err)
				}
				for _, k := range load.refs[len(load.refs)-load.warm:] {
					ix.Access(k, 0)
				}
				before := ix.Stats()
				b.ReportAllocs()
				b.ResetTimer()
				began := cpuSeconds()
				for i := range b.N {
					ix.Access(load.refs[i&(len(load.refs)-1)], 0)
				}
				cpu := cpuSeconds() - began
				b.StopTimer()
				if err := ix.Err(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(100*float64(ix.Stats().Hits-before.Hits)/float64(b.N), "%hits")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mref/s")
				b.ReportMetric(float64(b.N)/max(cpu, 1e-6)/1e6, "Mref/cpu-s")
				switch p := made.(type) {
				case *Policy:
					_ = p.Close()
				case *piped:
					_ = p.in.Close()
					_ = p.cmd.Wait()
				}
			})
		}
	}
}

// dice is a source of random numbers for tests.
type dice struct{ *rand.Rand }

func (d dice) N(n uint64) uint64 { return d.Uint64N(n) }

func mustNew(t testing.TB, code []byte, blocks int) *Policy {
	p, err := New(code, plug.Cache{Blocks: blocks, BlockBytes: 8192, Random: dice{rand.New(rand.NewPCG(1, 2))}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
