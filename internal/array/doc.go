// Package array is the firmware: pools of mdisks, volumes with an extent map, the
// partitioned write cache in NVRAM, the destager, the offload engine, one log,
// checkpoints and recovery. A [Volume] is a block.Device.
//
// # Shape
//
//	Volume.Submit
//	  extent map (radix tree of 64 KiB windows)      map.go window.go
//	  physical space, reference counts               space.go
//	  write cache, by physical address               cache.go admit.go
//	  log record = commit point                      log.go nvram.go
//	  destager -> mdisks                             destage.go mdisk.go
//	  checkpoints, recovery, check                   checkpoint.go recover.go check.go
//	  hold and place, copy engine                    copy.go
//
// # Terms
//
// A window is 64 KiB (128 sectors) of a volume's address space, aligned. A grain is
// 64 KiB of a pool's physical space, aligned; it is the unit of allocation and of
// reference counting. An extent is 64 grains (4 MiB) and lies on one mdisk; extents
// go round the mdisks of a pool. A page is 4 KiB of NVRAM that holds dirty sectors of one
// physical 4 KiB.
//
// # Concurrency
//
// The package is a state machine on one block.Executor: all exported methods are
// called, and all callbacks run, with the executor held. There is no goroutine, no
// wall clock and no dependence on map iteration order here.
package array

const (
	windowShift   = 7 // log2 of sectors per window and grain
	windowSectors = 1 << windowShift
	pageSectors   = 8
	pageBytes     = 4096
	grainPageBits = 4
	grainPages    = 1 << grainPageBits
	extentGrains  = 64
	extentSectors = extentGrains * windowSectors
	extentBytes   = extentSectors * 512
	// pieceSectors bounds what one log record commits: a longer write is admitted
	// and committed piece by piece, as SBC allows.
	pieceSectors = 512
	piecePages   = pieceSectors/pageSectors + 1
	// pieceWindows is how many windows a piece can lie in.
	pieceWindows = pieceSectors/windowSectors + 1
)
