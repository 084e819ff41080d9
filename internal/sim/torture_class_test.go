package sim

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// class is a kind of thing that TestTorture has to draw: each has had a defect that no seed could find before.
type class int

const (
	manyPools        class = iota // 16 or 64 pools
	overcommit                    // caps that add up to more than the cache
	thickVolumes                  // a thick volume was written to
	anchors                       // a range was anchored
	fullPools                     // thick volumes have all of a pool
	manyDescriptors               // an UNMAP of 100 descriptors and more has ended well
	reservations                  // PREEMPT AND ABORT of a reservation that both hosts have
	acrossLUNs                    // a copy from one LUN to another has ended well
	fencedCopies                  // a fence while copies were under way
	deepMaps                      // a volume with a map of three levels
	wideEdits                     // a range that spans levels was zeroed or unmapped
	churned                       // a volume was deleted and made again
	smallBatches                  // a checkpoint of many batches
	cutCheckpoint                 // the power went between two batches of one
	lossyCut                      // NVRAM has lost what was not flushed
	heldGrains                    // a token was placed whose source had changed since
	tokens                        // any token was placed
	poolRace                      // two pools were made at once where one number was left
	flushOutage                   // flushes of NVRAM failed while commands waited
	logWaiters                    // commands waited for the log, and nothing came behind them
	resized                       // a volume's size was changed
	resizeCut                     // the power went while it was
	resizeTwice                   // two changes of one volume's size while flushes failed
	failedDeletion                // a volume was deleted while nothing can be committed
	failedPool                    // a pool, likewise
	failedCreation                // a volume was made while nothing can be committed
	poolsComeAndGo                // a pool was deleted
	heldInFull                    // a token was placed of what a thick volume has given up in a full pool
	stopped                       // the array stopped without an error
	failedStop                    // it stopped with one, for what failed then
	shakyChanges                  // pools and volumes were changed while commits failed now and then
	shakyCut                      // the power went before such a change had its answer
	failedPoolMaking              // a pool was made, and failed or was in doubt
	doubtSettled                  // what was in doubt was settled without a start
	doubtUnderWay                 // a doubt arose while large commands were under way
	lostPages                     // pages of maps did not come
	failedPages                   // they were damaged, or failed to be read
	numClasses
)

var classNames = [numClasses]string{"many pools", "caps that overcommit", "thick volumes", "anchors", "full pools", "hundreds of descriptors",
	"reservations", "copies across LUNs", "fenced copies", "maps of three levels", "wide edits", "churn of volumes", "checkpoints in small batches",
	"cuts inside a checkpoint", "losses of NVRAM", "held grains placed", "tokens placed", "races for the last pool", "flush outages", "log waiters",
	"resizes", "cut resizes", "two resizes without flushes", "failed deletions of volumes", "failed deletions of pools", "failed creations", "churn of pools", "held grains of full pools",
	"stops", "failed stops", "changes over a shaky meta store", "cuts inside of these", "failed makings of pools", "doubts settled", "doubts under large commands",
	"pages that do not come", "pages that fail"}

// drawn counts the seeds in which each class occurred.
type drawn struct {
	mu    sync.Mutex
	seeds int
	of    [numClasses]int
}

func (d *drawn) add(m *torture) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seeds++
	for c, yes := range m.drew {
		if yes {
			d.of[c]++
		}
	}
}

// report prints how many seeds have drawn each class. In many seeds each has to be drawn.
func (d *drawn) report(t *testing.T) {
	var parts []string
	for c, n := range d.of {
		parts = append(parts, fmt.Sprintf("%s %d", classNames[c], n))
		if n == 0 && d.seeds >= 500 {
			t.Errorf("none of %d seeds has drawn: %s", d.seeds, classNames[c])
		}
	}
	t.Logf("%d seeds, of them with %s", d.seeds, strings.Join(parts, ", "))
}

// saw notes that a class has occurred.
func (m *torture) saw(c class) { m.drew[c] = true }
