package array

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestNothingOfOthersShows: space that another volume used holds its data still, and a new owner reads zeros: of volumes that
// are new, that grew, or whose blocks were unmapped, over a restart, too.
func TestNothingOfOthersShows(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	secret := bytes.Repeat([]byte("secret! "), 64)
	old := r.volume("old", "p", 24<<20, false)
	for at := uint64(0); at < 48<<11; at += 2048 {
		mustOK(t, r.do(old, &block.Request{Op: block.OpWrite, Range: rng(at/2, 1024), Data: [][]byte{bytes.Repeat(secret, 1024)}}))
	}
	r.a.Drain(func() {})
	r.clock.Run()
	r.a.DeleteVolume(old, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	r.clock.Run()
	names := []string{"thick", "thin"}
	for _, name := range names {
		v := r.volume(name, "p", 24<<20, name == "thin")
		// Writes beside what is read: a whole page or granule must not come with the sector.
		for at := uint64(0); at < 48<<10; at += 777 {
			mustOK(t, r.do(v, &block.Request{Op: block.OpWrite, Range: rng(at, 1), Data: [][]byte{bytes.Repeat([]byte{'x'}, 512)}}))
		}
	}
	for life := range 2 {
		for _, name := range names {
			buf := make([]byte, 24<<20)
			mustOK(t, r.do(r.a.Volume(name), &block.Request{Op: block.OpRead, Range: rng(0, 48<<10), Data: [][]byte{buf}}))
			if i := bytes.Index(buf, []byte("secret")); i >= 0 {
				t.Errorf("life %d: volume %s shows what another one held, at byte %d", life, name, i)
			}
		}
		r.crash()
	}
}
