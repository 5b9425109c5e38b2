"""Just enough C++ to count the lines of functions. No compiler, no false precision.

`blank` replaces what is not code by spaces, so offsets and line numbers stay true;
`functions` finds the bodies at namespace and class level.
"""

import dataclasses
import re

_TOKEN = re.compile(
    r"""
    (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
  | (?P<raw>R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)")
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<char>(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+')
  | (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_CONTROL = re.compile(r"^(if|for|while|switch|catch|do|else|try|return|case|default)\b")
_TYPE = re.compile(r"\b(class|struct|union|enum)\b(?![^<]*>\s*\w)")
_CONSTRUCTOR_LIST = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:)")
_ACCESS = re.compile(r"\b(public|private|protected)\s*:\Z")
_ATTRIBUTE = re.compile(r"\[\[[^\]]*\]\]")


@dataclasses.dataclass(frozen=True)
class Function:
    """One function definition: its name, first line, number of lines, and whether a kernel."""

    name: str
    line: int
    lines: int
    is_kernel: bool
    parameters: int


def _spaces(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def blank(text, keep_strings=False):
    """`text` with comments, literals and preprocessor lines replaced by spaces."""

    def replace(match):
        if keep_strings and (match.group("string") or match.group("raw")):
            return match.group(0)
        return _spaces(match)

    return _TOKEN.sub(replace, text)


def _matching(code, start, opening, closing):
    """Offset of the bracket that closes the one at `start`; the end of the text if none does."""
    depth = 0
    for offset in range(start, len(code)):
        if code[offset] == opening:
            depth += 1
        elif code[offset] == closing:
            depth -= 1
            if depth == 0:
                return offset
    return len(code) - 1


def _drop_template_prefix(header):
    """`header` without leading `template <...>`."""
    header = header.strip()
    while header.startswith("template"):
        start = header.find("<")
        if start < 0:
            return header
        header = header[_matching(header, start, "<", ">") + 1 :].strip()
    return header


def _is_function(header):
    header = _ATTRIBUTE.sub("", _drop_template_prefix(header)).strip()
    parenthesis = header.find("(")
    if parenthesis <= 0 or _CONTROL.match(header):
        return False
    before = header[:parenthesis]
    if _TYPE.search(before) and not re.search(r"[\w>&*]\s+[\w:~]+\s*$", before):
        return False
    return "=" not in re.sub(r"\boperator\s*\S+\s*$", "", before)


def _name(header):
    header = _ATTRIBUTE.sub("", _drop_template_prefix(header))
    header = re.sub(r"__launch_bounds__\s*\([^)]*\)", "", header)
    if match := re.search(r"(operator\s*[^\s(]+|operator\s*\(\s*\)|[\w:~]+)\s*\(", header):
        return match.group(1)
    return "?"


def _parameters(header):
    """How many parameters the first parenthesis of the declaration holds."""
    header = re.sub(r"__launch_bounds__\s*\([^)]*\)", "", _drop_template_prefix(header))
    start = header.find("(")
    inside = header[start + 1 : _matching(header, start, "(", ")")]
    if not inside.strip() or inside.strip() == "void":
        return 0
    depth, count = 0, 1
    for character in inside.replace("->", "  "):
        depth += (character in "(<[{") - (character in ")>]}")
        count += character == "," and depth == 0
    return count


class _Scanner:
    """Walks the braces of one file."""

    def __init__(self, code):
        self.code = code
        self.found = []

    def scan(self, start, end):
        """Collects the functions between two offsets, both at namespace or class level."""
        header_start = offset = start
        while offset < end:
            character = self.code[offset]
            if character == "(":
                offset = _matching(self.code, offset, "(", ")")
            elif character in ";}" or (character == ":" and self._ends_access(header_start, offset)):
                header_start = offset + 1
            elif character == "{":
                offset, header_start = self._brace(header_start, offset)
            offset += 1

    def _ends_access(self, start, offset):
        return bool(_ACCESS.search(self.code, start, offset + 1))

    def _brace(self, header_start, offset):
        """Handles the `{` at `offset`: returns where to go on, and where the next header starts."""
        header = self.code[header_start:offset]
        close = _matching(self.code, offset, "{", "}")
        stripped = header.strip()
        if _is_function(header):
            if _CONSTRUCTOR_LIST.search(header) and re.search(r"[\w>]$", stripped):
                if not re.search(r"\b(const|noexcept|override|final|try)$", stripped):
                    return close, header_start  # a member's initialiser, not yet the body
            self._add(header, header_start, offset, close)
        elif not stripped.endswith(("=", ",", "(", "return")):
            self.scan(offset + 1, close)
        return close, close + 1

    def _add(self, header, header_start, offset, close):
        leading = len(self.code[header_start:offset]) - len(self.code[header_start:offset].lstrip())
        first = self.code.count("\n", 0, header_start + leading) + 1
        last = self.code.count("\n", 0, close) + 1
        self.found.append(
            Function(
                name=_name(header),
                line=first,
                lines=last - first + 1,
                is_kernel="__global__" in header,
                parameters=_parameters(header),
            )
        )


def functions(text):
    """The functions defined in a C++ or CUDA file, in order. Lambdas belong to their function."""
    code = blank(text)
    scanner = _Scanner(code)
    scanner.scan(0, len(code))
    return scanner.found
