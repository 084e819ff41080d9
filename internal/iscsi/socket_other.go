//go:build !linux

package iscsi

import "net"

// socket is made on Linux alone; elsewhere connections stay with the runtime's poller.
type socket struct{ wire }

type socketCalls any

type stay struct{}

func newSocket(net.Conn, socketCalls) (*socket, error) { return nil, nil }

func (c *conn) leaveStay(*socket) error { return nil }

func (c *conn) readSocket(*socket) error { panic("iscsi: internal error: no socket") }

func (s *socket) unacked() (n uint64, ok bool) { return 0, false }

func (s *socket) write([][]byte, bool) (int, error) { panic("iscsi: internal error: no socket") }
