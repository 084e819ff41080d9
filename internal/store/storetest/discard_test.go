package storetest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestDiscardAndPowerCuts cuts the power before, in and behind a discard: its neighbours stay; its sectors hold what they held, or
// zeros, or fail their checksums, and behind a sync they are zeros.
func TestDiscardAndPowerCuts(t *testing.T) {
	const sectors = 64
	seed := testkit.Seed(t)
	var old, zero, wrong int
	for s := seed; s < seed+300; s++ {
		rnd := rand.New(rand.NewPCG(s, 5))
		d, v := NewDisk(s), &virtual{}
		files := open(t, v, d)
		m, err := files.Medium("m", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, sectors*512)
		for i := range data {
			data[i] = byte(i>>9) | 1
		}
		v.Wait(func(done func()) {
			m.Submit([]*block.IO{{Write: true, N: uint64(len(data)), Vec: [][]byte{bytes.Clone(data)}, Done: func(*block.IO) { done() }}})
		})
		sync := func() { v.Wait(func(done func()) { m.Sync(func(error) { done() }) }) }
		sync()
		first := rnd.Uint64N(sectors)
		n := 1 + rnd.Uint64N(sectors-first)
		v.Wait(func(done func()) {
			m.(block.Discarder).Discard(first*512, n*512, func(err error) {
				if err != nil {
					t.Error(err)
				}
				done()
			})
		})
		synced := rnd.IntN(3) == 0
		if synced {
			sync()
		}
		v = &virtual{}
		files = open(t, v, d.Cut())
		if m, err = files.Medium("m", 1<<20); err != nil {
			t.Fatal(err)
		}
		for at := range uint64(sectors) {
			got := make([]byte, 512)
			io := &block.IO{Off: at * 512, N: 512, Vec: [][]byte{got}}
			v.Wait(func(done func()) {
				io.Done = func(*block.IO) { done() }
				m.Submit([]*block.IO{io})
			})
			var sum *block.ChecksumError
			gone := at >= first && at < first+n
			switch {
			case gone && io.Err == nil && bytes.Equal(got, make([]byte, 512)):
				zero++
			case gone && !synced && io.Err == nil && bytes.Equal(got, data[at*512:(at+1)*512]):
				old++
			case gone && !synced && errors.As(io.Err, &sum):
				wrong++
			case !gone && io.Err == nil && bytes.Equal(got, data[at*512:(at+1)*512]):
			default:
				t.Fatalf("-seed %d: sectors %d+%d were discarded, synced %v: sector %d ends %v, %x", s, first, n, synced, at, io.Err, got[:4])
			}
		}
		files.Close()
	}
	if old == 0 || zero == 0 || wrong == 0 {
		t.Errorf("%d sectors were old, %d zeros, %d had wrong checksums: the test does not get there", old, zero, wrong)
	}
}

// TestPunchFreesRoom: whole pages are free again, and take room when they are written.
func TestPunchFreesRoom(t *testing.T) {
	d := NewDisk(1)
	f, err := d.OpenData("/f")
	if err != nil {
		t.Fatal(err)
	}
	write := func(n int) error { _, err := f.Writev([][]byte{bytes.Repeat([]byte{1}, n)}, 0); return err }
	d.SetFree(8 * page)
	if err := write(8 * page); err != nil {
		t.Fatal(err)
	}
	if err := f.Punch(page/2, 3*page); err != nil {
		t.Fatal(err)
	}
	if d.free != 2 {
		t.Errorf("%d pages are free", d.free)
	}
	got := make([]byte, 5*page)
	if _, err := f.Readv([][]byte{got}, 0); err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if want := byte(1); b != want && (i < page/2 || i >= page/2+3*page) || b != 0 && i >= page/2 && i < page/2+3*page {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	for _, want := range [][3]int64{{0, 0, page}, {page, 3 * page, 4 * page}} {
		if from, to, err := f.NextData(want[0]); from != want[1] || to != want[2] || err != nil {
			t.Errorf("behind %d there is data at %d to %d, %v", want[0], from, to, err)
		}
	}
	if err := write(8 * page); err != nil || d.free != 0 {
		t.Errorf("%v, %d pages are free", err, d.free)
	}
}
