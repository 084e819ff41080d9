package iscsi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
)

// pipeline is an initiator that keeps a number of equal commands in flight and
// allocates nothing: it writes whole rounds and reads their answers.
type pipeline struct {
	nc    net.Conn
	r     *bufio.Reader
	round []byte
	cmds  []int // where the headers are in round
	sn    uint32
	hdr   [bhsLen]byte
	skip  []byte
}

func newPipeline(c *Client, depth, blocks int, write bool) *pipeline {
	p := &pipeline{nc: c.nc, r: bufio.NewReaderSize(c.nc, 256<<10), sn: c.CmdSN, skip: make([]byte, 1<<20)}
	n := blocks * fakeBlock
	for i := range depth {
		var hdr [bhsLen]byte
		var data []byte
		if write {
			hdr, _ = c.CommandHeader(0, cdb10(opWrite10, i*blocks, blocks), n, 0)
			data = make([]byte, n)
		} else {
			hdr, _ = c.CommandHeader(0, cdb10(opRead10, i*blocks, blocks), 0, n)
		}
		p.cmds = append(p.cmds, len(p.round))
		p.round = appendPDU(p.round, hdr[:], nil, data, false, false)
	}
	return p
}

func (p *pipeline) run() error {
	for _, at := range p.cmds {
		bhs(p.round[at:]).put32(offCmdSN, p.sn)
		p.sn++
	}
	if _, err := p.nc.Write(p.round); err != nil {
		return err
	}
	for left := len(p.cmds); left > 0; {
		if _, err := io.ReadFull(p.r, p.hdr[:]); err != nil {
			return err
		}
		h := bhs(p.hdr[:])
		n := h.dataLen()
		if _, err := io.ReadFull(p.r, p.skip[:n+padLen(n)]); err != nil {
			return err
		}
		switch {
		case h.opcode() == opResponse, h.opcode() == opDataIn && h[offFlags]&flagStatus != 0:
			if h[offStatus] != 0 {
				return fmt.Errorf("status %#x", h[offStatus])
			}
			left--
		case h.opcode() != opDataIn:
			return fmt.Errorf("opcode %#x", h[0])
		}
	}
	return nil
}

func BenchmarkCommands(b *testing.B) {
	for _, row := range []struct {
		name          string
		depth, blocks int
		write         bool
	}{
		{"read4K/depth1", 1, 8, false},
		{"read4K/depth32", 32, 8, false},
		{"write4K/depth1", 1, 8, true},
		{"write4K/depth32", 32, 8, true},
		{"read256K/depth8", 8, 512, false},
		{"write256K/depth8", 8, 512, true},
	} {
		b.Run(row.name, func(b *testing.B) {
			r := newRig(b, nil)
			p := newPipeline(r.login(nil), row.depth, row.blocks, row.write)
			if err := p.run(); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(row.blocks * fakeBlock))
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += row.depth {
				if err := p.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A command costs no allocation once the pools are filled.
func TestNoAllocations(t *testing.T) {
	for _, row := range []struct {
		name          string
		depth, blocks int
		write         bool
	}{
		{"read 4K", 32, 8, false},
		{"write 4K", 32, 8, true},
		{"one at a time", 1, 8, false},
		{"read 256K", 8, 512, false},
		{"write 256K", 8, 512, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, nil)
			p := newPipeline(r.login(nil), row.depth, row.blocks, row.write)
			rounds := max(400/row.depth, 10)
			loop := func() {
				for range rounds {
					if err := p.run(); err != nil {
						t.Fatal(err)
					}
				}
			}
			loop()
			var before, after runtime.MemStats
			best := 1e9
			for range 5 { // a collection in between empties the pools
				runtime.ReadMemStats(&before)
				loop()
				runtime.ReadMemStats(&after)
				best = min(best, float64(after.Mallocs-before.Mallocs)/float64(rounds*row.depth))
			}
			// The race detector drops pooled objects at random.
			if limit := 0.05; best > limit && !raceEnabled {
				t.Errorf("%.2f allocations a command", best)
			}
		})
	}
}
