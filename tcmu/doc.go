// Package tcmu serves SCSI devices of the Linux kernel from user space: the TCMU
// backstore of LIO (target_core_user), without libtcmu or tcmu-runner and without C.
//
// A program says which kinds of device it has, by a [Subtype] each, and starts a
// [Server] in the place of tcmu-runner. Whoever makes a device, with targetcli as it
// is or in configfs, names the subtype in the first part of the configuration string.
// The kernel tells the server, which opens the device's ring and gives a [Handler]
// the commands: CDBs, memory for their data, and a way to complete each, in any order
// and from any goroutine. The kernel keeps the initiators, reservations, and the
// transports (iSCSI, loopback, Fibre Channel) to itself.
//
// The example is a RAM disk. Package tcmutest has a kernel's side of a ring in plain
// memory, to test handlers with.
//
// # The ring
//
// The mapping of a device's UIO file has a mailbox, a ring of command entries, and a
// data area:
//
//	0      128                    cmdr_off+cmdr_size             end
//	| mailbox | ... command ring ... | ....... data area ........... |
//	    head: next entry the kernel writes
//	    tail: first entry that has no response yet; the responses of commands that end
//	          out of order are written from here on, each into the next entry
//
// So a response may overwrite an entry of another command that is still in progress.
// CDBs and the places of data are therefore copied out as entries are read. All
// lengths and places are checked against the mapping; a command that points outside
// ends with HARDWARE ERROR, a length that leads nowhere ends the device's service.
//
// # Start, death and end
//
// A process that makes, changes or removes a device waits in the kernel, without end
// and without being killable, for the server's answer. So the server answers every
// event, with the receive buffer for thousands; when it starts, it lets go whoever its
// predecessor left waiting, has the kernel refuse changes until it knows all devices,
// and only then takes the D-Bus name that attracts requests; when it ends in good
// order, it answers what was sent, and tells the kernel not to wait any more.
//
// A server that died leaves its devices and what was in their rings. The next one
// blocks each device, opens it, resets its ring, and unblocks it: initiators find
// their commands busy and send them again.
//
// Linux 4.20 or later is needed for all of this; the interface has been the same
// since.
package tcmu
