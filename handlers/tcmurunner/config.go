package tcmurunner

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/arraysim/arraysim/internal/iscsi"
)

// Subtype is the first component of a configuration string. tcmu-runner compares no more of it than the string
// has before its first slash, so it must not begin like that of another handler.
const Subtype = "arraysim"

// Help is what targetcli shows of configuration strings.
const Help = "LUN[/array=NAME]: LUN is one of the array's portal; NAME is an array of " + SettingsFile +
	" (without it: the array at 127.0.0.1:3260)"

// SettingsFile says where arrays are. The environment variable ARRAYSIM_TCMU_RUNNER names another file.
const (
	SettingsFile = "/etc/arraysim/tcmu-runner.yaml"
	settingsEnv  = "ARRAYSIM_TCMU_RUNNER"
)

// Array is where an array is and how to log in to it: an entry of the file of settings.
type Array struct {
	Portal    string `yaml:"portal"`    // host:port
	Target    string `yaml:"target"`    // empty: the only one that discovery shows
	Initiator string `yaml:"initiator"` // our name there; empty makes one of the host's name
	CHAP      *struct {
		User       string `yaml:"user"`
		SecretFile string `yaml:"secret_file"`
	} `yaml:"chap"`
}

const defaultArray = "default"

// spec is a configuration string.
type spec struct {
	lun   uint64 // 0 to 16383
	array string
}

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// parse reads a configuration string with its subtype.
func parse(config string) (spec, error) {
	s := spec{array: defaultArray}
	parts := strings.Split(config, "/")
	if len(parts) < 2 || parts[0] != Subtype || parts[1] == "" {
		return s, fmt.Errorf("%q is not a valid configuration of this handler; write LUN or LUN/array=NAME", config)
	}
	n, err := strconv.ParseUint(parts[1], 10, 14)
	if err != nil {
		return s, fmt.Errorf("%q is not a valid LUN; it must be a number from 0 to 16383", parts[1])
	}
	s.lun = n
	for i, p := range parts[2:] {
		name, ok := strings.CutPrefix(p, "array=")
		if !ok || i > 0 {
			return s, fmt.Errorf("%q is not a valid option; there is array=NAME, once", p)
		}
		if !nameRE.MatchString(name) {
			return s, fmt.Errorf("%q is not a valid name of an array; it has letters, digits, dots, dashes and underscores", name)
		}
		s.array = name
	}
	return s, nil
}

// settings returns the file's arrays by name; a file that is not there has the default one.
func settings() (map[string]Array, error) {
	file := os.Getenv(settingsEnv)
	if file == "" {
		file = SettingsFile
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv(settingsEnv) == "" {
		return map[string]Array{defaultArray: {}}, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := parseSettings(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

func parseSettings(b []byte) (map[string]Array, error) {
	var doc struct {
		Arrays map[string]Array `yaml:"arrays"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if doc.Arrays == nil {
		doc.Arrays = map[string]Array{}
	}
	if _, ok := doc.Arrays[defaultArray]; !ok {
		doc.Arrays[defaultArray] = Array{}
	}
	for name, a := range doc.Arrays {
		if !nameRE.MatchString(name) {
			return nil, fmt.Errorf("arrays.%s: a name has letters, digits, dots, dashes and underscores", name)
		}
		if a.CHAP != nil && (a.CHAP.User == "" || a.CHAP.SecretFile == "") {
			return nil, fmt.Errorf("arrays.%s.chap: needs user and secret_file", name)
		}
	}
	return doc.Arrays, nil
}

// address resolves a configuration string: what is missing comes from settings, then from discovery.
func (s spec) address() (addr iscsi.Address, initiator string, err error) {
	all, err := settings()
	if err != nil {
		return addr, "", err
	}
	a, ok := all[s.array]
	if !ok {
		return addr, "", fmt.Errorf("there is no array %q in %s", s.array, SettingsFile)
	}
	addr = iscsi.At(cmp.Or(a.Portal, "127.0.0.1"), a.Target, s.lun, nil)
	if a.CHAP != nil {
		secret, err := iscsi.ReadSecret("CHAP secret", a.CHAP.SecretFile)
		if err != nil {
			return addr, "", err
		}
		addr.CHAP = &iscsi.CHAP{User: a.CHAP.User, Secret: secret}
	}
	if initiator = a.Initiator; initiator == "" {
		initiator = ownName()
	}
	if addr.Target == "" {
		addr.Target, err = discover(addr, initiator)
	}
	return addr, initiator, err
}

// ownName is an initiator name made of the host's.
func ownName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	host = regexp.MustCompile(`[^a-z0-9.-]`).ReplaceAllString(strings.ToLower(host), "-")
	return "iqn.2026-01.io.arraysim:tcmu-runner." + host
}

// discover returns the only target of a portal.
func discover(addr iscsi.Address, initiator string) (string, error) {
	nc, err := net.DialTimeout("tcp", addr.Portal, dialTimeout)
	if err != nil {
		return "", err
	}
	c, err := iscsi.NewClient(nc, iscsi.ClientConfig{Initiator: initiator, CHAP: addr.CHAP})
	if err != nil {
		return "", fmt.Errorf("discovery at %s: %w", addr.Portal, err)
	}
	defer c.Close()
	targets, err := c.SendTargets()
	if err == nil && len(targets) != 1 {
		err = fmt.Errorf("%d targets; name one in %s", len(targets), SettingsFile)
	}
	if err != nil {
		return "", fmt.Errorf("discovery at %s: %w", addr.Portal, err)
	}
	return targets[0].Name, nil
}
