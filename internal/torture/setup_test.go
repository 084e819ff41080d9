package torture

import (
	"fmt"
	"strings"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/profile"
)

// Setup is what must make no difference to hosts.
type Setup struct {
	Store    string // memory, files
	Profile  string
	CopyData bool // copies inside a pool move data
	Pools    int  // beside those of the program
	Beside   int  // seed of what goes on beside it, 0: nothing
	// Sabotage plants a bug, for the test of the test.
	Sabotage string
}

func (s Setup) String() string {
	mode := "reference"
	if s.CopyData {
		mode = "data"
	}
	return fmt.Sprintf("%s/%s/%s/%d/%d", s.Store, s.Profile, mode, s.Pools, s.Beside)
}

// setups are all that there are.
func setups() (out []Setup) {
	for _, p := range profile.Names() {
		for _, copyData := range []bool{false, true} {
			out = append(out, Setup{Store: "memory", Profile: p, CopyData: copyData}, Setup{Store: "files", Profile: p, CopyData: copyData})
		}
	}
	for i := range out { // others get their caps and floors: from all of the cache to a quarter, from half to a hundredth
		out[i].Pools = []int{0, 3, 0, 14, 1, 62, 0}[i%7]
		if i%2 > 0 || i%3 == 2 {
			out[i].Beside = i
		}
	}
	return out
}

// saboteur is a device with a planted bug.
type saboteur struct {
	block.Device
	exec block.Executor
	bug  string
}

func (s saboteur) Submit(reqs []*block.Request) {
	for _, q := range reqs {
		if s.bug == "lost unmap" && q.Op == block.OpUnmap && q.Ranges[0].Count < s.Info().Sectors && strings.HasSuffix(s.Info().Name, "0") {
			q.Status = block.OK
			s.exec.Post(func() { q.Done(q) })
			continue
		}
		s.Device.Submit([]*block.Request{q})
	}
}
