package wasm

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/tetratelabs/wazero/api"

	"github.com/arraysim/arraysim/internal/size"
	"github.com/arraysim/arraysim/lab/plug"
)

// Module is the code of a module, of which each policy is an instance of its own.
type Module struct{ code []byte }

// Loader returns what loads modules whose paths are relative to a folder.
func Loader(dir string) func(file string) (*Module, error) {
	return func(file string) (*Module, error) {
		path := file
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, file)
		}
		code, err := size.ReadFile(path, size.MaxResult)
		if err != nil {
			return nil, err
		}
		return &Module{code}, nil
	}
}

// Eviction starts the module as an eviction policy.
func (m *Module) Eviction(c plug.Cache) (plug.Eviction, error) {
	p, err := New(m.code, c)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// simple is a policy whose questions are calls, one each.
type simple struct {
	instance
	functions []api.Function // in the order of begin's
	stack     [6]uint64
}

// begin starts a module, and finds the functions that it has to have.
func (p *simple) begin(code []byte, at place, need []export, offer ...asked) error {
	if err := p.instance.begin(code, at, need, offer...); err != nil {
		return errors.Join(err, p.Close())
	}
	for _, f := range need {
		p.functions = append(p.functions, p.module.ExportedFunction(f.name))
	}
	return nil
}

// ask calls a function, and returns what it answers, or otherwise if the module has failed.
func (p *simple) ask(f int, otherwise uint64, arguments ...uint64) uint64 {
	copy(p.stack[:], arguments)
	if !p.call(p.functions[f], p.stack[:]) {
		return otherwise
	}
	return p.stack[0]
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

type admission struct{ simple }

// Admission starts the module as an admission policy.
func (m *Module) Admission(c plug.Cache) (plug.Admission, error) {
	p := &admission{}
	return p, p.begin(m.code, cacheOf(c), []export{{"admit", types(i64, i32), types(i32)}})
}

func (p *admission) Admit(block uint64, write bool) bool {
	return uint32(p.ask(0, 1, block, bit(write))) != 0
}

type throttle struct{ simple }

// Throttle starts the module as a throttle policy.
func (m *Module) Throttle(c plug.Cache) (plug.Throttle, error) {
	p := &throttle{}
	return p, p.begin(m.code, cacheOf(c), []export{{"delay", types(i64, i64, i64, i64, i64), types(i64)}})
}

func (p *throttle) Delay(a plug.Area) int64 {
	return int64(p.ask(0, 0, uint64(a.Now), a.Dirty, a.Size, a.Threshold, uint64(a.Destage)))
}

type destage struct {
	simple
	volumes []plug.DirtyVolume // within next
}

// Destage starts the module as a destage policy.
func (m *Module) Destage(c plug.Partition) (plug.Destage, error) {
	p := &destage{}
	// of answers a question about the i-th volume.
	of := func(name string, out api.ValueType, say func(v *plug.DirtyVolume) uint64) asked {
		return asked{name, types(i32), types(out), func(_ context.Context, stack []uint64) {
			i := int(api.DecodeI32(stack[0]))
			if stack[0] = 0; i >= 0 && i < len(p.volumes) {
				stack[0] = say(&p.volumes[i])
			}
		}}
	}
	return p, p.begin(m.code, place{random: c.Random}, []export{{"rate", types(i64, i64, i64, i64, i64, i32), types(i64)}, {"next", types(i32), types(i32)}},
		of("volume", i32, func(v *plug.DirtyVolume) uint64 { return api.EncodeI32(int32(v.Volume)) }),
		of("dirty", i64, func(v *plug.DirtyVolume) uint64 { return uint64(v.Dirty) }),
		of("age", i64, func(v *plug.DirtyVolume) uint64 { return uint64(v.Age) }))
}

func (p *destage) Rate(f plug.Fullness) int64 {
	return int64(p.ask(0, ^uint64(0), uint64(f.Now), uint64(f.Used), uint64(f.Limit), uint64(f.CacheUsed), uint64(f.CacheLimit), bit(f.Waiting)))
}

func (p *destage) Next(volumes []plug.DirtyVolume) int {
	p.volumes = volumes
	at := p.ask(1, 0, api.EncodeI32(int32(len(volumes))))
	p.volumes = nil
	return int(api.DecodeI32(at))
}

type placement struct{ simple }

// Placement starts the module as a placement policy.
func (m *Module) Placement(c plug.Array) (plug.Placement, error) {
	p := &placement{}
	return p, p.begin(m.code, place{random: c.Random}, []export{{"place", types(i64, i32, i64, i32, i64, i64), types(i32)}})
}

func (p *placement) Place(c plug.Copy) plug.Way {
	return plug.Way(api.DecodeI32(p.ask(0, uint64(plug.Data), uint64(c.Now), api.EncodeI32(int32(c.To)), uint64(c.Bytes), bit(c.Moves), uint64(c.Used), uint64(c.Limit))))
}
