#!/usr/bin/env -S python3 -B
"""Tests of the C++ reader, on small sources with known answers."""

import unittest

import cpp


def found(text):
    return [(function.name, function.line, function.lines) for function in cpp.functions(text)]


class BlankTest(unittest.TestCase):
    def test_keeps_offsets_and_lines(self):
        text = 'int a; // exit(1)\n/* {\n */ auto s = "}{"; char c = \'{\';\n'
        blank = cpp.blank(text)
        self.assertEqual(len(blank), len(text))
        self.assertEqual(blank.count("\n"), text.count("\n"))
        for hidden in ("exit", "{", "}"):
            self.assertNotIn(hidden, blank)
        self.assertIn("auto s =", blank)

    def test_raw_strings_macros_and_digit_separators(self):
        text = 'auto r = R"x({ ")" )x";\n#define F(a) { \\\n  a\nint n = 1\'000\'000; int m{2};\n'
        blank = cpp.blank(text)
        self.assertEqual(blank.count("{"), 1)
        self.assertIn("1'000'000", blank)


class FunctionsTest(unittest.TestCase):
    def test_free_function_in_namespace(self):
        self.assertEqual(found("namespace a::b {\nint F(int x) {\n  return x;\n}\n}\n"), [("F", 2, 3)])

    def test_control_flow_and_lambdas_belong_to_the_function(self):
        text = "void F() {\n  if (x) {\n    y([&] { z(); });\n  } else {\n  }\n}\n"
        self.assertEqual(found(text), [("F", 1, 6)])

    def test_members_of_a_class(self):
        text = (
            "class A final : public B {\n public:\n  A() : x_(1), y_{2} {\n    Go();\n  }\n"
            "  int x() const { return x_; }\n private:\n  int x_ = 0;\n  int y_{0};\n};\n"
        )
        self.assertEqual(found(text), [("A", 3, 3), ("x", 6, 1)])

    def test_declarations_and_initialisers_are_no_functions(self):
        text = "int F(int);\nint a[] = {1, 2};\nstruct P { int x; };\nenum class E { kA };\nauto l = [](int x) { return x; };\n"
        self.assertEqual(found(text), [])

    def test_template_and_struct_return_type(self):
        text = "template <typename T, int kN>\nstruct Pair Make(T t) {\n  return {t};\n}\n"
        self.assertEqual(found(text), [("Make", 1, 4)])

    def test_multi_line_signature_counts(self):
        self.assertEqual(found("int F(int a,\n      int b)\n{\n}\n"), [("F", 1, 4)])

    def test_operators(self):
        text = "bool operator==(A a, A b) { return true; }\nA& A::operator=(const A& a) {\n}\n"
        self.assertEqual([function[1:] for function in found(text)], [(1, 1), (2, 2)])

    def test_kernels(self):
        text = "__global__ void __launch_bounds__(128) K(Args args) {\n}\nint Host() { return 1; }\n"
        kernel, host = cpp.functions(text)
        self.assertEqual((kernel.name, kernel.is_kernel, kernel.parameters), ("K", True, 1))
        self.assertFalse(host.is_kernel)

    def test_parameters(self):
        text = "void F(std::map<int, int> m, std::function<void(int, int)> f, int a = G(1, 2)) {}\nvoid H() {}\n"
        self.assertEqual([function.parameters for function in cpp.functions(text)], [3, 0])


if __name__ == "__main__":
    unittest.main()
