package link

import (
	"bytes"
	"context"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

const copyHost = "iqn.2026-11.org.example:h"

// TestCopyBetweenArrays: an EXTENDED COPY that comes to the destination's array copies what a volume of another array has,
// moves no zeros, and is counted once: as undercover writes at the destination, as reads of its lower layer at the source.
func TestCopyBetweenArrays(t *testing.T) {
	const n = 3000                    // sectors, of which the second half is not written
	for _, lun := range []int{0, 1} { // to the destination's unit, to one beside it
		r := newCopyRig(t)
		data := stamps(3, n/2*512)
		r.src.write(0, 100, data)
		r.dst.write(0, 77, stamps(9, n*512))
		r.src.login(copyHost)
		h := r.dst.login(copyHost)
		if got := end(h.Do(copies(lun, r.src.names(0), r.dst.names(0), n, 100, 77))); got != "00" {
			t.Fatalf("the copy by LUN %d ends with %s", lun, got)
		}
		if want := append(bytes.Clone(data), make([]byte, n/2*512)...); !bytes.Equal(r.dst.read(0, 77, n), want) {
			t.Error("the destination has other data")
		}
		if got := r.dst.flow(0, block.OriginXCopy); got.In() != uint64(len(data)) {
			t.Errorf("the destination's cache took %d bytes of the copy, want %d", got.In(), len(data))
		}
		if got := r.src.flow(0, block.OriginXCopy); got.In() != 0 {
			t.Errorf("the source's cache took %d bytes", got.In())
		}
		if p := r.client.Peer(); p.Bytes != uint64(len(data)) {
			t.Errorf("%d bytes came over the link, want %d", p.Bytes, len(data))
		}
		r.src.free()
		r.dst.free()
	}
}

// TestCopySense: what keeps an initiator from a unit of another array ends a copy from it; who does not see it there, or is not
// logged in there, cannot name it. Nothing is written at the other array.
func TestCopySense(t *testing.T) {
	const other = "iqn.2026-11.org.example:o"
	for _, c := range []struct {
		name    string
		prepare func(r *copyRig)
		from, n int
		push    bool
		want    string
	}{
		{"nothing", func(r *copyRig) { r.src.login(copyHost) }, 0, 8, false, "00"},
		{"no session", func(r *copyRig) { r.src.login(other) }, 0, 8, false, "0a0d02"},
		{"masked", func(r *copyRig) {
			r.src.exec.Lock()
			err := r.src.target.Map(copyHost, 5, r.src.units[1])
			r.src.exec.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			r.src.login(copyHost)
		}, 0, 8, false, "0a0d02"},
		{"reserved", func(r *copyRig) {
			r.src.login(copyHost)
			r.src.login(other).Do(scsitest.Command{CDB: []byte{0x16, 0, 0, 0, 0, 0}})
		}, 0, 8, false, "0a0d01"},
		{"behind the end", func(r *copyRig) { r.src.login(copyHost) }, sideSectors - 1, 2, false, "0a0000"},
		{"to the other array", func(r *copyRig) { r.src.login(copyHost) }, 0, 8, true, "0a0d02"},
		{"no link", func(r *copyRig) { r.src.login(copyHost); r.client.Stop() }, 0, 8, false, "0a0d02"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newCopyRig(t)
			was := stamps(1, 4096)
			r.src.write(0, 0, was)
			c.prepare(r)
			h := r.dst.login(copyHost)
			src, dst := r.src.names(0), r.dst.names(0)
			if c.push {
				src, dst = dst, src
			}
			if got := end(h.Do(copies(1, src, dst, c.n, uint64(c.from), 0))); got != c.want {
				t.Errorf("the copy ends with %s, want %s", got, c.want)
			}
			if !bytes.Equal(r.src.read(0, 0, 8), was) {
				t.Error("the source was written")
			}
			r.src.free()
			r.dst.free()
		})
	}
}

// midway begins a copy of 6 MiB of which 1 MiB has come, with the link at a halt.
func (r *copyRig) midway() (h *host, p *running, data []byte) {
	r.t.Helper()
	const n = 12 << 10
	data = stamps(5, n*512)
	r.src.write(0, 0, data)
	r.there = r.src.login(copyHost)
	h = r.dst.login(copyHost)
	r.tap.pass(2 << 20)
	p = h.start(copies(0, r.src.names(0), r.dst.names(0), n, 0, 0))
	r.poll("some of the copy", func() bool { return r.dst.flow(0, block.OriginXCopy).In() >= 1<<20 })
	return h, p, data
}

// TestCopyEndsEarly: whatever ends a copy between arrays, it ends with what it should, nothing is held at either, and nothing
// lands behind its answer.
func TestCopyEndsEarly(t *testing.T) {
	for _, c := range []struct {
		name string
		act  func(r *copyRig, h *host, p *running)
		want string // "": the command was aborted
	}{
		{"nothing", func(r *copyRig, h *host, p *running) { r.tap.pass(-1) }, "00"},
		{"ABORT TASK", func(r *copyRig, h *host, p *running) { h.manage(scsi.AbortTask, 0) }, ""},
		{"LOGICAL UNIT RESET of the destination", func(r *copyRig, h *host, p *running) { h.Reset(0) }, ""},
		{"LOGICAL UNIT RESET of the source", func(r *copyRig, h *host, p *running) {
			r.src.login("iqn.2026-11.org.example:o").Reset(0)
			r.tap.pass(-1)
		}, "0a0d01"},
		{"the source's unit goes", func(r *copyRig, h *host, p *running) {
			r.src.exec.Lock()
			r.src.target.RemoveUnit(r.src.units[0])
			r.src.exec.Unlock()
			r.tap.pass(-1)
		}, "0a0d01"},
		{"the link breaks", func(r *copyRig, h *host, p *running) { r.tap.cut() }, "0a0d02"},
		{"the source's owner leaves", func(r *copyRig, h *host, p *running) {
			r.server.Shutdown(context.Background())
			r.tap.pass(-1)
		}, "0a0d02"},
		{"the source's owner is fenced", func(r *copyRig, h *host, p *running) {
			r.server.Cut()
			r.tap.pass(-1)
		}, "0a0d02"},
		{"the source's array stops", func(r *copyRig, h *host, p *running) {
			r.src.await(r.src.arr.Stop)
			r.tap.pass(-1)
		}, "0a0d01"},
		{"the destination's link is given up", func(r *copyRig, h *host, p *running) { r.client.Stop() }, "0a0d02"},
		{"the host's session at the source ends", func(r *copyRig, h *host, p *running) {
			r.there.Close()
			r.tap.pass(-1)
		}, "00"}, // what it has was held before
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newCopyRig(t)
			h, p, data := r.midway()
			c.act(r, h, p)
			res := p.wait()
			in := r.dst.flow(0, block.OriginXCopy).In()
			if got := end(res); c.want != "" && got != c.want {
				t.Errorf("the copy ends with %s, want %s", got, c.want)
			}
			if c.want == "" && !p.task.Aborted {
				t.Errorf("the copy ends with %s, and not as aborted", end(res))
			}
			if c.want == "00" && !bytes.Equal(r.dst.read(0, 0, 12<<10), data) {
				t.Error("the destination has other data")
			}
			r.tap.pass(-1)
			if c.name != "the source's array stops" {
				r.src.free()
			}
			if got := r.dst.flow(0, block.OriginXCopy).In(); got != in {
				t.Errorf("%d bytes landed after the answer", got-in)
			}
			got := r.dst.read(0, 0, 12<<10) // sector by sector, what was there or what is to be there
			for i := 0; i < len(got); i += 512 {
				if s := got[i : i+512]; !bytes.Equal(s, data[i:i+512]) && !bytes.Equal(s, make([]byte, 512)) {
					t.Fatalf("sector %d of the destination has neither", i/512)
				}
			}
			r.dst.free()
		})
	}
}

// TestCopyAfterTakeOver: the next owner of the source's array lends, and one that was replaced before is refused.
func TestCopyAfterTakeOver(t *testing.T) {
	r := newCopyRig(t)
	_, p, data := r.midway()
	old := r.server
	r.epoch++
	r.serve()
	old.Cut()
	r.tap.pass(-1)
	if got := end(p.wait()); got != "0a0d02" {
		t.Errorf("the copy ends with %s", got)
	}
	r.linked(true)
	h := r.dst.login(copyHost)
	if got := end(h.Do(copies(0, r.src.names(0), r.dst.names(0), 8, 0, 0))); got != "00" || !bytes.Equal(r.dst.read(0, 0, 8), data[:4096]) {
		t.Errorf("the next copy ends with %s", got)
	}
	r.epoch--
	r.serve()
	r.tap.cut()
	r.poll("a refusal", func() bool { return r.client.Peer().Links == 2 && !r.client.Peer().Linked })
	r.epoch++
	r.serve()
	r.linked(true)
	if n := r.client.Peer().Links; n != 3 {
		t.Errorf("%d links, want 3", n)
	}
}

// TestTokenBetweenArrays: a token of one array serves in the other, on behalf of the same initiator, and stands for what was
// there when it was made.
func TestTokenBetweenArrays(t *testing.T) {
	r := newCopyRig(t)
	data := stamps(5, 1000*512)
	r.src.write(0, 0, data)
	a, b := r.src.login(copyHost), r.dst.login(copyHost)
	token := a.token(0, 1000)
	r.src.write(0, 0, stamps(6, 1000*512))
	if got := end(b.Do(redeem(1, 0, token, 50, 1000))); got != "00" || !bytes.Equal(r.dst.read(1, 50, 1000), data) {
		t.Errorf("a token of the other array: %s", got)
	}
	if got := r.dst.flow(1, block.OriginODX); got.In() != uint64(len(data)) {
		t.Errorf("the destination's cache took %d bytes, want %d", got.In(), len(data))
	}
	forged := bytes.Clone(token)
	forged[200] ^= 1
	if got := end(b.Do(redeem(1, 0, forged, 50, 8))); got != "052304" {
		t.Errorf("a token of which a byte is another: %s", got)
	}
	const other = "iqn.2026-11.org.example:o"
	r.src.exec.Lock()
	err := r.src.target.Map(other, 7, r.src.units[1]) // it does not see the token's unit
	r.src.exec.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	r.src.login(other)
	if got := end(r.dst.login(other).Do(redeem(1, 0, token, 0, 8))); got != "052304" {
		t.Errorf("the token of a unit that is masked: %s", got)
	}
	if got := end(b.Do(redeem(1, 2, token, 0, 8))); got != "00" { // DEL_TKN
		t.Errorf("the token, to be deleted: %s", got)
	}
	r.poll("the end of the token", func() bool { return end(b.Do(redeem(1, 0, token, 0, 8))) == "052309" })
	r.src.free()
	r.dst.free()
}

// TestTokenMidway: a copy by a token of another array ends when the link does, and nothing is held.
func TestTokenMidway(t *testing.T) {
	r := newCopyRig(t)
	const n = 12 << 10
	r.src.write(0, 0, stamps(5, n*512))
	a, b := r.src.login(copyHost), r.dst.login(copyHost)
	token := a.token(0, n)
	r.tap.pass(2 << 20)
	p := b.start(redeem(0, 0, token, 0, n))
	r.poll("some of the copy", func() bool { return r.dst.flow(0, block.OriginODX).In() >= 1<<20 })
	r.tap.cut()
	if got := end(p.wait()); got != "0a0d02" {
		t.Errorf("the copy ends with %s", got)
	}
	r.linked(true)
	if got := end(b.Do(redeem(0, 0, token, 0, 8))); got != "00" { // it is still valid
		t.Errorf("the token behind the break: %s", got)
	}
	r.src.free()
	r.dst.free()
}
