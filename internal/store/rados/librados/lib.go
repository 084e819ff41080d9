//go:build rados && linux

package librados

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
)

// library has the addresses of the functions of librados 2 that are used, by their names in C without
// "rados_": see librados.h of Ceph 16.
var library struct {
	once sync.Once
	err  error

	create2, conf_read_file, conf_set, connect, shutdown                  uintptr
	ioctx_create, ioctx_destroy, ioctx_set_namespace                      uintptr
	set_pool_full_try                                                     uintptr
	aio_create_completion2, aio_get_return_value, aio_release             uintptr
	create_write_op, release_write_op, aio_write_op_operate               uintptr
	write_op_assert_exists                                                uintptr
	write_op_cmpxattr, write_op_create, write_op_setxattr, write_op_write uintptr
	write_op_write_full, write_op_zero, write_op_remove                   uintptr
	write_op_omap_set2, write_op_omap_rm_keys2                            uintptr
	create_read_op, release_read_op, aio_read_op_operate                  uintptr
	read_op_cmpxattr, read_op_read                                        uintptr
	read_op_omap_get_vals2, read_op_omap_get_vals_by_keys2                uintptr
	omap_get_next2, omap_get_end                                          uintptr
	lock_exclusive, unlock, list_lockers, break_lock                      uintptr
	blocklist_add, wait_for_latest_osdmap, watch3, unwatch2               uintptr

	completed, notified, lost uintptr // the callbacks
}

// Constants of librados.h.
const (
	cmpEqual          = 1
	cmpGreaterOrEqual = 4  // the value is greater than the attribute, or equal
	fullTry           = 64 // an operation on a full pool fails in the place of waiting
)

// Available opens the library, and reports what is missing.
func Available() error {
	l := &library
	l.once.Do(func() {
		handle, err := purego.Dlopen("librados.so.2", purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err != nil {
			l.err = fmt.Errorf("%w: %w; install librados2", ErrMissing, err)
			return
		}
		v := reflect.ValueOf(l).Elem()
		for i := range v.NumField() {
			f, name := v.Field(i), v.Type().Field(i).Name
			if f.Kind() != reflect.Uintptr || name == "completed" || name == "notified" || name == "lost" {
				continue
			}
			fn, err := purego.Dlsym(handle, "rados_"+name)
			if err != nil {
				l.err = fmt.Errorf("%w that is new enough: %w; install librados2 of Ceph 16 or newer", ErrMissing, err)
				return
			}
			*(*uintptr)(unsafe.Pointer(f.UnsafeAddr())) = fn
		}
		l.completed, l.notified, l.lost = purego.NewCallback(completed), purego.NewCallback(notified), purego.NewCallback(lost)
	})
	return l.err
}

// text returns a string as C has it.
func text(s string) *byte {
	b := make([]byte, len(s)+1)
	copy(b, s)
	return &b[0]
}

// first returns where a buffer begins; one without bytes begins somewhere.
func first(b []byte) *byte {
	if len(b) == 0 {
		return &nothing
	}
	return unsafe.SliceData(b)
}

var nothing byte

// call calls a function whose result is 0 or more, or the negative number of an error. Pointers among the
// arguments stay where they are during the call.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) int {
	r, _, _ := purego.SyscallN(fn, args...)
	return int(int32(r))
}

// errorOf turns a result into an error.
func errorOf(r int) error {
	if r >= 0 {
		return nil
	}
	switch e := unix.Errno(-r); e {
	case unix.ENOENT:
		return rados.ErrNotFound
	case unix.EEXIST:
		return rados.ErrExists
	case unix.ECANCELED:
		return rados.ErrGuard
	case unix.EBUSY:
		return rados.ErrBusy
	case unix.ENOSPC, unix.EDQUOT:
		return fmt.Errorf("the pool is full: %w (%w)", block.ErrFull, e)
	case unix.ESHUTDOWN: // EBLOCKLISTED
		return fmt.Errorf("this client is blocklisted: %w", block.ErrFenced)
	case unix.ETIMEDOUT: // rados_mon_op_timeout: nobody has said anything
		return fmt.Errorf("%w (%w)", rados.ErrUnanswered, e)
	default:
		return fmt.Errorf("rados: %w", e)
	}
}

// explain makes an error of connecting one line that says what to do.
func explain(c *Config, what string, r int) error {
	e := unix.Errno(-r)
	hint := "see ceph -s"
	switch {
	case errors.Is(e, unix.ETIMEDOUT):
		hint = "no monitor answers; do they run, and is mon_host correct?"
	case errors.Is(e, unix.EACCES), errors.Is(e, unix.EPERM), errors.Is(e, unix.EINVAL):
		hint = "check the user, its keyring, and its capabilities (mon 'profile rbd', osd 'allow rwx pool=" + c.Pool + "')"
	case errors.Is(e, unix.ENOENT) && what == "open":
		hint = "there is no such pool; create it with  ceph osd pool create " + c.Pool
	case errors.Is(e, unix.ENOENT):
		hint = "the configuration file or the keyring cannot be found"
	}
	return fmt.Errorf("cannot %s %s: %w; %s", what, c, e, hint)
}
