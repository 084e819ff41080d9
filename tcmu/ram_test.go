package tcmu_test

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// TestRAMDisk runs the disk of the documentation.
func TestRAMDisk(t *testing.T) {
	k := tcmutest.New(tcmutest.Options{Scatter: true, Seed: 3})
	d, err := tcmu.Attach(k, tcmu.Info{Size: 1 << 20, BlockSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	h, err := ram{}.Open(d)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(h) }()
	data := bytes.Repeat([]byte("0123456789abcdef"), 640)
	for _, row := range []struct {
		name    string
		cdb     []byte
		out     []byte
		in      int
		status  byte
		data    []byte
		limited bool
	}{
		{"ready", cdbTest, nil, 0, 0, []byte{}, false},
		{"capacity", []byte{0x25, 9: 0}, nil, 8, 0, []byte{0, 0, 7, 0xFF, 0, 0, 2, 0}, false},
		{"inquiry", []byte{0x12, 4: 255, 5: 0}, nil, 255, 0, append([]byte{0, 0, 5, 2, 31, 0, 0, 2}, "EXAMPLE RAM DISK        0001"...), true},
		{"write", []byte{0x2A, 5: 7, 8: 20, 9: 0}, data, 0, 0, []byte{}, false},
		{"read", []byte{0x28, 5: 7, 8: 20, 9: 0}, nil, 10240, 0, data, false},
		{"read behind the end", []byte{0x28, 4: 8, 8: 1, 9: 0}, nil, 512, 2, nil, false},
		{"read more than there is room for", []byte{0x28, 8: 2, 9: 0}, nil, 512, 2, nil, false},
		{"what it does not know", []byte{0x42, 9: 0}, nil, 0, 2, nil, false},
	} {
		c, err := k.Send(row.cdb, row.out, row.in)
		if err != nil {
			t.Fatal(err)
		}
		got := c.Wait()
		if got.Status != row.status || !bytes.Equal(got.Data, row.data) || got.Short != row.limited {
			t.Errorf("%s: status %#x, data % x, short %t", row.name, got.Status, got.Data[:min(40, len(got.Data))], got.Short)
		}
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	<-ended
	if err := k.Err(); err != nil {
		t.Error(err)
	}
}
