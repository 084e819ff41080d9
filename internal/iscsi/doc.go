// Package iscsi is the embedded iSCSI portal (RFC 7143): it carries the commands
// of initiators to a [scsi.Target] and the answers back. The initiator side that
// the tests drive it with is [Client].
//
// What is here: ErrorRecoveryLevel 0, one connection a session, discovery, CHAP,
// header and data digests, immediate, unsolicited and solicited data, task
// management, NOP in both directions. What is not: multiple connections, error
// recovery by SNACK, bidirectional commands, markers, iSER.
//
// # Shape of a connection
//
//	socket --------> receive buffer --> receive state machine --> batch of tasks
//	                    |  (large data segments go straight           |
//	                    |   to the command's buffers, small    executor: Submit
//	                    |   ones stay where they are)                 |
//	                    v                                             |
//	                 text, NOP, ... ----------> output queue <-- Done of a task
//	                                                |
//	                          PDUs are made here, one sendmsg for all that is queued
//
// One goroutine reads, parses all that one read brought, enters the executor once
// for all commands that are ready, and tries to send what they left behind
// without ever waiting for the socket. A second goroutine takes over where the
// socket is full or a completion came from elsewhere. While the peer alone owes
// something, the reader may wait in the system call that reads (stay_linux.go).
//
// # Order
//
// Commands take effect in the order of CmdSN. Among those that still collect
// Data-Out only ORDERED commands keep their place (order.go). A reset or the
// clearing of a task set also ends what the portal itself still has of the
// session: commands that collect data, that wait, and that are numbered before it
// but have not come. Commands of other sessions that collect data then arrive at
// the logical unit after it, which ends them with TASK ABORTED (scsi.Task.Remaps).
//
// # Scope of errors
//
// What a command does wrong is sense data, a value. What a peer does wrong is a
// [ProtocolError] and ends its connection; it is counted by kind. Nothing that a
// peer sends makes this package panic or allocate beyond [Limits].
package iscsi
