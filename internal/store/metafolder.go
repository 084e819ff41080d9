package store

import (
	"fmt"
	"path/filepath"
)

// metaHead is the file without which a folder is no copy, whatever else is in it.
const metaHead = "CURRENT"

// removeMeta removes a copy. What is left where this is interrupted is no copy, and not an older one either.
func (s *Files) removeMeta(path string) error {
	if err := s.fs.Remove(filepath.Join(path, metaHead)); err == nil {
		if err := syncFolder(s.fs, path); err != nil {
			return err
		}
	}
	return s.fs.RemoveAll(path)
}

// checkMeta returns an error if a folder is the rest of a copy. Pebble would begin a new store there, and fall over what
// it finds of the old one.
func (s *Files) checkMeta(path string) error {
	names, err := s.fs.List(path)
	if err != nil { // it is not there
		return nil
	}
	rest := ""
	for _, n := range names {
		switch ext := filepath.Ext(n); {
		case n == metaHead:
			return nil
		case ext == ".log" || ext == ".sst":
			rest = n
		}
	}
	if rest != "" {
		return fmt.Errorf("there is %s, but no file %s", rest, metaHead)
	}
	return nil
}
