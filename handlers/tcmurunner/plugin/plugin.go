// Command plugin is handler_arraysim.so, a handler of tcmu-runner: `make plugin`. shim.c is the side that
// tcmu-runner knows; what is exported here is called by it.
package main

// #cgo LDFLAGS: -ldl
// #include <stdint.h>
// #include <sys/uio.h>
import "C"

import (
	"fmt"
	"os"
	"runtime/cgo"
	"unsafe"

	"github.com/arraysim/arraysim/handlers/tcmurunner"
)

func main() {}

func complain(what string, err error) {
	fmt.Fprintf(os.Stderr, "handler_arraysim: %s: %v\n", what, err)
}

//export arraysimHelp
func arraysimHelp() *C.char { return C.CString(tcmurunner.Help) }

// arraysimCheck returns what is wrong with a configuration string, to be freed, or NULL.
//
//export arraysimCheck
func arraysimCheck(config *C.char) *C.char {
	if err := tcmurunner.Check(C.GoString(config)); err != nil {
		return C.CString(err.Error())
	}
	return nil
}

// arraysimOpen returns a handle of a device, or 0.
//
//export arraysimOpen
func arraysimOpen(config, owner *C.char, blocks C.uint64_t, blockSize C.uint32_t) C.uintptr_t {
	u, err := tcmurunner.Open(C.GoString(config), C.GoString(owner), uint64(blocks), uint32(blockSize))
	if err != nil {
		complain(C.GoString(config), err)
		return 0
	}
	return C.uintptr_t(cgo.NewHandle(u))
}

//export arraysimClose
func arraysimClose(handle C.uintptr_t) {
	h := cgo.Handle(handle)
	h.Value().(*tcmurunner.Unit).Close()
	h.Delete()
}

//export arraysimResize
func arraysimResize(handle C.uintptr_t, size C.uint64_t, blockSize C.uint32_t) C.int {
	if err := cgo.Handle(handle).Value().(*tcmurunner.Unit).Resize(uint64(size), uint32(blockSize)); err != nil {
		complain("resize", err)
		return 1
	}
	return 0
}

// arraysimDo carries out a command; its memory is tcmu-runner's and stays until it returns.
//
//export arraysimDo
func arraysimDo(handle C.uintptr_t, cdb *C.uint8_t, cdbLen C.int, iov *C.struct_iovec, iovs C.size_t, sense *C.uint8_t) C.int {
	var data [][]byte
	for _, v := range unsafe.Slice(iov, int(iovs)) {
		if v.iov_len > 0 {
			data = append(data, unsafe.Slice((*byte)(v.iov_base), int(v.iov_len)))
		}
	}
	u := cgo.Handle(handle).Value().(*tcmurunner.Unit)
	return C.int(u.Do(C.GoBytes(unsafe.Pointer(cdb), cdbLen), data, (*[tcmurunner.SenseLen]byte)(unsafe.Pointer(sense))))
}
