"""Folders that appear whole or not at all, JSON files in them, and their check."""

import contextlib
import json
import os
import pathlib
import shutil
import sys
import tempfile

from hf_convert import safetensors_file
from hf_convert.errors import ConvertError


def progress(text):
    """Prints a line for the user. Standard output is kept for results."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def atomic_folder(target):
    """Yields a temporary folder beside `target`, which takes its name when the block succeeds."""
    target = pathlib.Path(target).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        os.chmod(temporary, 0o755)
        yield temporary
        try:
            os.rename(temporary, target)
        except OSError as error:
            raise ConvertError(
                f"{target}: cannot put the finished folder there: {error.strerror}; "
                "remove what is in its place"
            ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path, content):
    """Writes `content` as readable JSON."""
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def verify(folder, expected_path):
    """Compares every tensor of `folder` with {name: [shape, SHA-256]} in a JSON file."""
    with open(expected_path, encoding="utf-8") as file:
        expected = json.load(file)
    found = safetensors_file.hashes(pathlib.Path(folder) / "model.safetensors")
    for name in sorted(set(expected) ^ set(found)):
        state = "is missing" if name in expected else "is not expected"
        raise ConvertError(f"{folder}: tensor '{name}' {state}")
    for name, (shape, digest) in expected.items():
        if found[name] != (shape, digest):
            raise ConvertError(
                f"{folder}: tensor '{name}' is {found[name][0]} {found[name][1]}, "
                f"want {shape} {digest}"
            )
    progress(f"{len(expected)} tensors equal {expected_path}")
