//go:build noparquet

package experiment

import (
	"errors"

	"github.com/arraysim/arraysim/internal/sim"
)

// loadModules says that there are no modules: a first `make run` compiles what it needs to serve.
func loadModules(s *sim.Scenario, _ string) {
	s.LoadWasm = func(string) (sim.Module, error) {
		return nil, errors.New("this arraysim was built without WebAssembly, to be ready sooner: run `make build`")
	}
}
