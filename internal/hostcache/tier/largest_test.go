package tier

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// sizedBelow says that it has another size.
type sizedBelow struct {
	*path
	sectors uint64
}

func (b *sizedBelow) Info() block.Info {
	i := b.path.Info()
	i.Sectors = b.sectors
	return i
}

// TestLargestLUN: blocks have numbers of 48 bits. A LUN with more is refused, and of one that grows
// beyond that the rest is out of reach.
func TestLargestLUN(t *testing.T) {
	const most = hostcache.MaxBlocks * 8
	l := newLab(t, nil)
	l.crash()
	below := &sizedBelow{l.path, most + 1}
	opt := func(o *Options) { o.Below, o.BlockSectors = below, 8 }
	if err := l.try(0, opt); err == nil || !strings.Contains(err.Error(), "may have 2251799813685248 at most") {
		t.Errorf("a LUN of 2^51 sectors and one more: %v", err)
	}
	below.sectors = most
	if err := l.try(0, opt); err != nil {
		t.Fatal(err)
	}
	below.sectors = most + 8
	l.d.event(block.Event{Kind: block.EventCapacity})
	if got := l.d.Info().Sectors; got != most {
		t.Errorf("it has %d sectors after it has grown", got)
	}
	if s := l.do(&block.Request{Op: block.OpRead, Range: block.Range{Start: most, Count: 1}, Data: [][]byte{make([]byte, 512)}}); s != block.OutOfRange {
		t.Errorf("a read behind the last block ends %v", s)
	}
}
