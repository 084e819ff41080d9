package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/lab/plug"
)

// Scenario is what a scenario file says.
type Scenario struct {
	Name string `yaml:"name"`
	// Source is where the figures come from; Shows is what the scenario shows.
	Source string `yaml:"source"`
	Shows  string `yaml:"shows"`
	Seed   uint64 `yaml:"seed"`
	// Until ends the run; 0 ends it when all jobs that end have ended.
	Until Duration `yaml:"until"`
	// Sample is the interval that the report and the figures of samples use,
	// Series that of the time series.
	Sample Duration `yaml:"sample"`
	Series Duration `yaml:"series"`
	// Profile and Store are the defaults of all arrays. A store is none or memory.
	Profile string      `yaml:"profile"`
	Store   string      `yaml:"store" jsonschema:"enum=none,enum=memory"`
	Arrays  []ArraySpec `yaml:"arrays"`
	Hosts   []HostSpec  `yaml:"hosts"`
	Jobs    []JobSpec   `yaml:"jobs"`
	Faults  []FaultSpec `yaml:"faults"`
	// Cases are runs with other settings; without any, the scenario is one run.
	// Long marks what takes more than some seconds of a core: quick test runs leave it out.
	// Proof marks what takes minutes and only compares: test runs leave it out unless asked for it.
	Long   bool     `yaml:"long"`
	Proof  bool     `yaml:"proof"`
	Cases  []Case   `yaml:"cases"`
	Expect []Expect `yaml:"expect"`
	// Table is the figures that a table over several runs shows.
	Table []Column `yaml:"table"`

	// Replay is what jobs of kind trace replay; whoever runs the scenario sets it.
	Replay Source `yaml:"-"`
	// Plugged are policies by the names that the scenario has for them. LoadWasm loads one from a
	// file; nil: there are none. Whoever runs the scenario sets both.
	Plugged  plug.Policies                     `yaml:"-"`
	LoadWasm func(file string) (Module, error) `yaml:"-"`

	// Profiles take the place of the files and built-in profiles of these names, which are read once for
	// many runs then. Runs change none of them. Whoever runs the scenario sets it.
	Profiles map[string]*profile.Profile `yaml:"-"`
	// CounterRows and LogBytes are those of each array ([array.Options]); 0 is the default. A model that builds thousands of
	// small arrays sets them low.
	CounterRows int `yaml:"-"`
	LogBytes    int `yaml:"-"`

	tree any // the file as maps and lists, for Set
}

// Duration and Size are written as in profiles.
type (
	Duration = profile.Duration
	Size     = profile.Size
)

// ArraySpec is an array: one I/O group.
type ArraySpec struct {
	Name    string          `yaml:"name"`
	Profile string          `yaml:"profile"`
	Store   string          `yaml:"store" jsonschema:"enum=none,enum=memory"`
	Cache   Size            `yaml:"cache"`
	Copy    string          `yaml:"copy" jsonschema:"enum=reference,enum=data"` // reference or data, instead of the profile's
	Policy  *profile.Policy `yaml:"policy"`                                     // instead of the profile's
	Adjust  map[string]any  `yaml:"adjust"`                                     // single settings of the profile, such as policy.admission: fair
	// Destage and Placement are plugged policies instead of the profile's.
	Destage   PolicyRef    `yaml:"destage"`
	Placement PolicyRef    `yaml:"placement"`
	Pools     []PoolSpec   `yaml:"pools"`
	Volumes   []VolumeSpec `yaml:"volumes"`
	// Nodes forward to the one that owns the array.
	Nodes []NodeSpec `yaml:"nodes"`
}

// PoolSpec is a pool, or Count of them.
type PoolSpec struct {
	Name  string `yaml:"name"`
	Count int    `yaml:"count"`
	Copy  string `yaml:"copy" jsonschema:"enum=reference,enum=data"`
	// DisksOf puts its mdisks on the drives of another pool, ARRAY/POOL of an array before this one: mdisk
	// by mdisk they share servers and queue, and nothing else. So two I/O groups can share disks.
	DisksOf string      `yaml:"disks_of"`
	Mdisks  []MdiskSpec `yaml:"mdisks"`
}

// MdiskSpec is Count mdisks of a kind of the profile.
type MdiskSpec struct {
	Kind  string `yaml:"kind"`
	Count int    `yaml:"count"`
	Size  Size   `yaml:"size"`
}

// VolumeSpec is a volume, or Count of them. Group names them together.
type VolumeSpec struct {
	Name      string `yaml:"name"`
	Count     int    `yaml:"count"`
	Group     string `yaml:"group"`
	Pool      string `yaml:"pool"`
	Size      Size   `yaml:"size"`
	BlockSize uint32 `yaml:"block_size" jsonschema:"enum=512,enum=4096"`
	Thick     bool   `yaml:"thick"`
	// Filled is how much of the volume has contents when the clock starts.
	Filled Size `yaml:"filled"`
}

// HostSpec is an initiator; it sees all volumes of all arrays.
type HostSpec struct {
	Name string `yaml:"name"`
	// Node is the one that forwards its commands, at each array that has a node of this name.
	Node string `yaml:"node"`
	VAAI VAAI   `yaml:"vaai"`
	// HostCopy is how the host itself copies and zeroes.
	Mover Mover `yaml:"mover"`
	// Cache is the host's caching layer: disks, the flash that they share, peers, and
	// the number of concurrent destages of all disks.
	Cache        []CacheSpec `yaml:"cache"`
	Flash        FlashSpec   `yaml:"flash"`
	Peers        []PeerSpec  `yaml:"peers"`
	DestageSlots int         `yaml:"destage_slots"`
}

// VAAI is the offload settings of an ESXi host, by their names there.
type VAAI struct {
	Move    *bool `yaml:"HardwareAcceleratedMove"`
	Init    *bool `yaml:"HardwareAcceleratedInit"`
	Locking *bool `yaml:"HardwareAcceleratedLocking"`
	// MaxTransfer is MaxHWTransferSize: 4 MiB, in one segment.
	MaxTransfer Size `yaml:"MaxHWTransferSize"`
	// Reported uses what the array reports instead of MaxTransfer, up to Largest in several
	// segments (the claim rule options XCOPY use array values, use multiple segments, max transfer size).
	Reported bool `yaml:"array_reported"`
	Largest  Size `yaml:"max_transfer_size"`
}

// Mover is how a host zeroes and copies without offload.
type Mover struct {
	Size        Size `yaml:"size"`
	Outstanding int  `yaml:"outstanding"`
}

// JobSpec is work of a host.
type JobSpec struct {
	Name string `yaml:"name"`
	// Kind is load, transactions, trace, zero (make an eager zeroed disk), clone, unmap, or vmotion.
	Kind string `yaml:"kind" jsonschema:"enum=load,enum=transactions,enum=trace,enum=zero,enum=clone,enum=unmap,enum=vmotion"`
	Host string `yaml:"host"`
	// At is when it begins; After is a job that must have ended first, AfterAll several that must all have ended.
	At       Duration `yaml:"at"`
	After    string   `yaml:"after"`
	AfterAll []string `yaml:"after_all"`
	For      Duration `yaml:"for"`
	Off      bool     `yaml:"off"` // leaves the job out

	Volume string `yaml:"volume"` // a volume or, for loads, a group
	// Disk puts a virtual disk of this kind on the volume: eager, lazy or thin; raw is none.
	Disk string `yaml:"disk" jsonschema:"enum=raw,enum=eager,enum=lazy,enum=thin"`
	Size Size   `yaml:"size"` // of the disk, or of what is zeroed or copied; 0 is the volume's

	Load `yaml:",inline"`

	// A clone, and a vmotion, whose to is a host.
	To      string `yaml:"to"`
	Offload *bool  `yaml:"offload"` // false: the host copies whatever its settings
	Skew    Size   `yaml:"skew"`    // the destination begins this many bytes into the LUN
	// Ranges is the number of ranges of an UNMAP.
	Ranges int `yaml:"ranges"`

	Transactions `yaml:",inline"`
	Trace        TraceSpec `yaml:"trace"`
	Move         `yaml:",inline"`
}

// Load is a workload: of one volume, or of each of a group.
type Load struct {
	// Outstanding makes a closed loop if no rate is given; with a rate it limits the commands in progress,
	// and further arrivals are not issued.
	Outstanding int      `yaml:"outstanding"`
	Think       Duration `yaml:"think"`
	// Rate is I/Os a second, Bandwidth bytes a second: an open loop. RateMax spreads
	// the rates of a group's volumes evenly between Rate and it.
	Rate      float64 `yaml:"rate"`
	RateMax   float64 `yaml:"rate_max"`
	Bandwidth Size    `yaml:"bandwidth"`
	// Total says that rate and bandwidth are of the whole group, divided by log-normal weights of this
	// deviation.
	Total     bool    `yaml:"total"`
	LogNormal float64 `yaml:"lognormal"`
	Arrival   string  `yaml:"arrival" jsonschema:"enum=poisson,enum=constant"` // poisson or constant
	Burst     *Burst  `yaml:"burst"`
	// Changes are later rates.
	Changes []Change `yaml:"changes"`

	Write   float64  `yaml:"write"` // fraction of I/Os
	IO      Size     `yaml:"io"`
	Sizes   []IOSize `yaml:"sizes"`
	Pattern string   `yaml:"pattern" jsonschema:"enum=random,enum=sequential"` // sequential or random
	Span    Size     `yaml:"span"`                                             // of the disk; 0 is all
	Align   Size     `yaml:"align"`
	Hot     *HotSpec `yaml:"hot"`
	Laps    int      `yaml:"laps"`    // a sequential load ends after this many rounds
	Bytes   Size     `yaml:"bytes"`   // it ends after this many bytes
	Timeout Duration `yaml:"timeout"` // the host aborts a command after this time
}

// IOSize is one size of a histogram.
type IOSize struct {
	Size   Size `yaml:"size"`
	Weight int  `yaml:"weight"`
}

// Burst turns a load on for For, and off for a time whose mean is Every.
type Burst struct {
	For   Duration `yaml:"for"`
	Every Duration `yaml:"every"`
}

// Change is a new rate from a given time on.
type Change struct {
	At        Duration `yaml:"at"`
	Rate      float64  `yaml:"rate"`
	Bandwidth Size     `yaml:"bandwidth"`
}

// HotSpec is locality: a fraction of the reads goes to the first bytes of the span.
type HotSpec struct {
	Reads float64 `yaml:"reads"`
	Span  Size    `yaml:"span"`
}

// FaultSpec is a fault or a change at a given time.
type FaultSpec struct {
	At     Duration        `yaml:"at"`
	Kind   string          `yaml:"kind" jsonschema:"enum=mdisk-slow,enum=mdisk-offline,enum=mdisk-online,enum=node-loss,enum=node-return,enum=pool-add,enum=pool-remove,enum=write-mode,enum=policy,enum=lun-reset,enum=cold-restart,enum=suspend,enum=snapshot-revert,enum=snapshot-consolidate"`
	Array  string          `yaml:"array"`
	Pool   string          `yaml:"pool"`
	Mdisk  int             `yaml:"mdisk"`
	Factor float64         `yaml:"factor"`
	New    *PoolSpec       `yaml:"new"`
	Volume string          `yaml:"volume"`
	Mode   string          `yaml:"mode" jsonschema:"enum=fast,enum=flush-through,enum=write-through"`
	Policy *profile.Policy `yaml:"policy"`
	// Cache is the cache whose contents cold-restart, suspend, snapshot-revert and snapshot-consolidate
	// destroy; For is how long the guest stands still in the first two.
	Cache string   `yaml:"cache"`
	For   Duration `yaml:"for"`
}

// Case is a run with other settings.
type Case struct {
	Name string         `yaml:"name"`
	Set  map[string]any `yaml:"set"`
}

// Column is a figure in a table over several runs.
type Column struct {
	Title string   `yaml:"title"`
	Value string   `yaml:"value"`
	At    Duration `yaml:"at"`
	Over  Duration `yaml:"over"`
}

// Parse reads a scenario. Keys and words that are not known are refused, with their line, and so are
// expectations that do not say what they are.
func Parse(text []byte) (*Scenario, error) {
	text = profile.Plain(text)
	s, err := parse(text)
	if word, ok := errors.AsType[*profile.WordError](err); ok {
		return nil, word.In(text)
	}
	if err == nil {
		err = s.checkParameters(text)
	}
	return s, err
}

// parse is Parse without looking for the parameters that expectations name.
func parse(text []byte) (*Scenario, error) {
	s := &Scenario{}
	if err := profile.DecodeYAML(text, s); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(text, &s.tree); err != nil {
		return nil, err
	}
	if word := profile.CheckWords(s); word != nil {
		return nil, word
	}
	return s, errors.Join(s.fill(), s.checkExpect(text))
}

func (s *Scenario) fill() error {
	set := func(v *string, def string) {
		if *v == "" {
			*v = def
		}
	}
	set(&s.Profile, "none")
	set(&s.Store, "none")
	if s.Seed == 0 {
		s.Seed = 1
	}
	if s.Sample == 0 {
		s.Sample = 300e9
	}
	if s.Series == 0 {
		s.Series = 1e9
		if s.Until > 900e9 {
			s.Series = 5e9
		}
	}
	if s.Series < 1e9 || s.Series%1e9 != 0 || s.Sample%s.Series != 0 {
		return errors.New("series is whole seconds, and sample a multiple of it")
	}
	if len(s.Arrays) == 0 || len(s.Hosts) == 0 {
		return errors.New("a scenario needs arrays and hosts")
	}
	for i := range s.Arrays {
		a := &s.Arrays[i]
		set(&a.Name, fmt.Sprintf("array%d", i+1))
		if slices.ContainsFunc(s.Arrays[:i], func(o ArraySpec) bool { return o.Name == a.Name }) {
			return fmt.Errorf("there are two arrays %q; rename one", a.Name)
		}
		set(&a.Profile, s.Profile)
		set(&a.Store, s.Store)
		if err := a.checkCounts(); err != nil {
			return err
		}
	}
	for i := range s.Hosts {
		if slices.ContainsFunc(s.Hosts[:i], func(o HostSpec) bool { return o.Name == s.Hosts[i].Name }) {
			return fmt.Errorf("there are two hosts %q; rename one", s.Hosts[i].Name)
		}
		if err := s.Hosts[i].fill(); err != nil {
			return fmt.Errorf("host %s: %w", s.Hosts[i].Name, err)
		}
	}
	cases := map[string]bool{}
	for _, c := range s.Cases {
		if cases[c.Name] {
			return fmt.Errorf("there are two cases %q; rename one", c.Name)
		}
		cases[c.Name] = true
	}
	names := map[string]bool{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		set(&j.Host, s.Hosts[0].Name)
		set(&j.Kind, "load")
		set(&j.Disk, "raw")
		set(&j.Name, fmt.Sprintf("job%d", i+1))
		if names[j.Name] {
			return fmt.Errorf("there are two jobs %q; rename one", j.Name)
		}
		names[j.Name] = true
		if err := j.check(); err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	return nil
}

func (h *HostSpec) fill() error {
	yes := func(b **bool) {
		if *b == nil {
			t := true
			*b = &t
		}
	}
	yes(&h.VAAI.Move)
	yes(&h.VAAI.Init)
	yes(&h.VAAI.Locking)
	if h.VAAI.MaxTransfer == 0 {
		h.VAAI.MaxTransfer = 4 << 20
	}
	if h.VAAI.Largest == 0 {
		h.VAAI.Largest = 240 << 20
	}
	if h.Mover.Size == 0 {
		h.Mover.Size = 64 << 10
	}
	if h.Mover.Outstanding == 0 {
		h.Mover.Outstanding = 8
	}
	if err := h.checkMover(); err != nil {
		return err
	}
	return h.fillCache()
}

func (j *JobSpec) check() error {
	if j.Pattern == "" {
		j.Pattern = "random"
	}
	if j.Arrival == "" {
		j.Arrival = "poisson"
	}
	if err := j.checkNumbers(); err != nil {
		return err
	}
	switch {
	case j.Volume == "":
		return errors.New("it has no volume; add one")
	case j.Kind == "clone" && j.To == "":
		return errors.New("a clone has a volume and goes to another; add to")
	case j.Kind == "transactions":
		return j.checkTransactions()
	case j.Kind == "vmotion":
		return j.checkMove()
	case j.Kind == "load":
		return j.Load.check()
	}
	return nil
}

// Set returns a copy of the scenario with one setting changed. The key is a path such as
// arrays.svc.cache, where what is in a list goes by its name or its number.
func (s *Scenario) Set(key string, value any) (*Scenario, error) {
	return s.SetAll(map[string]any{key: value})
}

// SetAll returns a copy of the scenario with these settings changed, in the order of their keys; see
// [Scenario.Set].
func (s *Scenario) SetAll(values map[string]any) (*Scenario, error) {
	tree := profile.Clone(s.tree)
	keys := sortedKeys(values)
	all, expect := strings.Join(keys, ", "), false
	for _, key := range keys {
		if err := profile.SetPath(tree, key, profile.Clone(values[key])); err != nil {
			return nil, err
		}
		expect = expect || strings.HasPrefix(key, "expect")
	}
	text, err := yaml.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", all, err)
	}
	c, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", all, err)
	}
	c.Plugged, c.LoadWasm, c.Profiles = s.Plugged, s.LoadWasm, s.Profiles
	c.CounterRows, c.LogBytes = s.CounterRows, s.LogBytes
	if c.Replay = s.Replay; !expect {
		c.Expect = s.Expect // with the full names of parameters
	}
	return c, nil
}

// profileOf returns the profile of an array with its adjustments.
func (s *Scenario) profileOf(a *ArraySpec) (*profile.Profile, error) {
	if p := s.Profiles[a.Profile]; p != nil {
		return p.With(a.Adjust)
	}
	return profile.LoadWith(a.Profile, a.Adjust)
}

// Tree returns what the scenario's file says as maps and lists. It is a copy.
func (s *Scenario) Tree() any { return profile.Clone(s.tree) }

// ParseValue reads the value of a setting as YAML would.
func ParseValue(text string) (any, error) {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return nil, fmt.Errorf("%q is not a valid value: %s", text, strings.Join(strings.Fields(err.Error()), " "))
	}
	return v, nil
}

// Runs returns the scenario's cases as scenarios of their own.
func (s *Scenario) Runs() ([]*Scenario, error) {
	if len(s.Cases) == 0 {
		return []*Scenario{s}, nil
	}
	var out []*Scenario
	for _, c := range s.Cases {
		r, err := s.Case(c)
		if err != nil {
			return nil, fmt.Errorf("case %s: %w", c.Name, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// Case returns the scenario with a case's settings, under the case's name.
func (s *Scenario) Case(c Case) (*Scenario, error) {
	copied := *s
	r := &copied
	if len(c.Set) > 0 {
		var err error
		if r, err = s.SetAll(c.Set); err != nil {
			return nil, err
		}
	}
	r.Name, r.Cases, r.Expect = c.Name, nil, nil
	return r, nil
}
