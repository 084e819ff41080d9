// Package librados is rados.Cluster over Ceph's client library, which is opened at run time: no C compiler
// is needed. It is there with the build tag rados, on Linux, and makes the program dynamic; without the tag
// Connect fails, and the program is as static as before.
package librados

import (
	"errors"
	"fmt"
)

// Config says how to reach a pool.
type Config struct {
	Conf      string // the file of the cluster; empty: where Ceph looks by itself
	User      string // without "client."
	Keyring   string // the file with the user's key; empty: where the cluster's file says
	Pool      string
	Namespace string // of the array in the pool
}

// ErrMissing is the error of a program, or a machine, without the library.
var ErrMissing = errors.New("there is no librados")

func (c *Config) String() string {
	conf := c.Conf
	if conf == "" {
		conf = "/etc/ceph/ceph.conf"
	}
	return fmt.Sprintf("pool %s of the cluster in %s, as client.%s", c.Pool, conf, c.User)
}
