package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/hostcache"
	"github.com/arraysim/arraysim/internal/replay"
	"github.com/arraysim/arraysim/internal/size"
	"github.com/arraysim/arraysim/internal/trace"
)

// traceFlags are those of all commands that read a trace.
type traceFlags struct {
	format, maxBad, action string
	columns                string
	unit                   admin.Size
}

func (f *traceFlags) add(c *cobra.Command) {
	var names []string
	for _, n := range trace.FormatNames() {
		names = append(names, n[0])
	}
	c.Flags().StringVar(&f.format, "format", "", "format of the trace (default: detected): "+strings.Join(names, ", "))
	c.Flags().StringVar(&f.maxBad, "max-bad", "1%", "share of bad records to skip; more end the run")
	c.Flags().Var(&f.unit, "unit", "block size of a list of block numbers (default: 4KiB, 512B for arc)")
	c.Flags().StringVar(&f.columns, "columns", "", "read any CSV by its columns, such as time=1:us,op=3,offset=4:sectors,length=5,disk=2. A column is a number from 1 or a name in the first line; units are s, ms, us, ns, filetime, B, KiB, sectors. Also: write=VALUE, separator=tab")
	c.Flags().StringVar(&f.action, "action", "", "event of blktrace or blkparse that counts as a request: Q, D or C (default: the first of these that the trace has)")
}

func (f *traceFlags) open(name string) (*trace.Reader, error) {
	opt := trace.Options{Format: f.format, Unit: int64(f.unit)}
	var err error
	if opt.MaxBad, err = share(f.maxBad); err != nil {
		return nil, fmt.Errorf("--max-bad: %w", err)
	}
	if u := int64(f.unit); u != 0 && (u < trace.SectorSize || u > 1<<30 || u%trace.SectorSize != 0) {
		return nil, fmt.Errorf("--unit: blocks of %d bytes are not possible; give a multiple of 512 up to 1GiB", u)
	}
	if f.columns != "" {
		if f.format != "" {
			return nil, errors.New("--columns replaces --format; give one of them")
		}
		if opt.Columns, err = trace.ParseColumns(f.columns); err != nil {
			return nil, fmt.Errorf("--columns: %w", err)
		}
	}
	switch f.action {
	case "":
	case "Q", "D", "C":
		opt.Action = f.action[0]
	default:
		return nil, fmt.Errorf("--action: %q is not Q, D or C", f.action)
	}
	r, err := trace.Open(name, opt)
	if err != nil {
		return nil, err
	}
	if opt.Unit != 0 && r.Unit() == 0 {
		err = fmt.Errorf("--unit goes with a list of block numbers; %s has the format %s: leave it out", name, r.Format())
	}
	if opt.Action != 0 && r.Format() != "blktrace" && r.Format() != "blkparse" {
		err = fmt.Errorf("--action goes with blktrace and blkparse; %s has the format %s: leave it out", name, r.Format())
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// share reads 0.01 or 1%.
func share(s string) (float64, error) {
	digits, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(digits, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("%q is not a valid share; write it as 1%% or 0.01", s)
	}
	return v, nil
}

// source is a trace with its description beside the results.
type source struct {
	*trace.Reader
	Name         string `json:"trace"`
	FormatName   string `json:"format"`
	Requests     int64  `json:"requests"`
	Reads        int64  `json:"reads"`
	Bytes        int64  `json:"bytes"`
	Nanoseconds  int64  `json:"nanoseconds"`
	BadRecords   int64  `json:"bad_records"`
	bars         *mpb.Progress
	bar          *mpb.Bar
	sinceCurrent int
}

// newSource shows how far the trace is on a terminal.
func newSource(r *trace.Reader, name string) *source {
	s := &source{Reader: r, Name: name, FormatName: r.Format()}
	if info, err := os.Stat(name); err == nil && terminal(os.Stderr) {
		s.bars = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))
		s.bar = s.bars.AddBar(info.Size(), mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name("replay "), decor.Percentage()),
			mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_MMSS)))
	}
	return s
}

// Next counts what it passes on.
func (s *source) Next(rec *trace.Record) error {
	if err := s.Reader.Next(rec); err != nil {
		return err
	}
	s.Requests++
	if rec.Op == trace.Read {
		s.Reads++
	}
	s.Bytes += int64(rec.Length)
	s.Nanoseconds = rec.Time
	if s.sinceCurrent++; s.bar != nil && s.sinceCurrent == 10000 {
		s.sinceCurrent = 0
		s.bar.SetCurrent(s.BytesRead())
	}
	return nil
}

// end closes the trace and says what was left out of it.
func (s *source) end() {
	if s.bar != nil {
		s.bar.Abort(true)
		s.bars.Wait()
	}
	n, bad := s.Bad()
	s.BadRecords = n
	if n > 0 && s.Err() == nil { // an error names the first one itself
		fmt.Fprintf(admin.PrintableWriter(os.Stderr), "arraysim: %s: bad records left out: %d, the first at %d: %s\n", s.Name, n, bad[0].Place, bad[0].Why)
	}
	s.Close()
}

// head is the line over the results.
func (s *source) head(w io.Writer) {
	fmt.Fprintf(w, "%s (%s): %d requests, %.1f %% reads, %s", s.Name, s.FormatName, s.Requests, 100*float64(s.Reads)/float64(max(s.Requests, 1)), admin.Size(s.Bytes).Human())
	if s.Times() {
		fmt.Fprintf(w, ", %s", duration(s.Nanoseconds))
	}
	fmt.Fprintln(w)
}

func (a *app) replay() *cobra.Command {
	var tf traceFlags
	var cf cacheFlags
	var lf liveFlags
	var vf virtualFlags
	c := &cobra.Command{
		Use:   "replay TRACE",
		Short: "Run a trace through caches, against a LUN, or in virtual time",
		Long: `replay reads a trace of block I/O and prints the miss ratios of caches, for all combinations of
--policy, --size and --block-size. With --target it sends the requests to a LUN, a block device or
a file and prints their latency. With --virtual or --profile it sends them through simulated hosts,
caches and arrays, in virtual time.

The format is detected, and so is compression by gzip, Zstandard or xz; - is the standard input.
Every reference to a block is a look-up and, on a miss, an insert. With --sectors, caches track
validity by sector and count requests, as vSphere Flash Read Cache does. The policy "belady" knows
the future, so no other can miss less.

A replay against a target overwrites it, so it asks first. See also: hostcache advise.

` + secretHelp,
		Example: `  arraysim replay vm.vscsi --size 256MiB,1GiB
  arraysim replay hm_0.csv.gz --policy lru,arc,auto,belady --size 1GiB --block-size 4KiB,64KiB --json
  arraysim replay w106.trace.xz --size 13758blocks
  arraysim replay io.csv --columns time=ts:ms,op=kind,offset=lba:sectors,length=bytes --size 1GiB
  arraysim replay vm.vscsi --target iscsi://127.0.0.1/iqn.2026-01.io.arraysim:array/2 --speed 1 --read-only
  arraysim replay vm.vscsi --target 'iscsi://bob@array/iqn.2026-01.io.arraysim:array/2?secret_file=bob.secret' --yes
  arraysim replay vm.vscsi --profile svc --speed 1
  arraysim replay vm.vscsi --virtual scenario.yaml --set hosts.esx.cache.db.block=64KiB`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			virtual := vf.given(cmd)
			switch {
			case virtual && (lf.target != "" || lf.yes):
				return errors.New("--virtual and --profile replay in virtual time and take no --target and no --yes")
			case virtual && cf.given(cmd):
				return errors.New("--virtual and --profile take no --policy, --size, --block-size or --sectors; caches are in the scenario")
			case lf.target != "" && cf.given(cmd):
				return errors.New("--target replays against one LUN and takes no --policy, --size, --block-size or --sectors")
			case lf.target == "" && !virtual && lf.given(cmd):
				return errors.New("--speed, --depth, --read-only and --yes go with --target; the first three also with --virtual and --profile")
			}
			cfg, err := cf.config()
			if err != nil {
				return err
			}
			live, err := lf.config()
			if err != nil {
				return err
			}
			a.running = true
			r, err := tf.open(args[0])
			if err != nil {
				return err
			}
			s := newSource(r, args[0])
			if virtual {
				return a.virtual(cmd, s, &vf, live)
			}
			if lf.target != "" {
				warnOfSecret("--target", lf.target)
				return a.live(cmd, s, &lf, live)
			}
			return a.table(cmd, s, cfg)
		},
	}
	tf.add(c)
	cf.add(c)
	lf.add(c)
	vf.add(c)
	return a.jsonFlag(c)
}

// cacheFlags describe the caches of a table.
type cacheFlags struct {
	policies, sizes, blocks []string
	sectors                 bool
}

func (f *cacheFlags) add(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.policies, "policy", hostcache.Policies(), "policies, or all; also: belady")
	c.Flags().StringSliceVar(&f.sizes, "size", []string{"64MiB", "256MiB", "1GiB"}, "sizes of the cache, such as 1GiB or 5000blocks")
	c.Flags().StringSliceVar(&f.blocks, "block-size", nil, "sizes of its blocks (default: 4KiB, or the unit of a list of block numbers)")
	c.Flags().BoolVar(&f.sectors, "sectors", false, "validity by sector; count requests instead of blocks")
}

func (f *cacheFlags) given(c *cobra.Command) bool {
	return changed(c, "policy", "size", "block-size", "sectors")
}

func changed(c *cobra.Command, names ...string) bool {
	for _, n := range names {
		if c.Flags().Changed(n) {
			return true
		}
	}
	return false
}

// config reads the flags; without a block size it leaves them to the trace.
func (f *cacheFlags) config() (replay.Config, error) {
	cfg := replay.Config{Sectors: f.sectors}
	for _, p := range f.policies {
		p = strings.ToLower(strings.TrimSpace(p))
		if p == "all" {
			cfg.Policies = append(cfg.Policies, hostcache.Policies()...)
			continue
		}
		if err := hostcache.UnknownPolicy(p); p != replay.Belady && err != nil {
			return cfg, fmt.Errorf("--policy: %w, %s", err, replay.Belady)
		}
		cfg.Policies = append(cfg.Policies, p)
	}
	for _, s := range f.sizes {
		size, err := cacheSize(s)
		if err != nil {
			return cfg, fmt.Errorf("--size: %w", err)
		}
		cfg.Sizes = append(cfg.Sizes, size)
	}
	for _, s := range f.blocks {
		b, err := size.Parse(s)
		if err != nil {
			return cfg, fmt.Errorf("--block-size: %w", err)
		}
		if b == 0 { // which stands for objects in a table
			return cfg, errors.New("--block-size: a block of 0 bytes is not possible")
		}
		cfg.BlockSizes = append(cfg.BlockSizes, int64(b))
	}
	if len(cfg.Policies) == 0 || len(cfg.Sizes) == 0 {
		return cfg, errors.New("give at least one --policy and one --size")
	}
	return cfg, nil
}

// cacheSize reads 1GiB or 5000blocks.
func cacheSize(s string) (replay.CacheSize, error) {
	s = strings.TrimSpace(s)
	if digits, ok := strings.CutSuffix(s, "blocks"); ok {
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 1 {
			return replay.CacheSize{}, fmt.Errorf("%q is not a number of blocks", s)
		}
		return replay.CacheSize{Blocks: n}, nil
	}
	n, err := size.Parse(s)
	if err == nil && (n == 0 || n > 1<<60) {
		err = fmt.Errorf("a cache of %s is not possible", s)
	}
	return replay.CacheSize{Bytes: int64(n)}, err
}

func (a *app) table(cmd *cobra.Command, s *source, cfg replay.Config) error {
	if len(cfg.BlockSizes) == 0 {
		cfg.BlockSizes = []int64{4096}
		if u := s.Unit(); u != 0 {
			cfg.BlockSizes[0] = u
		}
	}
	cells, err := replay.Table(s, cfg)
	s.end()
	if err != nil {
		return err
	}
	type result struct {
		*source
		Cells []replay.Cell `json:"cells"`
	}
	return show(a, cmd, result{s, cells}, func(w io.Writer, r result) {
		r.source.head(w)
		writeCells(w, cfg, r.Cells)
	})
}

// writeCells prints a table for every block size: a row a policy, a column a cache size.
func writeCells(w io.Writer, cfg replay.Config, cells []replay.Cell) {
	perBlock := len(cfg.Policies) * len(cfg.Sizes)
	for ; len(cells) > 0; cells = cells[perBlock:] {
		first := &cells[0]
		what := "references to objects"
		switch {
		case cfg.Sectors:
			what = fmt.Sprintf("requests to blocks of %s; share of reads that miss", admin.Size(first.BlockSize).Human())
		case first.BlockSize != 0:
			what = fmt.Sprintf("references to blocks of %s", admin.Size(first.BlockSize).Human())
		}
		fmt.Fprintf(w, "\n%d %s\n%-10s", first.Reads+first.Writes, what, "MISS RATIO")
		for _, size := range cfg.Sizes {
			label := strconv.FormatInt(size.Blocks, 10) + " blocks"
			if size.Blocks == 0 {
				label = admin.Size(size.Bytes).Human()
			}
			fmt.Fprintf(w, " %14s", label)
		}
		fmt.Fprintln(w)
		for p := range cfg.Policies {
			row := cells[p*len(cfg.Sizes):][:len(cfg.Sizes)]
			line := bufio.NewWriter(w)
			fmt.Fprintf(line, "%-10s", row[0].Policy)
			for _, c := range row {
				ratio := c.MissRatio
				if cfg.Sectors {
					ratio = c.ReadMissRatio
				}
				fmt.Fprintf(line, " %14.4f", ratio)
			}
			if row[0].Ends != "" {
				fmt.Fprint(line, "  follows")
				for _, c := range row {
					fmt.Fprintf(line, " %s", c.Ends)
				}
			}
			fmt.Fprintln(line)
			line.Flush()
		}
	}
}
