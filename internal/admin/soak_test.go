package admin

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
	"github.com/arraysim/arraysim/internal/testkit"
)

var (
	soakFlag     = flag.Duration("soak", 0, "how long TestSoak works; 0 is 3 seconds")
	soakSessions = flag.Int("soak.sessions", 64, "sessions of TestSoak; under the race detector a quarter of them")
)

const (
	soakLUNs   = 16
	soakArea   = 256 // units of an area
	soakUnit   = 4096
	soakDepth  = 4 // workers of a session
	soakMemory = 96 << 20
)

// soak is the daemon under load.
type soak struct {
	t      *testing.T
	r      *running
	over   atomic.Bool
	failed atomic.Bool
	done   []atomic.Int64 // commands, by session
	counts struct{ aborted, told, full, resets atomic.Int64 }
}

func (s *soak) fail(format string, args ...any) {
	s.failed.Store(true)
	s.over.Store(true)
	s.t.Errorf(format, args...)
}

func (s *soak) login(n int) *iscsi.Initiator {
	nc, err := net.Dial("tcp", s.r.d.portalAddr.String())
	if err != nil {
		s.t.Fatal(err)
	}
	cfg := iscsi.ClientConfig{Initiator: fmt.Sprintf("iqn.2026-01.host:%d", n%8), Target: "iqn.2026-01.io.arraysim:array"}
	binary.BigEndian.PutUint32(cfg.ISID[2:], uint32(n))
	i, err := iscsi.NewInitiator(nc, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

// worker works at an area of a LUN that nobody else touches, one command at a time.
type worker struct {
	*soak
	session int
	i       *iscsi.Initiator
	rng     *rand.Rand
	lun     int
	naa     []byte
	base    uint64     // first block
	may     [][]uint64 // by unit: the stamps that its sectors may have
	stamp   uint64
}

// do sends a command until it gets a real answer, and tells how it ended: "good", "aborted" or a status.
func (w *worker) do(cdb, out []byte, in []byte, abort bool) string {
	for !w.failed.Load() {
		end := make(chan struct{})
		c := &iscsi.Command{LUN: uint64(w.lun) << 48, CDB: cdb, Done: func(*iscsi.Command) { close(end) }}
		if out != nil {
			c.Out = [][]byte{out}
		}
		if in != nil {
			c.In = [][]byte{in}
		}
		w.i.Start(c)
		if abort {
			w.i.Manage(scsi.AbortTask, c.LUN, c, func(scsi.TMFResponse, error) {})
		}
		select {
		case <-end:
		case <-time.After(5 * time.Minute):
			w.fail("session %d: %x does not end", w.session, cdb)
			return "stuck"
		}
		key, _, _ := scsitest.SenseCode(c.Sense)
		switch {
		case c.Lost == iscsi.ErrAborted:
			w.counts.aborted.Add(1)
			return "aborted"
		case c.Lost != nil:
			w.fail("session %d: %v", w.session, c.Lost)
			return "lost"
		case c.Status == scsi.StatusTaskAborted:
			w.counts.aborted.Add(1)
			return "aborted"
		case c.Status == scsi.StatusTaskSetFull || c.Status == scsi.StatusBusy:
			w.counts.full.Add(1)
			time.Sleep(time.Duration(1+w.rng.IntN(5)) * time.Millisecond)
		case c.Status == scsi.StatusCheckCondition && key == 6:
			w.counts.told.Add(1)
		case c.Status == scsi.StatusGood:
			w.done[w.session].Add(1)
			return "good"
		default:
			return fmt.Sprintf("status %02x sense %x", c.Status, c.Sense)
		}
	}
	return "over"
}

func fillUnits(b []byte, stamp uint64) {
	for k := 0; stamp != 0 && k < len(b); k += 8 {
		binary.LittleEndian.PutUint64(b[k:], stamp+uint64(k%512)<<32)
	}
}

// step does one thing.
func (w *worker) step() {
	at := w.rng.IntN(soakArea)
	n := min(1+w.rng.IntN([]int{2, 16, 64}[w.rng.IntN(3)]), soakArea-at)
	lba, blocks := w.base+uint64(at)*8, n*8
	abort := w.rng.IntN(40) == 0
	w.stamp++
	next := make([][]uint64, n)
	for k := range next {
		next[k] = []uint64{w.stamp}
	}
	var cdb, out []byte
	switch k := w.rng.IntN(100); {
	case k < 35:
		w.verify(at, n)
		return
	case k < 65:
		cdb, out = scsitest.CDB(0x8A, lba, blocks), make([]byte, n*soakUnit)
		fillUnits(out, w.stamp)
	case k < 75:
		cdb = scsitest.CDB(0x93, lba, blocks)
		cdb[1] = []byte{1, 9}[w.rng.IntN(2)] // NDOB, UNMAP
		for k := range next {
			next[k] = []uint64{0}
		}
	case k < 80:
		cdb, out = scsitest.CDB(0x93, lba, blocks), make([]byte, 512)
		fillUnits(out, w.stamp)
	case k < 97:
		from := w.rng.IntN(soakArea - n + 1)
		c := [][]byte{w.naa}
		out = scsitest.CopyList(0, 3, c, [][]byte{scsitest.Segment02(0, 0, blocks, w.base+uint64(from)*8, lba, false)})
		cdb = scsitest.CopyCDB(out)
		for k := range next {
			next[k] = slices.Clone(w.may[from+k])
		}
	default:
		cdb = scsitest.CDB(0x91, 0, 0)
		next = nil
	}
	how := w.do(cdb, out, nil, abort)
	switch {
	case how != "good" && how != "aborted" && !w.failed.Load():
		w.fail("session %d LUN %d: %x ended with %s", w.session, w.lun, cdb, how)
	case how == "good":
		for k := range next {
			w.may[at+k] = next[k]
		}
	default:
		for k := range next {
			w.may[at+k] = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(w.may[at+k]), next[k]...))))
		}
	}
}

// verify reads units and compares.
func (w *worker) verify(at, n int) {
	b := make([]byte, n*soakUnit)
	for range 20 {
		how := w.do(scsitest.CDB(0x88, w.base+uint64(at)*8, n*8), nil, b, false)
		if how == "aborted" {
			continue
		}
		if how != "good" {
			if !w.failed.Load() {
				w.fail("session %d LUN %d: READ of %d units from %d ended with %s", w.session, w.lun, n, at, how)
			}
			return
		}
		break
	}
	var want [512]byte
	for k := range n {
		var seen []uint64
		for s := range soakUnit / 512 {
			x := b[k*soakUnit+s*512:][:512]
			stamp := binary.LittleEndian.Uint64(x)
			clear(want[:])
			fillUnits(want[:], stamp)
			if string(x) != string(want[:]) || !slices.Contains(w.may[at+k], stamp) {
				w.fail("session %d LUN %d unit %d sector %d reads %x, it may be %x", w.session, w.lun, at+k, s, stamp, w.may[at+k])
				return
			}
			seen = append(seen, stamp)
		}
		slices.Sort(seen)
		w.may[at+k] = slices.Compact(seen)
	}
}

func soakConfig() string {
	var b strings.Builder
	fmt.Fprintf(&b, `
cache: {size: 32MiB}
portal: {listen: "127.0.0.1:0", memory: %dMiB}
metrics: {listen: "127.0.0.1:0"}
pools:
  - {name: gold, mdisks: [{name: m0, size: 4GiB}, {name: m1, size: 4GiB}]}
  - {name: silver, copy: data, mdisks: [{name: m0, size: 4GiB}]}
volumes:
`, soakMemory>>20)
	for i := range soakLUNs {
		fmt.Fprintf(&b, "  - {name: v%d, pool: %s, size: 256MiB, export: {lun: %d}}\n", i, []string{"gold", "silver"}[i%2], i)
	}
	return b.String()
}

func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// TestSoak: many sessions work at many LUNs with all kinds of commands, while tasks are aborted and LUNs are reset. All
// data is right, every session gets its share, the process stays small, and nothing is left behind.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	limit, sessions := *soakFlag, *soakSessions
	if limit == 0 {
		limit = 3 * time.Second
	}
	if underRace {
		sessions /= 4
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // the heap that it judges is no other where GOGC is set
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	s := &soak{t: t, r: start(t, parse(t, soakConfig(), filepath.Join(t.TempDir(), "d"))), done: make([]atomic.Int64, sessions)}
	seed := testkit.Seed(t)
	var wg, reset sync.WaitGroup
	var inits []*iscsi.Initiator
	for n := range sessions {
		i := s.login(n)
		inits = append(inits, i)
		for d := range soakDepth {
			w := &worker{soak: s, session: n, i: i, rng: rand.New(rand.NewPCG(seed, uint64(n*soakDepth+d))), lun: n % soakLUNs, may: make([][]uint64, soakArea)}
			w.base = uint64(n/soakLUNs*soakDepth+d) * soakArea * 8
			w.stamp = uint64(n*soakDepth+d+1) << 20
			for k := range w.may {
				w.may[k] = []uint64{0}
			}
			id := s.r.volumeOf(fmt.Sprintf("v%d", w.lun)).Info().NAA
			w.naa = slices.Concat([]byte{0xE4, 0, 0, 0, 1, 3, 0, 16}, id[:], make([]byte, 8))
			w.naa[30] = 2
			wg.Go(func() {
				for !s.over.Load() {
					w.step()
				}
				if !s.failed.Load() {
					w.verify(0, soakArea)
				}
			})
		}
	}
	chief := s.login(sessions)
	reset.Go(func() { s.resets(chief) })
	most := s.watch(limit)
	s.over.Store(true)
	wg.Wait()
	reset.Wait()
	if rep, err := s.r.Check(t.Context()); err != nil || len(rep.Problems) > 0 {
		t.Errorf("check: %v %v", rep.Problems, err)
	}
	for _, i := range append(inits, chief) {
		i.Close()
	}
	s.report(most)
	s.r.stop()
	// What ends does so soon, but not at once, and not at all while it lacks a processor.
	for end := time.Now().Add(time.Minute); (runtime.NumGoroutine() > goroutines || descriptors(t) > files) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if g, f := runtime.NumGoroutine(), descriptors(t); g > goroutines || f > files {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines and %d descriptors are left behind:\n%s", g-goroutines, f-files, buf[:runtime.Stack(buf, true)])
	}
}

// resets resets a LUN now and then.
func (s *soak) resets(chief *iscsi.Initiator) {
	for n := 0; !s.over.Load(); n++ {
		time.Sleep(200 * time.Millisecond)
		end := make(chan error, 1)
		chief.Manage(scsi.LogicalUnitReset, uint64(n%soakLUNs)<<48, nil, func(r scsi.TMFResponse, err error) {
			if err == nil && r != scsi.TMFComplete {
				err = fmt.Errorf("response %d", r)
			}
			end <- err
		})
		select {
		case err := <-end:
			if err != nil {
				s.fail("LOGICAL UNIT RESET: %v", err)
			}
			s.counts.resets.Add(1)
		case <-time.After(5 * time.Minute):
			s.fail("LOGICAL UNIT RESET does not end")
		}
	}
}

// watch waits, and returns the largest heap that it saw, in bytes.
func (s *soak) watch(limit time.Duration) (most uint64) {
	var m runtime.MemStats
	tick, tell := time.NewTicker(100*time.Millisecond), time.NewTicker(time.Minute)
	defer tick.Stop()
	defer tell.Stop()
	began := time.Now()
	for end := time.Now().Add(limit); time.Now().Before(end) && !s.over.Load(); {
		select {
		case now := <-tell.C:
			s.t.Logf("%v of %v", now.Sub(began).Round(time.Second), limit)
		case <-tick.C:
		}
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapInuse)
		if held := s.r.d.portal.Held(); held > soakMemory {
			s.fail("commands in progress hold %d bytes, the limit is %d", held, soakMemory)
		}
	}
	return most
}

// report prints figures and judges those that do not depend on the machine.
func (s *soak) report(most uint64) {
	var all []int64
	sum := int64(0)
	for i := range s.done {
		all = append(all, s.done[i].Load())
		sum += s.done[i].Load()
	}
	slices.Sort(all)
	s.t.Logf("%d commands of %d sessions: %d at least, %d median, %d at most; %d aborted, %d resets, %d unit attentions, %d told TASK SET FULL; heap at most %d MiB",
		sum, len(all), all[0], all[len(all)/2], all[len(all)-1], s.counts.aborted.Load(), s.counts.resets.Load(), s.counts.told.Load(), s.counts.full.Load(), most>>20)
	if all[0] == 0 {
		s.t.Error("a session was never served")
	}
	// Both ends are in this process: the workers' buffers, and the daemon's maps, its cache's index and its data in progress.
	if most > 1<<30 {
		s.t.Errorf("the heap grew to %d MiB", most>>20)
	}
}
