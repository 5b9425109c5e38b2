"""op_library: one folder, one op. The file names say what a file is.

    load("//tools/bazel:defs.bzl", "op_library")

    op_library(
        name = "linear",
        cpu_isa = {"linear_avx2.cc": ["-mavx2", "-mfma"]},
        cpu_deps = ["@system//:dnnl"],
    )

| file | part | compiled |
|---|---|---|
| NAME.h | the public header, the only one that users may include | |
| NAME.cc, NAME_*.cc | checks, the device table, the CPU row and whatever else the op needs | host compiler |
| files of cpu_isa | CPU code for one instruction set; call it only where the CPU has it | host compiler, extra flags |
| NAME_*.h | private headers, seen by the op's own files, test and bench | |
| NAME_cuda.cc, NAME_cuda_*.cc | the CUDA row | host compiler, CUDA on |
| NAME_kernel*.cu, NAME_kernel*.cuh, NAME_kernel*.h | device code; no Abseil | nvcc, CUDA on |
| NAME_cuda_stub.cc | instead of NAME_cuda.cc where CUDA is off | host compiler, CUDA off |
| NAME_test.cc | cc_test NAME_test | |
| NAME_bench.cc | cc_binary NAME_bench, with Google Benchmark | |

The device table in NAME.cc refers to one function per row, declared in a private header.
An op without CUDA files has no such row to link: its table holds nullptr there.
"""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")
load("//tools/bazel:cuda.bzl", "cuda_library")

_CORE = [
    "//kernels/core",
    "//kernels/core:check",
    "//kernels/core:dtype",
    "//kernels/core:status",
    "@system//:absl",
]

def _isa_libraries(name, cpu_isa, deps):
    labels = []
    for src, copts in cpu_isa.items():
        label = "{}_isa_{}".format(name, src[:-len(".cc")])
        labels.append(":" + label)
        cc_library(
            name = label,
            srcs = [src],
            copts = copts,
            visibility = ["//visibility:private"],
            deps = deps,
        )
    return labels

def _cuda_parts(name, deps, cuda_deps):
    """Sources and deps of the CUDA row, as selects."""
    cuda = native.glob(
        ["{}_cuda.cc".format(name), "{}_cuda_*.cc".format(name)],
        exclude = ["{}_cuda_stub.cc".format(name), "*_test.cc"],
        allow_empty = True,
    )
    kernels = native.glob(["{}_kernel*.cu".format(name)], allow_empty = True)
    stub = native.glob(["{}_cuda_stub.cc".format(name)], allow_empty = True)
    if not cuda:
        if kernels or stub:
            fail("{0}: {0}_kernel*.cu and {0}_cuda_stub.cc need {0}_cuda.cc beside them".format(name))
        return [], []
    if not stub:
        fail("{0}: {0}_cuda.cc needs {0}_cuda_stub.cc, its stand-in where CUDA is off".format(name))
    labels = ["@cuda//:cuda"] + cuda_deps
    if kernels:
        cuda_library(
            name = name + "_kernel",
            srcs = kernels,
            hdrs = native.glob(
                ["{}_kernel*.h".format(name), "{}_kernel*.cuh".format(name)],
                allow_empty = True,
            ),
            visibility = ["//visibility:private"],
            deps = deps,
        )
        labels.append(":{}_kernel".format(name))
    return (
        select({"//:cuda_on": cuda, "//conditions:default": stub}),
        select({"//:cuda_on": labels, "//conditions:default": []}),
    )

def op_library(
        name,
        deps = [],
        cpu_deps = [],
        cpu_isa = {},
        cuda_deps = [],
        kernel_deps = [],
        test_deps = [],
        test_size = "small",
        bench_deps = []):
    """The library, test and benchmark of the op in this folder.

    Args:
      name: the folder's name and the stem of every file.
      deps: further libraries of every host file; kernels/core and absl are always there.
      cpu_deps: further libraries of the host files, such as @system//:dnnl.
      cpu_isa: file name -> compiler flags, for files of one CPU instruction set.
      cuda_deps: libraries of NAME_cuda.cc, such as //kernels/cuda:cuda_status.
      kernel_deps: libraries of the .cu files, such as //kernels/tile.
      test_deps: further libraries of the test.
      test_size: small (60 s), medium (300 s) or large (900 s).
      bench_deps: further libraries of the benchmark.
    """
    host_deps = _CORE + deps + cpu_deps
    beside = ["{}_test.cc", "{}_bench.cc", "{}_cuda.cc", "{}_cuda_*.cc", "*_test.cc"]
    cases = native.glob(["{}_cases.h".format(name)], allow_empty = True)
    private = native.glob(
        ["{}_*.h".format(name)],
        exclude = cases + ["{}_kernel*.h".format(name)],
        allow_empty = True,
    )

    # The headers alone, so that the files of cpu_isa need not depend on the op they are part of.
    cc_library(
        name = name + "_headers",
        hdrs = ["{}.h".format(name)] + private,
        visibility = ["//visibility:private"],
        deps = host_deps,
    )
    isa = _isa_libraries(name, cpu_isa, [":{}_headers".format(name)])
    cuda_srcs, cuda_labels = _cuda_parts(name, kernel_deps, cuda_deps)
    cc_library(
        name = name,
        srcs = native.glob(
            ["{}.cc".format(name), "{}_*.cc".format(name)],
            exclude = [pattern.format(name) for pattern in beside] + cpu_isa.keys(),
        ) + cuda_srcs,
        hdrs = ["{}.h".format(name)],
        deps = [":{}_headers".format(name)] + isa + host_deps + cuda_labels,
    )
    if native.glob(["{}_test.cc".format(name)], allow_empty = True):
        cc_test(
            name = name + "_test",
            size = test_size,
            srcs = ["{}_test.cc".format(name)] + cases,
            deps = [":" + name] + host_deps + test_deps + ["@system//:gtest_main"],
        )
    if native.glob(["{}_bench.cc".format(name)], allow_empty = True):
        cc_binary(
            name = name + "_bench",
            srcs = ["{}_bench.cc".format(name)] + cases,
            deps = [":" + name] + host_deps + bench_deps + ["@system//:benchmark"],
        )
