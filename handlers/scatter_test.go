package handlers

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/testkit"
	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// split cuts b into pieces of random lengths, odd and empty ones among them.
func split(r *rand.Rand, b []byte, most int) (pieces [][]byte) {
	for len(b) > 0 {
		k := min(r.IntN(most+1), len(b))
		pieces = append(pieces, b[:k:k])
		b = b[k:]
	}
	return pieces
}

// TestScatteredReads: what is read goes straight into the kernel's memory, however that lies.
func TestScatteredReads(t *testing.T) {
	const seed, blocks = 1, 1024
	r := rand.New(rand.NewPCG(seed, 0))
	host := newHost(t)
	a := NewArray(host, nil)
	l := mustOpen(t, a, "gold/a", tcmutest.Options{})
	defer l.close()
	want := make([]byte, blocks*512)
	testkit.Fill(r, want)
	for at := 0; at < blocks; at += blocks / 4 {
		l.write(uint32(at), want[at*512:(at+blocks/4)*512])
	}
	host.exec.Lock()
	var nexus *scsi.Nexus
	for _, m := range a.domains {
		nexus = m.nexus
	}
	host.exec.Unlock()
	for round := range 300 {
		lba, n := r.IntN(blocks), 0
		n = 1 + r.IntN(min(blocks-lba, 1<<r.IntN(10)))
		memory := make([]byte, n*512)
		x := &command{cmd: &tcmu.Command{Data: split(r, memory, 1<<(1+r.IntN(18)))}}
		if read(t, host, nexus, x, cdb10(0x28, uint32(lba), uint16(n)), n*512); t.Failed() {
			t.Fatalf("seed %d, round %d: %d blocks at %d", seed, round, n, lba)
		}
		if len(x.bounce) > 0 {
			t.Fatalf("round %d: %d blocks in %d pieces went through a bounce buffer", round, n, len(x.cmd.Data))
		}
		if got := x.gather(); got != n*512 || !bytes.Equal(memory, want[lba*512:(lba+n)*512]) {
			t.Fatalf("seed %d, round %d: %d bytes of %d blocks at %d are not what was written", seed, round, got, n, lba)
		}
	}
}

// read sends a command that reads, with the kernel's memory, and waits for its end.
func read(t *testing.T, host *testHost, nexus *scsi.Nexus, x *command, cdb []byte, room int) {
	t.Helper()
	end := make(chan struct{})
	x.task.CDB, x.task.MaxIn, x.task.Bufs, x.task.Attr = cdb, room, x, scsi.AttrSimple
	x.task.Done = func(*scsi.Task) { close(end) }
	host.exec.Lock()
	nexus.Submit([]*scsi.Task{&x.task})
	host.exec.Unlock()
	<-end
	if x.task.Status != scsi.StatusGood {
		t.Errorf("status %#x, sense % x", x.task.Status, x.task.Sense)
	}
}

// TestGather: all splits of Data-In come to lie in all splits of the kernel's memory, from where that
// is its own and from bounce buffers, and no byte behind them is touched.
func TestGather(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 2000 {
		size := 1 + r.IntN(5000)
		n := r.IntN(size + 1)
		memory := bytes.Repeat([]byte{0xA5}, size)
		want := bytes.Clone(memory)
		testkit.Fill(r, want[:n])
		most := 1 << (1 + r.IntN(13))
		x := &command{cmd: &tcmu.Command{Data: split(r, memory, most)}}
		switch r.IntN(3) {
		case 0: // in its place
			x.task.DataIn = x.Pieces(n)
			copy(memory, want[:n])
		case 1: // in the first piece, if it suffices
			b := x.Get(n)
			copy(b, want[:n])
			x.task.DataIn = [][]byte{b}
		default:
			x.task.DataIn = split(r, bytes.Clone(want[:n]), 1<<(1+r.IntN(13)))
		}
		if got := x.gather(); got != n || !bytes.Equal(memory, want) {
			t.Fatalf("seed %d, round %d: %d of %d bytes, in pieces of at most %d", seed, round, got, n, most)
		}
	}
}

// TestPieces: they are the kernel's, in order, no longer than asked for; memory that does not
// suffice, or was handed out, is not.
func TestPieces(t *testing.T) {
	memory := []byte("0123456789")
	x := &command{cmd: &tcmu.Command{Data: [][]byte{memory[:3], nil, memory[3:4], memory[4:]}}}
	if got := x.Pieces(11); got != nil {
		t.Errorf("%d bytes in %d pieces of 10", 11, len(got))
	}
	got := x.Pieces(5)
	if len(got) != 3 || string(bytes.Join(got, nil)) != "01234" || &got[0][0] != &memory[0] || cap(got[2]) != 1 {
		t.Errorf("5 bytes are %q", got)
	}
	if again := x.Pieces(5); again != nil {
		t.Errorf("the same memory was handed out twice: %q", again)
	}
}
