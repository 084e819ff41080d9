package sim

import (
	"strings"
	"testing"
)

// TestNumbersThatCannotBe are refused in one line: they would panic, never end, take memory without end, or be cut to others.
func TestNumbersThatCannotBe(t *testing.T) {
	for _, row := range []struct{ old, new, says string }{
		{"{name: h}", "{name: h, mover: {size: 32MiB}}", "host h: mover.size is 32MiB; give a multiple of 4096 up to 16 MiB"},
		{"{name: h}", "{name: h, mover: {size: 1000}}", "mover.size is 1000"},
		{"{name: h}", "{name: h, mover: {outstanding: -1}}", "mover.outstanding is -1; give 1 to 1048576"},
		{"{name: h}", "{name: h, mover: {outstanding: 2000000000}}", "mover.outstanding is 2000000000"},
		{"{name: h}", "{name: h, vaai: {MaxHWTransferSize: 1000}}", "MaxHWTransferSize is 1000; give a multiple of 4096"},
		{"{name: h}", "{name: h, vaai: {max_transfer_size: 1000}}", "max_transfer_size is 1000; give a multiple of 4096"},
		{"{size: 1GiB}", "{count: 1000000000000, size: 1GiB}", "array a: pool p has a count of 1000000000000 mdisks; give up to 65536"},
		{"{size: 1GiB}", "{count: -1, size: 1GiB}", "pool p has a count of -1 mdisks"},
		{"{name: p,", "{name: p, count: 1000000000000,", "pool p has a count of 1000000000000; give up to 65536"},
		{"{name: v,", "{name: v, count: 1000000000000,", "volume v has a count of 1000000000000; give up to 65536"},
		{"JOB", "io: 4KiB, outstanding: 2000000000", "job j: outstanding is 2000000000; give up to 1048576"},
		{"JOB", "kind: unmap, ranges: 1000000000000000", "ranges is 1000000000000000; an UNMAP has up to 4095"},
		{"JOB", "kind: unmap, ranges: -1", "ranges is -1"},
		{"JOB", "kind: unmap, io: 100", "io, which is one range of the unmap, is 100; give a multiple of 512 up to 1 TiB"},
		{"JOB", "kind: unmap, size: 1000", "size is 1000, and the blocks of volume v are of 512 bytes; give a multiple of that"},
		{"JOB", "kind: clone, to: v, size: 1MiB, skew: 100", "skew is 100"},
		{"JOB", "kind: clone, to: v, size: 1MiB, skew: 64MiB", "is smaller than the 1 MiB of the clone"},
		{"JOB", "outstanding: 1, io: 4KiB, laps: -1", "laps is -1; give up to 1048576"},
		{"JOB", "kind: transactions, users: 2000000000, steps: [{ios: 1, io: 4KiB}]", "users is 2000000000; give 1 to 1048576"},
		{"JOB", "kind: transactions, users: 1, cpus: 1000000000000000, steps: [{ios: 1, io: 4KiB}]", "cpus is 1000000000000000"},
		{"JOB", "kind: transactions, users: 1, steps: [{ios: 2000000000, io: 4KiB}]", "step 0: 2000000000 I/Os, 1 at a time; give up to 1048576"},
		{"JOB", "kind: transactions, users: 1, steps: [{ios: 1, io: 4KiB, write: .nan}]", "fractions go from 0 to 1"},
		{"JOB", "kind: transactions, users: 1, steps: [{ios: 1, io: 4KiB, hot: {reads: .nan, span: 1MiB}}]", "fractions go from 0 to 1"},
		{"JOB", "kind: transactions, users: 1, steps: [{compute: 1ms}], types: [{name: x, percent: 2000000000}]", "a percent of 1 to 10^6"},
		{"JOB", "kind: trace, trace: {depth: 2000000000}", "trace.depth is 2000000000; give up to 1048576"},
		{"JOB", "kind: trace, trace: {speed: .nan}", "trace.speed is NaN; give 0, or 0.001 to 1e+06"},
		{"FAULT", "{kind: mdisk-slow, pool: p, factor: .nan}", "factor is NaN; give 0.001 to 1e+06"},
		{"FAULT", "{kind: mdisk-slow, pool: p, factor: .inf}", "factor is +Inf"},
		{"FAULT", "{kind: mdisk-slow, pool: p, factor: 1e-9}", "factor is 1e-09"},
		{"FAULT", "{kind: pool-add, new: {name: q, mdisks: [{count: 1000000000000, size: 1GiB}]}}", "pool q has a count of 1000000000000 mdisks"},
		{"FAULT", "{kind: pool-add, new: {name: q}}", "pool q has no mdisks; add some"},
		{"FAULT", "{kind: mdisk-slow, pool: p, factor: 2}", ""},
		{"JOB", "kind: unmap, ranges: 100, io: 4KiB", ""},
	} {
		text := inSmall("{name: j, volume: v, JOB}", ", faults: [FAULT]")
		text = strings.Replace(text, row.old, row.new, 1)
		text = strings.NewReplacer("JOB", "io: 4KiB, rate: 1", "FAULT", "").Replace(text)
		s, err := Parse([]byte(text))
		if err == nil {
			var r *Run
			if r, err = New(s); err == nil && row.says == "" {
				r.Advance(3e9)
				if err = r.Problem(); r.jobs[0].failed > 0 {
					t.Errorf("%s: %d commands failed", row.new, r.jobs[0].failed)
				}
			}
		}
		if row.says == "" && err == nil {
			continue
		}
		if err == nil || row.says == "" || !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", row.new, err, row.says)
		}
	}
}
