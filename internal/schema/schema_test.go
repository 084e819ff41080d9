package schema

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/internal/sim"
)

var update = flag.Bool("update", false, "write the schemas")

const (
	root   = "../../"
	folder = root + "docs/schema/"
)

// schemas are all of them, with the files of the repository that each describes. Those that are files
// of their own name their schema in their first line, where editors look for it.
var schemas = []struct {
	name   string
	of     any
	title  string
	files  []string
	unsaid bool // its files do not say what their schema is
}{
	{"scenario", sim.Scenario{}, "a scenario of arraysim sim", []string{"testdata/scenarios/*.yaml", "testdata/report/*.yaml"}, false},
	{"profile", profile.Profile{}, "a timing profile of arraysim", []string{"internal/profile/profiles/*.yaml"}, false},
	// serve --print-config prints the configuration that is built in, for folders anywhere.
	{"configuration", admin.Config{}, "a configuration of arraysim serve", []string{"internal/admin/default.yaml"}, true},
}

// generate makes the schema of a Go type by its yaml tags, with comments as descriptions.
func generate(t *testing.T, name, title string, of any) []byte {
	t.Helper()
	r := &jsonschema.Reflector{FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, Anonymous: true, ExpandedStruct: true, Mapper: scalar}
	for _, p := range []string{"sim", "profile", "admin"} {
		// The path is a part of the name under which comments are kept.
		if err := r.AddGoComments("github.com/arraysim/arraysim/internal/schema", "../"+p); err != nil {
			t.Fatal(err)
		}
	}
	comments := map[string]string{}
	for at, text := range r.CommentMap {
		// A description is one line in most editors.
		comments[strings.ReplaceAll(at, "/schema/../", "/")] = strings.Join(strings.Fields(text), " ")
	}
	r.CommentMap = comments
	s := r.Reflect(of)
	s.ID, s.Title = "", title
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// scalar is the schema of a type that is written as text.
func scalar(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[profile.Size](), reflect.TypeFor[admin.Size]():
		return &jsonschema.Schema{Description: "a number of bytes, such as 64KiB, 1.5GiB, 100MB or 4096", OneOf: []*jsonschema.Schema{
			{Type: "integer", Minimum: "0"}, {Type: "string", Pattern: `^[0-9]+(\.[0-9]+)? *([KkMmGgTtPp]([Ii]?[Bb]?)?|[Bb])?$`}}}
	case reflect.TypeFor[profile.Duration](), reflect.TypeFor[time.Duration]():
		return &jsonschema.Schema{Description: "a time, such as 450us, 1.75ms or 5m", OneOf: []*jsonschema.Schema{
			{Type: "string", Pattern: `^ *([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+ *$|^0$`}, {Const: 0}}}
	case reflect.TypeFor[sim.PolicyRef]():
		module := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), Required: []string{"wasm"}, AdditionalProperties: jsonschema.FalseSchema}
		module.Properties.Set("wasm", &jsonschema.Schema{Type: "string"})
		return &jsonschema.Schema{Description: "a policy by its name, or wasm: with the path of a WebAssembly module", OneOf: []*jsonschema.Schema{{Type: "string"}, module}}
	}
	return nil
}

func compiled(t *testing.T, name string, text []byte) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource(name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate says what a schema has against a YAML text.
func validate(s *validator.Schema, text []byte) error {
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

// The schemas are those of the types, and every file of the repository is valid by its own and names it.
func TestSchemasAreTheTypes(t *testing.T) {
	for _, x := range schemas {
		path := folder + x.name + ".json"
		want := generate(t, x.name, x.title, x.of)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not the schema of %T (%v): run go test ./internal/schema -update", path, x.of, err)
			continue
		}
		s := compiled(t, x.name, got)
		n := 0
		for _, pattern := range x.files {
			files, err := filepath.Glob(root + pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				n++
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := validate(s, text); err != nil {
					t.Errorf("%s: %v", file, err)
				}
				up, err := filepath.Rel(filepath.Dir(file), path)
				if err != nil {
					t.Fatal(err)
				}
				if head := fmt.Sprintf("# yaml-language-server: $schema=%s\n", filepath.ToSlash(up)); !x.unsaid && !bytes.HasPrefix(text, []byte(head)) {
					t.Errorf("%s does not begin with %q", file, head)
				}
			}
		}
		if n == 0 {
			t.Errorf("there is no file of %s", x.name)
		}
	}
}

// What the reader of a file refuses for its form, the schema refuses too.
func TestSchemasRefuse(t *testing.T) {
	const arrays = "arrays: [{pools: [{name: p, mdisks: [{size: 1GiB}]}]}]\nhosts: [{name: h}]\n"
	for _, c := range []struct {
		schema, text string
		valid        bool
	}{
		{"scenario", arrays, true},
		{"scenario", arrays + "until: 10s\nsample: 1m30s\n", true},
		{"scenario", arrays + "untl: 10s\n", false},
		{"scenario", arrays + "until: 10 seconds\n", false},
		{"scenario", arrays + "jobs: [{volume: v, io: 4KB, bandwidth: 1.5GiB, outstanding: 1}]\n", true},
		{"scenario", arrays + "jobs: [{volume: v, io: 4XB, outstanding: 1}]\n", false},
		{"scenario", arrays + "jobs: [{volume: v, io: 4KiB, outstanding: many}]\n", false},
		{"scenario", arrays + "expect: [{kind: pinned, value: x, max: 1}]\n", true},
		{"scenario", arrays + "expect: [{kind: guessed, value: x, max: 1}]\n", false},
		{"profile", "name: x\nmdisks: {hdd: {parallel: 2, base: 1ms}}\n", true},
		{"profile", "name: x\nmdisks: {hdd: {parallels: 2}}\n", false},
		{"configuration", "cache: {size: 1GiB}\nrecord: {interval: 1m}\n", true},
		{"configuration", "cache: {sise: 1GiB}\n", false},
		{"configuration", "portal: {further: 127.0.0.1}\n", false},
	} {
		text, err := os.ReadFile(folder + c.schema + ".json")
		if err != nil {
			t.Fatal(err)
		}
		err = validate(compiled(t, c.schema, text), []byte(c.text))
		if (err == nil) != c.valid {
			t.Errorf("%s by the schema: %v\n%s", c.schema, err, c.text)
		}
		switch c.schema {
		case "scenario":
			_, err = sim.Parse([]byte(c.text))
		case "profile":
			_, err = profile.Parse([]byte(c.text))
		default:
			_, err = admin.ParseConfig("x.yaml", []byte(c.text))
		}
		// A scenario may have a valid form and say too little; what has no valid form is refused by both.
		if !c.valid && err == nil {
			t.Errorf("%s by its reader: nothing is wrong\n%s", c.schema, c.text)
		}
	}
}
