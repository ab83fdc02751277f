"""The code that .ci/checks and .ci/release share: it runs steps, installs programs from PyPI, and prints a summary.

A step is a function that raises `Failed` or `Skipped` if it does not succeed. The programs in .ci/tools.txt are
installed from PyPI into the target folder. With TOWER_CHAT_CI=1, a step fails if its program cannot be installed.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
TOOLS = TARGET / "ci-tools"
IS_CI = os.environ.get("TOWER_CHAT_CI") == "1"


class Failed(Exception):
    """A step failed."""


class Skipped(Exception):
    """A step could not run."""


def run(*command, cwd=ROOT, **environment):
    """Runs a program, with its output on the terminal."""
    print("$", *command, flush=True)
    if subprocess.run(command, cwd=cwd, env=os.environ | environment).returncode != 0:
        raise Failed(f"`{' '.join(map(str, command[:3]))}` failed, see above")


def output(*command, cwd=ROOT, errors=subprocess.PIPE, **environment):
    """Returns the output of a program, and raises Failed if it fails.

    With `errors=subprocess.STDOUT`, the output includes errors and warnings.
    """
    done = subprocess.run(command, cwd=cwd, env=os.environ | environment, stdout=subprocess.PIPE, stderr=errors,
                          text=True)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command[:3])}` failed:\n{(done.stderr or done.stdout).strip()}")
    return done.stdout


def tool(name):
    """Returns the path of a program, in the version of .ci/tools.txt, or from `PATH` if it cannot be installed."""
    wanted = (ROOT / ".ci/tools.txt").read_text()
    mark = TOOLS / "installed.txt"
    if not mark.exists() or mark.read_text() != wanted:
        try:
            output(sys.executable, "-m", "venv", "--clear", str(TOOLS))
            pip = [str(TOOLS / "bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
            output(*pip, "--requirement", ".ci/tools.txt")
        except Failed as error:
            if found := shutil.which(name):
                return found
            raise (Failed if IS_CI else Skipped)(f"{name} cannot be installed: {error}") from None
        mark.write_text(wanted)
    return str(TOOLS / "bin" / name)


def metadata(*flags):
    return json.loads(output("cargo", "metadata", "--locked", "--format-version", "1", *flags))


def published():
    """Returns the packages that are published, as `cargo metadata` describes them."""
    return [package for package in metadata("--no-deps")["packages"] if package["publish"] != []]


def package_flags():
    """Returns the arguments of a cargo command that select the published packages."""
    return [flag for package in published() for flag in ("--package", package["name"])]


def processor_time():
    """Returns the processor time of all finished child processes so far, in seconds."""
    times = os.times()
    return times.children_user + times.children_system


def outcome(step):
    """Runs a step. Returns whether it succeeded or was skipped, and its text for the summary."""
    print(f"\n== {step.__name__}: {step.__doc__.splitlines()[0]}", flush=True)
    try:
        step()
    except Failed as error:
        return False, f"FAILED: {error}"
    except Skipped as reason:
        return True, f"skipped: {reason}"
    return True, "ok"


def run_steps(steps):
    """Runs all steps, even if a step fails, prints a summary, and ends the process."""
    summary, is_good = [], True
    for step in steps:
        begun, processor_before = time.monotonic(), processor_time()
        succeeded, text = outcome(step)
        is_good &= succeeded
        elapsed, processor = time.monotonic() - begun, processor_time() - processor_before
        summary.append(f"{step.__name__:22} {elapsed:5.0f} s, processor {processor:5.0f} s  {text}")
    print("\n" + "\n".join(summary))
    sys.exit(not is_good)


def named(steps, names):
    """Returns the steps with these names, or all steps if there are no names."""
    known = {step.__name__: step for step in steps}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no such step: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] or steps
