package store

import "github.com/arraysim/arraysim/internal/block"

// Reopen returns the store on another executor, as the next process finds it: what the
// old executor has not done yet never happens. The store itself must not be used any
// more. Unlike Clone it copies nothing.
func (m *Memory) Reopen(exec block.Executor) *Memory {
	c := &Memory{exec: exec, opt: m.opt, media: map[string]*memMedium{}, region: m.region, kv: m.kv}
	for name, d := range m.media {
		c.media[name] = &memMedium{m: c, size: d.size, chunks: d.chunks, shared: d.shared}
	}
	return c
}
