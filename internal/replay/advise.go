package replay

import (
	"errors"
	"fmt"
	"io"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
	"github.com/arraysim/arraysim/internal/size"
	"github.com/arraysim/arraysim/internal/trace"
)

// mostAdvice is how many bytes the advisors of all disks may take together.
const mostAdvice = 8 << 30

// Advise watches all requests of a trace and returns what is to be said of each
// disk, by its number. regions bounds the memory for a disk, see
// [hostcache.AdvisorConfig]. A trace whose disks together need more than 8 GiB is an
// error, unless a single disk of so many regions may need as much.
func Advise(src Source, regions int) ([]hostcache.Advice, error) {
	return advise(src, regions, mostAdvice)
}

func advise(src Source, regions int, most int64) ([]hostcache.Advice, error) {
	if src.Objects() {
		return nil, errors.New("a trace of objects has no disks to advise on")
	}
	most = max(most, hostcache.AdvisorMemory(regions))
	var disks []*hostcache.Advisor
	var rec trace.Record
	taken := int64(0)
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
		d := disks[rec.Disk]
		taken -= d.Memory()
		d.See(block.Range{Start: first, Count: end - first}, rec.Op == trace.Write)
		if taken += d.Memory(); taken > most {
			return nil, fmt.Errorf("the first %d disks of the trace need more than %s of memory; give less --regions than %d, or divide the trace by its disks",
				len(disks), size.Bytes(most).Human(), regions)
		}
	}
	out := make([]hostcache.Advice, 0, len(disks))
	for i, d := range disks {
		out = append(out, d.Advice())
		disks[i] = nil // which makes views of a disk of few requests, of much more memory than they had
	}
	return out, nil
}
