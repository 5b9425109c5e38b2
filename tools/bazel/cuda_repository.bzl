"""@cuda: the toolkit of this machine (CUDA_HOME, else /usr/local/cuda), or empty targets.

Targets: cuda (runtime), cupti (the profiling interface; empty where the toolkit has it not).
defs.bzl: HAVE_CUDA, NVCC (its path, or ""), HAVE_NCCL, HAVE_CUPTI: whether the toolkit's folder
also has NCCL's header, which is a package of its own, and CUPTI.
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

_CUPTI = """
cc_library(
    name = "cupti",
    linkopts = {linkopts},
    deps = [":cuda"],
)
"""

def _toolkit(ctx):
    """Folder of the CUDA toolkit, or None."""
    for folder in [ctx.os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]:
        if folder and ctx.path(folder + "/bin/nvcc").exists:
            return folder
    return None

def _has(ctx, toolkit, *files):
    """Whether all lie in the toolkit's folder; toolkit may be None."""
    return bool(toolkit) and all([ctx.path(toolkit + name).exists for name in files])

def _cuda_repository_impl(ctx):
    toolkit = _toolkit(ctx)
    lib = ""
    if toolkit:
        lib = toolkit + "/lib64"
        ctx.symlink(toolkit + "/include", "include")
    text = _FOUND.format(lib = lib) if toolkit else _EMPTY
    has_cupti = _has(ctx, toolkit, "/include/cupti.h", "/lib64/libcupti.so")
    linkopts = ["-L" + lib, "-Wl,-rpath," + lib, "-lcupti"] if has_cupti else []
    text += _CUPTI.format(linkopts = repr(linkopts))
    defs = "HAVE_CUDA = %r\n" % bool(toolkit)
    defs += "NVCC = %r\n" % (toolkit + "/bin/nvcc" if toolkit else "")
    defs += "HAVE_CUPTI = %r\n" % has_cupti
    defs += "HAVE_NCCL = %r\n" % _has(ctx, toolkit, "/include/nccl.h")
    ctx.file("BUILD", text)
    ctx.file("defs.bzl", defs)

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = ["CUDA_HOME"],
    local = True,
    doc = "Finds the CUDA toolkit.",
)
