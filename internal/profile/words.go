package profile

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// WordError is a value of a YAML file that its key does not know.
type WordError struct {
	Path  string   // of the key, such as pools[0].copy
	Value any      // what the file says
	Words []string // what the key knows
	// Open says that Words are examples of a form, and not all there are.
	Open bool
}

// Error says which key has which value, and what it takes.
func (e *WordError) Error() string {
	value := fmt.Sprint(e.Value)
	if reflect.TypeOf(e.Value).Kind() == reflect.String {
		value = strconv.Quote(value)
	}
	if e.Open {
		return fmt.Sprintf("%s is %s; write it as in these examples: %s", e.Path, value, strings.Join(e.Words, ", "))
	}
	return fmt.Sprintf("%s is %s; it is one of %s", e.Path, value, strings.Join(e.Words, ", "))
}

// CheckWords looks at what a YAML file was read into, and returns the first value that its key does not know, nil if there is
// none. What a key knows is in its field's tag jsonschema, as docs/schema has it: enum=WORD for each word, or a pattern with
// examples. A value that was left out is not looked at.
func CheckWords(file any) *WordError { return checkWords(reflect.ValueOf(file), "") }

func checkWords(v reflect.Value, path string) *WordError {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return checkWords(v.Elem(), path)
	case reflect.Slice:
		for i := range v.Len() {
			if err := checkWords(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			if err := checkWords(v.MapIndex(k), path+"."+k.String()); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			key := v.Type().Field(i)
			name, option, _ := strings.Cut(key.Tag.Get("yaml"), ",")
			at := strings.TrimPrefix(path+"."+name, ".")
			switch {
			case option == "inline":
				at = path
			case name == "" || name == "-":
				continue
			}
			if err := checkWord(v.Field(i), key.Tag.Get("jsonschema"), at); err != nil {
				return err
			}
			if err := checkWords(v.Field(i), at); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkWord compares a value with the tag of its field.
func checkWord(v reflect.Value, tag, path string) *WordError {
	if tag == "" || v.IsZero() {
		return nil
	}
	e, said, pattern := &WordError{Path: path, Value: v.Interface()}, fmt.Sprint(v.Interface()), ""
	for part := range strings.SplitSeq(tag, ",") {
		switch k, word, _ := strings.Cut(part, "="); k {
		case "enum", "example":
			e.Words = append(e.Words, word)
		case "pattern":
			pattern, e.Open = word, true
		}
	}
	if pattern == "" {
		if len(e.Words) == 0 || slices.Contains(e.Words, said) {
			return nil
		}
		return e
	}
	if regexp.MustCompile(pattern).MatchString(said) {
		return nil
	}
	return e
}

// In returns the error with the line of a YAML text in which the value is.
func (e *WordError) In(text []byte) error {
	if p, err := yaml.PathString("$." + e.Path); err == nil {
		if n, err := p.ReadNode(bytes.NewReader(text)); err == nil && n.GetToken() != nil {
			return fmt.Errorf("line %d: %w", n.GetToken().Position.Line, e)
		}
	}
	return e
}
