package profile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// LoadWith is [Load] with single settings changed: the keys are paths such as
// policy.admission or mdisks.hdd.parallel.
func LoadWith(name string, settings map[string]any) (*Profile, error) {
	p, err := Load(name)
	if err == nil {
		p, err = p.With(settings)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// With returns a copy of the profile with some settings changed, by their paths such as policy.admission. The
// copy and the profile share what neither changes.
func (p *Profile) With(settings map[string]any) (*Profile, error) {
	if len(settings) == 0 {
		c := *p
		return &c, nil
	}
	t, err := p.Template()
	if err != nil {
		return nil, err
	}
	return t.With(settings)
}

// Template is a profile that many others are made from: it is taken apart once. Safe for concurrent use.
type Template struct {
	of   *Profile
	tree any // of its document; nobody changes it
}

// Template returns the profile's template.
func (p *Profile) Template() (*Template, error) {
	text, err := yaml.Marshal(p)
	if err != nil {
		return nil, err
	}
	t := &Template{of: p}
	return t, yaml.Unmarshal(text, &t.tree)
}

// With is [Profile.With] of the profile that the template is of.
func (t *Template) With(settings map[string]any) (*Profile, error) {
	if len(settings) == 0 {
		return t.of.With(nil)
	}
	tree := cloneTree(t.tree)
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		if err := SetPath(tree, k, settings[k]); err != nil {
			return nil, fmt.Errorf("profile %s: %w", t.of.Name, err)
		}
	}
	text, err := yaml.Marshal(tree)
	if err != nil {
		return nil, err
	}
	c, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", t.of.Name, err)
	}
	return c, nil
}

// cloneTree returns a copy of a YAML document that was read into maps and lists.
func cloneTree(tree any) any {
	switch n := tree.(type) {
	case map[string]any:
		c := make(map[string]any, len(n))
		for k, v := range n {
			c[k] = cloneTree(v)
		}
		return c
	case []any:
		c := make([]any, len(n))
		for i, v := range n {
			c[i] = cloneTree(v)
		}
		return c
	}
	return tree
}

// SetPath changes one value of a YAML document that was read into maps and lists.
// What is in a list goes by its name or by its number, from 0.
func SetPath(tree any, key string, value any) error {
	at := tree
	parts := strings.Split(key, ".")
	for i, p := range parts {
		last := i == len(parts)-1
		switch n := at.(type) {
		case map[string]any:
			if last {
				n[p] = value
				return nil
			}
			if n[p] == nil {
				n[p] = map[string]any{}
			}
			at = n[p]
		case []any:
			k := index(n, p)
			if k < 0 {
				return fmt.Errorf("%s: there is no %q in the list; use a name or a number from 0", key, p)
			}
			if last {
				n[k] = value
				return nil
			}
			at = n[k]
		default:
			return fmt.Errorf("%s: %q is a plain value, it has no %q", key, strings.Join(parts[:i], "."), p)
		}
	}
	return nil
}

// HasPath tells whether such a document has a value under a key of this form.
func HasPath(tree any, key string) bool {
	for p := range strings.SplitSeq(key, ".") {
		switch n := tree.(type) {
		case map[string]any:
			v, ok := n[p]
			if !ok {
				return false
			}
			tree = v
		case []any:
			k := index(n, p)
			if k < 0 {
				return false
			}
			tree = n[k]
		default:
			return false
		}
	}
	return true
}

// index is the place in a list of what has this name or this number, or -1. A cache without a name has that of its volume.
func index(list []any, p string) int {
	k := slices.IndexFunc(list, func(e any) bool {
		m, ok := e.(map[string]any)
		return ok && (m["name"] == any(p) || m["name"] == nil && m["volume"] == any(p))
	})
	if x, err := strconv.Atoi(p); k < 0 && err == nil && x >= 0 && x < len(list) {
		k = x
	}
	return k
}

// Clone copies such a document.
func Clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for k, x := range v {
			c[k] = Clone(x)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, x := range v {
			c[i] = Clone(x)
		}
		return c
	}
	return v
}
