package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
)

// Check verifies the array of a data folder: through its daemon, or, when none
// runs, by opening the folder, which recovers what a crash left in the log.
// Progress goes to progress.
func Check(ctx context.Context, data string, progress io.Writer) (CheckReport, error) {
	fmt.Fprintln(progress, "asking the daemon of", data)
	r, err := NewClient(data).Check(ctx)
	if !errors.Is(err, ErrNoDaemon) {
		return r, err
	}
	// An empty folder must not become an array by being checked.
	if _, serr := os.Stat(filepath.Join(data, summaryName)); serr != nil {
		return r, fmt.Errorf("no daemon runs and there is no array in the data folder %s; name the right one by --data", data)
	}
	exec := block.NewLive()
	defer exec.Stop()
	fmt.Fprintln(progress, "no daemon runs: opening the folder and recovering its log")
	f, err := openFolder(exec, data, storeFiles)
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
	fmt.Fprintln(progress, "checking maps, reference counts, cache, checksums and counters")
	exec.Lock()
	r = report(a.Check(true))
	exec.Unlock()
	r.Offline = true
	return r, errors.Join(await(exec, a.Stop), f.close())
}
