package admin

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
)

// TestStartThatFailsLetsGo: a start that finds an I/O group that cannot be opened keeps no folder of the array locked.
func TestStartThatFailsLetsGo(t *testing.T) {
	cfg := parse(t, groupConfig, t.TempDir())
	start(t, cfg).stop()
	folders := []string{cfg.Data, groupPath(cfg.Data, 1)}
	for _, broken := range folders {
		path := filepath.Join(broken, "nvram")
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write := func(b []byte) {
			t.Helper()
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(b, 0); err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		write(make([]byte, 4096))
		d := newDaemon(parse(t, groupConfig, cfg.Data), Environment{Out: io.Discard, Log: slog.New(slog.DiscardHandler)})
		if err := d.run(t.Context()); err == nil {
			t.Fatalf("%s is damaged, and the array starts", path)
		}
		for _, dir := range folders {
			x := block.NewLive()
			s, err := store.OpenFiles(x, dir, store.FilesOptions{})
			if err != nil {
				t.Errorf("with a damaged %s: %v", path, err)
				continue
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			x.Stop()
		}
		write(was[:4096])
	}
	start(t, parse(t, groupConfig, cfg.Data)).stop()
}
