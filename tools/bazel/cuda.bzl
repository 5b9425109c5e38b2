"""cuda_library: .cu files, one nvcc action each, as a cc_library.

    cuda_library(
        name = "rms_norm_kernel",
        srcs = ["rms_norm_kernel.cu"],
        hdrs = ["rms_norm_kernel.h"],
        deps = ["//kernels/tile"],
    )

A .cu file sees the headers of its target and of deps, CUDA and the C++ library; keep
Abseil out of it (nvcc warns about valid Abseil code). Targets come from --//:cuda_archs.
With --//:cuda=false the library has its headers and no objects.
"""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@cuda//:defs.bzl", "NVCC")
load("@rules_cc//cc:defs.bzl", "cc_library")

def _nvcc_flags(archs, opt):
    flags = ["-std=c++20", "-ccbin=g++", "-Xcompiler=-fPIC,-Wall,-Wextra,-Wno-unused-parameter"]
    flags += ["-Werror=all-warnings", "--expt-relaxed-constexpr", "-lineinfo"]
    flags += ["-O3", "-DNDEBUG"] if opt else ["-O2"]
    for arch in archs:
        flags += ["-gencode", "arch=compute_{0},code=sm_{0}".format(arch)]
    return flags

def _nvcc_object_impl(ctx):
    if not NVCC:
        fail("{}: --//:cuda is on, but there is no nvcc: set CUDA_HOME, or build with --//:cuda=false".format(ctx.label))
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    out = ctx.actions.declare_file(ctx.label.name + ".pic.o")
    args = ctx.actions.args()
    args.add_all(_nvcc_flags(
        ctx.attr.archs or ctx.attr._archs[BuildSettingInfo].value,
        ctx.var["COMPILATION_MODE"] == "opt",
    ))
    args.add_all(ctx.attr.copts)
    args.add_all(["-I.", "-I" + ctx.genfiles_dir.path])
    args.add_all(["-c", ctx.file.src, "-o", out])
    # nvcc names its temporary files by its process id, which is the same in every sandbox, and Bazel
    # makes TMPDIR /tmp, which two builds share: one took the other's files away.
    ctx.actions.run_shell(
        command = 'TMPDIR="$PWD" exec "$@"',
        arguments = [NVCC, args],
        inputs = depset([ctx.file.src] + ctx.files.hdrs, transitive = [context.headers]),
        outputs = [out],
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        mnemonic = "Nvcc",
        progress_message = "Compiling device code of " + ctx.file.src.short_path,
    )
    return [DefaultInfo(files = depset([out]))]

_nvcc_object = rule(
    implementation = _nvcc_object_impl,
    attrs = {
        "archs": attr.string_list(),
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = True),
        "src": attr.label(allow_single_file = [".cu"], mandatory = True),
        "_archs": attr.label(default = "//:cuda_archs"),
    },
)

def _nvcc_objects(name, srcs, **kwargs):
    """Labels of the .cu files' objects where CUDA is on, nothing elsewhere."""
    objects = []
    for src in srcs:
        object_name = "{}_{}".format(name, src[:-len(".cu")].replace("/", "_"))
        objects.append(":" + object_name)
        _nvcc_object(
            name = object_name,
            src = src,
            # Not part of //...: with CUDA off there is nothing to build it with.
            tags = ["manual"],
            visibility = ["//visibility:private"],
            **kwargs
        )
    return select({
        "//:cuda_on": objects,
        "//conditions:default": [],
    })

def cuda_library(name, srcs, hdrs = [], deps = [], copts = [], **kwargs):
    """A cc_library of device code.

    Args:
      name: of the library.
      srcs: .cu files; each is one action, so small files rebuild quickly.
      hdrs: headers that callers and the .cu files include.
      deps: libraries whose headers the .cu files include.
      copts: further nvcc flags, for the .cu files only.
      **kwargs: passed on to cc_library.
    """
    cc_library(
        name = name,
        srcs = _nvcc_objects(name, srcs, hdrs = hdrs, copts = copts, deps = deps),
        hdrs = hdrs,
        deps = deps + ["@cuda//:cuda"],
        **kwargs
    )

def cuda_compiles(name, archs, srcs, deps, hdrs = []):
    """Compiles .cu files for targets that the default build leaves out, and uses nothing of it.

    Args:
      name: of the group of objects, part of //... where CUDA is on.
      archs: as --//:cuda_archs.
      srcs: .cu files.
      deps: libraries whose headers they include.
      hdrs: other headers that they include.
    """
    native.filegroup(
        name = name,
        srcs = _nvcc_objects(name, srcs, archs = archs, hdrs = hdrs, deps = deps),
        visibility = ["//visibility:private"],
    )
