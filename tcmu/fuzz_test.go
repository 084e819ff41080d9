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
// should be: nothing may panic, touch memory outside the mapping, or hang. how draws the kernel's
// capabilities, and whether commands end at once or all together in the other order, with which status and length.
func FuzzEntries(f *testing.F) {
	ne := binary.NativeEndian
	good := entry(tcmutest.New(tcmutest.Options{}), 5)
	f.Add(good, uint16(len(good)), uint8(0))
	f.Add(ne.AppendUint32(nil, 8), uint16(8), uint8(1))
	f.Add(ne.AppendUint32(nil, 1<<31|1), uint16(8), uint8(2))
	tmr := make([]byte, 40)
	ne.PutUint32(tmr, 40|2)
	tmr[8], tmr[12] = 5, 4
	f.Add(tmr, uint16(40), uint8(4))
	f.Add(append(append([]byte(nil), good...), good...), uint16(2*len(good)), uint8(0x1C))
	many := make([]byte, 48+16*20+16)
	ne.PutUint32(many, uint32(len(many))|1)
	many[4], many[8] = 9, 20
	f.Add(many, uint16(len(many)), uint8(0xFF))
	// Two pieces that overlap, one of no length at the end of the data area, and one of all of it.
	overlap := make([]byte, 48+16*4+16)
	ne.PutUint32(overlap, uint32(len(overlap))|1)
	overlap[4], overlap[8] = 5, 4
	ne.PutUint64(overlap[24:], 128)
	for i, v := range [][2]uint64{{128 + 4096, 512}, {128 + 4096 + 100, 512}, {128 + 4096 + 4*4096, 0}, {128 + 4096, 4 * 4096}} {
		ne.PutUint64(overlap[48+16*i:], v[0])
		ne.PutUint64(overlap[56+16*i:], v[1])
	}
	f.Add(overlap, uint16(len(overlap)), uint8(0x08))
	f.Fuzz(func(t *testing.T, raw []byte, move uint16, how uint8) {
		k := tcmutest.New(tcmutest.Options{RingBytes: 4096, Blocks: 4, Caps: tcmutest.CapOutOfOrder | uint16(how&7)<<1})
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
		end := func(c *tcmu.Command) {
			status, n := byte(0), c.Len()/2
			if how&16 != 0 {
				status = 2
			}
			switch how >> 5 {
			case 1:
				n = 0
			case 2:
				n = tcmu.All
			case 3:
				n = c.Len() + 1
			}
			c.Complete(status, make([]byte, how), n)
		}
		var later []*tcmu.Command
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
				if how&8 == 0 {
					end(c)
				} else {
					later = append(later, c)
				}
			}
			for len(later) > 0 { // the last one first
				end(later[len(later)-1])
				later = later[:len(later)-1]
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
