package profile

import (
	"encoding"
	"fmt"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/size"
)

// Size is a number of bytes, written such as 64KiB, 1TiB, 100MB, or 4096: a size.Bytes that is text in
// YAML, too.
type Size uint64

// unmarshalYAML reads the text of a scalar. For UnmarshalText alone the decoder would write the scalar down again, and go over
// all tokens of the document to do so, once for each of its sizes and times.
func unmarshalYAML(v encoding.TextUnmarshaler, read func(any) error) error {
	var text string
	if err := read(&text); err != nil {
		return err
	}
	return v.UnmarshalText([]byte(text))
}

// UnmarshalYAML reads a size.
func (s *Size) UnmarshalYAML(read func(any) error) error { return unmarshalYAML(s, read) }

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(b []byte) error {
	v, err := size.Parse(string(b))
	*s = Size(v)
	return err
}

// MarshalText writes the size in the largest binary unit that is exact.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Size) String() string { return size.Text(uint64(s)) }

// Duration is a time in nanoseconds, written such as 1.75ms or 2h.
type Duration int64

// UnmarshalYAML reads a duration, as UnmarshalText does.
func (d *Duration) UnmarshalYAML(read func(any) error) error { return unmarshalYAML(d, read) }

// UnmarshalText reads a duration; none here goes backwards.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(strings.TrimSpace(string(b)))
	if err != nil {
		return fmt.Errorf("%q is not a valid time; write one such as 450us, 1.75ms or 5m", b)
	}
	if v < 0 {
		return fmt.Errorf("%q is negative; write a time such as 450us, 1.75ms or 5m", b)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string { return time.Duration(d).String() }
