"""Sixty tries to leave the sandbox, and paths where credentials lie. Run as a program it makes them all and reports.

It runs as whoever starts it, so that a test can have it run as root and as a plain user.
"""

import json
import os
import platform
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from midfill_infill.sandbox import run as sandbox
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.view import CopiedTree

# One that other users can run too.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable

PRELUDE = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *words):
    if getattr(libc, name)(*words) == -1:
        raise OSError(ctypes.get_errno(), name)
def syscall(number, *words):
    call("syscall", ctypes.c_long(number), *words)
def unix(path):
    socket.socket(socket.AF_UNIX).connect(path)
"""

# Numbers of system calls that C libraries have no function for.
_NUMBERS = {
    "x86_64": {"add_key": 248, "keyctl": 250, "bpf": 321, "io_uring_setup": 425, "pivot_root": 155, "fsopen": 430,
               "open_tree": 428, "perf_event_open": 298, "userfaultfd": 323},
    "aarch64": {"add_key": 217, "keyctl": 219, "bpf": 280, "io_uring_setup": 425, "pivot_root": 41, "fsopen": 430,
                "open_tree": 428, "perf_event_open": 241, "userfaultfd": 282},
}  # fmt: skip
NUMBERS = _NUMBERS.get(platform.machine(), {})

# Every one ends with an error where it is stopped.
TRIES = {
    # Files outside of the copy.
    "write beside the tree": "open('{outside}/mine', 'w')",
    "write into the tree": "open('{root}/../repo-of-others/a', 'w')",
    "remove a file": "os.unlink('{outside}/x')",
    "rename a file": "os.rename('{outside}/x', '{outside}/y')",
    "link to a file and write": "os.link('{outside}/x', 'l'); open('l', 'w')",
    "write through a link": "os.symlink('{outside}/x', 'l'); open('l', 'w')",
    "change a mode": "os.chmod('{outside}/x', 0o777)",
    "change an owner": "os.chown('{outside}/x', 1, 1)",
    "change a time": "os.utime('{outside}/x')",
    "write a git hook": "open('{root}/.git/hooks/post-commit', 'w')",
    "write git's settings": "open('{root}/.git/config', 'a')",
    "write git's index": "open('{root}/.git/index', 'wb')",
    "replace git's folder": "os.rename('{root}/.git', '{root}/.mine')",
    "write the journal": "open('{root}/.git/midfill/run.db', 'r+')",
    "write an environment": "open('{root}/.venv/bin/tool', 'a')",
    "add to an environment": "open('{root}/.venv/sitecustomize.py', 'w')",
    "write system programs": "open('/usr/bin/mine', 'w')",
    "write to /etc": "open('/etc/mine', 'w')",
    "write to the root": "open('/mine', 'w')",
    "write to /var": "open('/var/mine', 'w')",
    "write a crontab": "open('/var/spool/cron/crontabs/mine', 'w')",
    "read a file of others": "open('{outside}/x').read()",
    "read other processes' memory": "open('/proc/{pid}/mem', 'rb')",
    "read a file by the parent's root": "open('/proc/{pid}/root{outside}/x')",
    "read the password hashes": "open('/etc/shadow').read()",
    "read the host's keys": "assert [name for name in os.listdir('/etc/ssh') if name.endswith('_key')]",
    # The kernel.
    "write the core pattern": "open('/proc/sys/kernel/core_pattern', 'w')",
    "write the module loader": "open('/proc/sys/kernel/modprobe', 'w')",
    "write a setting of memory": "open('/proc/sys/vm/drop_caches', 'w')",
    "write a network setting": "open('/proc/sys/net/ipv4/ip_forward', 'w')",
    "press a magic key": "open('/proc/sysrq-trigger', 'w')",
    "remount the root": "call('mount', b'', b'/', b'', 32 | 4096, b'')",
    "mount a folder": "os.mkdir('m'); call('mount', b'none', b'm', b'tmpfs', 0, b'')",
    "unmount git's folder": "call('umount2', b'{root}/.git', 2)",
    "mount by a handle": "syscall({fsopen}, b'tmpfs', 0)",
    "take a tree of mounts": "syscall({open_tree}, -100, b'/', 1)",
    "change the root": "os.chroot('/tmp')",
    "pivot the root": "os.makedirs('n/o'); syscall({pivot_root}, b'n', b'n/o')",
    "make a name space": "call('unshare', 0x10000000)",
    "make a network": "call('unshare', 0x40000000)",
    "enter another name space": "call('setns', os.open('/proc/{pid}/ns/mnt', os.O_RDONLY), 0)",
    "make a device": "os.mknod('dev', 0o60600, os.makedev(8, 0)); open('dev', 'rb').read(1)",
    "open the memory": "open('/dev/mem', 'rb')",
    "open the kernel's memory": "assert open('/proc/kcore', 'rb').read(1)",
    "load a program into the kernel": "syscall({bpf}, 0, ctypes.create_string_buffer(128), 128)",
    "watch the processor": "syscall({perf_event_open}, ctypes.create_string_buffer(128), 0, -1, -1, 0)",
    "make a ring": "syscall({io_uring_setup}, 1, ctypes.create_string_buffer(256))",
    "handle faults": "syscall({userfaultfd}, 0)",
    "leave a key in the keyring": "syscall({add_key}, b'user', b'mine', b'x', 1, -4)",
    "change the host name": "socket.sethostname('mine')",
    "set the clock": "import time; time.clock_settime(time.CLOCK_REALTIME, 0)",
    "become root": "os.setuid(0 if os.getuid() else 1)",
    # Processes.
    "kill the parent": "os.kill({pid}, 9)",
    "see the parent": "open('/proc/{pid}/status')",
    "trace the parent": "call('ptrace', 16, {pid}, 0, 0)",
    "type into the terminal": "import fcntl; fcntl.ioctl(os.openpty()[1], 0x5412, b'x')",
    "fill the disk": "f = open('big', 'wb'); f.truncate(10 << 30)",
    # Networks and sockets.
    "connect to this machine": "socket.create_connection(('127.0.0.1', {port}), 2)",
    "connect to the world": "socket.create_connection(('1.1.1.1', 53), 2)",
    "ask for a name": "socket.getaddrinfo('example.org', 80)",
    "talk to the host of the machine": "socket.socket(40, socket.SOCK_STREAM)",
    "read packets": "socket.socket(17, socket.SOCK_RAW)",
    "connect to a socket without a name": "unix('\\0midfill-escape-{pid}')",
}  # fmt: skip

SOCKETS = (
    ".colima/default/docker.sock", ".rd/docker.sock", ".docker/run/docker.sock", ".1password/agent.sock",
    ".local/share/containers/podman/machine/podman.sock", ".gnupg/S.gpg-agent", ".orbstack/run/docker.sock",
    ".ssh/agent.sock", ".lima/default/sock/docker.sock", ".config/emacs/server/server",
)  # fmt: skip

CREDENTIALS = (
    ".ssh/id_rsa", ".ssh/id_ed25519", ".ssh/config", ".gnupg/private-keys-v1.d/a.key", ".aws/credentials",
    ".aws/config", ".aws/sso/cache/a.json", ".azure/msal_token_cache.json", ".config/gcloud/credentials.db",
    ".config/gcloud/application_default_credentials.json", ".kube/config", ".docker/config.json", ".netrc", ".npmrc",
    ".yarnrc.yml", ".pypirc", ".config/pip/pip.conf", ".config/gh/hosts.yml", ".config/glab-cli/config.yml",
    ".config/hub", ".git-credentials", ".config/git/credentials", ".gitconfig", ".cargo/credentials.toml",
    ".cargo/credentials", ".gem/credentials", ".m2/settings.xml", ".m2/settings-security.xml",
    ".gradle/gradle.properties", ".composer/auth.json", ".config/composer/auth.json", ".nuget/NuGet/NuGet.Config",
    ".terraform.d/credentials.tfrc.json", ".terraformrc", ".vault-token", ".pgpass", ".my.cnf", ".mongorc.js",
    ".s3cfg", ".boto", ".huggingface/token", ".cache/huggingface/token", ".kaggle/kaggle.json", ".netlify/config.json",
    ".heroku/credentials", ".config/doctl/config.yaml", ".fly/config.yml", ".databrickscfg", ".snowsql/config",
    ".password-store/a.gpg", ".local/share/keyrings/login.keyring", ".mozilla/firefox/a/logins.json",
    ".config/google-chrome/Default/Login Data", ".config/op/config", ".config/rclone/rclone.conf", ".bash_history",
    ".python_history", ".env", "secrets.txt", "Library/Keychains/login.keychain-db",
)  # fmt: skip


def tries() -> Iterator[tuple[str, str]]:
    yield from TRIES.items()
    for path in SOCKETS:
        yield f"connect to ~/{path}", f"unix('{{home}}/{path}')"
    yield "connect to a socket in the temporary folder", "unix('{outside}/s.sock')"
    yield "connect to a socket of the tree", "unix('{root}/app.sock')"
    for path in CREDENTIALS:
        yield f"read ~/{path}", f"assert open('{{home}}/{path}').read()"


def make_world(folder: Path, stack: ExitStack) -> dict[str, str]:
    """A home with credentials and sockets, a repository and something outside of both."""
    home, outside, root = folder / "home", folder / "outside", folder / "repo"
    files = [home / name for name in CREDENTIALS]
    files += [outside / "x", root / "m0.py", root / ".git/HEAD", root / ".git/config", root / ".git/index"]
    files += [root / ".git/hooks/x", root / ".git/midfill/run.db", root / ".venv/bin/tool", root / ".venv/pyvenv.cfg"]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    sockets = [home / name for name in SOCKETS] + [outside / "s.sock", root / "app.sock"]
    for path in sockets:
        path.parent.mkdir(parents=True, exist_ok=True)
    for address in (*map(str, sockets), f"\0midfill-escape-{os.getpid()}"):
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(address)
        listener.listen()
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    words = {"home": home, "outside": outside, "root": root, "pid": os.getpid(), "port": server.getsockname()[1]}
    return {name: str(value) for name, value in words.items()} | {k: str(v) for k, v in NUMBERS.items()}


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file but those of copies, with mode and, by its time, whether it was touched."""
    files = (path for path in folder.rglob("*") if path.is_file() and "copies" not in path.parts)
    return {str(path): (path.read_text(), path.stat().st_mode + path.stat().st_mtime_ns) for path in files}


def main(folder: Path) -> None:
    """Prints what each try came to: its exit code and the end of its output."""
    with ExitStack() as stack:
        words = make_world(folder, stack)
        os.environ["HOME"] = words["home"]
        before = contents(folder)
        root = Path(words["root"])

        def attempt(number: int, code: str) -> list[object]:
            copy = folder / "copies" / str(number)
            for name in (".git", ".venv"):
                (copy / name).mkdir(parents=True)
            program = (PYTHON, "-I", "-S", "-c", PRELUDE + code.format(**words))
            tree = CopiedTree(copy, root, shown=(root / ".venv",), git=(root / ".git",))
            outcome = sandbox.run(Command(program, 60), tree)
            return [outcome.code, outcome.output]

        names, codes = zip(*tries(), strict=True)
        with ThreadPoolExecutor(2) as pool:
            found = dict(zip(names, pool.map(attempt, range(len(codes)), codes), strict=True))
        print(json.dumps({"tries": found, "is_unchanged": contents(folder) == before}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
