"""The operator's core under the compiler's sanitizers, in a program of its own: driver.cc."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import children
import pytest
from packing import ISA, runnable_sets

from paddle_nezha.operator import building

DRIVER = Path(__file__).with_name("driver.cc")
# As strict as the library itself is written; vectors as arguments are its own affair, all within one file.
FLAGS = ["-std=c++14", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-g", "-pthread", f"-I{building.SOURCES}"]

needs_compiler = pytest.mark.skipif(building.compiler() is None, reason="needs a C++ compiler")


def program(folder, *flags):
    """The driver with the core, every file of it but the one that knows Paddle."""
    sources = [path for path in sorted(building.SOURCES.glob("*.cc")) if path.name != "paddle_op.cc"] + [DRIVER]

    def compiled(source):
        target = folder / f"{source.stem}.o"
        done = subprocess.run([building.compiler(), *FLAGS, *flags, "-c", source, "-o", target],
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    target = folder / "driver"
    subprocess.run([building.compiler(), *FLAGS, *flags, *objects, "-o", target], check=True)
    return target


def report(command, name, **changes):
    done = subprocess.run(list(map(str, command)), env=children.environment({ISA: name, **changes}),
                          capture_output=True, text=True, errors="replace", timeout=1200)  # fmt: skip
    assert done.returncode == 0, f"{name} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[:4000]}"
    assert ", 0 wrong" in done.stdout and not done.stderr
    return done.stdout


@pytest.mark.slow
@needs_compiler
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_no_sanitizer_reports_anything(sanitizers, tmp_path):
    driver = program(tmp_path, "-O1", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")
    for name in runnable_sets():
        report([driver, 60], name)


@needs_compiler
@pytest.mark.timeout(1500)
def test_many_calls_as_the_library_is_compiled(tmp_path):
    driver = program(tmp_path, *building._FLAGS)
    for name in runnable_sets():
        report([driver, 300], name)
