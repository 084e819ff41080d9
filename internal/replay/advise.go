package replay

import (
	"errors"
	"io"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
	"github.com/arraysim/arraysim/internal/trace"
)

// Advise watches all requests of a trace and returns what is to be said of each
// disk, by its number. regions bounds the memory for a disk, see
// [hostcache.AdvisorConfig].
func Advise(src Source, regions int) ([]hostcache.Advice, error) {
	if src.Objects() {
		return nil, errors.New("a trace of objects has no disks to advise on")
	}
	var disks []*hostcache.Advisor
	var rec trace.Record
	for {
		err := src.Next(&rec)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		for int(rec.Disk) >= len(disks) {
			disks = append(disks, hostcache.NewAdvisor(hostcache.AdvisorConfig{Regions: regions}))
		}
		first := rec.Offset / trace.SectorSize
		end := (rec.Offset + uint64(rec.Length) + trace.SectorSize - 1) / trace.SectorSize
		disks[rec.Disk].See(block.Range{Start: first, Count: end - first}, rec.Op == trace.Write)
	}
	out := make([]hostcache.Advice, 0, len(disks))
	for _, d := range disks {
		out = append(out, d.Advice())
	}
	return out, nil
}
