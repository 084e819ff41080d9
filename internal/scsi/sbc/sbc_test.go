package sbc

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/cdb"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/scratch"
	"github.com/arraysim/arraysim/internal/scsi/server"
	"github.com/arraysim/arraysim/internal/scsi/sgl"
	"github.com/arraysim/arraysim/internal/testkit"
)

// recorder is a device that keeps the requests that it got and ends none.
type recorder struct {
	info block.Info
	got  []*block.Request
}

func (d *recorder) Info() block.Info           { return d.info }
func (d *recorder) Submit(r []*block.Request)  { d.got = append(d.got, r...) }
func (d *recorder) Cancel(*block.Request)      {}
func (d *recorder) Notify(func(e block.Event)) {}

type heap struct{}

func (heap) Get(n int) []byte { return make([]byte, n) }

// rig is a unit of a recorder, with a target that has no commands but those of a test.
type rig struct {
	exec *block.Virtual
	dev  *recorder
	n    *server.Nexus
}

func newRig(t testing.TB, info block.Info, rows ...*server.Command) *rig {
	t.Helper()
	r := &rig{exec: &block.Virtual{}, dev: &recorder{info: info}}
	tg := server.NewTarget(server.Options{Exec: r.exec}, server.NewCommands(rows, nil, nil), func(*server.Target) server.CopyManager { return nil })
	if err := tg.Map("", 0, tg.AddUnit(r.dev, server.UnitOptions{})); err != nil {
		t.Fatal(err)
	}
	r.n = tg.OpenNexus("a", "a", 1)
	r.n.ITLs()[0].Attentions().Clear(1<<32 - 1)
	return r
}

// send carries out a command as far as the device. It returns the task, ended or not, and the
// request that the device got, or nil.
func (r *rig) send(b, out []byte) (*server.Task, *block.Request) {
	r.dev.got = nil
	t := &server.Task{CDB: b, MaxIn: 1 << 30, Bufs: heap{}, Done: func(*server.Task) {}}
	if out != nil {
		t.DataOut = [][]byte{out}
	}
	r.n.Submit([]*server.Task{t})
	r.exec.Run()
	if len(r.dev.got) == 0 {
		return t, nil
	}
	return t, r.dev.got[0]
}

// code returns key, code and qualifier of fixed format sense data, 0 without.
func code(t *server.Task) int {
	if t.Status != sam.StatusCheckCondition {
		return 0
	}
	return int(t.Sense[2])<<16 | int(t.Sense[12])<<8 | int(t.Sense[13])
}

func disk(blockSize uint32, blocks uint64) block.Info {
	return block.Info{Name: "disk", Sectors: blocks * uint64(blockSize/512), BlockSize: blockSize, Thin: true}
}

func row(op byte, n int, run func(*server.Task), flags server.Flags) *server.Command {
	usage := bytes.Repeat([]byte{0xFF}, n)
	usage[0] = op
	return &server.Command{Name: "test", Op: op, ServiceAction: server.NoAction, Usage: usage, Run: run, Flags: flags}
}

// TestImmediateSync: SYNCHRONIZE CACHE with IMMED=1 ends with its flush, as it does without, so that no
// flush is left that nobody counts, and a failed one is told.
func TestImmediateSync(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		end  block.Status
		want int
	}{
		{[]byte{0x35, 2, 9: 0}, block.OK, 0},
		{[]byte{0x91, 2, 15: 0}, block.OK, 0},
		{[]byte{0x35, 2, 9: 0}, block.Hardware, 0x044400},
		{[]byte{0x91, 2, 15: 0}, block.Hardware, 0x044400},
	} {
		r := newRig(t, disk(512, 64), row(0x35, 10, Synchronize, server.NeedMedium), row(0x91, 16, Synchronize, server.NeedMedium))
		ended := false
		k := &server.Task{CDB: c.b, Bufs: heap{}, Done: func(*server.Task) { ended = true }}
		r.n.Submit([]*server.Task{k})
		r.exec.Run()
		if ended || len(r.dev.got) != 1 || r.dev.got[0].Op != block.OpFlush {
			t.Fatalf("% x: ended %v before its flush, with %d requests", c.b, ended, len(r.dev.got))
		}
		r.dev.got[0].Status = c.end
		r.dev.got[0].Done(r.dev.got[0])
		r.exec.Run()
		if got := code(k); !ended || got != c.want {
			t.Errorf("% x, flush ends %v: ended %v with %06x, want %06x", c.b, c.end, ended, got, c.want)
		}
	}
}

// TestExtents: READ and WRITE of every length go to the device with the sectors of their blocks, or
// say what of them is not there.
func TestExtents(t *testing.T) {
	base := testkit.Seed(t)
	for seed := base; seed < base+200; seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		size := uint32(512 << (3 * rng.IntN(2)))
		blocks := 1 + rng.Uint64N(1<<rng.IntN(34))
		var rows []*server.Command
		for _, op := range []byte{0x08, 0x0A, 0x28, 0x2A, 0x88, 0x8A, 0xA8, 0xAA} {
			run := Read
			if op&2 != 0 {
				run = Write
			}
			rows = append(rows, row(op, cdb.Length(op), run, server.NeedMedium))
		}
		r := newRig(t, disk(size, blocks), rows...)
		for range 20 {
			c := rows[rng.IntN(len(rows))]
			b := make([]byte, len(c.Usage))
			b[0] = c.Op
			near := blocks + 2 - rng.Uint64N(min(blocks, 10)+1)
			lba, n := near, uint64(rng.IntN(8))
			switch len(b) {
			case 6:
				binary.BigEndian.PutUint16(b[2:], uint16(lba))
				b[4] = byte(n)
			case 10:
				binary.BigEndian.PutUint32(b[2:], uint32(lba))
				b[8] = byte(n)
			case 12:
				binary.BigEndian.PutUint32(b[2:], uint32(lba))
				b[9] = byte(n)
			case 16:
				binary.BigEndian.PutUint64(b[2:], lba)
				b[13] = byte(n)
			}
			lba, n = cdb.Extent(b)
			var out []byte
			if c.Op&2 != 0 {
				out = make([]byte, n*uint64(size))
			}
			task, req := r.send(b, out)
			there := lba < blocks && n <= blocks-lba
			switch {
			case there && n == 0:
				if task.Status != sam.StatusGood || req != nil {
					t.Fatalf("seed %d: % x of no blocks: status %02x", seed, b, task.Status)
				}
			case there:
				want := block.Range{Start: lba * uint64(size/512), Count: n * uint64(size/512)}
				if req == nil || req.Range != want || uint64(block.VecLen(req.Data)) != want.Bytes() || (req.Op == block.OpWrite) != (out != nil) {
					t.Fatalf("seed %d: % x on %d blocks of %d does not become %+v", seed, b, blocks, size, want)
				}
			default:
				info := uint64(binary.BigEndian.Uint32(task.Sense[3:]))
				if req != nil || code(task) != 0x052100 || max(lba, blocks)>>32 == 0 && info != max(lba, blocks) {
					t.Fatalf("seed %d: % x on %d blocks: sense %06x, INFORMATION %d", seed, b, blocks, code(task), info)
				}
			}
		}
	}
}

// TestWriteSame: which flags of WRITE SAME(16) reach the device, and which are refused.
func TestWriteSame(t *testing.T) {
	zeros, ones := make([]byte, 512), bytes.Repeat([]byte{1}, 512)
	for _, c := range []struct {
		name  string
		flags byte
		out   []byte
		thick bool
		sense int
		want  block.Flags
		data  bool // goes to the device
	}{
		{"zeros", 0, zeros, false, 0, 0, false},
		{"a pattern", 0, ones, false, 0, 0, true},
		{"UNMAP", bitUnmap, zeros, false, 0, block.Deallocate, false},
		{"UNMAP with ANCHOR", bitUnmap | bitAnchor, zeros, false, 0, block.Deallocate | block.Anchor, false},
		{"UNMAP of a pattern writes it", bitUnmap, ones, false, 0, 0, true},
		{"no block", bitNDOB, nil, false, 0, 0, false},
		{"no block, where one is due", 0, nil, false, 0x050E03, 0, false},
		{"two blocks", 0, make([]byte, 1024), false, 0x050E03, 0, false},
		{"ANCHOR alone", bitAnchor, zeros, false, 0x052400, 0, false},
		{"UNMAP of a thick unit", bitUnmap, zeros, true, 0x052400, 0, false},
		{"PBDATA", bitPBDATA, zeros, false, 0x052400, 0, false},
		{"protection", 0x20, zeros, false, 0x052400, 0, false},
	} {
		info := disk(512, 1<<20)
		info.Thin = !c.thick
		r := newRig(t, info, row(0x93, 16, WriteSame, server.NeedMedium|server.Writes))
		task, req := r.send([]byte{0x93, c.flags, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0}, c.out)
		if code(task) != c.sense || (req == nil) != (c.sense != 0) {
			t.Errorf("%s: sense %06x, want %06x; a request: %v", c.name, code(task), c.sense, req != nil)
		} else if req != nil && (req.Op != block.OpWriteSame || req.Flags != c.want || (req.Data != nil) != c.data || req.Range != block.Range{Start: 8, Count: 4}) {
			t.Errorf("%s: %v of %+v, flags %x, data %v", c.name, req.Op, req.Range, req.Flags, req.Data != nil)
		}
	}
}

// TestLists: parameter lists that are empty, too short, or shorter than they say.
func TestLists(t *testing.T) {
	r := newRig(t, disk(512, 1<<20), row(0x42, 10, Unmap, server.NeedMedium|server.Writes),
		row(0x48, 10, Sanitize, server.NeedMedium|server.Writes))
	whole := make([]byte, 24)
	whole[1], whole[3], whole[19] = 22, 16, 1 // one descriptor: LBA 0, one block at offset 16..19
	for _, c := range []struct {
		name   string
		op     byte
		n      int // as the CDB says
		out    []byte
		sense  int
		unmaps bool
	}{
		{"UNMAP of nothing", 0x42, 0, nil, 0, false},
		{"UNMAP, too short for its header", 0x42, 7, whole, 0x051A00, false},
		{"UNMAP, less came", 0x42, 24, whole[:20], 0x051A00, false},
		{"UNMAP", 0x42, 24, whole, 0, true},
		{"SANITIZE OVERWRITE without a pattern", 0x48, 4, whole, 0x052400, false},
		{"SANITIZE OVERWRITE, less came", 0x48, 24, whole[:20], 0x051A00, false},
	} {
		b := make([]byte, 10)
		b[0], b[8] = c.op, byte(c.n)
		if c.op == 0x48 {
			b[1] = SanitizeOverwrite
		}
		task, req := r.send(b, c.out)
		if code(task) != c.sense || (req != nil) != c.unmaps {
			t.Errorf("%s: sense %06x, a request: %v", c.name, code(task), req != nil)
		}
	}
}

// TestVerifyOperand: VERIFY compares nothing unless all came that it is to compare with, because GOOD
// says it of every block.
func TestVerifyOperand(t *testing.T) {
	for _, mode := range []byte{bytchkAll, bytchkOne} {
		for _, op := range []byte{0x2F, 0xAF, 0x8F} {
			r := newRig(t, disk(512, 64), row(op, cdb.Length(op), Verify, server.NeedMedium))
			b := make([]byte, cdb.Length(op))
			b[0], b[1] = op, mode<<1
			b[map[int]int{10: 8, 12: 9, 16: 13}[len(b)]] = 8
			need := 8 * 512
			if mode == bytchkOne {
				need = 512
			}
			for _, n := range []int{0, 100, 512, need - 512, need, need + 512} {
				task, req := r.send(b, make([]byte, n))
				want := 0
				if n < need {
					want = 0x050E03
				}
				if code(task) != want || (req != nil) != (n >= need) || task.OutTotal != need {
					t.Errorf("% x with %d bytes: sense %06x, a request: %v, %d of %d bytes", b, n, code(task), req != nil, task.OutTotal, need)
				}
			}
		}
	}
}

// TestDiffers holds the comparison of VERIFY against one byte by byte, wherever the pieces of
// Data-Out are cut.
func TestDiffers(t *testing.T) {
	seed := testkit.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		n := 512 * (1 + rng.IntN(8))
		all := make([]byte, n+1024)
		for i := range all {
			all[i] = byte(rng.Uint32())
		}
		from := 512 * rng.IntN(3)
		each := rng.IntN(2) == 0
		want := all
		got := bytes.Clone(all[from : from+n])
		if each {
			want = all[:512]
			got = bytes.Repeat(want, n/512)
		}
		first := -1
		if rng.IntN(3) > 0 {
			first = rng.IntN(n)
			got[first] ^= 1
			got[first+rng.IntN(n-first)] ^= 2
		}
		v := verification{each: each}
		for rest := want; len(rest) > 0; {
			k := min(1+rng.IntN(700), len(rest))
			v.data = append(v.data, rest[:k])
			rest = rest[k:]
		}
		if at := v.differs(got, uint64(from), 512); at != first {
			t.Fatalf("%d bytes from %d, each %v: differs at %d, want %d", n, from, each, at, first)
		}
	}
	if at := (&verification{}).differs([]byte{1}, 0, 512); at != -1 {
		t.Errorf("nothing to compare with differs at %d", at)
	}
}

// TestOrWriteInPieces: an ORWRITE of the greatest length goes to the device in pieces of 256 KiB at
// most, none of which crosses a multiple of that, one behind the other, with the data that came.
func TestOrWriteInPieces(t *testing.T) {
	const first, sectors, piece = 5, maxTransferBytes / 512, 512
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	out := make([]byte, maxTransferBytes)
	for i := range out {
		out[i] = byte(i / 512 * 7)
	}
	r := newRig(t, disk(512, 1<<17), row(0x8B, 16, OrWrite, server.NeedMedium|server.Writes))
	ended := false
	k := &server.Task{CDB: make([]byte, 16), Bufs: heap{}, Done: func(*server.Task) { ended = true }}
	k.CDB[0], k.CDB[1], k.CDB[9] = 0x8B, bitFUA, first
	binary.BigEndian.PutUint32(k.CDB[10:], sectors)
	for rest := out; len(rest) > 0; {
		n := min(1+rng.IntN(1<<20), len(rest))
		k.DataOut, rest = append(k.DataOut, rest[:n]), rest[n:]
	}
	r.n.Submit([]*server.Task{k})
	for at := uint64(first); at < first+sectors; {
		r.exec.Run()
		if ended || len(r.dev.got) != 1 {
			t.Fatalf("at sector %d: ended %v, the device has %d requests", at, ended, len(r.dev.got))
		}
		q := r.dev.got[0]
		want := block.Range{Start: at, Count: min(piece-at%piece, first+sectors-at)}
		if q.Op != block.OpOrWrite || q.Range != want || q.Flags != block.FUA {
			t.Fatalf("the device gets %v of %v, flags %x, want %v", q.Op, q.Range, q.Flags, want)
		}
		if from := (at - first) * 512; !bytes.Equal(sgl.Joined(q.Data, maxTransferBytes), out[from:from+want.Bytes()]) {
			t.Fatalf("the data of %v is not what came", q.Range)
		}
		at += want.Count
		r.dev.got = nil
		q.Done(q)
	}
	if r.exec.Run(); !ended || k.Status != sam.StatusGood || k.OutTotal != maxTransferBytes {
		t.Errorf("ended %v with %02x, %d bytes", ended, k.Status, k.OutTotal)
	}
}

// TestOrWriteAtOnce: an ORWRITE of at most 256 KiB gets to the device as one request, wherever it begins, so that nothing comes
// between its blocks. A longer one is cut at multiples of 256 KiB.
func TestOrWriteAtOnce(t *testing.T) {
	for _, c := range []struct {
		first, blocks uint64
		size          uint32
		want          []uint64 // sectors of the requests
	}{
		{508, 8, 512, []uint64{8}},
		{511, 2, 512, []uint64{2}},
		{1, 512, 512, []uint64{512}},
		{512, 512, 512, []uint64{512}},
		{63, 64, 4096, []uint64{512}},
		{511, 513, 512, []uint64{1, 512}},
		{0, 513, 512, []uint64{512, 1}},
		{508, 1024, 512, []uint64{4, 512, 508}},
	} {
		r := newRig(t, disk(c.size, 1<<17), row(0x8B, 16, OrWrite, server.NeedMedium|server.Writes))
		b := make([]byte, 16)
		b[0] = 0x8B
		binary.BigEndian.PutUint64(b[2:], c.first)
		binary.BigEndian.PutUint32(b[10:], uint32(c.blocks))
		k, q := r.send(b, make([]byte, c.blocks*uint64(c.size)))
		var got []uint64
		for q != nil {
			got = append(got, q.Range.Count)
			if n := uint64(block.VecLen(q.Data)); n != q.Range.Bytes() || n > scratch.PieceLen {
				t.Fatalf("%d blocks at %d: a request of %v with %d bytes", c.blocks, c.first, q.Range, n)
			}
			r.dev.got = nil
			q.Done(q)
			r.exec.Run()
			if q = nil; len(r.dev.got) > 0 {
				q = r.dev.got[0]
			}
		}
		if !slices.Equal(got, c.want) || k.Status != sam.StatusGood {
			t.Errorf("%d blocks at %d: requests of %d sectors, want %d; status %02x", c.blocks, c.first, got, c.want, k.Status)
		}
	}
}
