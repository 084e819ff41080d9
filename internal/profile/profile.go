// Package profile is what an array of some make costs in time, and how its
// firmware is set: front end, links, cache latency, offload lanes, copy engine, write
// cache policy, mdisks. A profile is a YAML file with a reason beside every number; the
// simulator runs one in virtual time, the daemon injects the same costs by the wall clock.
//
// The files of the folder profiles are built in; others are given by their path.
package profile

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/size"
	"github.com/arraysim/arraysim/internal/store"
)

//go:embed profiles/*.yaml
var files embed.FS

// Profile describes a make of array. The zero value costs nothing.
type Profile struct {
	Name string `yaml:"name"`
	// Source says where the figures come from, Assumed which of them nobody published.
	Source  string   `yaml:"source"`
	Assumed string   `yaml:"assumed"`
	Link    Link     `yaml:"link"`
	Front   FrontEnd `yaml:"front_end"`
	Cache   Cache    `yaml:"cache"`
	Copy    Copy     `yaml:"copy"`
	Policy  Policy   `yaml:"policy"`
	// Mdisks are the kinds of back-end disk, by name. An mdisk without a kind has the kind "default".
	Mdisks map[string]Mdisk `yaml:"mdisks"`
}

// Link is the way between a host's port and the array. Each direction carries one
// frame after the other.
type Link struct {
	Bandwidth Size     `yaml:"bandwidth"` // bytes a second; 0 is infinite
	Command   Duration `yaml:"command"`   // of the link's time, for each command
	Latency   Duration `yaml:"latency"`   // one way, overlapping
}

// FrontEnd is the array's work for a command before it accesses the medium.
type FrontEnd struct {
	Command   Duration `yaml:"command"` // for each command, overlapping
	WriteSame Lanes    `yaml:"write_same"`
	Copy      Lanes    `yaml:"copy"`  // EXTENDED COPY: its set-up, without the movement of data
	Unmap     Lanes    `yaml:"unmap"` // a unit is a range descriptor if Unit is 0
}

// Lanes is the part of a front end that executes one kind of offload: this many commands at a time, each
// for Command plus Time for each unit that it describes.
type Lanes struct {
	Lanes   int      `yaml:"lanes"` // 0: no limit
	Command Duration `yaml:"command"`
	Unit    Size     `yaml:"unit"`
	Time    Duration `yaml:"time"`
}

// Cache is the latency of the cache and its size.
type Cache struct {
	Size Size `yaml:"size"`
	// Write is the time to accept a write and, in an array with two nodes, to mirror it.
	Write Duration `yaml:"write"`
	// Read is the time to answer from the cache.
	Read Duration `yaml:"read"`
	// ReadSize is the memory for reads; ReadHit is what the array's lower cache takes.
	ReadSize Size     `yaml:"read_size"`
	ReadHit  Duration `yaml:"read_hit"`
}

// Copy says how EXTENDED COPY is executed.
type Copy struct {
	Mode        string `yaml:"mode" jsonschema:"enum=reference,enum=data"` // reference or data
	Outstanding Size   `yaml:"outstanding"`                                // bytes of one command's pieces in flight
	Total       Size   `yaml:"total"`                                      // bytes of all commands' pieces in flight; 0: no limit
	Reads       int    `yaml:"reads"`                                      // source reads in flight; 0: no limit
}

// Policy sets the write cache; see array.Policy for what the switches do.
type Policy struct {
	Admission string `yaml:"admission" jsonschema:"enum=fifo,enum=fair,enum=through"` // fifo, fair, through
	Destage   string `yaml:"destage" jsonschema:"enum=round-robin,enum=lru"`          // round-robin, lru
	Ramp      Ramp   `yaml:"ramp"`
	InFlight  int    `yaml:"in_flight"` // destages an mdisk
	Caps      []int  `yaml:"caps"`      // percent of the cache by number of pools
	Budget    Budget `yaml:"budget"`
}

// Ramp is the destage rate over the fullness of a partition.
type Ramp struct {
	Points   []RampPoint `yaml:"points"`
	Absolute bool        `yaml:"absolute"` // points are bytes, else thousandths of the partition
	Waiting  Size        `yaml:"waiting"`  // bytes a second while somebody waits; 0: what the mdisks take
	MaxAge   Duration    `yaml:"max_age"`
	StallAt  int64       `yaml:"stall_at"`
	ResumeAt int64       `yaml:"resume_at"`
}

// RampPoint is a corner of a ramp.
type RampPoint struct {
	At   Size `yaml:"at"`
	Rate Size `yaml:"rate"` // bytes a second
}

// Budget limits what offloads hold of a partition, in percent; 0 is no limit.
type Budget struct {
	Pool     int  `yaml:"pool"`
	Host     int  `yaml:"host"`
	Pressure bool `yaml:"pressure"` // a waiting offload makes the destager run
}

// Mdisk is a kind of back-end disk; see [store.Service].
type Mdisk struct {
	Parallel  int      `yaml:"parallel"`
	Base      Duration `yaml:"base"`
	Bandwidth Size     `yaml:"bandwidth"`
	Low       int64    `yaml:"low"` // thousandths
	High      int64    `yaml:"high"`
	Write     int64    `yaml:"write"` // thousandths of a read's time; 0 is 1000
}

// Service returns the service time model of an mdisk kind.
func (m Mdisk) Service() store.Service {
	return store.Service{Parallel: m.Parallel, Base: int64(m.Base), Bandwidth: uint64(m.Bandwidth), Low: m.Low, High: m.High, Write: m.Write}
}

// Kind returns the mdisks of a kind; the empty one is "default".
func (p *Profile) Kind(name string) (Mdisk, bool) {
	if name == "" {
		name = "default"
	}
	m, ok := p.Mdisks[name]
	return m, ok || name == "default"
}

// Names returns the names of the built-in profiles, sorted.
func Names() []string {
	list, _ := fs.ReadDir(files, "profiles")
	var names []string
	for _, f := range list {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Text returns the file of a built-in profile, or the file of this name if it ends in .yaml.
func Text(name string) ([]byte, error) {
	if strings.HasSuffix(name, ".yaml") {
		return size.ReadFile(name, size.MaxDocument)
	}
	b, err := files.ReadFile(path.Join("profiles", name+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("there is no profile %q; it is one of %s, or the path of a file that ends in .yaml", name, strings.Join(Names(), ", "))
	}
	return b, nil
}

// Load returns the profile of this name, or of this file if the name ends in .yaml.
func Load(name string) (*Profile, error) {
	b, err := Text(name)
	if err != nil {
		return nil, err
	}
	p, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	return p, nil
}

// Parse reads a profile. Keys and words that are not known are refused, words with their line.
func Parse(text []byte) (*Profile, error) {
	p, err := parse(text)
	if word, ok := errors.AsType[*WordError](err); ok {
		return nil, word.In(text)
	}
	return p, err
}

// parse is Parse without the lines: those of a text that nobody wrote mean nothing.
func parse(text []byte) (*Profile, error) {
	p := &Profile{}
	if err := DecodeYAML(text, p); err != nil {
		return nil, err
	}
	if word := CheckWords(p); word != nil {
		return nil, word
	}
	return p, p.validate()
}

// mostParallel bounds what an mdisk serves at one time: each place takes memory, and is looked at for each operation.
const mostParallel = 1 << 16

func (p *Profile) validate() error {
	if len(p.Policy.Caps) == 0 {
		p.Policy.Caps = nil // the firmware's own; a profile that was written out says [] for that
	}
	p.Copy.Mode = cmp.Or(p.Copy.Mode, "reference")
	p.Policy.Admission, p.Policy.Destage = cmp.Or(p.Policy.Admission, "fifo"), cmp.Or(p.Policy.Destage, "round-robin")
	if _, err := p.Array(); err != nil {
		return err
	}
	for name, m := range p.Mdisks {
		if m.Parallel < 0 || m.Low < 0 || m.Write < 0 || m.High < m.Low || m.Base < 0 {
			return fmt.Errorf("mdisks.%s: parallel, base, low and write are not negative, and high is at least low", name)
		}
		if m.Parallel > mostParallel {
			return fmt.Errorf("mdisks.%s: parallel: %d concurrent operations are not possible; give at most %d", name, m.Parallel, mostParallel)
		}
	}
	return nil
}

// Array returns the firmware's policy.
func (p *Profile) Array() (array.Policy, error) {
	var out array.Policy
	var err error
	w := &p.Policy
	if out.Admission, err = array.ParseAdmission(w.Admission); err != nil {
		return out, err
	}
	if out.Order, err = array.ParseDestageOrder(w.Destage); err != nil {
		return out, err
	}
	for _, x := range w.Ramp.Points {
		out.Ramp.Points = append(out.Ramp.Points, array.RampPoint{At: int64(x.At), Rate: int64(x.Rate)})
	}
	out.Ramp.Absolute, out.Ramp.Waiting, out.Ramp.MaxAge = w.Ramp.Absolute, int64(w.Ramp.Waiting), int64(w.Ramp.MaxAge)
	out.Ramp.StallAt, out.Ramp.ResumeAt = w.Ramp.StallAt, w.Ramp.ResumeAt
	out.DestageDepth = w.InFlight
	out.CopyPieces = int(p.Copy.Outstanding / pieceBytes)
	out.CopyBytes, out.CopyReads = int64(p.Copy.Total), p.Copy.Reads
	out.Budget = array.Budget{Percent: w.Budget.Pool, HostPercent: w.Budget.Host, Pressure: w.Budget.Pressure}
	return out, out.Validate()
}

// pieceBytes is the piece that the firmware copies in.
const pieceBytes = 256 << 10

// Timed wraps a store with the profile's mdisks and read cache. kind gives the kind of
// an mdisk by the name under which the array opens it.
func (p *Profile) Timed(inner block.Store, exec block.Executor, kind func(mdisk string) string, seed uint64) *store.Timed {
	model := func(name string) store.Service {
		m, _ := p.Kind(kind(name))
		return m.Service()
	}
	return store.NewTimed(inner, exec, model, store.ReadCache{Bytes: uint64(p.Cache.ReadSize), Hit: int64(p.Cache.ReadHit)}, seed)
}
