package tcmu

import (
	"fmt"
	"strconv"
	"strings"
)

// Info says what a device is.
type Info struct {
	Minor uint32 // of the UIO device
	// HBA and Name are the device's folder in configfs: user_HBA/Name.
	HBA  string
	Name string
	// Subtype and Config are the configuration string up to its first slash and
	// behind it.
	Subtype string
	Config  string
	// Size in bytes and BlockSize are what was asked for when the device was made.
	Size      uint64
	BlockSize uint32
	// Resumed says that the device existed when the server started.
	Resumed bool
	// WriteCache is whether the kernel tells initiators of a volatile cache.
	WriteCache bool
}

// String names the device as the kernel's UIO layer does.
func (i Info) String() string { return namePrefix + i.HBA + "/" + i.Name }

const namePrefix = "tcm-user/"

// MaxConfig is the longest configuration string that the kernel keeps, subtype
// included.
const MaxConfig = 255

// parseName takes a UIO device's name apart: tcm-user/HBA/NAME/SUBTYPE/CONFIG. ok is
// false for other kinds of UIO device.
func parseName(name string) (i Info, ok bool) {
	rest, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return Info{}, false
	}
	i.HBA, rest, ok = strings.Cut(rest, "/")
	if !ok || i.HBA == "" {
		return Info{}, false
	}
	if _, err := strconv.ParseUint(i.HBA, 10, 32); err != nil {
		return Info{}, false
	}
	i.Name, rest, _ = strings.Cut(rest, "/")
	if i.Name == "" || i.Name == "." || i.Name == ".." {
		return Info{}, false
	}
	i.Subtype, i.Config = cutConfig(rest)
	return i, true
}

// cutConfig cuts a configuration string behind its subtype.
func cutConfig(s string) (subtype, config string) {
	subtype, config, _ = strings.Cut(s, "/")
	return subtype, config
}

// Subtype is a kind of device: what the first part of configuration strings names.
// Its methods may be called from several goroutines.
type Subtype interface {
	// Name is that first part. It may have the characters of a D-Bus path element
	// only: A-Z, a-z, 0-9 and the underscore.
	Name() string
	// Describe says what configuration strings look like; targetcli shows it as help.
	Describe() string
	// Check says what is wrong with a configuration string, without its subtype and
	// slash, or nil. targetcli shows the error before it makes a device.
	Check(config string) error
	// Open makes a handler for a device that was created, or that exists when the
	// server starts. An error refuses the device; a [syscall.Errno] in its chain
	// is what the writer of the device's enable file gets, else EINVAL.
	Open(d *Device) (Handler, error)
}

// Reconfigurer is a Handler that agrees to changes of its device. Without it every
// change is refused but the one to what is so already.
type Reconfigurer interface {
	// Reconfigure is called while commands go on. The change is made if it
	// returns nil. Tools that restore a configuration ask for what is there already.
	Reconfigure(Change) error
}

// Change is what is asked for: as a rule one of the pointers is set.
type Change struct {
	Config     *string // without the subtype
	Size       *uint64 // in bytes
	WriteCache *bool
}

// apply returns i with the change made.
func (c Change) apply(i Info) Info {
	if c.Config != nil {
		i.Config = *c.Config
	}
	if c.Size != nil {
		i.Size = *c.Size
	}
	if c.WriteCache != nil {
		i.WriteCache = *c.WriteCache
	}
	return i
}

func (c Change) String() string {
	switch {
	case c.Config != nil:
		return fmt.Sprintf("config %q", *c.Config)
	case c.Size != nil:
		return fmt.Sprintf("size %d", *c.Size)
	case c.WriteCache != nil:
		return fmt.Sprintf("write cache %t", *c.WriteCache)
	}
	return "nothing"
}
