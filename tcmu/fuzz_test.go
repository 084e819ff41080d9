package tcmu_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// FuzzEntries puts arbitrary bytes into the command ring, between commands as they
// should be: nothing may panic, touch memory outside the mapping, or hang.
func FuzzEntries(f *testing.F) {
	ne := binary.NativeEndian
	good := entry(tcmutest.New(tcmutest.Options{}), 5)
	f.Add(good, uint16(len(good)))
	f.Add(ne.AppendUint32(nil, 8), uint16(8))
	f.Add(ne.AppendUint32(nil, 1<<31|1), uint16(8))
	tmr := make([]byte, 40)
	ne.PutUint32(tmr, 40|2)
	tmr[8], tmr[12] = 5, 4
	f.Add(tmr, uint16(40))
	f.Add(append(append([]byte(nil), good...), good...), uint16(2*len(good)))
	many := make([]byte, 48+16*20+16)
	ne.PutUint32(many, uint32(len(many))|1)
	many[4], many[8] = 9, 20
	f.Add(many, uint16(len(many)))
	f.Fuzz(func(t *testing.T, raw []byte, move uint16) {
		k := tcmutest.New(tcmutest.Options{RingBytes: 4096, Blocks: 4})
		d, err := tcmu.Attach(k, tcmu.Info{})
		if err != nil {
			t.Fatal(err)
		}
		k.Plug()
		if _, err := k.Send(cdbTest, nil, 0); err != nil {
			t.Fatal(err)
		}
		// Numbers that nobody sent break the fake's ring when they are answered, which
		// is right; here it matters what the other side does.
		_, _ = k.Raw(raw, int(move), 0)
		_, _ = k.Send(cdbRead, nil, 512)
		k.Unplug()
		h := &handler{closed: make(chan struct{}), manage: func(m tcmu.TMR) {
			if len(m.IDs) > 2048 {
				t.Errorf("%d numbers", len(m.IDs))
			}
		}}
		h.serve = func(b []*tcmu.Command) {
			for _, c := range b {
				for _, s := range c.Data {
					if len(s) > 0 {
						s[0]++
						s[len(s)-1]++
					}
				}
				if len(c.CDB) < 6 || len(c.CDB) > 260 {
					t.Errorf("CDB of %d bytes", len(c.CDB))
				}
				c.Complete(0, nil, c.Len()/2)
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- d.Serve(h) }()
		time.Sleep(200 * time.Microsecond)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, tcmu.ErrStopped) && !errors.Is(err, tcmu.ErrRing) {
			t.Errorf("Serve ended with %v", err)
		}
		<-h.closed
	})
}
