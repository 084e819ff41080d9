package admin

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
)

// copyLists are what hosts send to copy so many blocks of one volume to another, from LBA 0 to LBA 0.
func (r *running) copyList(src, dst string, blocks int) []byte {
	b := make([]byte, 16)
	b[1] = 3 << 3 // no list identifier
	for _, v := range []string{src, dst} {
		naa := r.volumeOf(v).Info().NAA
		d := make([]byte, 32)
		d[0], d[4], d[5], d[7] = 0xE4, 1, 3, 16
		copy(d[8:], naa[:])
		b = append(b, d...)
	}
	segment := make([]byte, 28)
	segment[0], segment[3], segment[7] = 2, 24, 1
	binary.BigEndian.PutUint16(segment[10:], uint16(blocks))
	binary.BigEndian.PutUint16(b[2:], 64)
	binary.BigEndian.PutUint32(b[8:], 28)
	return append(b, segment...)
}

// session logs in to the target of a group by the portal.
func (r *running) session(initiator string, group, port int, lun uint64) *iscsi.Client {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.d.portalAddr.String())
	if err != nil {
		r.t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(startTimeout))
	c, err := iscsi.NewClient(nc, iscsi.ClientConfig{Initiator: initiator, Target: groupTarget(r.d.cfg.Portal.Target, group), ISID: [6]byte{0x80, 0, 0, byte(port)}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	for range 2 { // the first says that this nexus is new
		if _, err = c.Command(lun<<48, make([]byte, 6), nil, 0); err != nil {
			r.t.Fatal(err)
		}
	}
	return c
}

// TestCopiesOverGroups: hosts copy by the portal between volumes of two I/O groups in both directions at once, beside writes;
// who has no session with the other group's target cannot name its volumes; a clone goes into a pool of another group.
func TestCopiesOverGroups(t *testing.T) {
	const host = "iqn.2026-01.host:a"
	r := start(t, parse(t, groupConfig+"  - {name: g2, pool: gold, size: 16MiB, export: {lun: 2}}\n  - {name: s2, pool: silver, size: 16MiB, export: {lun: 3}}\n", t.TempDir()))
	one, two := pattern(t, 8<<20), bytes.Repeat([]byte{7, 1, 3, 9}, 2<<20)
	r.write("g", 0, one)
	r.write("s", 0, two)
	const blocks = 8 << 11
	copies := func(c *iscsi.Client, lun uint64, src, dst string) string {
		list := r.copyList(src, dst, blocks)
		res, err := c.Command(lun<<48, copyCDB(0, list), list, 0)
		switch {
		case err != nil:
			return err.Error()
		case res.Status == scsi.StatusGood:
			return ""
		}
		return fmt.Sprintf("status %02x, sense %x", res.Status, res.Sense)
	}
	lone := r.session("iqn.2026-01.host:lone", 0, 9, 2)
	if got := copies(lone, 2, "s", "g2"); !strings.Contains(got, "0d02") {
		t.Errorf("a host without a session there: %q", got)
	}
	var all sync.WaitGroup
	for i, c := range []struct {
		group    int
		lun      uint64
		src, dst string
	}{{0, 2, "s", "g2"}, {1, 3, "g", "s2"}} {
		r.session(host, 1-c.group, 3, uint64(1-c.group))
		n := r.session(host, c.group, 1+i, c.lun)
		all.Go(func() {
			for range 8 {
				if got := copies(n, c.lun, c.src, c.dst); got != "" {
					t.Errorf("%s to %s: %s", c.src, c.dst, got)
				}
			}
		})
	}
	all.Wait()
	if !bytes.Equal(r.read("g2", 0, len(two)), two) || !bytes.Equal(r.read("s2", 0, len(one)), one) {
		t.Error("a destination has other data")
	}
	if _, err := r.CloneVolume(context.Background(), "g", Clone{Name: "gc", Pool: "silver"}); err != nil {
		t.Fatal(err)
	}
	if v, err := r.Volume(context.Background(), "gc"); err != nil || v.Pool != "silver" || !bytes.Equal(r.read("gc", 0, len(one)), one) {
		t.Errorf("the clone is %+v, %v", v, err)
	}
	if text := r.scrape(); !strings.Contains(text, `arraysim_offload_bytes_total{dst_pool="silver",path="copy",primitive="xcopy",src_pool="(another I/O group)"}`) {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "offload_bytes") {
				t.Log(line)
			}
		}
		t.Error("the copies from another group are not counted")
	}
	if rep, err := r.Check(context.Background()); err != nil || !rep.OK {
		t.Errorf("check: %+v, %v", rep, err)
	}
}

// TestHeldGroupEndsCopies: a group whose executor is held ends copies from it, and holds up nothing else of theirs; a copy to it
// that has not begun there does not begin later.
func TestHeldGroupEndsCopies(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	const host = "iqn.2026-01.host:a"
	r := start(t, parse(t, groupConfig, t.TempDir()))
	was := pattern(t, 1<<20)
	r.write("s", 0, was)
	r.write("g", 0, make([]byte, 1<<20))
	first, again := r.session(host, 0, 1, 0), r.session(host, 0, 3, 0)
	r.session(host, 1, 2, 1)
	for _, c := range [][2]string{{"s", "g"}, {"g", "s"}} {
		list := r.copyList(c[0], c[1], 2048)
		r.d.groups[1].exec.Lock()
		type end struct {
			res *iscsi.Result
			err error
		}
		ended := make(chan end, 1)
		began := time.Now()
		go func() {
			res, err := first.Command(0, copyCDB(0, list), list, 0)
			ended <- end{res, err}
		}()
		time.Sleep(100 * time.Millisecond)
		if res, err := again.Command(0, []byte{0x2a, 0, 0, 0, 0x10, 0, 0, 0, 8, 0}, make([]byte, 4096), 0); err != nil || res.Status != 0 || len(ended) > 0 {
			t.Errorf("a WRITE meanwhile: %+v, %v, after %v; the copy has ended: %v", res, err, time.Since(began), len(ended) > 0)
		}
		e := <-ended
		r.d.groups[1].exec.Unlock()
		if took := time.Since(began); e.err != nil || e.res.Status != scsi.StatusCheckCondition || !strings.Contains(hex.EncodeToString(e.res.Sense), "0d02") || took > time.Minute {
			t.Errorf("the copy of %s ends with %+v, %v, after %v", c[0], e.res, e.err, took)
		}
		time.Sleep(200 * time.Millisecond)
		if !bytes.Equal(r.read("s", 0, len(was)), was) {
			t.Error("the copy was carried out later")
		}
	}
}
