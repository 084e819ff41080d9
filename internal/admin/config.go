package admin

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "embed"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/internal/size"
	"github.com/arraysim/arraysim/internal/store/rados"
)

// Config is what the configuration file says. The keys are the
// yaml tags; unknown ones are refused.
type Config struct {
	// Data is the folder of the array; a relative path begins at the file's folder.
	Data string `yaml:"data"`
	// Store is "files" (in Data), "memory" (lost when the daemon ends) or "rados" (in a Ceph pool; Data
	// then has the socket, and the log if that is local).
	Store string `yaml:"store" jsonschema:"enum=files,enum=memory,enum=rados"`
	// Rados says where the array is; only with the store "rados".
	Rados *RadosConfig `yaml:"rados"`
	// AIO selects what waits for the disks of "files": "io_uring" for reads, "threads", or "auto", which
	// is io_uring if the kernel offers it. Threads always do writes and syncs.
	AIO string `yaml:"aio" jsonschema:"enum=auto,enum=io_uring,enum=direct,enum=threads"`
	// Discard returns space that becomes free in a pool to the file system or the Ceph pool; true when
	// left out, except for a store in memory.
	Discard *bool `yaml:"discard"`
	// IOGroups is the number of I/O groups: executors that can each keep a processor busy, each with a
	// write cache of cache.size, its own pools and a target. 0 means those of the existing array, or one.
	IOGroups int `yaml:"io_groups"`

	Cache   CacheConfig    `yaml:"cache"`
	Portal  PortalConfig   `yaml:"portal"`
	Metrics MetricsConfig  `yaml:"metrics"`
	Record  RecordConfig   `yaml:"record"`
	Pools   []PoolConfig   `yaml:"pools"`
	Volumes []VolumeConfig `yaml:"volumes"`
	// Node identifies this node among several that show the same array; left out, there is only one.
	Node *NodeConfig `yaml:"node"`
	// Peers are other arrays, between which and this one hosts copy.
	Peers []PeerConfig `yaml:"peers"`
	// Profile is a timing profile whose costs are applied; empty applies none.
	Profile string `yaml:"profile"`
	// TCMU opens the TCMU front end: targetcli makes volumes backstores of LIO.
	TCMU bool `yaml:"tcmu"`

	// Embedded says that this is the built-in configuration: its objects are made
	// in a new array only, so that a volume that was deleted does not come back.
	Embedded bool `yaml:"-"`

	src *source
}

// RadosConfig describes where in a Ceph cluster the array is, and how to connect.
type RadosConfig struct {
	Pool string `yaml:"pool"`
	// Conf is the cluster's configuration file: Ceph's own choice when left out. Keyring is a file with
	// the key of User; when left out it is where Conf says. Relative paths begin at the file's folder.
	Conf    string `yaml:"conf"`
	User    string `yaml:"user"` // without "client."; arraysim when left out
	Keyring string `yaml:"keyring"`
	// Namespace of the array in the pool: array when left out.
	Namespace string `yaml:"namespace"`
	// Log is "replicated" (in the pool), when left out, or "local": in Data, faster, and lost with this node.
	Log string `yaml:"log" jsonschema:"enum=replicated,enum=local"`
	// Standby: wait for an array that another node serves, and take it over when that node ends or lets
	// its lease expire. The log must be replicated.
	Standby bool `yaml:"standby"`
}

// CacheConfig describes the write cache.
type CacheConfig struct {
	// Size of the cache; 0 means that of the existing array, or 256 MiB.
	Size Size `yaml:"size"`
}

// PortalConfig describes the iSCSI portal; Listen "none" opens none, where TCMU is on.
type PortalConfig struct {
	Listen string `yaml:"listen"`
	// Further network portals: each is a target port and a portal group of its own,
	// numbered from 2, with an access state that SET TARGET PORT GROUPS changes.
	Further []string    `yaml:"further"`
	Target  string      `yaml:"target"`
	CHAP    *CHAPConfig `yaml:"chap"`
	// Allow lists the initiators that may log in; empty allows all.
	Allow []string `yaml:"allow"`
	// SetGroups lists the initiators that may change the access state of target port groups (SET TARGET
	// PORT GROUPS), which affects all initiators; empty allows none.
	SetGroups []string `yaml:"set_groups"`
	// Preferred is the number of the portal that hosts should prefer, from 1; 0 prefers none. It shows
	// as PREF in REPORT TARGET PORT GROUPS.
	Preferred int `yaml:"preferred"`
	// Memory limits the data of all commands in progress (1 GiB). Half of it is divided among the
	// sessions; a command beyond a session's share and the common half ends with TASK SET FULL.
	Memory Size `yaml:"memory"`
	// Connections limits the TCP connections (256), Sessions those that are logged in (128).
	Connections int `yaml:"connections"`
	Sessions    int `yaml:"sessions"`
}

// CHAPConfig says how initiators authenticate, in discovery too. Secrets stay in files of their own.
// The first four keys are for every initiator that Initiators does not name; without them nobody
// else gets in.
type CHAPConfig struct {
	User             string                `yaml:"user"`
	SecretFile       string                `yaml:"secret_file"`
	MutualUser       string                `yaml:"mutual_user"`
	MutualSecretFile string                `yaml:"mutual_secret_file"`
	Initiators       []InitiatorCHAPConfig `yaml:"initiators"`
}

// InitiatorCHAPConfig is how one initiator authenticates: nobody else can log in under its name. The
// user is the name where it is left out.
type InitiatorCHAPConfig struct {
	Name             string `yaml:"name"`
	User             string `yaml:"user"`
	SecretFile       string `yaml:"secret_file"`
	MutualUser       string `yaml:"mutual_user"`
	MutualSecretFile string `yaml:"mutual_secret_file"`
}

// MetricsConfig describes the metrics endpoint; Listen "none" opens none.
type MetricsConfig struct {
	Listen string `yaml:"listen"`
	// Volumes is how many volumes a scrape shows individually: "all", or "top:N", with the others together
	// as volume "other".
	Volumes string `yaml:"volumes" jsonschema:"pattern=^(all|top:0*[1-9][0-9]*)$,example=all,example=top:100"`
}

// RecordConfig says where counters are recorded; without a folder they are not.
type RecordConfig struct {
	// Dir is the folder; a relative path begins at the file's folder.
	Dir string `yaml:"dir"`
	// Interval is the time between two readings: a minute when left out, 100ms or more.
	Interval time.Duration `yaml:"interval"`
	// Keep is the number of complete Parquet files of 60 readings to keep; 0 keeps all.
	Keep int `yaml:"keep"`
}

// PoolConfig describes a pool.
type PoolConfig struct {
	Name string `yaml:"name"`
	// Copy is "reference" (an offloaded copy in the pool is a map edit) or "data".
	Copy string `yaml:"copy" jsonschema:"enum=reference,enum=data"`
	// IOGroup is the number of its I/O group, from 0; if left out, the one with the fewest pools.
	IOGroup *int          `yaml:"io_group"`
	Mdisks  []MdiskConfig `yaml:"mdisks"`
}

// MdiskConfig describes a back-end disk; limits are a second, 0 is none.
type MdiskConfig struct {
	Name      string `yaml:"name"`
	Size      Size   `yaml:"size"`
	Bandwidth Size   `yaml:"bandwidth"`
	IOPS      uint64 `yaml:"iops"`
}

// VolumeConfig describes a volume and its export.
type VolumeConfig struct {
	Name         string        `yaml:"name"`
	Pool         string        `yaml:"pool"`
	Size         Size          `yaml:"size"`
	Thin         *bool         `yaml:"thin"` // true when left out
	BlockSize    uint32        `yaml:"block_size" jsonschema:"enum=512,enum=4096"`
	Removable    bool          `yaml:"removable"`
	WriteProtect bool          `yaml:"write_protect"`
	Export       *ExportConfig `yaml:"export"`
}

// ExportConfig shows a volume as a LUN; without initiators, to all of them.
type ExportConfig struct {
	LUN        int      `yaml:"lun"`
	Initiators []string `yaml:"initiators"`
}

const (
	storeFiles  = "files"
	storeMemory = "memory"
	storeRados  = "rados"
	storeNone   = "none" // of a node that forwards; not in a configuration

	aioAuto    = "auto"
	aioRing    = "io_uring"
	aioThreads = "threads"
	aioDirect  = "direct"

	copyReference = "reference"
	copyData      = "data"

	listenNone       = "none"
	defaultCacheSize = 256 << 20
	minCacheSize     = 4 << 20
	minSecret        = 12 // bytes; RFC 7143 9.2.1 asks for 96 bits
	maxLUN           = 1<<14 - 1
	longestCommand   = 64 << 20  // the longest transfer of a command
	minShare         = 256 << 10 // of the portal's memory, for each session
	defaultSessions  = 128
	maxConnections   = 1<<16 - 1
	maxSessions      = 1 << 15

	leastRecordInterval = 100 * time.Millisecond
)

//go:embed default.yaml
var embedded []byte

// DefaultConfig returns the built-in configuration.
func DefaultConfig() *Config {
	c, err := ParseConfig("default.yaml", embedded)
	if err != nil {
		panic("admin: internal error: " + err.Error())
	}
	c.Data, c.Embedded = "data", true
	return c
}

// LoadConfig reads a configuration file.
func LoadConfig(path string) (*Config, error) {
	b, err := size.ReadFile(path, size.MaxDocument)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w; give the path of a YAML file, or none for the built-in configuration", err)
	}
	c, err := ParseConfig(path, b)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	for _, p := range c.paths() {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	if c.Data == "" {
		c.Data = "data"
	}
	return c, nil
}

// paths returns the values that are file names.
func (c *Config) paths() []*string {
	p := []*string{&c.Data, &c.Record.Dir}
	if c.Rados != nil {
		p = append(p, &c.Rados.Conf, &c.Rados.Keyring)
	}
	if c.Node != nil {
		p = append(p, &c.Node.SecretFile)
	}
	for i := range c.Peers {
		p = append(p, &c.Peers[i].SecretFile)
	}
	if h := c.Portal.CHAP; h != nil {
		p = append(p, &h.SecretFile, &h.MutualSecretFile)
		for i := range h.Initiators {
			p = append(p, &h.Initiators[i].SecretFile, &h.Initiators[i].MutualSecretFile)
		}
	}
	return p
}

// fill puts defaults in the place of what was left out.
func (c *Config) fill() {
	set := func(s *string, def string) {
		if *s == "" {
			*s = def
		}
	}
	set(&c.Store, storeFiles)
	set(&c.AIO, aioAuto)
	if c.Discard == nil {
		on := c.Store != storeMemory
		c.Discard = &on
	}
	if c.Rados != nil {
		set(&c.Rados.User, "arraysim")
		set(&c.Rados.Namespace, "array")
		set(&c.Rados.Log, rados.LogReplicated)
	}
	set(&c.Portal.Listen, "127.0.0.1:3260")
	set(&c.Portal.Target, "iqn.2026-01.io.arraysim:array")
	set(&c.Metrics.Listen, "127.0.0.1:9400")
	set(&c.Metrics.Volumes, "top:100")
	if c.Node != nil {
		c.Node.fill()
	}
	if c.Record.Interval == 0 {
		c.Record.Interval = time.Minute
	}
	for i := range c.Pools {
		set(&c.Pools[i].Copy, copyReference)
	}
	for i := range c.Volumes {
		v := &c.Volumes[i]
		if v.Thin == nil {
			thin := true
			v.Thin = &thin
		}
		if v.BlockSize == 0 {
			v.BlockSize = 512
		}
		if v.Export != nil {
			v.Export.Initiators = foldNames(v.Export.Initiators)
		}
	}
}

// validate checks what the types do not say. What the array itself checks
// (names, sizes) is left to it.
func (c *Config) validate() error {
	if word := profile.CheckWords(c); word != nil {
		return c.src.at(word.Path, "%w", word)
	}
	if err := c.validateRados(); err != nil {
		return err
	}
	if c.AIO != aioAuto && c.Store == storeMemory {
		return c.src.at("aio", "aio is %q, but a store in memory waits for no disk; leave it out", c.AIO)
	}
	if err := c.validateGroups(); err != nil {
		return err
	}
	if c.Cache.Size != 0 && c.Cache.Size < minCacheSize {
		return c.src.at("cache.size", "a cache of %s is too small; give it at least %s", c.Cache.Size, Size(minCacheSize))
	}
	for _, l := range []struct{ path, addr string }{{"portal.listen", c.Portal.Listen}, {"metrics.listen", c.Metrics.Listen}} {
		if _, _, err := net.SplitHostPort(l.addr); err != nil && (l.addr != listenNone || l.path == "portal.listen" && !c.TCMU) {
			return c.src.at(l.path, "%q is not a valid address; write host:port, such as 127.0.0.1:3260", l.addr)
		}
	}
	if len(c.Portal.Further) > 0 && c.Portal.Listen == listenNone {
		return c.src.at("portal.further", "there is no first portal; give portal.listen an address")
	}
	for i, a := range c.Portal.Further {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return c.src.at(fmt.Sprintf("portal.further[%d]", i), "%q is not a valid address; write host:port, such as 127.0.0.2:3260 or [::1]:3260", a)
		}
	}
	if err := checkISCSIName(c.Portal.Target); err != nil {
		return c.src.at("portal.target", "%w", err)
	}
	for _, l := range []struct {
		path  string
		names []string
	}{{"portal.allow", c.Portal.Allow}, {"portal.set_groups", c.Portal.SetGroups}} {
		for i, n := range l.names {
			if err := checkISCSIName(n); err != nil {
				return c.src.at(fmt.Sprintf("%s[%d]", l.path, i), "%w", err)
			}
		}
	}
	if err := c.validatePortalLimits(); err != nil {
		return err
	}
	switch r := &c.Record; {
	case r.Interval < leastRecordInterval:
		return c.src.at("record.interval", "an interval of %v is too short; give it %v or more", r.Interval, leastRecordInterval)
	case r.Keep < 0:
		return c.src.at("record.keep", "keep is %d; it is a number of files, or 0 for all", r.Keep)
	case r.Dir == "" && r.Keep != 0:
		return c.src.at("record", "record has no folder; add dir")
	}
	if err := c.validateCHAP(); err != nil {
		return err
	}
	if err := c.validateNode(); err != nil {
		return err
	}
	if err := c.validatePeers(); err != nil {
		return err
	}
	if err := c.validatePools(); err != nil {
		return err
	}
	return c.validateVolumes()
}

func (c *Config) validateGroups() error {
	switch {
	case c.IOGroups < 0 || c.IOGroups > maxGroups:
		return c.src.at("io_groups", "there cannot be %d I/O groups; write 1 to %d", c.IOGroups, maxGroups)
	case c.IOGroups > 1 && c.Store == storeRados:
		return c.src.at("io_groups", "an array in a Ceph pool has one I/O group; leave io_groups out")
	}
	if err := c.checkTargets(c.IOGroups); err != nil {
		return err
	}
	for i, p := range c.Pools {
		if g := p.IOGroup; g != nil && (*g < 0 || c.IOGroups > 0 && *g >= c.IOGroups) {
			return c.src.at(fmt.Sprintf("pools[%d].io_group", i), "I/O group %d does not exist; there are 0 to %d", *g, c.IOGroups-1)
		}
	}
	return nil
}

// orGroups is what else may be done where two volumes have one LUN.
func (c *Config) orGroups() string {
	if c.IOGroups > 1 {
		return ", or give both pools io_group, different ones"
	}
	return ""
}

// groupOf is the I/O group that the file gives a pool; unknown when it does not.
func (c *Config) groupOf(pool string) (number int, known bool) {
	for _, p := range c.Pools {
		if p.Name == pool && p.IOGroup != nil {
			return *p.IOGroup, true
		}
	}
	return 0, false
}

// shareTarget reports whether volumes of two pools may be LUNs of one target.
func (c *Config) shareTarget(pool, other string) bool {
	a, known := c.groupOf(pool)
	b, also := c.groupOf(other)
	return !known || !also || a == b
}

func (c *Config) validatePools() error {
	seen := map[string]bool{}
	for i, p := range c.Pools {
		at := fmt.Sprintf("pools[%d]", i)
		switch {
		case p.Name == "":
			return c.src.at(at, "a pool has no name; add name")
		case seen[p.Name]:
			return c.src.at(at+".name", "pool %q appears twice; give one another name", p.Name)
		case len(p.Mdisks) == 0:
			return c.src.at(at, "pool %q has no mdisks; add one", p.Name)
		}
		seen[p.Name] = true
		for j, m := range p.Mdisks {
			if m.Name == "" || m.Size == 0 {
				return c.src.at(fmt.Sprintf("%s.mdisks[%d]", at, j), "an mdisk of pool %q lacks name or size; add it", p.Name)
			}
		}
	}
	return nil
}

func (c *Config) validateVolumes() error {
	seen := map[string]bool{}
	for i, v := range c.Volumes {
		at := fmt.Sprintf("volumes[%d]", i)
		switch {
		case v.Name == "":
			return c.src.at(at, "a volume has no name; add name")
		case seen[v.Name]:
			return c.src.at(at+".name", "volume %q appears twice; give one another name", v.Name)
		case v.Pool == "":
			return c.src.at(at, "volume %q has no pool; add pool", v.Name)
		case v.Size == 0:
			return c.src.at(at, "volume %q has no size; add size, such as 16GiB", v.Name)
		case v.Size%Size(v.BlockSize) != 0:
			return c.src.at(at+".size", "the size of volume %q is not a multiple of its blocks of %d bytes; round it up", v.Name, v.BlockSize)
		}
		seen[v.Name] = true
		if v.Export == nil {
			continue
		}
		if v.Export.LUN < 0 || v.Export.LUN > maxLUN {
			return c.src.at(at+".export.lun", "lun is %d; it is 0 to %d", v.Export.LUN, maxLUN)
		}
		for j, n := range v.Export.Initiators {
			if err := checkISCSIName(n); err != nil {
				return c.src.at(fmt.Sprintf("%s.export.initiators[%d]", at, j), "%w", err)
			}
		}
		for _, o := range c.Volumes[:i] {
			if o.Export != nil && o.Export.LUN == v.Export.LUN && c.shareTarget(o.Pool, v.Pool) && overlap(o.Export.Initiators, v.Export.Initiators) {
				return c.src.at(at+".export", "LUN %d is volume %q already; choose another%s", v.Export.LUN, o.Name, c.orGroups())
			}
		}
	}
	return nil
}

// checkISCSIName applies RFC 7143 4.2.7 and RFC 3722.
func checkISCSIName(n string) error { return iscsi.CheckName(n) }

// foldNames returns iSCSI names in the form in which they are compared.
func foldNames(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.ToLower(n)
	}
	return out
}

// EmbeddedConfig returns the text of the built-in configuration.
func EmbeddedConfig() []byte { return slices.Clone(embedded) }
