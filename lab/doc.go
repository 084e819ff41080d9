// Package lab runs experiments on simulated storage arrays: build arrays, hosts and jobs in Go, plug
// in policies of your own, run in virtual time, and read the figures by name.
//
//	s := lab.Scenario{
//		Until:  10 * time.Second,
//		Arrays: []lab.Array{{Profile: "all-flash", Pools: []lab.Pool{{Name: "p", Mdisks: []lab.Mdisk{{Count: 4, Size: 64 * lab.GiB}}}},
//			Volumes: []lab.Volume{{Name: "v", Size: lab.GiB}}}},
//		Hosts:  []lab.Host{{Name: "h"}},
//		Jobs:   []lab.Job{{Name: "j", Volume: "v", IO: 4 * lab.KiB, Outstanding: 8}},
//	}
//	res, err := s.Run(context.Background())
//	p99, err := res.Value("job.j.p99_ms")
//
// A Scenario is the scenario file of `arraysim sim` as Go: the same keys, defaults and errors, and the
// same bytes in every output for the same content and seed. The arrays are the firmware that `arraysim
// serve` runs. docs/virtual-time.md describes the keys, docs/laboratory.md this package, and examples/
// has a program for each kind of policy; their interfaces are in package plug. [Scenario.Compare] and [Main] put the
// figures of several policies into a table.
//
// # Units
//
// Times are time.Duration of the simulation's clock; sizes are bytes; a bandwidth is bytes a second.
// Zero values mean that nothing is said, and the scenario's default holds.
//
// # Concurrency
//
// A run belongs to one goroutine; runs of different Scenarios may go on side by side. What plugged
// constructors share among runs they must guard.
package lab
