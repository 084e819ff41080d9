package storetest

import (
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// TestManyStarts: each start leaves a table of the metadata, and in virtual time nothing joins them. Commits go on all the
// same, whatever number of tables there is: one that waited for fewer would wait for ever.
func TestManyStarts(t *testing.T) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		d := NewDisk(1)
		life := func(size int) {
			v := &virtual{}
			s := open(t, v, d)
			m, err := s.Meta()
			if err != nil {
				t.Error(err)
				return
			}
			for range 3 {
				v.Wait(func(done func()) {
					m.Commit([]block.KV{{Key: []byte("key"), Value: make([]byte, size)}}, func(err error) {
						if err != nil {
							t.Error(err)
						}
						done()
					})
				})
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		for range 24 {
			life(100)
		}
		life(9 << 20) // more than is kept in memory
	}()
	select {
	case <-over:
	case <-time.After(10 * time.Minute): // it is work for the processor alone
		t.Fatal("a commit waits for ever")
	}
}
