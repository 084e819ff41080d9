"""SCSI commands by SG_IO, as bytes: for what no tool can send."""

from __future__ import annotations

import ctypes
import fcntl
import os
from dataclasses import dataclass

SG_IO = 0x2285
NONE, TO_DEVICE, FROM_DEVICE = -1, -2, -3


class Header(ctypes.Structure):
    """struct sg_io_hdr of <scsi/sg.h>."""

    _fields_ = (
        ("interface_id", ctypes.c_int),
        ("direction", ctypes.c_int),
        ("cmd_len", ctypes.c_ubyte),
        ("max_sense", ctypes.c_ubyte),
        ("iovec_count", ctypes.c_ushort),
        ("length", ctypes.c_uint),
        ("data", ctypes.c_void_p),
        ("cdb", ctypes.c_void_p),
        ("sense", ctypes.c_void_p),
        ("timeout", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("pack_id", ctypes.c_int),
        ("user", ctypes.c_void_p),
        ("status", ctypes.c_ubyte),
        ("masked_status", ctypes.c_ubyte),
        ("msg_status", ctypes.c_ubyte),
        ("sense_len", ctypes.c_ubyte),
        ("host_status", ctypes.c_ushort),
        ("driver_status", ctypes.c_ushort),
        ("residual", ctypes.c_int),
        ("duration", ctypes.c_uint),
        ("info", ctypes.c_uint),
    )


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    status: int
    sense: bytes
    data: bytes
    host: int = 0

    @property
    def code(self) -> str:
        """The outcome in a word: good, key/asc/ascq, or the status."""
        if self.host:
            return f"host {self.host:02x}"
        if self.status == 0:
            return "good"
        s = self.sense
        if self.status == 2 and len(s) >= 14 and s[0] & 0x7F < 0x72:
            return f"{s[2] & 15:x}/{s[12]:02x}/{s[13]:02x}"
        if self.status == 2 and len(s) >= 4:
            return f"{s[1] & 15:x}/{s[2]:02x}/{s[3]:02x}"
        return f"status {self.status:02x}"


class Generic:
    """An open disk that takes commands."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def close(self) -> None:
        """Close it."""
        os.close(self.fd)

    def send(self, cdb: bytes, out: bytes = b"", room: int = 0) -> Answer:
        """Carry out a command with its data-out, or room for its data-in."""
        data = ctypes.create_string_buffer(out, len(out)) if out else ctypes.create_string_buffer(max(room, 1))
        sense = ctypes.create_string_buffer(64)
        command = ctypes.create_string_buffer(cdb, len(cdb))
        h = Header(interface_id=ord("S"), cmd_len=len(cdb), max_sense=64, timeout=180_000)
        h.direction = TO_DEVICE if out else FROM_DEVICE if room else NONE
        h.length = len(out) or room
        h.data, h.cdb, h.sense = ctypes.addressof(data), ctypes.addressof(command), ctypes.addressof(sense)
        fcntl.ioctl(self.fd, SG_IO, h)
        got = data.raw[: room - max(h.residual, 0)] if room else b""
        return Answer(h.status, sense.raw[: h.sense_len], got, h.host_status)
