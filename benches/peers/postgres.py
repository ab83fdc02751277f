"""Starts a temporary PostgreSQL server, with syncs enabled, from the programs that are installed."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from peers import environment, trace

_FOLDERS = ("/usr/lib/postgresql", "/usr/pgsql")
_SECONDS = 60.0


class Server:
    """A server on the loopback interface without authentication. With a trace, its syncs are written to a file."""

    def __init__(self, folder: Path, traced_to: Path | None = None) -> None:
        self.traced_to = traced_to
        programs = _programs()
        # PostgreSQL refuses to run as root.
        user = _not_root()
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=_reachable(folder)))
        data = self.folder / "data"
        as_user: list[str] = []
        if user:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
            as_user += ["--clear-groups", "--"]
        initdb = [programs / "initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8"]
        made = [*as_user, *initdb, "--no-locale", "--no-sync", "--pgdata", data]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=self.folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        started = [*as_user, programs / "postgres", "-D", data, "-p", str(port), *settings]
        self.process = subprocess.Popen(
            [*(trace.command(traced_to) if traced_to else []), *started],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self.end)
        is_ready = [programs / "pg_isready", "--quiet", "--host=127.0.0.1", f"--port={port}"]
        until = time.monotonic() + _SECONDS
        while subprocess.run(is_ready, check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit("error: PostgreSQL does not start")
            time.sleep(0.05)
        self.pid = self._pid()

    def end(self) -> None:
        """Ends the server without waiting for its clients, and deletes its data."""
        if self.process.poll() is None:
            os.kill(self._pid(), signal.SIGINT)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _pid(self) -> int:
        """Returns the process id of the server, which may be a child of the tracer."""
        file = self.folder / "data" / "postmaster.pid"
        if not file.is_file():
            return self.process.pid
        return int(file.read_text(encoding="ascii").splitlines()[0])


def is_possible() -> bool:
    """Returns whether the programs of a server are installed."""
    return bool(_found())


def _found() -> list[Path]:
    found = [path.parent for folder in _FOLDERS for path in Path(folder).glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    return [*found, *([Path(on_path).parent] if on_path else [])]


def _programs() -> Path:
    return _found()[0]


def _not_root() -> pwd.struct_passwd | None:
    """Returns another user for the server if this process runs as root, because PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {user.pw_name: user for user in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _reachable(folder: Path) -> Path:
    """Returns the folder if all users can access it, and otherwise another folder on a disk."""
    if all(part.stat().st_mode & 0o001 for part in [folder, *folder.parents]):
        return folder
    environment.say(f"{folder} cannot be reached by all: PostgreSQL's data lie in /var/tmp")
    return Path("/var/tmp")
