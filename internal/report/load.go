package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/metrics/export"
)

// Options say how to read counters; what is not set is found out.
type Options struct {
	Mapping string        // file that explains the columns of a CSV file of others
	Last    time.Duration // with Prometheus: how far back to read; 1 h if 0
	Step    time.Duration // of a Prometheus: length of a sample; chosen if 0
}

// tables are the names under which a run leaves its counters.
var tables = []string{"counters.parquet", "counters.csv"}

// ErrNoCounters says that there is no file of counters of the kind sought.
var ErrNoCounters = errors.New("there are no counters")

// errIdle is what there is to say of a simulated run whose volumes have no rows.
var errIdle = errors.New("no volume of this run was read, written or held anything in the write cache")

// LoadRun reads what a report shows of a source: its counters with their findings, and the
// host caches that a simulated run has. Where there are only the caches, Data is nil.
func LoadRun(ctx context.Context, source string, opt Options) (Run, error) {
	run := Run{Name: nameOf(source), source: source}
	if st, err := os.Stat(source); err == nil && st.IsDir() || filepath.Base(source) == HostCacheFile {
		if run.Caches, err = LoadHostCaches(source); err != nil && !errors.Is(err, ErrNoCounters) {
			return Run{}, err
		}
	}
	if filepath.Base(source) == HostCacheFile {
		return run, nil
	}
	run.Text = simText(source)
	var err error
	switch run.Data, err = Load(ctx, source, opt); {
	case err == nil:
		run.Findings = Analyze(run.Data)
	case errors.Is(err, errIdle):
		run.Idle = true
	case len(run.Caches) == 0 || !errors.Is(err, ErrNoCounters):
		return Run{}, err
	}
	return run, nil
}

// extensions are those of files that are sources; in other names a dot is a part of the name.
var extensions = []string{".csv", ".json", ".parquet", ".xml"}

// nameOf is what a run is called by its source: the host of a URL, the name of a file or folder.
func nameOf(source string) string {
	if isURL(source) {
		if u, err := url.Parse(source); err == nil && u.Host != "" {
			return u.Host
		}
		return source
	}
	if abs, err := filepath.Abs(source); err == nil {
		source = abs // "." has no name
	}
	name := filepath.Base(source)
	if ext := filepath.Ext(name); slices.Contains(extensions, ext) && len(name) > len(ext) {
		if st, err := os.Stat(source); err != nil || !st.IsDir() {
			name = name[:len(name)-len(ext)]
		}
	}
	return name
}

// tellApart gives runs of the same name that of their source.
func tellApart(runs []Run) {
	count := map[string]int{}
	for _, r := range runs {
		count[r.Name]++
	}
	for i, r := range runs {
		if count[r.Name] == 1 || r.source == "" {
			continue
		}
		runs[i].Name = r.source
		if u, err := url.Parse(r.source); err == nil && isURL(r.source) {
			runs[i].Name = u.Redacted() // a page is shown around
		}
	}
}

func isURL(source string) bool {
	return strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")
}

// LoadRuns reads all runs of a source: a folder in which sim --out has left one folder for each case has them all, and
// any other source is one.
func LoadRuns(ctx context.Context, source string, opt Options) ([]Run, error) {
	one, err := LoadRun(ctx, source, opt)
	if err == nil || !errors.Is(err, ErrNoCounters) {
		return []Run{one}, err
	}
	inside, _ := filepath.Glob(filepath.Join(globbed(source), "*", simVolumes))
	var runs []Run
	for _, path := range inside {
		if strings.HasSuffix(filepath.Dir(path), ".part") {
			continue // of a run whose files have not all their places
		}
		run, rerr := LoadRun(ctx, filepath.Dir(path), opt)
		if rerr != nil {
			return nil, rerr
		}
		runs = append(runs, run)
	}
	if len(runs) == 0 {
		return nil, err
	}
	return runs, nil
}

// globbed is a path in which nothing is a pattern.
func globbed(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// maxText bounds what is shown of a run's own report.
const maxText = 1 << 20

// simText is what a simulated run says of itself.
func simText(dir string) string {
	if !exists(filepath.Join(dir, simVolumes)) {
		return ""
	}
	f, err := os.Open(filepath.Join(dir, simReport))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, maxText)) // what there is
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// Load reads counters from a file, a folder or the URL of a Prometheus.
func Load(ctx context.Context, source string, opt Options) (*Data, error) {
	d, err := load(ctx, source, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	if len(d.Times) == 0 && exists(filepath.Join(source, simVolumes)) {
		return nil, fmt.Errorf("%s: %w", source, errIdle)
	}
	if len(d.Times) == 0 {
		return nil, fmt.Errorf("%s: there are no two readings of counters to compare; give a longer time", source)
	}
	if len(d.Volumes) == 0 {
		return nil, fmt.Errorf("%s: there is no volume in these counters", source)
	}
	return d, nil
}

func load(ctx context.Context, source string, opt Options) (*Data, error) {
	if isURL(source) {
		return fromPrometheus(ctx, source, opt)
	}
	st, err := os.Stat(source)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	if st.IsDir() {
		return fromFolder(ctx, source, opt)
	}
	head := make([]byte, 512)
	f, err := os.Open(source)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, _ := f.Read(head) // an empty file is no format that follows
	head = head[:n]
	if _, err := f.Seek(0, 0); err != nil {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte("PAR1")):
		rows, err := export.NewParquetReader(f, st.Size())
		if err != nil {
			return nil, err
		}
		return fromTable(source, rows)
	case bytes.HasPrefix(head, []byte("time,layer,family,")):
		rows, err := export.NewCSVReader(f)
		if err != nil {
			return nil, err
		}
		return fromTable(source, rows)
	case bytes.Contains(head, []byte("<diskStatsColl")):
		return fromIOStats(source, []string{source}, nil)
	case bytes.HasPrefix(bytes.TrimSpace(head), []byte("{")):
		return fromPrometheusFile(source, f)
	case opt.Mapping != "": // which other sources of the same command may need no more than these
		return fromMapped(source, f, opt.Mapping)
	}
	return nil, errors.New("this is neither our table (CSV, Parquet) nor iostats XML nor a Prometheus answer; explain other CSV with --mapping")
}

// fromFolder reads our table if it is there, else that of a recording, else statistics files, else answers of a Prometheus,
// else the time series that a simulated run leaves without a table.
func fromFolder(ctx context.Context, dir string, opt Options) (*Data, error) {
	for _, name := range tables {
		if path := filepath.Join(dir, name); exists(path) {
			d, err := load(ctx, path, opt)
			if d != nil {
				d.Source = dir
			}
			return d, err
		}
	}
	recorded, err := filepath.Glob(filepath.Join(globbed(dir), export.RollingFiles))
	if err != nil {
		return nil, err
	}
	if len(recorded) > 0 {
		r := &recording{files: recorded}
		defer r.close()
		d, err := fromTable(dir, r)
		if err == nil {
			d.Notes = append(d.Notes, unread(dir, recorded[len(recorded)-1])...)
		}
		return d, err
	}
	var files, json []string
	side := map[string]string{}
	run := exists(filepath.Join(dir, simVolumes)) && exists(filepath.Join(dir, simPools))
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if run && err == nil && path != dir && filepath.Dir(path) == filepath.Clean(dir) && e.Name() != "iostats" {
			if e.IsDir() { // a simulated run has its statistics in that folder; what is elsewhere is of others
				return fs.SkipDir
			}
			return nil
		}
		if err == nil && e.IsDir() && path != dir && (strings.HasSuffix(path, ".part") || exists(filepath.Join(path, simVolumes))) {
			return fs.SkipDir // of a run that was cut off, or of another one
		}
		if err != nil || e.IsDir() {
			return err
		}
		name := e.Name()
		switch {
		case name == "lsvdisk" || name == "lsvdiskcopy" || name == "lsmdiskgrp":
			side[name] = path
		case strings.HasPrefix(name, "Nv_stats") || strings.HasPrefix(name, "Nn_stats"):
			files = append(files, path)
		case strings.HasSuffix(name, ".json") && isPrometheusAnswer(path):
			json = append(json, path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(files) > 0 {
		return fromIOStats(dir, files, side)
	}
	if len(json) > 0 {
		slices.Sort(json)
		return fromPrometheusFiles(dir, json)
	}
	if run {
		return fromSimRun(dir)
	}
	return nil, fmt.Errorf("%w in this folder: no %s, no counters-*.parquet, no Nv_stats files, no answers of a Prometheus and no %s of a simulated run", ErrNoCounters, strings.Join(tables, ", no "), simVolumes)
}

// unread is the note on what was recorded after the last complete file of a folder, if anything was.
func unread(dir, last string) []string {
	parts, _ := filepath.Glob(filepath.Join(globbed(dir), export.RollingFiles+".part")) // the pattern is valid
	for _, part := range parts {
		if part < last {
			continue // of a run that was cut off
		}
		name := filepath.Base(part)
		note := "readings since then are in " + name + ", which is not complete yet"
		if at, err := time.Parse("20060102T150405.000Z", strings.TrimSuffix(strings.TrimPrefix(name, "counters-"), ".parquet.part")); err == nil {
			note = "readings since " + at.Format(time.RFC3339) + " are left out: " + name + " is not complete yet"
		}
		if exists(filepath.Join(dir, "iostats")) {
			note += "; iostats/ in the same folder has the last ones"
		}
		return []string{note}
	}
	return nil
}

// recording is the table of serve --record: its files, one after the other. Their names are in the order of time.
type recording struct {
	files []string // those that are to come
	file  *os.File // nil: none is open
	rows  export.RowReader
}

// Read implements export.RowReader.
func (r *recording) Read(row *export.Row) error {
	for {
		if r.file == nil {
			if len(r.files) == 0 {
				return io.EOF
			}
			if err := r.open(r.files[0]); err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(r.files[0]), err)
			}
			r.files = r.files[1:]
		}
		err := r.rows.Read(row)
		if err == nil {
			return nil
		}
		if err != io.EOF { // one that is wrapped is of a file that ends too early
			return fmt.Errorf("%s: %w", filepath.Base(r.file.Name()), err)
		}
		r.close()
	}
}

func (r *recording) open(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && st.Size() == 0 {
		err = errors.New("the file is empty; move it elsewhere to read the others")
	}
	if err == nil {
		r.rows, err = export.NewParquetReader(f, st.Size())
	}
	if err != nil {
		f.Close()
		return err
	}
	r.file = f
	return nil
}

func (r *recording) close() {
	if r.file != nil {
		r.file.Close() // it was read only
		r.file = nil
	}
}

// Where implements export.RowReader.
func (r *recording) Where() string {
	if r.file == nil {
		return "the end"
	}
	return filepath.Base(r.file.Name()) + ", " + r.rows.Where()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
