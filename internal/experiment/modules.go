//go:build !noparquet

package experiment

import (
	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/wasm"
)

// loadModules has the scenario's policies read from WebAssembly modules; dir is where its file is.
func loadModules(s *sim.Scenario, dir string) {
	load := wasm.Loader(dir)
	s.LoadWasm = func(file string) (sim.Module, error) { return load(file) }
}
