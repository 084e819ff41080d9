package demo

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/arraysim/arraysim/internal/admin"
)

// layout is what the demonstration has created.
type layout struct {
	size admin.Size // of the golden volume and its clone
	luns [3]int     // of golden, clone and victim
	naa  [2][]byte  // of golden and clone
}

const (
	victimSize = 64 * mebibyte
	// spare is what an mdisk has beyond the volumes on it.
	spare = 64 * mebibyte
	// largestImage bounds what is written where the write cache is very large.
	largestImage = 4 << 30
)

// create makes the pools, and volumes large enough to keep the shared pool's partition full.
func create(ctx context.Context, array *admin.Client, prefer int) (*layout, error) {
	exports, err := array.Exports(ctx)
	if err != nil {
		return nil, err
	}
	l := &layout{luns: freeLUNs(exports, prefer)}
	// A pool's cap depends on the number of pools alone: the shared one comes last, and says how much the clone is to be.
	mdisk := func(limit admin.Size) []admin.NewMdisk {
		return []admin.NewMdisk{{Name: "m0", Size: mdiskSize, Bandwidth: limit}}
	}
	if _, err := array.CreatePool(ctx, admin.NewPool{Name: ImagePool, Mdisks: mdisk(0)}); err != nil {
		return nil, err
	}
	shared, err := array.CreatePool(ctx, admin.NewPool{Name: SharedPool, CopyData: true, Mdisks: mdisk(bandwidth)})
	if err != nil {
		return nil, err
	}
	l.size = shared.CacheLimit + bandwidth*admin.Size(atFull/time.Second)
	l.size = min((l.size+mebibyte-1)/mebibyte*mebibyte, largestImage)
	for i, v := range []admin.NewVolume{
		{Name: Golden, Pool: ImagePool, Size: l.size},
		{Name: Clone, Pool: SharedPool, Size: l.size},
		{Name: Victim, Pool: SharedPool, Size: victimSize},
	} {
		v.Export = &admin.NewExport{LUN: l.luns[i]}
		made, err := array.CreateVolume(ctx, v)
		if err != nil {
			return nil, err
		}
		if i < len(l.naa) {
			if l.naa[i], err = hex.DecodeString(made.NAA); err != nil || len(l.naa[i]) != 16 {
				return nil, fmt.Errorf("volume %s has the NAA name %q", v.Name, made.NAA)
			}
		}
	}
	return l, nil
}

// freeLUNs returns numbers that no export has, from prefer on.
func freeLUNs(exports []admin.Export, prefer int) (luns [3]int) {
	n := prefer
	for i := range luns {
		for slices.ContainsFunc(exports, func(e admin.Export) bool { return e.LUN == n }) {
			n++
		}
		luns[i] = n
		n++
	}
	return luns
}

// deleteTime bounds how long the space of deleted volumes may take to become free.
const deleteTime = time.Minute

// mdiskSize is that of the mdisk of each of the pools.
const mdiskSize = 2*largestImage + spare

// ours tells a pool of the demonstration from one that has its name and is somebody else's.
func ours(p admin.Pool) bool {
	return len(p.Mdisks) == 1 && p.Mdisks[0].Name == "m0" && p.Mdisks[0].Size == mdiskSize
}

// Remove deletes what a demonstration left; there may be nothing. Where a pool of its name is somebody
// else's, or has somebody else's volume, it deletes nothing.
func Remove(ctx context.Context, array *admin.Client) error {
	vols, err := array.Volumes(ctx)
	if err != nil {
		return err
	}
	pools, err := array.Pools(ctx)
	if err != nil {
		return err
	}
	pools = slices.DeleteFunc(pools, func(p admin.Pool) bool { return p.Name != ImagePool && p.Name != SharedPool })
	for _, p := range pools {
		if !ours(p) {
			return fmt.Errorf("pool %s is not the demonstration's, which has one mdisk m0 of %s; the demonstration needs that name", p.Name, admin.Size(mdiskSize))
		}
	}
	inPools := func(v admin.Volume) bool { return v.Pool == ImagePool || v.Pool == SharedPool }
	for _, v := range vols {
		if inPools(v) && !slices.Contains([]string{Golden, Clone, Victim}, v.Name) {
			return fmt.Errorf("volume %s in pool %s is not the demonstration's; delete it first, or keep the pools", v.Name, v.Pool)
		}
	}
	for _, v := range vols {
		if inPools(v) {
			if err := array.DeleteVolume(ctx, v.Name, true); err != nil {
				return err
			}
		}
	}
	for _, p := range pools {
		// What its volumes held becomes free step by step.
		for end := time.Now().Add(deleteTime); ; {
			err := array.DeletePool(ctx, p.Name)
			if err == nil {
				break
			}
			if time.Now().After(end) {
				return err
			}
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// Unlimited lifts the limit of the shared pool's mdisk, so that what is dirty is destaged at once.
func Unlimited(ctx context.Context, array *admin.Client) error {
	none := admin.Size(0)
	_, err := array.ChangeMdisk(ctx, SharedPool, "m0", admin.MdiskChange{Bandwidth: &none})
	return err
}
