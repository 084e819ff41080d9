package scsi

import (
	"fmt"
	"strconv"
	"strings"
)

// isidMark parts the initiator's name from the ISID in the name of an iSCSI initiator port (RFC
// 7143 4.2.7.3).
const isidMark = ",i,0x"

// canonicalPort returns the form in which names of initiator ports are compared: the ISID is a
// number, so it has twelve digits whatever the initiator wrote. ok is false for what is no name of
// an iSCSI port.
func canonicalPort(port string) (name string, ok bool) {
	at := strings.LastIndex(strings.ToLower(port), isidMark)
	if at <= 0 {
		return port, false
	}
	isid, err := strconv.ParseUint(port[at+len(isidMark):], 16, 48)
	if err != nil {
		return port, false
	}
	return fmt.Sprintf("%s%s%012x", port[:at], isidMark, isid), true
}
