"""The rules. Each check takes a Tree and yields Findings."""

import ast
import dataclasses
import pathlib
import re
import shutil
import subprocess

import cpp

MAX_FILE_LINES = 500
HARD_FILE_LINES = 800
MAX_FUNCTION_LINES = 60
MAX_KERNEL_LINES = 150
MAX_PARAMETERS = 5

CPP = (".cc", ".h", ".cu", ".cuh")
CODE = CPP + (".py", ".proto", ".bzl", ".sh")
LAYERS = {
    "kernels": "//:above_kernels",
    "engine": "//:above_engine",
    "distributed": "//:above_distributed",
    "proto": "//:above_distributed",
    "tools": "//:above_tools",
    "tests": "//visibility:private",
}
TOP_LEVEL = {"WORKSPACE", "BUILD", "README.md", "LICENSE"} | set(LAYERS)
# Repositories of their own, which the build names by path.
NESTED_REPOSITORIES = ("tools/bazel/rules_cc", "tools/bazel/remote_coverage_tools")
# Where a failed CHECK says its last words and ends the process.
MAY_ABORT = ("kernels/core/check.cc", "kernels/core/check.h")
CLANG_FORMAT = "clang-format-14"

_ERROR = "error"
_WARNING = "warning"


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """What is wrong, where. Warnings do not fail the run."""

    path: str
    line: int
    severity: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.severity}: {self.message}"


class Tree:
    """The source files under a root, as sorted relative paths."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.paths = sorted(self._walk(self.root))
        self.folders = {str(pathlib.PurePosixPath(path).parent) for path in self.paths}

    def _walk(self, folder):
        for entry in sorted(folder.iterdir()):
            if entry.is_symlink() or entry.name == "__pycache__":
                continue
            if entry.is_dir():
                # Dot folders at the top (.git, .ci) are no source folders.
                if folder == self.root and (entry.name.startswith((".", "bazel-")) or entry.name == "bundle"):
                    continue
                yield from self._walk(entry)
            else:
                yield entry.relative_to(self.root).as_posix()

    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def with_suffix(self, suffixes):
        return [path for path in self.paths if path.endswith(suffixes)]


def is_test(path):
    """Tests, benchmarks and what only they use."""
    name = path.rsplit("/", 1)[-1]
    return path.startswith("tests/") or "/testing/" in path or bool(
        re.search(r"_(test|bench)\.\w+$", name)
    )


def check_top_level(tree):
    for path in tree.paths:
        top = path.split("/")[0]
        if top not in TOP_LEVEL and not top.startswith("."):
            yield Finding(path, 1, _ERROR, f"'{top}' does not belong at the top level")


def check_file_sizes(tree):
    for path in tree.with_suffix(CODE):
        lines = tree.text(path).count("\n")
        if lines > HARD_FILE_LINES:
            yield Finding(path, 1, _ERROR, f"{lines} lines; no file has more than {HARD_FILE_LINES}")
        elif lines > MAX_FILE_LINES:
            yield Finding(path, 1, _WARNING, f"{lines} lines; aim at {MAX_FILE_LINES} or fewer")


def check_cpp_functions(tree):
    for path in tree.with_suffix(CPP):
        for function in cpp.functions(tree.text(path)):
            limit = MAX_KERNEL_LINES if function.is_kernel else MAX_FUNCTION_LINES
            if function.lines > limit:
                kind = "kernel" if function.is_kernel else "function"
                message = f"{kind} {function.name} has {function.lines} lines, more than {limit}"
                yield Finding(path, function.line, _ERROR, message)
            if function.parameters > MAX_PARAMETERS:
                message = (
                    f"{function.name} takes {function.parameters} parameters; "
                    f"more than {MAX_PARAMETERS} belong in a struct"
                )
                yield Finding(path, function.line, _WARNING, message)


def check_python_functions(tree):
    for path in tree.with_suffix((".py",)):
        try:
            module = ast.parse(tree.text(path))
        except SyntaxError as error:
            yield Finding(path, error.lineno or 1, _ERROR, f"does not parse: {error.msg}")
            continue
        for node in ast.walk(module):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = node.end_lineno - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    message = f"function {node.name} has {lines} lines, more than {MAX_FUNCTION_LINES}"
                    yield Finding(path, node.lineno, _ERROR, message)


_FORBIDDEN = (
    (
        re.compile(r"(?<![\w.>])(?:std::|::)?(secure_getenv|getenv|setenv|putenv)\s*\("),
        "settings come in as arguments; only tools/ reads the environment",
    ),
    (
        re.compile(r"(?<![\w.>])(?:std::|::)?(quick_exit|_Exit|_exit|exit|abort)\s*\("),
        "return a Status; nothing below main ends the process",
    ),
    (
        re.compile(r"(?<![\w.>])(?:std::|::)?(vfprintf|fprintf|vprintf|printf|fputs|puts|putchar)\s*\("),
        "return or log through the caller; only tools/ prints",
    ),
    (
        re.compile(r"\bstd::(cout|cerr|clog)\b"),
        "return or log through the caller; only tools/ prints",
    ),
    (
        re.compile(r"\b((?:Get)?(?:Instance|Singleton))\s*\(\s*\)"),
        "no singletons: pass the object to who needs it",
    ),
)


# Programs, and the tables of the benchmarks.
MAY_PRINT = ("tools/", "kernels/bench/")


def check_forbidden_calls(tree):
    for path in tree.with_suffix(CPP):
        if path.startswith(MAY_PRINT) or is_test(path) or path in MAY_ABORT:
            continue
        for number, line in enumerate(cpp.blank(tree.text(path)).splitlines(), 1):
            for pattern, advice in _FORBIDDEN:
                for match in pattern.finditer(line):
                    yield Finding(path, number, _ERROR, f"'{match.group(1)}': {advice}")


def check_readmes(tree):
    for folder in sorted({path.rsplit("/", 1)[0] for path in tree.with_suffix(CODE) if "/" in path}):
        if folder.startswith(NESTED_REPOSITORIES):
            continue
        if f"{folder}/README.md" not in tree.paths:
            yield Finding(f"{folder}/README.md", 1, _ERROR, "missing; a folder with code says what it is")


def check_ops(tree):
    """Each op folder has its test, and shapes shared by test and benchmark when it has both."""
    for path in tree.paths:
        if not re.fullmatch(r"kernels/\w+/BUILD", path) or "op_library(" not in tree.text(path):
            continue
        folder = path.rsplit("/", 1)[0]
        name = folder.rsplit("/", 1)[-1]
        for wanted in (f"{name}.h", f"{name}_test.cc"):
            if f"{folder}/{wanted}" not in tree.paths:
                yield Finding(path, 1, _ERROR, f"the op has no {wanted}")


def check_build_files(tree):
    for path in tree.paths:
        top = path.split("/")[0]
        if not path.endswith("/BUILD") or top not in LAYERS or path.startswith(NESTED_REPOSITORIES):
            continue
        wanted = f'default_visibility = ["{LAYERS[top]}"]'
        first_call = tree.text(path).split(")")[0]
        if not first_call.startswith("package(") or wanted not in first_call:
            yield Finding(path, 1, _ERROR, f"does not begin with package({wanted})")


def _path_exists(tree, folder, name):
    """Whether `name`, as written in the README of `folder`, is a file or folder of the tree."""
    if name.startswith("//"):
        package = name[2:].split(":")[0].removesuffix("/...")
        return (tree.root / package).is_dir()
    return (tree.root / name).exists() or (tree.root / folder / name).exists()


def _looks_like_path(tree, folder, name):
    if re.search(r"[<>*{}$~|]|\.\.\.|\.pb\.", name.replace("/...", "")):
        return False
    if name.startswith("//"):
        return True
    first = name.split("/")[0]
    if "/" in name:
        return first in LAYERS or first in (".", "..", ".ci")
    return name.endswith(CPP + (".proto", ".bzl")) and not name.startswith((".", "_"))


def check_readme_paths(tree):
    for path in tree.with_suffix(("README.md",)):
        folder = path.rsplit("/", 1)[0] if "/" in path else "."
        fenced = False
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            if fenced:
                continue
            for quoted in re.findall(r"`([^`\s]+)[^`]*`", line):
                name = quoted.rstrip(".,:;").split("#")[0]
                if _looks_like_path(tree, folder, name) and not _path_exists(tree, folder, name):
                    yield Finding(path, number, _ERROR, f"`{name}` does not exist")


def check_format(tree):
    files = tree.with_suffix(CPP)
    if not files or not shutil.which(CLANG_FORMAT):
        return
    for start in range(0, len(files), 64):
        result = subprocess.run(
            [CLANG_FORMAT, "--dry-run", "--style=file", *files[start : start + 64]],
            cwd=tree.root,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        places = re.findall(r"^(\S+?):(\d+):\d+: (?:warning|error):", result.stderr, re.MULTILINE)
        for path, line in dict(reversed(places)).items():
            message = f"not formatted; run {CLANG_FORMAT} -i {path}"
            yield Finding(path, int(line), _ERROR, message)


def fix_format(root):
    """Formats every C++ and CUDA file in place."""
    files = Tree(root).with_suffix(CPP)
    if files:
        subprocess.run([CLANG_FORMAT, "-i", "--style=file", *files], cwd=root, check=True)


ALL_CHECKS = (
    check_top_level,
    check_file_sizes,
    check_cpp_functions,
    check_python_functions,
    check_forbidden_calls,
    check_readmes,
    check_ops,
    check_build_files,
    check_readme_paths,
    check_format,
)


def run(root):
    """All findings of the tree at `root`, sorted, each once."""
    tree = Tree(root)
    return sorted({finding for check in ALL_CHECKS for finding in check(tree)})
