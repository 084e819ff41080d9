package store

import (
	"bytes"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// heldFS is a file system on a disk whose reads hang while it is held.
type heldFS struct {
	FS
	hold  chan struct{} // closed: it answers
	begun chan struct{}
}

func (h *heldFS) Instant(string) bool { return false }

func (h *heldFS) OpenData(path string) (DataFile, error) {
	f, err := h.FS.OpenData(path)
	return heldFile{f, h}, err
}

type heldFile struct {
	DataFile
	h *heldFS
}

func (f heldFile) ReadNow([][]byte, int64) (int, error) { return 0, errWaits }

func (f heldFile) Readv(vec [][]byte, off int64) (int, error) {
	if h := f.h; h.hold != nil {
		select {
		case h.begun <- struct{}{}:
		default:
		}
		<-h.hold
	}
	return f.DataFile.Readv(vec, off)
}

// TestAbandonedReads: of reads that hang in the disk, and of those that no worker has begun, the buffers can be taken back;
// the others get their data.
func TestAbandonedReads(t *testing.T) {
	fs := &heldFS{FS: OS, begun: make(chan struct{}, 1)}
	d, m := openMedium(t, t.TempDir(), FilesOptions{FS: fs}, 1<<20)
	want := bytes.Repeat([]byte("data"), 1024)
	d.Wait(func(done func()) {
		m.Submit([]*block.IO{{Write: true, N: 4096, Vec: [][]byte{want}, Done: func(*block.IO) { done() }}})
	})
	d.Wait(func(done func()) { m.Sync(func(error) { done() }) })
	fs.hold = make(chan struct{})
	const reads = 8
	var ios []*block.IO
	bufs, ended := make([][]byte, reads), make(chan *block.IO, reads)
	d.Lock()
	for i := range bufs {
		bufs[i] = make([]byte, 4096)
		io := &block.IO{N: 4096, Vec: [][]byte{bufs[i][:1000], bufs[i][1000:]}, Done: func(io *block.IO) { ended <- io }}
		ios = append(ios, io)
		m.Submit([]*block.IO{io})
	}
	d.Unlock()
	<-fs.begun
	d.Lock()
	for i, io := range ios {
		if i%2 == 0 {
			m.(block.Abandoner).Abandon(io)
			copy(bufs[i], "somebody else's")
		}
	}
	d.Unlock()
	close(fs.hold)
	for range reads {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("a read never ended")
		}
	}
	for i, b := range bufs {
		if i%2 == 0 {
			if ios[i].Vec != nil || !bytes.HasPrefix(b, []byte("somebody else's\x00")) {
				t.Errorf("read %d moved data although it was abandoned", i)
			}
		} else if ios[i].Err != nil || !bytes.Equal(b, want) {
			t.Errorf("read %d ended %v", i, ios[i].Err)
		}
	}
}
