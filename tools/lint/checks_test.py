#!/usr/bin/env -S python3 -B
"""Tests of the rules, each on a small tree that breaks it and one that does not."""

import pathlib
import shutil
import tempfile
import unittest

import checks


class ChecksTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root = pathlib.Path(self._folder.name)

    def write(self, path, text=""):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def findings(self, check):
        return [str(finding) for finding in check(checks.Tree(self.root))]

    def assert_one(self, check, *parts):
        findings = self.findings(check)
        self.assertEqual(len(findings), 1, findings)
        for part in parts:
            self.assertIn(part, findings[0])

    def assert_none(self, check):
        self.assertEqual(self.findings(check), [])

    def test_top_level(self):
        self.write("engine/a.cc")
        self.write(".gitignore")
        self.assert_none(checks.check_top_level)
        self.write("notes/a.md")
        self.assert_one(checks.check_top_level, "notes/a.md", "top level")

    def test_file_sizes(self):
        self.write("engine/a.cc", "\n" * 500)
        self.assert_none(checks.check_file_sizes)
        self.write("engine/a.cc", "\n" * 501)
        self.assert_one(checks.check_file_sizes, "warning", "501 lines")
        self.write("engine/a.cc", "\n" * 801)
        self.assert_one(checks.check_file_sizes, "error", "801 lines")

    def test_function_lines(self):
        self.write("engine/a.cc", "void F() {\n" + "\n" * 58 + "}\n")
        self.assert_none(checks.check_cpp_functions)
        self.write("engine/a.cc", "\nvoid F() {\n" + "\n" * 59 + "}\n")
        self.assert_one(checks.check_cpp_functions, "engine/a.cc:2: error", "F has 61 lines")

    def test_kernel_lines(self):
        self.write("kernels/a.cu", "__global__ void K(A a) {\n" + "\n" * 148 + "}\n")
        self.assert_none(checks.check_cpp_functions)
        self.write("kernels/a.cu", "__global__ void K(A a) {\n" + "\n" * 149 + "}\n")
        self.assert_one(checks.check_cpp_functions, "kernel K has 151 lines")

    def test_parameters(self):
        self.write("engine/a.h", "void F(int a, int b, int c, int d, int e) {}\n")
        self.assert_none(checks.check_cpp_functions)
        self.write("engine/a.h", "void F(int a, int b, int c, int d, int e, int f) {}\n")
        self.assert_one(checks.check_cpp_functions, "warning", "F takes 6 parameters")

    def test_python_functions(self):
        self.write("tools/a.py", "def f():\n" + "    x = 1\n" * 59)
        self.assert_none(checks.check_python_functions)
        self.write("tools/a.py", "def f():\n" + "    x = 1\n" * 60)
        self.assert_one(checks.check_python_functions, "f has 61 lines")
        self.write("tools/a.py", "def f(:\n")
        self.assert_one(checks.check_python_functions, "does not parse")

    def test_forbidden_calls(self):
        for call in ("std::getenv(x)", "exit(1)", "std::abort()", "printf(x)", "std::cout << 1", "A::Instance()"):
            self.write("engine/a.cc", f"void F() {{ {call}; }}\n")
            self.assert_one(checks.check_forbidden_calls, "engine/a.cc:1: error")
        for fine in ("// exit(1)", 'S("printf(")', "comm.abort()", "comm->exit(1)", "snprintf(a, 1, b)", "on_exit_(1)"):
            self.write("engine/a.cc", f"void F() {{ {fine};\n }}\n")
            self.assert_none(checks.check_forbidden_calls)

    def test_programs_tests_and_check_may_print(self):
        for path in ("tools/a.cc", "tests/x/a.cc", "engine/a_test.cc", "engine/testing/a.cc", "kernels/core/check.cc"):
            self.write(path, 'void F() { std::abort(); }\n')
        self.assert_none(checks.check_forbidden_calls)

    def test_readmes(self):
        self.write("engine/a/a.cc")
        self.assert_one(checks.check_readmes, "engine/a/README.md", "missing")
        self.write("engine/a/README.md")
        self.assert_none(checks.check_readmes)

    def test_ops(self):
        self.write("kernels/rope/BUILD", 'op_library(name = "rope")\n')
        self.write("kernels/rope/rope.h")
        self.assert_one(checks.check_ops, "no rope_test.cc")
        self.write("kernels/rope/rope_test.cc")
        self.assert_none(checks.check_ops)

    def test_build_files(self):
        self.write("engine/a/BUILD", 'package(default_visibility = ["//:above_engine"])\n')
        self.write("engine/b/BUILD", 'package(\n    default_visibility = ["//:above_engine"],\n)\n')
        self.assert_none(checks.check_build_files)
        self.write("engine/b/BUILD", 'package(default_visibility = ["//visibility:public"])\n')
        self.assert_one(checks.check_build_files, "engine/b/BUILD", "//:above_engine")

    def test_readme_paths(self):
        self.write("engine/a/a.h")
        self.write(
            "engine/README.md",
            "`engine/a/a.h` `a/a.h` `//engine/a:x` `//engine/...` `kernels/<op>` `config.json`\n"
            "`meta-llama/Llama` `worker.pb.h` `--flag engine/none`\n```\n`engine/none`\n```\n",
        )
        self.assert_none(checks.check_readme_paths)
        for name in ("engine/none.cc", "gone.h", "//engine/gone:x", "engine/a --flag` `engine/gone"):
            self.write("engine/README.md", f"\nsee `{name}`\n")
            self.assert_one(checks.check_readme_paths, "engine/README.md:2", "does not exist")

    @unittest.skipUnless(shutil.which(checks.CLANG_FORMAT), "needs clang-format")
    def test_format(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write("engine/a.cc", "int F() { return 1; }\n")
        self.assert_none(checks.check_format)
        self.write("engine/a.cc", "int G();\nint  F( ) { return 1; }\nint   g;\n")
        self.assert_one(checks.check_format, "engine/a.cc:2", "clang-format")
        checks.fix_format(self.root)
        self.assert_none(checks.check_format)

    def test_walks_past_bazel_links_and_dot_folders(self):
        self.write(".git/a.cc")
        self.write("bazel-bin/a.cc")
        self.write("engine/a.cc")
        self.assertEqual(checks.Tree(self.root).paths, ["engine/a.cc"])


if __name__ == "__main__":
    unittest.main()
