// Package sim runs the firmware in virtual time: hosts, links and arrays in one
// deterministic event queue. The arrays are the code that the daemon runs, SCSI layer
// included; another clock and another store are all that differs. A [Scenario] and a seed
// give a [Run], whose outputs are the same bytes on every machine.
//
//	scenario.go   the YAML file: arrays, hosts, jobs, faults, cases, expectations
//	world.go      a Run: builds all of it, fills volumes; advance.go takes it to its end
//	host.go       initiators and links: CDBs to the SCSI layer and back
//	node.go       nodes that forward to the owner of an array
//	vmfs.go       virtual disks on a VMFS-like layer; zero on first write
//	clone.go      XCOPY, WRITE SAME, UNMAP jobs and their fallback
//	load.go       workload generators
//	transactions.go     users whose transactions are I/O and computing
//	hostcache.go        the caching layer of hosts; hostcacheflash.go flash and peers, hostcacheseries.go
//	                    figures, hostcachereplay.go traces as a job
//	plugged.go          policies of somebody else's
//	fault.go      what goes wrong, and changes at run time
//	series.go     the time series by volume and pool
//	values.go     figures by name, expectations
//	output.go     the files that a run leaves
//
// # Concurrency
//
// A Run belongs to one goroutine. Runs share nothing.
package sim
