"""The measured programs, and the virtual environment with the packages of the peers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
REQUIREMENTS = HERE / "requirements.txt"


def default_folder() -> Path:
    """Returns the default folder, inside cargo's target folder."""
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(json.loads(metadata.stdout)["target_directory"]) / "peers"


def python(folder: Path) -> Path:
    """Returns the interpreter of the virtual environment, and creates the environment again if the
    requirements differ."""
    environment = folder / "venv"
    interpreter = environment / "bin" / "python"
    stamp = environment / "installed.txt"
    wanted = f"{sys.version}\n{REQUIREMENTS.read_text(encoding='utf-8')}"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return interpreter
    say("installing the peers' packages ...")
    if environment.exists():
        shutil.rmtree(environment)
    venv.create(environment, with_pip=True)
    subprocess.run(
        [interpreter, "-m", "pip", "install", "--quiet", "--requirement", REQUIREMENTS],
        check=True,
        stdout=sys.stderr,
    )
    stamp.write_text(wanted, encoding="utf-8")
    return interpreter


def programs(folder: Path) -> dict[str, Path]:
    """Builds the programs of tower-chat and adk-rust with optimisation, and returns their paths."""
    return {
        "tower-chat": _built(REPOSITORY, ["--profile", "measure", "--package", "tower-chat-benches", "--bin", "peers"]),
        "adk-session": _built(HERE / "adk_session", ["--release", "--target-dir", str(folder / "adk")]),
    }


def _built(project: Path, arguments: list[str]) -> Path:
    say(f"building the program of {project} ...")
    built = subprocess.run(
        ["cargo", "build", "--locked", "--message-format", "json", *arguments],
        cwd=project,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    found = [message["executable"] for message in messages if message.get("executable")]
    return Path(found[-1])


def variables() -> dict[str, str]:
    """Returns the environment variables of measured processes, which disable telemetry."""
    off = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
        "ENABLE_INSTRUMENTATION": "false",
        "AGENT_FRAMEWORK_USER_AGENT_DISABLED": "true",
    }
    return {**os.environ, **off}


def on_disk(folder: Path) -> bool:
    """Returns whether a folder is on a disk and not in memory."""
    best, kind = "", ""
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, mount, type_, *_ = line.split(" ")
        inside = folder.resolve().is_relative_to(mount)
        if inside and len(mount) >= len(best):
            best, kind = mount, type_
    return kind not in {"tmpfs", "ramfs"}


def say(text: str) -> None:
    """Prints progress to standard error."""
    print(text, file=sys.stderr, flush=True)
