//go:build !linux

package iscsi

import (
	"net"
	"syscall"
)

type sysWrite struct{}

func rawConn(net.Conn) syscall.RawConn { return nil }

func (c *conn) readSome() error { return c.readPlain() }

func (c *conn) write(vec [][]byte, wait bool) (int, error) { return c.writePlain(vec, wait) }
