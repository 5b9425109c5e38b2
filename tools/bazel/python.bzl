"""python_test: a Python program as a test.

Debian has no program called `python`, which py_test of this Bazel starts, so the test is an
executable file that begins with `#!/usr/bin/env -S python3 -B`.
"""

def python_test(name, src, data = [], **kwargs):
    """A test that runs `src`.

    Args:
      name: of the test.
      src: an executable Python file. It imports modules of its own folder, named in data.
      data: modules and other files that it needs.
      **kwargs: size, tags and the like, passed on to sh_test.
    """
    native.sh_test(
        name = name,
        srcs = [src],
        data = data,
        **kwargs
    )
