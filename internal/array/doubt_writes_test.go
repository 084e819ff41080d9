package array

import (
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/block"
)

// TestWritesUnderWayMeetADoubt: a change that reserves space fails and cannot be taken back, while a
// command that fills the pool is under way. It gets nothing of what the change had reserved, for the
// next start may find the change done: what that start finds has its space.
func TestWritesUnderWayMeetADoubt(t *testing.T) {
	const grains, wanted = 1024, 700
	for _, what := range []string{"new volume", "larger"} {
		for _, offload := range []bool{false, true} {
			r, s := doubtRig(t, Options{CacheBytes: 4 << 20})
			r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: grains * grainBytes, Bandwidth: 256 << 20}}}, 0)
			r.pool("q", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: grains * grainBytes}}}, 0)
			thin := r.volume("thin", "p", grains*grainBytes, true)
			thick := r.volume("thick", "p", grainBytes, false)
			src := r.volume("src", "q", grains*grainBytes, true)
			fill := func() *block.Request {
				return &block.Request{Op: block.OpWriteSame, Range: rng(0, (grains-1)*windowSectors), Data: [][]byte{pattern512}}
			}
			q := fill()
			if offload {
				mustOK(t, r.do(src, fill()))
				h := &block.Request{Op: block.OpHold, Ranges: []block.Range{q.Range}}
				mustOK(t, r.do(src, h))
				q = &block.Request{Op: block.OpPlace, Range: q.Range, Ref: h.Ref, Origin: block.OriginXCopy}
			}
			ended := r.start(thin, q)
			n := 0
			s.fail = func([]block.KV) (bool, bool) { n++; return true, n == 1 }
			err := ends(r.clock, func(done func(error)) {
				if what == "larger" {
					r.a.Resize(thick, wanted*windowSectors, done)
					return
				}
				r.a.CreateVolume(VolumeSpec{Name: "new", Pool: "p", Sectors: wanted * windowSectors}, func(_ *Volume, err error) { done(err) })
			})
			if n != 2 || !errors.Is(err, errDeaf) {
				t.Fatalf("%s, offload %v: after %d batches it ended %v", what, offload, n, err)
			}
			if request.Doing(q) == "" {
				t.Fatalf("%s, offload %v: the command ended %v before that", what, offload, q.Status)
			}
			for !ended() && r.clock.Step() {
			}
			if q.Status != block.Hardware {
				t.Errorf("%s, offload %v: the command ended %v", what, offload, q.Status)
			}
			if err := r.restart(); err != nil {
				t.Fatal(err)
			}
			for _, p := range r.a.Check(true).Problems {
				t.Errorf("%s, offload %v: a start finds: %s", what, offload, p)
			}
			if free := r.a.Pool("p").Alloc.Available(); free < 0 {
				t.Errorf("%s, offload %v: a start finds %d grains more promised than there are", what, offload, -free)
			}
		}
	}
}

var pattern512 = func() []byte {
	b := make([]byte, block.SectorSize)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()
