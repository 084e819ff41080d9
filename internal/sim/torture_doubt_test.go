package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/array"
)

// Changes of pools and volumes in TestTorture over a meta store that fails now and then, of whose batches it may have what
// has failed or not. What is told to have failed is not there after a start, what has ended well is, and of the rest
// the error says that nobody knows: until the next change ends well.

// spareVolume is a volume that no host uses.
type spareVolume struct {
	there bool // for the array
	maybe bool // the next start may find it or not
	busy  bool // a change has no answer yet
}

// doubtful reports whether an error says that the next start may find the change done or not.
func doubtful(err error) bool { return err != nil && strings.Contains(err.Error(), "done or not") }

// refused reports whether the array takes no writes, and whether only a start ends that.
func (m *torture) refused() (yes, lasting bool) {
	for _, line := range m.arr.Health() {
		if why, ok := strings.CutPrefix(line, "changes are refused: "); ok {
			return true, !strings.HasPrefix(why, "the objects could not be written")
		}
	}
	return false, false
}

// certain hears that a change has ended well, in the call in which it became durable: the next start finds what the array has.
func (m *torture) certain() {
	if yes, lasting := m.refused(); yes && !lasting {
		m.fail("a change has ended well, and the array is in doubt: %v", m.arr.Health())
	}
	for _, v := range m.vols {
		if v.limbo || v.unsure != nil {
			m.saw(doubtSettled)
		}
		v.limbo, v.relied, v.unsure = false, false, nil
	}
	if len(m.unsure) > 0 {
		m.saw(doubtSettled)
	}
	clear(m.unsure)
	for _, x := range m.spare {
		if !x.busy {
			x.maybe = false
		}
	}
}

// shakyMeta has commits fail now and then, and pools and volumes come, change and go meanwhile. Then the power fails, or
// the meta store works again, and all goes on.
func (m *torture) shakyMeta() {
	m.store.shaky = 1 + m.rng.N(3)
	m.store.shakyObjects = m.rng.N(3) > 0
	m.note("%d of 4 commits fail, of objects only: %v", m.store.shaky, m.store.shakyObjects)
	files := m.files()
	for range 2 + m.rng.N(8) {
		if m.bad != "" {
			return
		}
		m.shakyChange()
		switch m.rng.N(4) {
		case 0:
			m.step()
		case 1:
			m.exec.RunUntil(m.exec.Now() + int64(m.rng.N(5e6)))
		}
	}
	m.saw(shakyChanges)
	answered := func() bool {
		return m.asked == 0 && !slices.ContainsFunc(m.vols, func(v *tortureVolume) bool { return v.sizing != nil })
	}
	switch m.rng.N(3) {
	case 0:
		if !answered() {
			m.saw(shakyCut)
		}
		m.powerCut()
		return
	case 1:
		m.until(answered, "changes over a failing meta store to end")
		m.powerCut()
		return
	}
	m.until(answered, "changes over a failing meta store to end")
	m.metaWorks(files)
}

// metaWorks has a meta store work again that has failed: what was in doubt is settled by any change.
func (m *torture) metaWorks(files map[string]bool) {
	m.note("commits succeed again")
	m.store.shaky = 0
	m.ask("a value to be kept", func(done func(error)) { m.arr.SetBlob("settled", []byte{byte(m.stamp)}, done) })
	if yes, _ := m.refused(); yes { // a checkpoint has failed
		m.powerCut()
		return
	}
	for name, x := range m.spare {
		if x.there {
			x.there = false
			m.ask("a volume to be deleted", func(done func(error)) { m.arr.DeleteVolume(m.arr.Volume(name), done) })
		}
	}
	clear(m.spare)
	if m.bad != "" {
		return
	}
	m.exec.RunUntil(m.exec.Now() + 1e9) // files go behind the answer
	for _, p := range m.arr.Pools() {
		for _, d := range p.Stats().Mdisks {
			files[p.Name()+"."+d.Name] = true
		}
	}
	for name := range m.store.made {
		if !files[name] {
			m.fail("the file of mdisk %s is nobody's", name)
		}
	}
	m.check()
}

// files returns the names of the mdisks that the store has.
func (m *torture) files() map[string]bool {
	files := map[string]bool{}
	for name := range m.store.made {
		files[name] = true
	}
	return files
}

// ask waits for a change that has to end well.
func (m *torture) ask(what string, change func(done func(error))) {
	ended := m.bad != ""
	if ended {
		return
	}
	change(func(err error) {
		if ended = true; err != nil {
			m.fail("%s: %v", what, err)
			return
		}
		m.certain()
	})
	m.until(func() bool { return ended }, what)
}

// shakyChange begins a change; of some it waits for the end.
func (m *torture) shakyChange() {
	switch m.rng.N(8) {
	case 0:
		m.churn()
	case 1:
		m.deletePool()
	case 2, 3:
		m.startResize(m.vols[m.rng.N(uint64(len(m.vols)))])
	case 4, 5:
		m.shakyPool([]string{"x0", "x1", "x2", "y", "y.0"}[m.rng.N(5)])
	default:
		m.shakyVolume()
	}
}

// twins are pools that have the same files: only one of them can be there.
var twins = map[string]string{"y": "y.0", "y.0": "y"}

// shakyPool begins to make a pool. Arrays that are old have no number to lose.
func (m *torture) shakyPool(name string) {
	if name == "" || m.pools[name] || m.unsure[name] || m.flying[name] || m.poolRoom < maxTorturePools/2 {
		return
	}
	m.note("pool %s is made", name)
	m.flying[name] = true
	m.asked++
	m.startPool(name, false, func(err error) {
		m.note("  pool %s: %v", name, err)
		m.asked--
		delete(m.flying, name)
		switch {
		case err == nil:
			m.certain()
		case doubtful(err):
			m.unsure[name] = true
			m.saw(failedPoolMaking)
		default:
			m.saw(failedPoolMaking)
		}
	})
}

// shakyVolume begins to make a volume that no host uses, or to delete it.
func (m *torture) shakyVolume() {
	name := fmt.Sprintf("n%d", m.rng.N(3))
	x := m.spare[name]
	if x == nil {
		x = &spareVolume{}
		m.spare[name] = x
	}
	if x.busy || x.maybe {
		return
	}
	pools := m.arr.Pools()
	pool := pools[m.rng.N(uint64(len(pools)))].Name()
	if !x.there {
		m.makeSpare(name, array.VolumeSpec{Name: name, Pool: pool, Sectors: 8 * (1 + m.rng.N(1024)), Thin: m.rng.N(2) == 0})
		return
	}
	m.arr.DeleteVolume(m.arr.Volume(name), m.changeSpare(name, false))
}

// makeSpare begins to make a volume that no host uses.
func (m *torture) makeSpare(name string, spec array.VolumeSpec) {
	if m.spare[name] == nil {
		m.spare[name] = &spareVolume{}
	}
	ended := m.changeSpare(name, true)
	m.arr.CreateVolume(spec, func(_ *array.Volume, err error) { ended(err) })
}

// changeSpare notes a change of a volume that no host uses, and returns what hears of its end.
func (m *torture) changeSpare(name string, making bool) (ended func(error)) {
	x, era := m.spare[name], m.era
	m.note("volume %s is to be there: %v", name, making)
	x.busy, x.maybe = true, true
	m.asked++
	return func(err error) {
		if era != m.era {
			return
		}
		m.note("  volume %s: %v", name, err)
		m.asked--
		x.busy, x.maybe = false, doubtful(err)
		if err == nil {
			x.there = making
			m.certain()
		}
		if got := m.arr.Volume(name) != nil; got != x.there {
			m.fail("volume %s is there: %v, and its change ended %v", name, got, err)
		}
	}
}

// findSpare compares the volumes that no host uses with those that there must be after a start, and deletes them.
func (m *torture) findSpare() {
	if r := m.arr.Check(false); len(r.Problems) > 0 { // before any of them goes
		m.fail("a start finds: %s", strings.Join(r.Problems, "; "))
	}
	spare := m.spare
	m.spare = map[string]*spareVolume{}
	for _, name := range sortedKeys(spare) {
		x, v := spare[name], m.arr.Volume(name)
		if (v != nil) != x.there && !x.maybe {
			m.fail("a start finds volume %s: %v; it should be there: %v", name, v != nil, x.there)
		}
		if v != nil {
			m.ask("a volume to be deleted", func(done func(error)) { m.arr.DeleteVolume(v, done) })
		}
	}
}
