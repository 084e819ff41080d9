package admin

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// What people read. Numbers stand right, names left.

type table struct{ *tabwriter.Writer }

func newTable(w io.Writer) table { return table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

func (t table) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t, "\t")
		}
		fmt.Fprint(t, c)
	}
	fmt.Fprintln(t)
}

// WriteVolumes prints a table of volumes.
func WriteVolumes(w io.Writer, vols []Volume) {
	t := newTable(w)
	t.row("VOLUME", "POOL", "SIZE", "KIND", "BLOCK", "MAPPED", "DIRTY", "LUN")
	for _, v := range vols {
		var luns []string
		for _, e := range v.Exports {
			luns = append(luns, fmt.Sprint(e.LUN))
		}
		t.row(v.Name, v.Pool, v.Size.Human(), v.kind(), v.BlockSize, v.Mapped.Human(), v.Dirty.Human(), orDash(strings.Join(luns, ",")))
	}
	t.Flush()
}

func (v *Volume) kind() string {
	k := "thick"
	if v.Thin {
		k = "thin"
	}
	if v.Removable {
		k += ",removable"
	}
	if v.WriteProtect {
		k += ",read-only"
	}
	return k
}

// WriteVolume prints one volume.
func WriteVolume(w io.Writer, v Volume) {
	t := newTable(w)
	t.row("volume", fmt.Sprintf("%s (number %d)", v.Name, v.ID))
	t.row("pool", v.Pool)
	t.row("size", fmt.Sprintf("%s (%d bytes), blocks of %d", v.Size.Human(), uint64(v.Size), v.BlockSize))
	t.row("kind", v.kind())
	t.row("NAA", v.NAA)
	t.row("serial", v.Serial)
	for _, e := range v.Exports {
		t.row("export", fmt.Sprintf("LUN %d to %s", e.LUN, e.who()))
	}
	for _, s := range []struct {
		name string
		n    Size
	}{{"mapped", v.Mapped}, {"zero", v.Zero}, {"anchored", v.Anchored}, {"unmapped", v.Unmapped}, {"dirty", v.Dirty}, {"exclusive", v.Exclusive}} {
		t.row(s.name, s.n.Human())
	}
	if d := v.Detail; d != nil {
		t.row("map entries", d.Entries)
		t.row("map memory", d.MapBytes.Human()+" (all volumes)")
		t.row("admitted", origins(d.Admitted))
		t.row("destaged", origins(d.Destaged))
	}
	t.Flush()
}

func origins(m map[string]Size) string {
	var parts []string
	for _, o := range sorted(m) {
		parts = append(parts, o+" "+m[o].Human())
	}
	return orDash(strings.Join(parts, ", "))
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (e *Export) who() string {
	if len(e.Initiators) == 0 {
		return "every initiator"
	}
	return strings.Join(e.Initiators, ", ")
}

// WritePools prints a table of pools.
func WritePools(w io.Writer, pools []Pool) {
	t := newTable(w)
	// The column is there where there are several groups.
	groups := slices.ContainsFunc(pools, func(p Pool) bool { return p.IOGroup > 0 })
	row := func(group any, cells ...any) {
		if groups {
			cells = slices.Insert(cells, 1, group)
		}
		t.row(cells...)
	}
	row("IO GROUP", "POOL", "COPIES", "CAPACITY", "ALLOCATED", "RESERVED", "CACHE", "CAP", "VOLUMES", "MDISKS")
	for _, p := range pools {
		var disks []string
		for _, m := range p.Mdisks {
			s := m.Name
			if m.Bandwidth > 0 {
				s += " " + m.Bandwidth.Human() + "/s"
			}
			if m.IOPS > 0 {
				s += fmt.Sprintf(" %d IOPS", m.IOPS)
			}
			if m.Offline {
				s += " OFFLINE"
			}
			disks = append(disks, s)
		}
		row(p.IOGroup, p.Name, copyName(p.CopyData), p.Capacity.Human(), p.Allocated.Human(), p.Reserved.Human(), p.CacheUsed.Human(), p.CacheLimit.Human(), p.Volumes, strings.Join(disks, ", "))
	}
	t.Flush()
}

// withTarget returns what writes a row with its target as the last column, which is there where there are several.
func withTarget[T any](t table, list []T, target func(T) string) func(target string, cells ...any) {
	several := slices.ContainsFunc(list, func(x T) bool { return target(x) != target(list[0]) })
	return func(target string, cells ...any) {
		if several {
			cells = append(cells, target)
		}
		t.row(cells...)
	}
}

// WriteExports prints a table of exports.
func WriteExports(w io.Writer, exports []Export) {
	t := newTable(w)
	row := withTarget(t, exports, func(e Export) string { return e.Target })
	row("TARGET", "LUN", "VOLUME", "INITIATORS")
	slices.SortStableFunc(exports, func(a, b Export) int {
		return cmp.Or(cmp.Compare(len(a.Target), len(b.Target)), cmp.Compare(a.Target, b.Target), a.LUN-b.LUN)
	})
	for _, e := range exports {
		row(e.Target, e.LUN, e.Volume, e.who())
	}
	t.Flush()
}

// WriteTotals prints what was counted so far, the host layer left of the lower one.
func WriteTotals(w io.Writer, c Counters) {
	writeCounters(w, Counters{}, c, "", func(_, now Size) string { return now.Human() })
}

// WriteRates prints what happened between two readings, by second.
func WriteRates(w io.Writer, from, to Counters) {
	seconds := float64(to.Time-from.Time) / 1e9
	writeCounters(w, from, to, " MB/s", func(old, now Size) string {
		if seconds <= 0 || now < old {
			return "-"
		}
		return fmt.Sprintf("%.1f", float64(now-old)/seconds/1e6)
	})
}

func writeCounters(w io.Writer, from, to Counters, unit string, cell func(old, now Size) string) {
	before := map[string]VolumeCounters{}
	for _, v := range from.Volumes {
		before[v.Volume] = v
	}
	t := newTable(w)
	t.row("VOLUME", "POOL", "HOST READ"+unit, "HOST WRITTEN"+unit, "DESCRIBED"+unit, "UNDERCOVER"+unit, "DIRTY")
	for _, v := range to.Volumes {
		b := before[v.Volume]
		t.row(v.Volume, v.Pool, cell(b.Read, v.Read), cell(b.Written, v.Written), cell(sum(b.Described), sum(v.Described)),
			cell(b.Undercover, v.Undercover), v.Dirty.Human())
	}
	t.Flush()
	fmt.Fprintln(w)
	pools := map[string]PoolCounters{}
	for _, p := range from.Pools {
		pools[p.Pool] = p
	}
	t = newTable(w)
	t.row("POOL", "CACHE USED", "CAP", "USED/CAP", "WAITING", "BACK END READ"+unit, "BACK END WRITTEN"+unit)
	for _, p := range to.Pools {
		b, full := pools[p.Pool], "-"
		if p.CacheLimit > 0 {
			full = fmt.Sprintf("%.0f %%", 100*float64(p.CacheUsed)/float64(p.CacheLimit))
		}
		t.row(p.Pool, p.CacheUsed.Human(), p.CacheLimit.Human(), full, p.Waiting.Human(), cell(b.BackendRead, p.BackendRead), cell(b.BackendWrite, p.BackendWrite))
	}
	t.Flush()
}

func sum(m map[string]Size) Size {
	n := Size(0)
	for _, v := range m {
		n += v
	}
	return n
}

// WriteCheck prints what a check found.
func WriteCheck(w io.Writer, r CheckReport) {
	for _, p := range r.Problems {
		fmt.Fprintln(w, "problem:", p)
	}
	fmt.Fprintf(w, "%d volumes, %d data windows, %d dirty pages, %s conserved: %d problems\n", r.Volumes, r.Windows, r.Pages, r.Conserved.Human(), len(r.Problems))
}

// WriteStatus prints where a daemon is to be found.
func WriteStatus(w io.Writer, s Status) {
	t := newTable(w)
	t.row("version", s.Version)
	t.row("process", s.PID)
	if o := s.Ownership; o != nil {
		t.row("state", o.line())
		if o.Trouble != "" {
			t.row("fault", o.fault())
		}
		if o.State == StateStandingBy || o.State == StateTakingOver || o.State == StateOpening {
			if s.Start != nil {
				t.row("start", s.Start.line())
			}
			t.row("data", fmt.Sprintf("%s (store: %s)", s.Data, s.Store))
			writeNodes(t, s)
			t.Flush()
			return
		}
	}
	if s.Start != nil && s.Ownership == nil {
		t.row("state", StateOpening)
		t.row("start", s.Start.line())
		t.row("data", fmt.Sprintf("%s (store: %s)", s.Data, s.Store))
		t.Flush()
		return
	}
	if s.Store == storeNone {
		writeNodes(t, s)
		t.Flush()
		return
	}
	t.row("data", fmt.Sprintf("%s (store: %s), %s dirty", s.Data, s.Store, s.Dirty.Human()))
	for _, target := range s.Targets {
		t.row("portal", "iscsi://"+s.Portal+"/"+target)
	}
	for _, n := range s.Nodes {
		writeNode(t, n)
	}
	for _, p := range s.Peers {
		t.row("peer", p.line())
	}
	t.row("page", orDash(s.Page))
	t.row("metrics", orDash(s.Metrics))
	if !s.Mirrored {
		t.row("fault", "the write cache has lost its mirror")
	}
	for _, line := range s.Health {
		t.row("fault", line)
	}
	t.Flush()
}

// line describes an ownership; "-" is what is not known.
func (o *OwnershipStatus) line() string {
	age := "-"
	if o.LeaseAge != nil {
		age = fmt.Sprintf("%.1f s ago", *o.LeaseAge)
	}
	return fmt.Sprintf("%s; owner %s, epoch %s, lease renewed %s", o.State, orDash(o.Owner), epochText(o.Epoch), age)
}

// line describes a link of copies.
func (p *PeerStatus) line() string {
	text := p.Name + ": copies from it, "
	if p.Role == PeerDestination {
		text = p.Name + ": copies to it, "
	}
	if p.Linked {
		return text + fmt.Sprintf("linked to %s at %s, %s read", orDash(p.Node), p.Address, p.Bytes.Human())
	}
	return text + fmt.Sprintf("not linked, %s read", p.Bytes.Human())
}

// epochText is an epoch for people.
func epochText(epoch *int64) string {
	if epoch == nil {
		return "-"
	}
	return fmt.Sprint(*epoch)
}

// fault says what the cluster does not do, and since when.
func (o *OwnershipStatus) fault() string {
	if o.TroubleSince == nil {
		return o.Trouble
	}
	return o.Trouble + ", since " + o.TroubleSince.Local().Format(time.DateTime)
}

// writeNodes prints what a node has that forwards: its portal, and the nodes.
func writeNodes(t table, s Status) {
	if len(s.Nodes) > 0 {
		for _, target := range s.Targets {
			t.row("portal", "iscsi://"+s.Portal+"/"+target)
		}
	}
	for _, n := range s.Nodes {
		writeNode(t, n)
	}
}

func writeNode(t table, n NodeStatus) {
	text := fmt.Sprintf("%d %s: %s, ports %s", n.ID, n.Name, n.State, strings.Trim(fmt.Sprint(n.Ports), "[]"))
	if n.Address != "" {
		text += ", link " + n.Address
	}
	if n.State == NodeForwarding {
		text += fmt.Sprintf("; %d sessions, %d commands", n.Sessions, n.Commands)
	}
	t.row("node", text)
}

// WritePolicy prints a policy.
func WritePolicy(w io.Writer, p Policy) {
	bound := func(n int, unit string) string {
		if n == 0 {
			return "none"
		}
		return fmt.Sprintf("%d%s", n, unit)
	}
	t := newTable(w)
	t.row("admission", p.Admission)
	t.row("destage order", p.Order)
	t.row("destages per mdisk", p.DestageDepth)
	t.row("pieces per copy", p.CopyPieces)
	t.row("limit of all copies", orNone(p.CopyBytes))
	t.row("limit of their reads", bound(p.CopyReads, ""))
	t.row("offload budget", bound(p.BudgetPercent, " % of a partition"))
	t.row("budget per host", bound(p.BudgetHostPercent, " % of a partition"))
	t.row("budget pressure", map[bool]string{false: "off", true: "on"}[p.BudgetPressure])
	t.Flush()
}

func orNone(s Size) string {
	if s == 0 {
		return "none"
	}
	return s.Human()
}

// WriteSessions prints a table of sessions.
func WriteSessions(w io.Writer, list []Session) {
	t := newTable(w)
	t.row("INITIATOR", "ADDRESS", "SINCE", "COMMANDS", "RECEIVED", "SENT")
	for _, s := range list {
		t.row(s.Initiator, s.Address, s.Since.Local().Format("2006-01-02 15:04:05"), s.Commands, s.Received.Human(), s.Sent.Human())
	}
	t.Flush()
}
