// Package wasm runs policies that are WebAssembly modules, by wazero: in this process, without C, and
// without anything of the machine that a module could see.
//
// A module exports functions by the names of the methods of package plug, and may export policies of several kinds:
//
//	init(blocks i32, block_bytes i32, seed i64)                  once, before all others; it may be missing
//	insert(slot i32, block i64), hit(slot i32),
//	victim() -> slot i32, remove(slot i32)                       eviction
//	admit(block i64, write i32) -> i32                           admission: 0 is no
//	delay(now, dirty, size, threshold, destage i64) -> i64       throttle
//	rate(now, used, limit, cache_used, cache_limit i64, waiting i32) -> i64,
//	next(volumes i32) -> i32                                     destage
//	place(now i64, to i32, bytes i64, moves i32, used, limit i64) -> i32   placement: 0 is a reference, 1 data
//
// and may import from arraysim pinned(slot i32) -> i32, which is not 0 for a block that cannot leave, within victim;
// and volume(i i32) -> i32, dirty(i i32) -> i64, age(i i32) -> i64 of the i-th volume, within next. Outside of these
// they are 0. Policies that belong to no cache get 0 blocks of 0 bytes. Modules that are built for WASI are run with
// clocks that stand at 0, no files, no environment and no output.
//
// # Failures
//
// Calls of an eviction without an answer are gathered and reach the module with the next victim, so that one call from
// outside does for many. A trap, an exit, and a call that takes longer than [Patience], or half as long again, end the policy
// with one error, which Err returns. Patience is time by the wall clock, so that a module which is nearly as slow may end
// a run on one machine and not on another. The memory of a module is bounded to 1 GiB, each of its tables to 1 Mi entries.
//
// # Concurrency
//
// A policy belongs to one run. A goroutine beside it looks whether a call hangs, until Close.
package wasm

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/arraysim/arraysim/lab/plug"
)

// driver is driver/driver.c, which calls the policy.
//
//go:embed driver/driver.wasm
var driver []byte

// What driver/driver.c says of an event: its kind, and the bytes of one; and how many there is room for.
const (
	kindHit = iota
	kindInsert
	kindRemove

	eventBytes = 16
	maxEvents  = 4096
)

// Policy is an eviction policy that is a module. It implements plug.Eviction and plug.Failing.
type Policy struct {
	instance
	run    api.Function
	ask    api.Function
	events []byte // in the driver's memory
	n      int    // of them that wait
	pinned func(slot int) bool
	stack  [1]uint64
}

var _ plug.Failing = (*Policy)(nil)

// New starts a module that is an eviction policy.
func New(code []byte, c plug.Cache) (*Policy, error) {
	p := &Policy{}
	err := p.begin(code, cacheOf(c), []export{{"insert", types(i32, i64), nil}, {"hit", types(i32), nil}, {"victim", nil, types(i32)}, {"remove", types(i32), nil}},
		asked{"pinned", types(i32), types(i32), p.isPinned})
	if err == nil {
		err = p.drive()
	}
	if err != nil {
		return nil, errors.Join(err, p.instance.Close())
	}
	return p, nil
}

// drive starts the module that calls the policy.
func (p *Policy) drive() error {
	m, err := p.runtime.InstantiateWithConfig(p.ctx, driver, wazero.NewModuleConfig().WithName("driver"))
	if err != nil {
		return err
	}
	at, err := m.ExportedFunction("events").Call(p.ctx)
	if err != nil {
		return err
	}
	events, ok := m.Memory().Read(uint32(at[0]), maxEvents*eventBytes)
	if !ok {
		return errors.New("the driver has no room for events")
	}
	p.run, p.ask, p.events = m.ExportedFunction("run"), m.ExportedFunction("ask"), events
	return nil
}

func (p *Policy) isPinned(_ context.Context, stack []uint64) {
	yes := uint64(0)
	if p.pinned != nil && p.pinned(int(api.DecodeI32(stack[0]))) {
		yes = 1
	}
	stack[0] = yes
}

// call calls a function of the driver with the events that wait.
func (p *Policy) call(f api.Function) {
	p.stack[0] = uint64(p.n)
	p.n = 0
	p.instance.call(f, p.stack[:])
}

func (p *Policy) event(kind uint32, slot int, block uint64) {
	if p.n == maxEvents {
		p.call(p.run)
		p.n = 0
	}
	e := p.events[p.n*eventBytes:][:eventBytes]
	binary.LittleEndian.PutUint32(e, kind)
	binary.LittleEndian.PutUint32(e[4:], uint32(slot))
	binary.LittleEndian.PutUint64(e[8:], block)
	p.n++
}

// Insert implements plug.Eviction.
func (p *Policy) Insert(slot int, block uint64) { p.event(kindInsert, slot, block) }

// Hit implements plug.Eviction.
func (p *Policy) Hit(slot int) { p.event(kindHit, slot, 0) }

// Remove implements plug.Eviction.
func (p *Policy) Remove(slot int) { p.event(kindRemove, slot, 0) }

// Victim implements plug.Eviction.
func (p *Policy) Victim(pinned func(slot int) bool) int {
	p.pinned = pinned
	p.call(p.ask)
	if p.err != nil {
		return -1
	}
	return int(api.DecodeI32(p.stack[0]))
}

// Close lets go of the module. It fails if the last calls did.
func (p *Policy) Close() error {
	before := p.err
	p.call(p.run)
	err := p.instance.Close()
	if before == nil && p.err != nil {
		err = p.err
	}
	return err
}
