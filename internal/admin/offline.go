package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
)

// CheckOptions say how an array is checked.
type CheckOptions struct {
	// Repair mends sectors of data at rest in which a single bit was flipped. It needs
	// the daemon to be stopped.
	Repair bool
	// Log hears what is done; Progress of an offline check, how many bytes of data at rest were
	// read of how many. It may be nil.
	Log      io.Writer
	Progress func(read, total int64)
}

// Check verifies the array of a data folder: through its daemon, or, when none
// runs, by opening the folder, which recovers what a crash left in the log.
func Check(ctx context.Context, data string, opt CheckOptions) (CheckReport, error) {
	fmt.Fprintln(opt.Log, "asking the daemon of", data)
	client := NewClient(data)
	if opt.Repair {
		if _, err := client.Status(ctx); err == nil {
			return CheckReport{}, fmt.Errorf("a daemon serves %s; stop it to repair", data)
		}
	}
	r, err := client.Check(ctx)
	if !errors.Is(err, ErrNoDaemon) {
		return r, err
	}
	// An empty folder must not become an array by being checked.
	if _, serr := os.Stat(filepath.Join(data, summaryName)); serr != nil {
		return r, fmt.Errorf("no daemon runs and there is no array in the data folder %s; choose the right one with --data", data)
	}
	fmt.Fprintln(opt.Log, "no daemon runs: opening the folder and recovering its log")
	return checkOffline(ctx, data, opt)
}

// offlineGroup is an I/O group of an array that no daemon serves.
type offlineGroup struct {
	exec  *block.Live
	data  *folder
	array *array.Array // nil when it could not be opened
}

func (g *offlineGroup) close() error {
	var err error
	if g.array != nil {
		err = await(g.exec, g.array.Stop)
	}
	g.exec.Stop() // a timer of the array must not find its NVRAM gone
	return errors.Join(err, g.data.close())
}

// checkOffline opens all I/O groups of a folder, the first one until the last is checked, so that nobody serves it
// meanwhile.
func checkOffline(ctx context.Context, data string, opt CheckOptions) (r CheckReport, err error) {
	var all array.Report
	restored := 0
	root := &folder{path: data, kind: storeFiles}
	whole, err := root.whole()
	if err != nil {
		return r, err
	}
	n := max(whole.IOGroups, 1) // what else there is has no pools
	for i := range n {
		part := *root
		if i > 0 {
			if part, err = root.part(i, whole.ID); err != nil {
				return r, err
			}
		}
		g := &offlineGroup{exec: block.NewLive(), data: &part}
		if err := part.open(g.exec, aioAuto, n, func(line string) { fmt.Fprintln(opt.Log, line) }); err != nil {
			g.exec.Stop()
			return r, err
		}
		defer func() { err = errors.Join(err, g.close()) }()
		if g.array, err = part.openArray(g.exec, whole.CacheBytes, false, nil, opt.starts(ctx)); err != nil {
			return r, err
		}
		if i == 0 {
			fmt.Fprintln(opt.Log, "checking maps, reference counts, cache, checksums and counters")
		}
		g.exec.Lock() // garbage is collected meanwhile, and reads pages
		copies := g.array.CheckCopies()
		g.exec.Unlock()
		rep, mended, err := verify(ctx, g.exec, g.array, opt.Repair, opt.Progress)
		if err != nil {
			return r, err
		}
		rep.Problems = append(rep.Problems, copies...)
		all, restored = all.Plus(inGroup(rep, i, n)), restored+mended
	}
	if restored > 0 {
		fmt.Fprintf(opt.Log, "restored %d sectors\n", restored)
	}
	r = report(all)
	r.Offline = true
	return r, nil
}

// starts returns who hears of a start, which ends with ctx.
func (opt *CheckOptions) starts(ctx context.Context) func(array.Progress) error {
	var told time.Time
	return func(p array.Progress) error {
		if now := time.Now(); p.Pool != "" && now.Sub(told) >= startTold {
			told = now
			fmt.Fprintf(opt.Log, "%s of pool %s, because thick volumes need its space: %d pages of maps so far\n", p.Step, p.Pool, p.Collected)
		}
		return ctx.Err()
	}
}

// inGroup says of each problem in which of n I/O groups it is.
func inGroup(r array.Report, number, n int) array.Report {
	for i, p := range r.Problems {
		if n > 1 {
			r.Problems[i] = fmt.Sprintf("I/O group %d: %s", number, p)
		}
	}
	return r
}

// progressInterval is the time between two calls of a progress function.
const progressInterval = 200 * time.Millisecond

// verify checks an array step by step, so that others come in between.
func verify(ctx context.Context, x block.Executor, a *array.Array, repair bool, progress func(read, total int64)) (array.Report, int, error) {
	x.Lock()
	v := a.NewVerify(repair)
	x.Unlock()
	t := time.NewTicker(progressInterval)
	defer t.Stop()
	end := make(chan bool, 1)
	for more := true; more && ctx.Err() == nil; {
		x.Lock()
		v.Step(func(m bool) { end <- m })
		x.Unlock()
		for waiting := true; waiting; {
			select {
			case more = <-end:
				waiting = false
			case <-t.C:
				if progress != nil {
					x.Lock()
					read, total := v.Progress()
					x.Unlock()
					progress(read, total)
				}
			case <-ctx.Done():
				waiting = false
			}
		}
	}
	if ctx.Err() != nil {
		x.Lock()
		v.Stop()
		x.Unlock()
		return v.Report(), v.Mended, ctx.Err()
	}
	if progress != nil {
		read, _ := v.Progress()
		progress(read, read)
	}
	return v.Report(), v.Mended, nil
}
