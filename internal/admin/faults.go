package admin

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
)

// blobPolicy is the name under which the array keeps what the policy was changed to.
const blobPolicy = "admin.policy"

var writeModes = map[string]array.WriteMode{"fast": array.WriteFast, "flush_through": array.FlushThrough, "write_through": array.WriteThrough}

func writeModeName(m array.WriteMode) string {
	for name, x := range writeModes {
		if x == m {
			return name
		}
	}
	return fmt.Sprintf("mode(%d)", m)
}

func (g *ioGroup) policy() Policy {
	g.exec.Lock()
	defer g.exec.Unlock()
	return describePolicy(g.array.Policy())
}

func describePolicy(p array.Policy) Policy {
	return Policy{Admission: p.Admission.String(), Order: p.Order.String(), DestageDepth: p.DestageDepth, CopyPieces: p.CopyPieces,
		CopyBytes: Size(p.CopyBytes), CopyReads: p.CopyReads,
		BudgetPercent: p.Budget.Percent, BudgetHostPercent: p.Budget.HostPercent, BudgetPressure: p.Budget.Pressure}
}

// apply changes what the change names.
func (c *PolicyChange) apply(p *array.Policy) error {
	var err error
	if c.Admission != nil {
		if p.Admission, err = array.ParseAdmission(*c.Admission); err != nil {
			return err
		}
	}
	if c.Order != nil {
		if p.Order, err = array.ParseDestageOrder(*c.Order); err != nil {
			return err
		}
	}
	set(&p.DestageDepth, c.DestageDepth)
	set(&p.CopyPieces, c.CopyPieces)
	set(&p.CopyReads, c.CopyReads)
	set(&p.Budget.Percent, c.BudgetPercent)
	set(&p.Budget.HostPercent, c.BudgetHostPercent)
	set(&p.Budget.Pressure, c.BudgetPressure)
	if c.CopyBytes != nil {
		p.CopyBytes = int64(*c.CopyBytes)
	}
	return nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// changePolicy changes the policy and keeps all changes made so far: a profile that
// the next start has, or the defaults, come below them.
func (g *ioGroup) changePolicy(c PolicyChange) (Policy, error) {
	var out Policy
	err := g.keep(func(done func(error)) {
		p := g.array.Policy()
		was := p
		err := c.apply(&p)
		kept := PolicyChange{}
		if b := g.array.Blob(blobPolicy); err == nil && b != nil {
			err = json.Unmarshal(b, &kept)
		}
		if err == nil {
			err = g.array.SetPolicy(p)
		}
		if err != nil {
			done(err)
			return
		}
		out = describePolicy(g.array.Policy())
		kept.merge(c)
		b, _ := json.Marshal(kept) // strings and numbers
		g.array.SetBlob(blobPolicy, b, func(err error) {
			if err != nil {
				err = errors.Join(err, g.array.SetPolicy(was))
			}
			done(err)
		})
	})
	return out, err
}

func (c *PolicyChange) merge(n PolicyChange) {
	over := func(to **int, from *int) {
		if from != nil {
			*to = from
		}
	}
	over(&c.DestageDepth, n.DestageDepth)
	over(&c.CopyPieces, n.CopyPieces)
	over(&c.CopyReads, n.CopyReads)
	over(&c.BudgetPercent, n.BudgetPercent)
	over(&c.BudgetHostPercent, n.BudgetHostPercent)
	if n.Admission != nil {
		c.Admission = n.Admission
	}
	if n.Order != nil {
		c.Order = n.Order
	}
	if n.CopyBytes != nil {
		c.CopyBytes = n.CopyBytes
	}
	if n.BudgetPressure != nil {
		c.BudgetPressure = n.BudgetPressure
	}
}

// restorePolicy brings back what the policy was changed to. The executor is held.
func (g *ioGroup) restorePolicy() error {
	b := g.array.Blob(blobPolicy)
	if b == nil {
		return nil
	}
	var c PolicyChange
	p := g.array.Policy()
	err := json.Unmarshal(b, &c)
	if err == nil {
		err = c.apply(&p)
	}
	if err == nil {
		err = g.array.SetPolicy(p)
	}
	if err != nil {
		return fmt.Errorf("the saved policy is damaged: %w", err)
	}
	return nil
}

// pool finds a pool by name. The executor is held.
func (g *ioGroup) pool(name string) (*array.Pool, error) {
	if p := g.array.Pool(name); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("pool %q %w; see: arraysim pool list", name, array.ErrNotFound)
}

func (g *ioGroup) changePool(name string, c PoolChange) (Pool, error) {
	g.exec.Lock()
	defer g.exec.Unlock()
	p, err := g.pool(name)
	if err != nil {
		return Pool{}, err
	}
	m, ok := writeModes[c.WriteMode]
	if !ok {
		return Pool{}, fmt.Errorf("write mode %q is unknown; it is fast, flush_through or write_through", c.WriteMode)
	}
	p.SetWriteMode(m)
	return g.describePool(p), nil
}

func (g *ioGroup) changeMdisk(pool, mdisk string, c MdiskChange) (Pool, error) {
	g.exec.Lock()
	defer g.exec.Unlock()
	p, err := g.pool(pool)
	if err != nil {
		return Pool{}, err
	}
	for _, m := range p.Stats().Mdisks {
		if m.Name != mdisk {
			continue
		}
		bandwidth, iops := Size(m.Bandwidth), m.IOPS
		set(&bandwidth, c.Bandwidth)
		set(&iops, c.IOPS)
		if c.Bandwidth != nil || c.IOPS != nil {
			err = p.SetMdiskLimits(mdisk, uint64(bandwidth), iops)
		}
		if err == nil && c.Offline != nil {
			err = p.SetMdiskOffline(mdisk, *c.Offline)
		}
		return g.describePool(p), err
	}
	return Pool{}, fmt.Errorf("mdisk %q of pool %q %w; see: arraysim pool list", mdisk, pool, array.ErrNotFound)
}

func (g *ioGroup) setMirror(m Mirror) error {
	g.exec.Lock()
	defer g.exec.Unlock()
	if g.array.Mirrored() != m.Mirrored {
		g.array.SetMirrored(m.Mirrored)
	}
	return nil
}

func (g *ioGroup) deletePool(name string) error {
	return g.await(func(done func(error)) {
		p, err := g.pool(name)
		if err != nil {
			done(err)
			return
		}
		g.array.DeletePool(p, func(err error) {
			for _, line := range g.array.Leftovers() {
				g.log.Warn("remains of a deleted pool", "is", line)
			}
			done(err)
		})
	})
}

// zeroVolume zeroes all of a volume, step by step: other commands go between steps.
func (g *ioGroup) zeroVolume(name string) error {
	g.exec.Lock()
	v, err := g.volume(name)
	if err == nil && g.exports.spec(v).WriteProtect {
		err = conflict("volume %q is write protected", name)
	}
	total := uint64(0)
	if err == nil {
		total = v.Info().Sectors
	}
	g.exec.Unlock()
	for at := uint64(0); err == nil && at < total; at += clonePiece {
		r := &block.Request{Op: block.OpWriteSame, Origin: block.OriginWriteSame, Range: block.Range{Start: at, Count: min(clonePiece, total-at)}}
		if s := g.request(v, r); s != block.OK {
			err = fmt.Errorf("volume %q cannot be zeroed: %s", name, s)
		}
	}
	return err
}
