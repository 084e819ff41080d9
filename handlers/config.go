package handlers

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// VolumeSpec is what a configuration string of the subtype "array" says, and what
// the kernel says of the device.
type VolumeSpec struct {
	Pool, Volume string
	Thick        bool // reserve the space of a volume that is made
	MustExist    bool // never make a volume
	WriteProtect bool
	// Domain is the copy domain: EXTENDED COPY finds the units of its own domain and no others.
	Domain string

	// Size in bytes and BlockSize are the device's; 0 is unknown.
	Size      uint64
	BlockSize uint32
	// Resumed: the device existed before this process, and had a volume.
	Resumed bool
	// Owner names the device, for messages.
	Owner string
}

// describe is what targetcli shows as help.
const describe = `POOL/VOLUME[/KEY=VALUE...]: a volume of the array. Created if missing; if it exists, size and block size must match.
  provisioning=thin|thick  a thick volume reserves its space when it is created (default thin)
  create=yes|no            no: the volume must exist (default yes)
  write_protect=yes|no     yes: initiators cannot write (default no)
  domain=NAME              EXTENDED COPY works between units of one domain (default: the pool's name)
Example: gold/db1/provisioning=thick`

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// parseVolume reads a configuration string.
func parseVolume(config string) (VolumeSpec, error) {
	parts := strings.Split(config, "/")
	if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		return VolumeSpec{}, fmt.Errorf("%q names no volume; write POOL/VOLUME, such as gold/db1", config)
	}
	s := VolumeSpec{Pool: parts[0], Volume: parts[1], Domain: parts[0]}
	for _, n := range []struct{ what, name string }{{"pool", s.Pool}, {"volume", s.Volume}} {
		if !nameRE.MatchString(n.name) {
			return VolumeSpec{}, fmt.Errorf("%s name %q: use 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit", n.what, n.name)
		}
	}
	seen := map[string]bool{}
	for _, option := range parts[2:] {
		key, value, ok := strings.Cut(option, "=")
		if !ok {
			return VolumeSpec{}, fmt.Errorf("%q is not a valid option; options are written KEY=VALUE, as in %s/%s/provisioning=thick", option, s.Pool, s.Volume)
		}
		if seen[key] {
			return VolumeSpec{}, fmt.Errorf("%s appears twice", key)
		}
		seen[key] = true
		if err := s.set(key, value); err != nil {
			return VolumeSpec{}, err
		}
	}
	return s, nil
}

func (s *VolumeSpec) set(key, value string) (err error) {
	switch key {
	case "provisioning":
		s.Thick, err = choose(key, value, "thin", "thick")
	case "create":
		s.MustExist, err = choose(key, value, "yes", "no")
	case "write_protect":
		s.WriteProtect, err = choose(key, value, "no", "yes")
	case "domain":
		if s.Domain = value; !nameRE.MatchString(value) {
			err = fmt.Errorf("domain is %q; use 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter or digit", value)
		}
	default:
		err = fmt.Errorf("%q is not a valid option; there are provisioning, create, write_protect and domain", key)
	}
	return err
}

// choose tells whether value is the second of two words.
func choose(key, value, no, yes string) (bool, error) {
	if value != no && value != yes {
		return false, fmt.Errorf("%s is %q; it is %s or %s", key, value, no, yes)
	}
	return value == yes, nil
}

// checkGeometry says what is wrong with what the kernel says of the device.
func (s *VolumeSpec) checkGeometry() error {
	switch {
	case s.BlockSize != 512 && s.BlockSize != 4096:
		return fmt.Errorf("hw_block_size is %d; it is 512 or 4096", s.BlockSize)
	case s.Size == 0:
		return errors.New("the size is 0; give one, such as 16G")
	case s.Size%uint64(s.BlockSize) != 0:
		return fmt.Errorf("the size %d is not a multiple of the block size %d", s.Size, s.BlockSize)
	}
	return nil
}
