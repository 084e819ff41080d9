package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
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
		return r, fmt.Errorf("no daemon runs and there is no array in the data folder %s; name the right one by --data", data)
	}
	exec := block.NewLive()
	stop := sync.OnceFunc(exec.Stop)
	defer stop()
	fmt.Fprintln(opt.Log, "no daemon runs: opening the folder and recovering its log")
	f, err := openFolder(exec, data, storeFiles, aioAuto, func(line string) { fmt.Fprintln(opt.Log, line) })
	if err != nil {
		return r, err
	}
	s, err := f.readSummary()
	var a *array.Array
	if err == nil {
		a, err = f.openArray(exec, s.CacheBytes, nil)
	}
	if err != nil {
		return r, errors.Join(err, f.close())
	}
	fmt.Fprintln(opt.Log, "checking maps, reference counts, cache, checksums and counters")
	copies := a.CheckCopies()
	rep, mended, err := verify(ctx, exec, a, opt.Repair, opt.Progress)
	rep.Problems = append(rep.Problems, copies...)
	r = report(rep)
	r.Offline = true
	if mended > 0 {
		fmt.Fprintf(opt.Log, "restored %d sectors\n", mended)
	}
	err = errors.Join(err, await(exec, a.Stop))
	stop() // a timer of the array must not find its NVRAM gone
	return r, errors.Join(err, f.close())
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
	for more := true; more; {
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
				x.Lock()
				v.Stop()
				x.Unlock()
				return v.Report(), v.Mended, ctx.Err()
			}
		}
	}
	if progress != nil {
		read, _ := v.Progress()
		progress(read, read)
	}
	return v.Report(), v.Mended, nil
}
