package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/internal/sim"
)

// anyText are the keys, by the type that has them, whose value may be any text as far as its form goes: names, paths, addresses
// and prose. All other keys of text have an enum or a pattern.
var anyText = map[string]map[string]string{
	"configuration": {
		"":                    "data profile",
		"CHAPConfig":          "user secret_file mutual_user mutual_secret_file",
		"ExportConfig":        "initiators",
		"InitiatorCHAPConfig": "name user secret_file mutual_user mutual_secret_file",
		"MdiskConfig":         "name",
		"MetricsConfig":       "listen",
		"NodeConfig":          "name listen address secret_file forward",
		"PeerConfig":          "name nodes secret_file",
		"PoolConfig":          "name",
		"PortalConfig":        "listen further target allow set_groups",
		"RadosConfig":         "pool conf user keyring namespace",
		"RecordConfig":        "dir",
		"VolumeConfig":        "name pool",
	},
	"profile": {"": "name source assumed"},
	"scenario": {
		"":           "name source shows profile",
		"ArraySpec":  "name profile destage placement", // destage to throttle: plugged policies, see TestNamesOfPolicies
		"CacheSpec":  "name volume eviction admission throttle",
		"Case":       "name",
		"Column":     "title value",
		"Expect":     "what fitted from case value document times times_case",
		"FaultSpec":  "array pool volume cache",
		"HostSpec":   "name node",
		"JobSpec":    "name host after after_all volume to",
		"MdiskSpec":  "kind", // a key of the profile's mdisks, see TestNamesOfPolicies
		"NodeSpec":   "name",
		"PeerSpec":   "name domain",
		"PoolSpec":   "name disks_of",
		"TxType":     "name",
		"VolumeSpec": "name group pool",
	},
}

// node is a part of a JSON Schema, as far as the schemas here go.
type node struct {
	Ref        string          `json:"$ref"`
	Defs       map[string]node `json:"$defs"`
	Type       string          `json:"type"`
	Enum       []any           `json:"enum"`
	Pattern    string          `json:"pattern"`
	Examples   []any           `json:"examples"`
	Properties map[string]node `json:"properties"`
	Items      *node           `json:"items"`
	Additional json.RawMessage `json:"additionalProperties"`
	OneOf      []node          `json:"oneOf"`
}

// leaf is a key whose value is a word: a path with [] for an entry of a list and * for a key of a map.
type leaf struct {
	owner string // the type that has the key
	path  []string
	node  node
}

func (l leaf) key() string {
	for _, p := range slices.Backward(l.path) {
		if p != "[]" {
			return p
		}
	}
	return ""
}

// document is the smallest one in which the key has a value.
func (l leaf) document(value any) map[string]any {
	for i, p := range slices.Backward(l.path) {
		switch {
		case p == "[]":
			value = []any{value}
		case i > 0:
			value = map[string]any{p: value}
		}
	}
	return map[string]any{l.path[0]: value}
}

// leaves returns all keys of texts, and all others with an enum.
func leaves(all map[string]node, owner string, n node, path []string) (out []leaf) {
	if n.Ref != "" {
		owner = strings.TrimPrefix(n.Ref, "#/$defs/")
		n = all[owner]
	}
	for _, k := range slices.Sorted(maps.Keys(n.Properties)) {
		out = append(out, leaves(all, owner, n.Properties[k], append(slices.Clip(path), k))...)
	}
	if n.Items != nil {
		out = append(out, leaves(all, owner, *n.Items, append(slices.Clip(path), "[]"))...)
	}
	var values node
	if json.Unmarshal(n.Additional, &values) == nil && (values.Ref != "" || values.Type != "") {
		out = append(out, leaves(all, owner, values, append(slices.Clip(path), "any"))...)
	}
	text := n.Type == "string"
	for _, o := range n.OneOf {
		text = text || o.Type == "string" && o.Pattern == ""
	}
	if text || len(n.Enum) > 0 {
		out = append(out, leaf{owner, path, n})
	}
	return out
}

func schemaLeaves(t *testing.T, name string) []leaf {
	t.Helper()
	text, err := os.ReadFile(folder + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var n node
	if err := json.Unmarshal(text, &n); err != nil {
		t.Fatal(err)
	}
	return leaves(n.Defs, "", n, nil)
}

// read reads a file of a schema as its command does.
func read(schema string, text []byte) (err error) {
	switch schema {
	case "scenario":
		_, err = sim.Parse(text)
	case "profile":
		_, err = profile.Parse(text)
	default:
		_, err = admin.ParseConfig("x.yaml", text)
	}
	return err
}

// TestEveryKeyOfTextIsKnown: a key of text has an enum or a pattern, or is listed as one that takes any text. So a new key cannot
// take words that nobody checks.
func TestEveryKeyOfTextIsKnown(t *testing.T) {
	for _, x := range schemas {
		seen := map[string]bool{}
		for _, l := range schemaLeaves(t, x.name) {
			listed := slices.Contains(strings.Fields(anyText[x.name][l.owner]), l.key())
			seen[l.owner+"."+l.key()] = true
			if closed := len(l.node.Enum) > 0 || l.node.Pattern != ""; closed == listed {
				t.Errorf(`%s: %s of %q has words %v and is listed as any text: %v; give the field the tag jsonschema:"enum=...", or list it`,
					x.name, l.key(), l.owner, closed, listed)
			}
		}
		for owner, keys := range anyText[x.name] {
			for _, k := range strings.Fields(keys) {
				if !seen[owner+"."+k] {
					t.Errorf("%s: %q has no key %s of text", x.name, owner, k)
				}
			}
		}
	}
}

// TestMadeUpWords: a word that a key does not know is refused by the schema and by the reader, whose one line says which key it
// is, in which line, and what the key takes.
func TestMadeUpWords(t *testing.T) {
	const word = "made-up"
	place := regexp.MustCompile(`line \d+|x\.yaml:\d+`)
	for _, x := range schemas {
		text, err := os.ReadFile(folder + x.name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		schema, n := compiled(t, x.name, text), 0
		for _, l := range schemaLeaves(t, x.name) {
			if len(l.node.Enum) == 0 && l.node.Pattern == "" {
				continue
			}
			n++
			t.Run(x.name+"/"+strings.Join(l.path, "."), func(t *testing.T) {
				doc := func(value any) []byte {
					text, err := yaml.Marshal(l.document(value))
					if err != nil {
						t.Fatal(err)
					}
					return text
				}
				var bad any = word
				if l.node.Type != "string" {
					bad = 3
				}
				for _, good := range l.node.Enum {
					if err := validate(schema, doc(good)); err != nil {
						t.Errorf("the schema refuses %v: %v", good, err)
					}
				}
				if err := validate(schema, doc(bad)); err == nil {
					t.Error("the schema takes a word that there is not")
				}
				err := read(x.name, doc(bad))
				if err == nil {
					t.Fatal("the reader takes a word that there is not")
				}
				wanted := []string{fmt.Sprint(bad), l.key()}
				for _, w := range append(slices.Clip(l.node.Enum), l.node.Examples...) {
					wanted = append(wanted, fmt.Sprint(w))
				}
				for _, w := range wanted {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("the error does not say %s: %v", w, err)
					}
				}
				if !place.MatchString(err.Error()) || strings.Contains(strings.TrimSpace(err.Error()), "\n") {
					t.Errorf("the error is not one line with the place: %v", err)
				}
			})
		}
		if n == 0 {
			t.Errorf("%s has no key of words", x.name)
		}
	}
}

// TestNamesOfPolicies: names of plugged policies and of kinds of mdisks are known to a run alone, which refuses others.
func TestNamesOfPolicies(t *testing.T) {
	for _, key := range []string{"arrays.a.destage", "arrays.a.placement", "hosts.h.cache.v.eviction", "hosts.h.cache.v.admission", "hosts.h.cache.v.throttle", "arrays.a.pools.p.mdisks.0.kind"} {
		s, err := sim.Parse([]byte(`{arrays: [{name: a, pools: [{name: p, mdisks: [{size: 1GiB}]}], volumes: [{name: v, pool: p, size: 64MiB}]}],
  hosts: [{name: h, cache: [{name: v, volume: v, size: 1MiB}]}], jobs: [{volume: v, io: 4KiB, outstanding: 1, bytes: 4KiB}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sim.New(s); err != nil {
			t.Fatalf("without %s: %v", key, err)
		}
		if s, err = s.Set(key, "made-up"); err != nil {
			t.Fatal(err)
		}
		if _, err := sim.New(s); err == nil || !strings.Contains(err.Error(), "made-up") {
			t.Errorf("%s: made-up is taken: %v", key, err)
		}
	}
}
