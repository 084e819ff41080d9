package cachedaemon

import (
	"os"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
	"github.com/arraysim/arraysim/internal/lun"
)

// TestSessionTimes: whatever is sent to a peer has an end, and an array may take its time to empty
// its cache.
func TestSessionTimes(t *testing.T) {
	peer := sessionTimes(flashRole, 10*time.Second)
	if peer.Command != 10*time.Second || peer.Sync != 10*time.Second || peer.Ping+peer.Pong >= 10*time.Second {
		t.Errorf("a peer has %+v", peer)
	}
	if array := sessionTimes(backendRole, 10*time.Second); array != (lun.Times{}) {
		t.Errorf("an array has %+v", array)
	}
}

// TestFilesOfOneNameAreTwoLUNs: the flash of one must not be taken for the other's.
func TestFilesOfOneNameAreTwoLUNs(t *testing.T) {
	seen := map[[16]byte]bool{}
	for range 2 {
		t.Chdir(t.TempDir())
		if err := os.WriteFile("disk", make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // and one file is one
			d := daemon{exec: block.NewLive()}
			dev, err := d.device("disk", backendRole)
			if err != nil {
				t.Fatal(err)
			}
			seen[dev.Info().NAA] = true
			for _, fn := range d.closers {
				fn()
			}
			d.exec.Stop()
		}
	}
	if len(seen) != 2 {
		t.Errorf("two files are %d LUNs", len(seen))
	}
}

// TestFileBackendIsLocal: the cache must know that nobody reports a loss of power of it.
func TestFileBackendIsLocal(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("disk", make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	var opt tier.Options
	d := daemon{exec: block.NewLive()}
	d.cfg.Backend = "disk"
	if err := d.openBackend(&opt); err != nil {
		t.Fatal(err)
	}
	if opt.Below == nil || !opt.LocalBelow {
		t.Errorf("a file is no device of this host: %v", opt.LocalBelow)
	}
	for _, fn := range d.closers {
		fn()
	}
	d.exec.Stop()
}
