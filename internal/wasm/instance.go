package wasm

import (
	"context"
	"errors"
	"fmt"
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

var patience = Patience // tests have less for the calls that follow a start

const (
	maxPages = 1 << 14 // of 64 KiB
	hung     = 0xDEAD  // the exit code of a module that was ended because it hung

	i32, i64 = api.ValueTypeI32, api.ValueTypeI64
)

func types(t ...api.ValueType) []api.ValueType { return t }

// export is a function that a module has to have.
type export struct {
	name    string
	in, out []api.ValueType
}

// asked is a function that a module may import.
type asked struct {
	name    string
	in, out []api.ValueType
	by      func(ctx context.Context, stack []uint64)
}

// place is what init is told.
type place struct {
	blocks, blockBytes int
	random             plug.Random
}

func cacheOf(c plug.Cache) place { return place{c.Blocks, c.BlockBytes, c.Random} }

// instance is a module at work. It implements plug.Failing for policies of every kind.
type instance struct {
	ctx     context.Context
	runtime wazero.Runtime
	module  api.Module
	err     error
	calls   atomic.Uint64 // odd: one is under way
	stop    chan struct{}
}

// begin starts a module that has all these functions. Whether it fails or not, Close ends it.
func (i *instance) begin(code []byte, at place, need []export, offer ...asked) error {
	i.ctx = context.Background()
	i.runtime = wazero.NewRuntimeWithConfig(i.ctx, wazero.NewRuntimeConfig().WithCloseOnContextDone(true).WithMemoryLimitPages(maxPages))
	if _, err := wasi_snapshot_preview1.Instantiate(i.ctx, i.runtime); err != nil {
		return err
	}
	if err := i.offer(offer); err != nil {
		return err
	}
	bounded, err := boundTables(code)
	if err != nil {
		return fmt.Errorf("it is not a valid WebAssembly module: %w", err)
	}
	compiled, err := i.runtime.CompileModule(i.ctx, bounded)
	if err != nil {
		return fmt.Errorf("it is not a valid WebAssembly module: %w", line(err))
	}
	exported := compiled.ExportedFunctions()
	for _, f := range append(need, export{"init", types(i32, i32, i64), nil}) {
		d := exported[f.name]
		if d == nil && f.name == "init" {
			continue
		}
		if d == nil || string(d.ParamTypes()) != string(f.in) || string(d.ResultTypes()) != string(f.out) {
			return fmt.Errorf("the module exports no function %s of the right type; docs/laboratory.md lists them", f.name)
		}
	}
	ctx, cancel := context.WithTimeout(i.ctx, Patience)
	defer cancel()
	if i.module, err = i.runtime.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("policy").WithStartFunctions("_initialize").
		WithWalltime(func() (int64, int32) { return 0, 0 }, sys.ClockResolution(1)).
		WithNanotime(func() int64 { return 0 }, sys.ClockResolution(1))); err != nil {
		return explain(err)
	}
	if f := i.module.ExportedFunction("init"); f != nil {
		if _, err := f.Call(ctx, api.EncodeI32(int32(at.blocks)), api.EncodeI32(int32(at.blockBytes)), at.random.Uint64()); err != nil {
			return explain(err)
		}
	}
	i.stop = make(chan struct{})
	go i.watch(patience) // no context for the calls that follow, which could end with it: one goroutine looks after all of them
	return nil
}

// offer makes the module that policies may import. A policy of one kind may import what is of another: it is 0.
func (i *instance) offer(by []asked) error {
	nothing := func(_ context.Context, stack []uint64) { stack[0] = 0 }
	all := []asked{{"pinned", types(i32), types(i32), nothing}, {"volume", types(i32), types(i32), nothing}, {"dirty", types(i32), types(i64), nothing}, {"age", types(i32), types(i64), nothing}}
	b := i.runtime.NewHostModuleBuilder("arraysim")
	for _, f := range append(all, by...) { // the last of a name counts
		b = b.NewFunctionBuilder().WithGoFunction(api.GoFunc(f.by), f.in, f.out).Export(f.name)
	}
	_, err := b.Instantiate(i.ctx)
	return err
}

// watch ends the module when a call takes too long.
func (i *instance) watch(limit time.Duration) {
	tick := time.NewTicker(limit / 2)
	defer tick.Stop()
	last, looks := uint64(0), 0
	for {
		select {
		case <-i.stop:
			return
		case <-tick.C:
		}
		now := i.calls.Load()
		if now%2 == 0 || now != last {
			last, looks = now, 0
			continue
		}
		if looks++; looks == 2 {
			_ = i.runtime.CloseWithExitCode(i.ctx, hung) // the call returns an error
		}
	}
}

// call calls a function with what is on the stack, where it leaves what it returns. It tells whether it did.
func (i *instance) call(f api.Function, stack []uint64) bool {
	if i.err != nil {
		return false
	}
	i.calls.Add(1)
	err := f.CallWithStack(i.ctx, stack)
	i.calls.Add(1)
	if err != nil {
		i.err = explain(err)
	}
	return i.err == nil
}

// Err returns why the policy ended, or nil.
func (i *instance) Err() error { return i.err }

// Close lets go of the module.
func (i *instance) Close() error {
	if i.stop != nil {
		close(i.stop)
	}
	return i.runtime.Close(i.ctx)
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
