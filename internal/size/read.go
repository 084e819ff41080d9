package size

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// What files that people write, and files that programs write for people, may have. Both are far above what
// is real: an array of 16,384 exported volumes takes less than 3 MiB.
const (
	MaxDocument = 8 << 20
	MaxResult   = 64 << 20
)

// ErrTooLarge is in the error of a file that is larger than its kind can be.
var ErrTooLarge = errors.New("which no such file is")

// ReadFile reads a file that somebody named, of limit bytes at most. A file that is something else, as an image of a disk or
// /dev/zero, is an error, and does not take the memory. A pipe is read to its end.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is larger than %s, %w", path, Text(uint64(limit)), ErrTooLarge)
	}
	return b, nil
}
