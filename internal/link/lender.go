package link

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// lender is one target of this array, as units of it are lent to one link. What the link brings for it is carried out by its
// executor, which hosts want as well; and who holds that carries out all that was sent by then, and meanwhile. So the link has a
// number of places there. Each message takes as many as it may be work, until the executor was left: an array that sends without a
// pause keeps nobody else out.
type lender struct {
	exec   block.Executor
	copies *scsi.CopySource
	places chan struct{} // that are taken

	// What follows is guarded by exec.
	spent   int  // places of messages that were carried out
	resting bool // they are given back when the executor was left
}

const (
	copyPosts = 1024 // places: some ms of an executor
	costFind  = 64   // of looking for a unit, or for a token, among all that the sessions of an initiator see
	costHold  = 128  // of a reference, which may have copyRuns runs
	findStep  = 8    // units that are looked for at a time: these are half of the places
)

func (s *Server) lenders() (out []*lender) {
	for _, t := range s.cfg.Targets {
		out = append(out, &lender{exec: t.Exec(), copies: scsi.CopySourceOf(t), places: make(chan struct{}, copyPosts)})
	}
	return out
}

// post has fn called with the executor of a lender held; false: the link ends, and it is not. Only the reader calls it.
func (l *lendLink) post(to *lender, cost int, fn func()) bool {
	for range cost {
		select {
		case to.places <- struct{}{}:
		case <-l.killed:
			return false
		}
	}
	block.Send(to.exec, func() {
		to.spend(cost)
		fn()
	})
	return true
}

// spend gives places back as soon as the executor was left. Preconditions: it is held.
func (f *lender) spend(n int) {
	if f.spent += n; f.resting {
		return
	}
	f.resting = true
	f.exec.At(f.exec.Now(), func() {
		for range f.spent {
			<-f.places
		}
		f.spent, f.resting = 0, false
	})
}
