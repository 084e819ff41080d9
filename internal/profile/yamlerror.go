package profile

import (
	"errors"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
)

// position is how the decoder says where something is wrong.
var position = regexp.MustCompile(`^\[(\d+):\d+\] `)

// YAMLError says in one line what the decoder says of a file, and in which of its lines. The decoder draws the lines
// around it, too, which nobody can read behind one another.
func YAMLError(err error) error {
	text := strings.Join(strings.Fields(yaml.FormatError(err, false, false)), " ")
	return errors.New(position.ReplaceAllString(text, "line $1: "))
}
