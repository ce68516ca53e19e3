"""Builds the kernel filter that refuses system calls to a command in the sandbox. Knows no mounts.

The filter refuses what containers refuse by default, and what no namespace isolates: keyrings, sockets to the host
(VSOCK), io_uring. libseccomp compiles it; without this library namespaces alone confine the command.
"""

import ctypes
import errno
import os
from functools import cache
from typing import Final

# Constants of libseccomp: what happens with a call, and how its argument is compared.
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_EQUAL, _GREATER, _MASKED = 4, 6, 7
_REFUSED: Final = (
    "acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "delete_module", "fanotify_init", "finit_module",
    "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup",
    "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mount", "mount_setattr",
    "move_mount", "move_pages", "name_to_handle_at", "nfsservctl", "open_by_handle_at", "open_tree",
    "perf_event_open", "pidfd_getfd", "pivot_root", "process_madvise", "process_vm_readv", "process_vm_writev",
    "quotactl", "quotactl_fd", "reboot", "request_key", "setdomainname", "sethostname", "setns", "settimeofday",
    "stime", "swapoff", "swapon", "syslog", "umount", "umount2", "unshare", "uselib", "userfaultfd", "vhangup",
)  # fmt: skip
# Families of sockets: all but AF_UNIX (1), AF_INET (2), AF_INET6 (10) and AF_NETLINK (16) are refused.
_REFUSED_FAMILIES: Final = (*range(3, 10), *range(11, 16))
_LAST_FAMILY: Final = 16
# The flags CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET of `clone`.
_NEW_NAMESPACES: Final = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
# Both inject keystrokes into the terminal that started the command.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


class _Comparison(ctypes.Structure):
    """A condition on an argument of a system call, as libseccomp takes it; `argument` is the argument's index."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def _load_library() -> ctypes.CDLL | None:
    """libseccomp with the types of its functions; None if it cannot be loaded."""
    try:
        library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    except OSError:
        return None
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = (ctypes.c_uint32,)
    rule_types = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Comparison))
    library.seccomp_rule_add_array.argtypes = rule_types
    library.seccomp_export_bpf.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.seccomp_release.argtypes = (ctypes.c_void_p,)
    return library


@cache
def make_filter() -> bytes | None:
    """The filter as bubblewrap's `--seccomp` takes it; None without libseccomp."""
    library = _load_library()
    context = library.seccomp_init(_ALLOW) if library is not None else None
    if library is None or not context:
        return None
    try:
        for name in _REFUSED:
            _refuse(library, context, name, errno.EPERM)
        _refuse(library, context, "clone3", errno.ENOSYS)  # seccomp cannot read its flags; libraries fall back to clone
        for family in _REFUSED_FAMILIES:
            _refuse(library, context, "socket", errno.EAFNOSUPPORT, _Comparison(0, _EQUAL, family, 0))
        _refuse(library, context, "socket", errno.EAFNOSUPPORT, _Comparison(0, _GREATER, _LAST_FAMILY, 0))
        for flag in _NEW_NAMESPACES:
            _refuse(library, context, "clone", errno.EPERM, _Comparison(0, _MASKED, flag, flag))
        for request in (_TIOCSTI, _TIOCLINUX):
            _refuse(library, context, "ioctl", errno.EPERM, _Comparison(1, _MASKED, 0xFFFFFFFF, request))
        with open(os.memfd_create("filter"), "rb") as file:
            is_written = library.seccomp_export_bpf(context, file.fileno()) == 0
            return os.pread(file.fileno(), 1 << 20, 0) if is_written else None
    finally:
        library.seccomp_release(context)


def _refuse(library: ctypes.CDLL, context: int, name: str, error: int, *conditions: _Comparison) -> None:
    """Lets the system call `name` fail with the number `error` if all conditions hold."""
    call = library.seccomp_syscall_resolve_name(name.encode())
    if call == -1:  # this libseccomp does not know the name
        return
    count = len(conditions)
    library.seccomp_rule_add_array(context, _ERRNO | error, call, count, (_Comparison * count)(*conditions))
