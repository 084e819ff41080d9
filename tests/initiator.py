"""An iSCSI session for commands that no tool sends: libiscsi by ctypes.

Several commands share a session here (an I_T nexus), which the list identifiers of
third-party copies and unit attentions ask for.
"""

from __future__ import annotations

import ctypes as c
import ctypes.util
import time
from dataclasses import dataclass

from harness import Daemon

NAME = "iqn.2026-01.io.example:probe"

#: The status of a command that has not begun: a host sends it again.
BUSY = 0x08


class _Sense(c.Structure):
    _fields_ = (
        ("error_type", c.c_ubyte), ("key", c.c_int), ("ascq", c.c_int),
        ("bits", c.c_ubyte), ("bit", c.c_ubyte), ("field", c.c_uint16),
    )  # fmt: skip


class _Data(c.Structure):
    _fields_ = (("size", c.c_int), ("data", c.POINTER(c.c_ubyte)))


class _Task(c.Structure):
    _fields_ = (
        ("status", c.c_int), ("cdb_size", c.c_int), ("dir", c.c_int), ("length", c.c_int), ("cdb", c.c_ubyte * 16),
        ("residual_status", c.c_int), ("residual", c.c_size_t), ("sense", _Sense), ("datain", _Data),
    )  # fmt: skip


class _Buffer(c.Structure):
    _fields_ = (("size", c.c_size_t), ("data", c.c_char_p))


def _library() -> c.CDLL:
    lib = c.CDLL(ctypes.util.find_library("iscsi") or "libiscsi.so.7")
    pointer = c.c_void_p
    for name, result, args in (
        ("iscsi_create_context", pointer, [c.c_char_p]),
        ("iscsi_destroy_context", c.c_int, [pointer]),
        ("iscsi_set_targetname", c.c_int, [pointer, c.c_char_p]),
        ("iscsi_set_session_type", c.c_int, [pointer, c.c_int]),
        ("iscsi_set_isid_random", c.c_int, [pointer, c.c_uint32, c.c_uint32]),
        ("iscsi_set_noautoreconnect", None, [pointer, c.c_int]),
        ("iscsi_connect_sync", c.c_int, [pointer, c.c_char_p]),
        ("iscsi_login_sync", c.c_int, [pointer]),
        ("iscsi_logout_sync", c.c_int, [pointer]),
        ("iscsi_get_error", c.c_char_p, [pointer]),
        ("scsi_create_task", c.POINTER(_Task), [c.c_int, c.c_char_p, c.c_int, c.c_int]),
        ("scsi_free_scsi_task", None, [c.POINTER(_Task)]),
        ("iscsi_scsi_command_sync", c.POINTER(_Task), [pointer, c.c_int, c.POINTER(_Task), c.POINTER(_Buffer)]),
    ):
        f = getattr(lib, name)
        f.restype, f.argtypes = result, args
    return lib


_LIB = _library()
_NORMAL, _NONE, _READ, _WRITE = 2, 0, 1, 2


@dataclass
class Answer:
    """How a command ended: SAM status, sense data, Data-In."""

    status: int
    sense: bytes
    data: bytes

    @property
    def code(self) -> int:
        """Sense key, additional sense code and qualifier as 0xKKAAQQ; 0 without sense data."""
        return (self.sense[2] & 0x0F) << 16 | self.sense[12] << 8 | self.sense[13] if len(self.sense) > 13 else 0


class SessionLost(AssertionError):
    """The session cannot be opened, or has ended; commands in progress may have been carried out."""


class Session:
    """A session; a context manager."""

    def __init__(self, array: Daemon, initiator: str = NAME, isid: int = 1, port: int = 0, stays: bool = True) -> None:
        """Prepare a session; one that does not stay ends with its connection, else the library connects again."""
        self.array = array
        self.stays = stays
        self.lost = False
        self.port = port or array.port
        self.initiator = initiator
        self.isid = isid

    def __enter__(self) -> Session:
        self.ctx = _LIB.iscsi_create_context(self.initiator.encode())
        _LIB.iscsi_set_isid_random(self.ctx, self.isid, 0)
        _LIB.iscsi_set_targetname(self.ctx, self.array.target.encode())
        _LIB.iscsi_set_session_type(self.ctx, _NORMAL)
        _LIB.iscsi_set_noautoreconnect(self.ctx, int(not self.stays))
        portal = f"127.0.0.1:{self.port}".encode()
        failed = _LIB.iscsi_connect_sync(self.ctx, portal) or _LIB.iscsi_login_sync(self.ctx)
        if failed:
            text = _LIB.iscsi_get_error(self.ctx)
            _LIB.iscsi_destroy_context(self.ctx)
            raise SessionLost(text)
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.lost:
            _LIB.iscsi_logout_sync(self.ctx)
        _LIB.iscsi_destroy_context(self.ctx)

    def send(self, lun: int, cdb: bytes, out: bytes = b"", room: int = 0) -> Answer:
        """Carry out a command with Data-Out, or with room for Data-In."""
        way, length = (_WRITE, len(out)) if out else (_READ, room) if room else (_NONE, 0)
        task = _LIB.scsi_create_task(len(cdb), cdb, way, length)
        buffer = _Buffer(len(out), out)
        done = _LIB.iscsi_scsi_command_sync(self.ctx, lun, task, c.byref(buffer) if out else None)
        if not done:
            self.lost = True
            raise SessionLost(_LIB.iscsi_get_error(self.ctx))
        t = task.contents
        if t.status > 0xFF:  # the library's own: cancelled, or an error
            self.lost = True
            _LIB.scsi_free_scsi_task(task)
            raise SessionLost(_LIB.iscsi_get_error(self.ctx))
        data = bytes(t.datain.data[: t.datain.size]) if t.datain.size > 0 else b""
        status, sense = t.status, b""
        if status == 2:
            n = int.from_bytes(data[:2], "big")
            sense, data = data[2 : 2 + n], b""
        _LIB.scsi_free_scsi_task(task)
        return Answer(status, sense, data)

    def answered(self, lun: int, cdb: bytes, out: bytes = b"", room: int = 0, timeout: float = 60) -> Answer:
        """Carry out a command as send does, and again while it is BUSY.

        A node's owner says so of a command that was a second on its way, as on a machine that others keep busy.
        """
        deadline = time.monotonic() + timeout
        while (a := self.send(lun, cdb, out, room)).status == BUSY and time.monotonic() < deadline:
            time.sleep(0.02)
        return a

    def good(self, lun: int, cdb: bytes, out: bytes = b"", room: int = 0) -> bytes:
        """Carry out a command that must end with GOOD; return its Data-In."""
        a = self.answered(lun, cdb, out, room)
        assert a.status == 0, f"LUN {lun} cdb {cdb.hex()}: status {a.status:02x} sense {a.sense.hex()}"
        return a.data

    def fails(self, lun: int, cdb: bytes, code: int, out: bytes = b"", room: int = 0) -> bytes:
        """Carry out a command that must end with this sense code; return its sense data."""
        a = self.answered(lun, cdb, out, room)
        assert a.code == code, f"LUN {lun} cdb {cdb.hex()}: status {a.status:02x} sense {a.sense.hex()}, not {code:06x}"
        return a.sense

    def ready(self, *luns: int) -> Session:
        """Clear the unit attentions of the LUNs."""
        for lun in luns:
            for _ in range(8):
                if self.answered(lun, bytes(6)).status == 0:
                    break
        return self
