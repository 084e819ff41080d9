package tcmu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// tree is the root below which the kernel's file systems are mounted: "/" but in
// tests.
type tree string

func (t tree) path(parts ...string) string {
	return filepath.Join(append([]string{string(t)}, parts...)...)
}

func (t tree) read(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// write stores a value in an attribute. These files exist or they do not: none is
// ever created.
func (t tree) write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// param sets a parameter of the kernel module; older kernels have fewer.
func (t tree) param(name, value string) error {
	err := t.write(t.path("sys/module/target_core_user/parameters", name), value)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// folder is the device's folder in configfs.
func (t tree) folder(i Info) string {
	return t.path("sys/kernel/config/target/core", "user_"+i.HBA, i.Name)
}

// blockDev has the kernel answer new commands with BUSY, or ends that.
func (t tree) blockDev(i Info, on bool) error {
	v := "0"
	if on {
		v = "1"
	}
	return t.write(filepath.Join(t.folder(i), "action/block_dev"), v)
}

// resetRing empties the ring; initiators send the commands that were in it again.
func (t tree) resetRing(i Info) error {
	return t.write(filepath.Join(t.folder(i), "action/reset_ring"), "1")
}

// complement fills in what the name does not say.
func (t tree) complement(i *Info) error {
	attrib := filepath.Join(t.folder(*i), "attrib")
	number := func(name string) (uint64, error) {
		text, err := t.read(filepath.Join(attrib, name))
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("tcmu: %s: attribute %s is %q", i, name, text)
		}
		return n, nil
	}
	size, err := number("dev_size")
	if err != nil {
		return err
	}
	blockSize, err := number("hw_block_size")
	if err != nil {
		return err
	}
	cache, err := number("emulate_write_cache")
	if err != nil {
		return err
	}
	if blockSize == 0 {
		blockSize = 512 // the kernel's default
	}
	i.Size, i.BlockSize, i.WriteCache = size, uint32(blockSize), cache != 0
	return nil
}

// otherFabrics lists the fabric modules but one that have the device as a LUN, sorted. The folders of the one are not read.
func (t tree) otherFabrics(folder, than string) ([]string, error) {
	root := t.path("sys/kernel/config/target")
	fabrics, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, f := range fabrics {
		if !f.IsDir() || f.Name() == "core" || f.Name() == than {
			continue
		}
		has := false
		err := inFolders(filepath.Join(root, f.Name()), func(e fs.DirEntry, path string) error {
			if e.Type()&fs.ModeSymlink == 0 {
				return nil
			}
			to, err := os.Readlink(path)
			has = has || err == nil && filepath.Base(to) == filepath.Base(folder) && filepath.Base(filepath.Dir(to)) == filepath.Base(filepath.Dir(folder))
			return err
		}, "", "tpgt_", "lun", "lun_")
		if err != nil {
			return nil, err
		}
		if has {
			list = append(list, f.Name())
		}
	}
	return list, nil
}

// inFolders calls fn for all that the folders have whose path from dir is by names with these prefixes. What has just gone is none.
func inFolders(dir string, fn func(e fs.DirEntry, path string) error, prefixes ...string) error {
	entries, failed := os.ReadDir(dir)
	for _, e := range entries {
		path, err := filepath.Join(dir, e.Name()), error(nil)
		switch {
		case len(prefixes) == 0:
			err = fn(e, path)
		case e.IsDir() && strings.HasPrefix(e.Name(), prefixes[0]):
			err = inFolders(path, fn, prefixes[1:]...)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if errors.Is(failed, fs.ErrNotExist) {
		return nil
	}
	return failed
}

// attributes is what configfs has of a device; links of tests have it themselves.
type attributes interface {
	Attribute(name string) (string, error)
	SetAttribute(name, value string) error
	OtherFabrics(than string) ([]string, error)
}

type configfs struct {
	tree   tree
	folder string
}

func (c configfs) Attribute(name string) (string, error) {
	return c.tree.read(filepath.Join(c.folder, filepath.Clean("/"+name)))
}

func (c configfs) SetAttribute(name, value string) error {
	return c.tree.write(filepath.Join(c.folder, filepath.Clean("/"+name)), value)
}

func (c configfs) OtherFabrics(than string) ([]string, error) {
	return c.tree.otherFabrics(c.folder, than)
}

// OtherFabrics lists the fabric modules but one that have the device as a LUN now, sorted: "loopback", "vhost"... An answer can take
// as long as the kernel removes a LUN of one of them, which it does not do before the LUN's commands have ended: who owes it some
// must not wait for one.
func (d *Device) OtherFabrics(than string) ([]string, error) { return d.attributes.OtherFabrics(than) }

// Attribute reads an attribute of the device: attrib/cmd_time_out, wwn/vpd_unit_serial...
func (d *Device) Attribute(name string) (string, error) { return d.attributes.Attribute(name) }

// SetAttribute sets one. Of attrib/dev_config, dev_size and emulate_write_cache the
// kernel asks the handler whether they may change, so a handler must not set them
// but while it opens a new device.
func (d *Device) SetAttribute(name, value string) error {
	return d.attributes.SetAttribute(name, value)
}

// present lists the TCMU devices that exist.
func (t tree) present() ([]Info, error) {
	entries, err := os.ReadDir(t.path("sys/class/uio"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no UIO device was ever made
	}
	if err != nil {
		return nil, err
	}
	var list []Info
	for _, e := range entries {
		minor, err := strconv.ParseUint(strings.TrimPrefix(e.Name(), "uio"), 10, 32)
		if err != nil {
			continue
		}
		name, err := t.read(t.path("sys/class/uio", e.Name(), "name"))
		if err != nil {
			continue // it has just gone
		}
		if i, ok := parseName(name); ok {
			i.Minor = uint32(minor)
			list = append(list, i)
		}
	}
	return list, nil
}
