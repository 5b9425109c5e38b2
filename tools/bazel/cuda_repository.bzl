"""@cuda: the toolkit of this machine (CUDA_HOME, else /usr/local/cuda), or empty targets.

Targets: cuda (runtime), nccl, cupti. defs.bzl: HAVE_CUDA, NVCC (its path, or ""), HAVE_NCCL,
HAVE_CUPTI: whether the toolkit's folder also has NCCL, which is a package of its own, and the
profiling interface; their targets are empty where it has not.
"""

_FOUND = """
load("@rules_cc//cc:defs.bzl", "cc_library")
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "cuda",
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/crt/**",
        "include/nccl_device/**",
    ], allow_empty = True),
    includes = ["include"],
    linkopts = ["-L{lib}", "-lcudart_static", "-ldl", "-lrt", "-lpthread"],
)
"""

_EMPTY = """
load("@rules_cc//cc:defs.bzl", "cc_library")
package(default_visibility = ["//visibility:public"])

cc_library(name = "cuda")
"""

_LIBRARY = """
cc_library(
    name = "{name}",
    linkopts = {linkopts},
    deps = [":cuda"],
)
"""

# Header of each.
_LIBRARIES = {
    "cupti": "cupti.h",
    "nccl": "nccl.h",
}

def _toolkit(ctx):
    """Folder of the CUDA toolkit, or None."""
    for folder in [ctx.os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]:
        if folder and ctx.path(folder + "/bin/nvcc").exists:
            return folder
    return None

def _has(ctx, toolkit, library):
    """Whether header and library lie in the toolkit's folder; toolkit may be None."""
    return bool(toolkit) and all([
        ctx.path(toolkit + name).exists
        for name in ["/include/" + _LIBRARIES[library], "/lib64/lib%s.so" % library]
    ])

def _cuda_repository_impl(ctx):
    toolkit = _toolkit(ctx)
    lib = ""
    if toolkit:
        lib = toolkit + "/lib64"
        ctx.symlink(toolkit + "/include", "include")
    text = _FOUND.format(lib = lib) if toolkit else _EMPTY
    defs = "HAVE_CUDA = %r\n" % bool(toolkit)
    defs += "NVCC = %r\n" % (toolkit + "/bin/nvcc" if toolkit else "")
    for library in _LIBRARIES:
        found = _has(ctx, toolkit, library)
        linkopts = ["-L" + lib, "-Wl,-rpath," + lib, "-l" + library] if found else []
        text += _LIBRARY.format(name = library, linkopts = repr(linkopts))
        defs += "HAVE_%s = %r\n" % (library.upper(), found)
    ctx.file("BUILD", text)
    ctx.file("defs.bzl", defs)

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = ["CUDA_HOME"],
    local = True,
    doc = "Finds the CUDA toolkit.",
)
