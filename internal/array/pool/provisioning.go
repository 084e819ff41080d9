// What a volume reports of the space below it.

package pool

import "github.com/arraysim/arraysim/internal/array/layout"

// Provisioning returns the sectors of the volume's pool that are allocated or
// reserved, and those that are free: what SCSI's logical block provisioning pages
// report (SBC-4 6.4.5).
func (v *Volume) Provisioning() (used, available uint64) {
	taken := v.pool.Alloc.Allocated() + v.pool.Alloc.Reserved()
	return uint64(taken) * layout.WindowSectors, uint64(max(0, v.pool.Alloc.Available())) * layout.WindowSectors
}
