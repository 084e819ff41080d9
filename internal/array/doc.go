// Package array is the firmware: pools of mdisks, volumes with an extent map, the
// partitioned write cache in NVRAM, the destager, the offload engine, one log,
// checkpoints and recovery. A [Volume] is a block.Device.
//
// # Shape
//
//	Volume.Submit
//	  extent map (radix tree of 64 KiB windows)      package extent
//	  physical space, reference counts               package alloc
//	  admission to the write cache                   packages admission, request
//	  write cache, by physical address               package wcache
//	  log record = commit point                      request (commit.go, edit.go), nvlog
//	  flushes of NVRAM, syncs of mdisks              durable.go
//	  destager -> mdisks                             packages pool, backend
//	  checkpoints, recovery, check                   packages checkpoint, recovery, check
//	  hold and place, copy engine                    package request
//	  pools and volumes come and go                  packages provision, directory
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

import (
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/request"
)

// Sizes by the names that this package has for them.
const (
	pageBytes  = layout.PageBytes
	piecePages = layout.PiecePages
)

// What the directory keeps, by the names that users of this package have for it.
type (
	// PoolSpec describes a pool.
	PoolSpec = directory.PoolSpec
	// MdiskSpec describes a back-end disk.
	MdiskSpec = directory.MdiskSpec
	// VolumeSpec describes a volume.
	VolumeSpec = directory.VolumeSpec
)

// What pools and volumes are, by the same.
type (
	// Volume is a logical disk of the array.
	Volume = request.Volume
	// Pool is a set of mdisks, the space on them, and a partition of the write cache.
	Pool = pool.Pool
	// PoolStats is a pool's state at an instant.
	PoolStats = pool.PoolStats
	// MdiskStats describes a back-end disk.
	MdiskStats = pool.MdiskStats
	// VolumeStats is a volume's state at an instant.
	VolumeStats = pool.VolumeStats
	// Flow is the bytes of one origin that went through the cache for a volume.
	Flow = pool.Flow
)

// MaxVolumeBytes is the size of the largest volume.
const MaxVolumeBytes = directory.MaxVolumeBytes

// Errors of object calls. Each is wrapped with the name that it is about.
var (
	ErrExists   = directory.ErrExists
	ErrNotFound = directory.ErrNotFound
	ErrInUse    = directory.ErrInUse
)
