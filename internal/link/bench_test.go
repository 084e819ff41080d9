package link

import (
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// BenchmarkForward compares commands at the owner with those that go over a link, both in this process.
func BenchmarkForward(b *testing.B) {
	for _, way := range []string{"owner", "link"} {
		for _, op := range []struct {
			name string
			code byte
		}{{"read", 0x88}, {"write", 0x8A}} {
			for _, blocks := range []int{8, 512} {
				for _, depth := range []int{1, 32} {
					b.Run(fmt.Sprintf("%s/%s/%dKiB/depth=%d", way, op.name, blocks/2, depth), func(b *testing.B) {
						forward(b, way == "link", op.code, blocks, depth)
					})
				}
			}
		}
	}
}

// room is memory for the answer of one task, used again and again.
type room []byte

func (r room) Get(n int) []byte { return r[:n] }

func forward(b *testing.B, link bool, op byte, blocks, depth int) {
	r := newRig(b, unhurried)
	r.devs[scsitest.Thin].Batches = make([]int, 0, 2*b.N+64)
	h := r.direct(hostName)
	if link {
		h = r.login(hostName)
	}
	h.ready()
	free := make(chan *scsi.Task, depth)
	for range depth {
		t := &scsi.Task{CDB: scsitest.CDB(op, 0, blocks), Done: func(t *scsi.Task) { free <- t }}
		if op == 0x8A {
			t.DataOut = [][]byte{make([]byte, blocks*512)}
		} else {
			t.MaxIn, t.Bufs = blocks*512, room(make([]byte, blocks*512))
		}
		free <- t
	}
	b.SetBytes(int64(blocks * 512))
	b.ReportAllocs()
	b.ResetTimer()
	one := make([]*scsi.Task, 1)
	for range b.N {
		one[0] = <-free
		if one[0].Status != scsi.StatusGood {
			b.Fatalf("status %02x, sense %x", one[0].Status, one[0].Sense)
		}
		h.exec.Lock()
		h.n.Submit(one)
		h.exec.Unlock()
	}
	for range depth {
		<-free
	}
	b.StopTimer()
}
