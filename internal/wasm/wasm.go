// Package wasm runs eviction policies that are WebAssembly modules, by wazero: in this process, without
// C, and without anything of the machine that a module could see.
//
// A module exports functions by the names of [plug.Eviction]:
//
//	init(blocks i32, block_bytes i32, seed i64)   once, before all others; it may be missing
//	insert(slot i32, block i64)
//	hit(slot i32)
//	victim() -> slot i32
//	remove(slot i32)
//
// and may import arraysim.pinned(slot i32) -> i32, which is not 0 for a block that cannot leave. It is
// asked within victim only. Modules that are built for WASI are run with clocks that stand at 0, no
// files, no environment and no output.
//
// # Failures
//
// Calls without an answer are gathered and reach the module with the next victim, so that one call from
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
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/arraysim/arraysim/lab/plug"
)

// Patience is how long a call may take by the wall clock.
const Patience = 5 * time.Second

var patience = Patience // tests have less

const (
	maxPages = 1 << 14 // of 64 KiB
	hung     = 0xDEAD  // the exit code of a module that was ended because it hung
)

// Loader returns what loads modules whose paths are relative to a folder.
func Loader(dir string) func(file string) (func(plug.Cache) (plug.Eviction, error), error) {
	return func(file string) (func(plug.Cache) (plug.Eviction, error), error) {
		path := file
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, file)
		}
		code, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("eviction policy: %w", err)
		}
		return func(c plug.Cache) (plug.Eviction, error) { return New(code, c) }, nil
	}
}

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
	ctx     context.Context
	runtime wazero.Runtime
	module  api.Module // the policy's
	run     api.Function
	ask     api.Function
	events  []byte // in the driver's memory
	n       int    // of them that wait
	pinned  func(slot int) bool
	stack   [1]uint64
	err     error
	calls   atomic.Uint64 // odd: one is under way
	stop    chan struct{}
}

var _ plug.Failing = (*Policy)(nil)

// New starts a module.
func New(code []byte, c plug.Cache) (*Policy, error) {
	ctx := context.Background()
	p := &Policy{ctx: ctx, stop: make(chan struct{}),
		runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCloseOnContextDone(true).WithMemoryLimitPages(maxPages))}
	if err := p.start(code, c); err != nil {
		return nil, errors.Join(err, p.runtime.Close(ctx))
	}
	return p, nil
}

func (p *Policy) start(code []byte, c plug.Cache) error {
	if _, err := wasi_snapshot_preview1.Instantiate(p.ctx, p.runtime); err != nil {
		return err
	}
	if _, err := p.runtime.NewHostModuleBuilder("arraysim").NewFunctionBuilder().
		WithGoFunction(api.GoFunc(p.isPinned), []api.ValueType{api.ValueTypeI32}, []api.ValueType{api.ValueTypeI32}).
		Export("pinned").Instantiate(p.ctx); err != nil {
		return err
	}
	bounded, err := boundTables(code)
	if err != nil {
		return fmt.Errorf("it is not a valid WebAssembly module: %w", err)
	}
	compiled, err := p.runtime.CompileModule(p.ctx, bounded)
	if err != nil {
		return fmt.Errorf("it is not a valid WebAssembly module: %w", line(err))
	}
	const i32, i64 = api.ValueTypeI32, api.ValueTypeI64
	exported := compiled.ExportedFunctions()
	for _, f := range []struct {
		name    string
		in, out []api.ValueType
	}{{"insert", []api.ValueType{i32, i64}, nil}, {"hit", []api.ValueType{i32}, nil}, {"victim", nil, []api.ValueType{i32}}, {"remove", []api.ValueType{i32}, nil},
		{"init", []api.ValueType{i32, i32, i64}, nil}} {
		d := exported[f.name]
		if d == nil && f.name == "init" {
			continue
		}
		if d == nil || string(d.ParamTypes()) != string(f.in) || string(d.ResultTypes()) != string(f.out) {
			return fmt.Errorf("the module exports no function %s of the right type; docs/laboratory.md lists them", f.name)
		}
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if p.module, err = p.runtime.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("policy").WithStartFunctions("_initialize").
		WithWalltime(func() (int64, int32) { return 0, 0 }, sys.ClockResolution(1)).
		WithNanotime(func() int64 { return 0 }, sys.ClockResolution(1))); err != nil {
		return explain(err)
	}
	if f := p.module.ExportedFunction("init"); f != nil {
		if _, err := f.Call(ctx, api.EncodeI32(int32(c.Blocks)), api.EncodeI32(int32(c.BlockBytes)), c.Random.Uint64()); err != nil {
			return explain(err)
		}
	}
	if err := p.drive(); err != nil {
		return err
	}
	go p.watch(patience) // no context for the calls that follow, which could end with it: one goroutine looks after all of them
	return nil
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

// watch ends the module when a call takes too long.
func (p *Policy) watch(limit time.Duration) {
	tick := time.NewTicker(limit / 2)
	defer tick.Stop()
	last, looks := uint64(0), 0
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		now := p.calls.Load()
		if now%2 == 0 || now != last {
			last, looks = now, 0
			continue
		}
		if looks++; looks == 2 {
			_ = p.runtime.CloseWithExitCode(p.ctx, hung) // the call returns an error
		}
	}
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
	if p.err != nil {
		return
	}
	p.stack[0] = uint64(p.n)
	p.n = 0
	p.calls.Add(1)
	err := f.CallWithStack(p.ctx, p.stack[:])
	p.calls.Add(1)
	if err != nil {
		p.err = explain(err)
	}
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

// explain makes one line of what ended a module.
func explain(err error) error {
	var exit *sys.ExitError
	switch {
	case errors.As(err, &exit) && (exit.ExitCode() == hung || exit.ExitCode() == sys.ExitCodeDeadlineExceeded):
		return fmt.Errorf("the module did not return within %s", patience)
	case errors.As(err, &exit):
		return fmt.Errorf("the module exited with code %d", exit.ExitCode())
	}
	return fmt.Errorf("the module failed: %w", line(err))
}

// line is the first line of an error: behind it is the stack of the module.
func line(err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(strings.TrimSuffix(strings.TrimSpace(first), " (recovered by wazero)"))
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

// Err returns why the policy ended, or nil.
func (p *Policy) Err() error { return p.err }

// Close lets go of the module. It fails if the last calls did.
func (p *Policy) Close() error {
	before := p.err
	p.call(p.run)
	close(p.stop)
	err := p.runtime.Close(p.ctx)
	if before == nil && p.err != nil {
		err = p.err
	}
	return err
}
