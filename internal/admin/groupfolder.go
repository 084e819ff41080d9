package admin

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/arraysim/arraysim/internal/iscsi"
)

// How the folders of an array's I/O groups know each other. The first group's folder is the array's; its array.json has
// the array's id and how many groups may have pools. That of a further one has the id, too, and the group's number. So a
// folder that is missing, or another array's, is refused in the place of being made anew with nothing in it.

// groupPath is the data folder of a group: the first one's is the array's.
func groupPath(data string, number int) string {
	if number == 0 {
		return data
	}
	return filepath.Join(data, fmt.Sprint("iogroup", number))
}

// groupTarget is the iSCSI name of a group's target: the first one's is the portal's.
func groupTarget(name string, number int) string {
	if number == 0 {
		return name
	}
	return fmt.Sprint(name, ".iogroup", number)
}

// countGroups chooses the number of I/O groups: that of the configuration, or else those that may have pools.
func (f *folder) countGroups(c *Config) (int, error) {
	s, err := f.whole()
	if err != nil {
		return 0, err
	}
	have := max(s.IOGroups, 1)
	n := c.IOGroups
	switch {
	case n == 0:
		n = have
	case n < have:
		return 0, c.src.at("io_groups", "the array in %s has pools in I/O group %d; write io_groups: %d, or more", f.path, have-1, have)
	}
	return n, c.checkTargets(n)
}

// checkTargets checks the names of the targets of n I/O groups.
func (c *Config) checkTargets(n int) error {
	for i := range n {
		if err := iscsi.CheckName(groupTarget(c.Portal.Target, i)); err != nil {
			return c.src.at("portal.target", "it gives I/O group %d the name %s: %w", i, groupTarget(c.Portal.Target, i), err)
		}
	}
	return nil
}

// whole reads what the folder of an array says of it, and refuses one that is a part of an array or has lost
// what it knew.
func (f *folder) whole() (summary, error) {
	s, err := f.readSummary()
	if err != nil || f.memory {
		return s, err
	}
	if s.IOGroup != 0 {
		return s, fmt.Errorf("the data folder %s is I/O group %d of an array; choose the folder above it with --data", f.path, s.IOGroup)
	}
	if s.IOGroups < 0 || s.IOGroups > maxGroups || s.IOGroups > 1 && f.kind == storeRados {
		return s, fmt.Errorf("data folder: %s says that there are %d I/O groups, which is impossible; restore it from a copy", filepath.Join(f.path, summaryName), s.IOGroups)
	}
	if s.ID != "" {
		return s, nil
	}
	next, err := (&folder{path: groupPath(f.path, 1)}).readSummary()
	if err == nil && next.ID != "" {
		err = fmt.Errorf("data folder: %s does not list %s, because an older version wrote it; add \"id\": %q, \"io_groups\": N to it, with their number",
			filepath.Join(f.path, summaryName), groupPath(f.path, 1), next.ID)
	}
	return s, err
}

// name gives an array of several I/O groups its id, if it has none. Preconditions: the array was opened.
func (f *folder) name() (id string, err error) {
	s, err := f.readSummary()
	if err != nil || f.memory || s.ID != "" {
		return s.ID, err
	}
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	s.ID = hex.EncodeToString(b[:])
	return s.ID, f.writeSummary(s)
}

// part says where the folder of a further group belongs to, before it is opened: what is there must be that group,
// and may be nothing only as long as the group has no pools.
func (f *folder) part(number int, id string) (folder, error) {
	p := folder{path: groupPath(f.path, number), kind: f.kind, memory: f.memory, number: number, id: id}
	if f.memory {
		return p, nil
	}
	s, err := f.readSummary()
	if err != nil {
		return p, err
	}
	file := filepath.Join(p.path, summaryName)
	_, serr := os.Stat(file)
	if errors.Is(serr, os.ErrNotExist) && number >= s.IOGroups {
		return p, nil
	}
	there, err := p.readSummary()
	switch {
	case errors.Is(serr, os.ErrNotExist):
		return p, fmt.Errorf("I/O group %d of the array in %s is missing: there is no %s; mount its folder, or restore it from a copy", number, f.path, file)
	case err != nil:
		return p, err
	case there.ID != id || there.IOGroup != number:
		return p, fmt.Errorf("%s is not I/O group %d of the array in %s; put the right folder there", p.path, number, f.path)
	}
	return p, nil
}

// keepGroups notes that the first n I/O groups may have pools.
func (f *folder) keepGroups(n int) error {
	s, err := f.readSummary()
	if err != nil || f.memory || max(s.IOGroups, 1) >= n {
		return err
	}
	s.IOGroups = n
	return f.writeSummary(s)
}
