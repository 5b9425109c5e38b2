"""@cuda: the toolkit of this machine (CUDA_HOME, else /usr/local/cuda), or empty targets.

Targets: cuda (runtime), cublas, cublaslt, nccl. defs.bzl: HAVE_CUDA, NVCC (its path, or ""),
HAVE_NCCL: whether the toolkit's folder also has NCCL, which is a package of its own; the target
nccl is empty where it has not.
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

_LIBRARIES = {
    "cublas": "cublas",
    "cublaslt": "cublasLt",
    "nccl": "nccl",
}

def _toolkit(ctx):
    """Folder of the CUDA toolkit, or None."""
    for folder in [ctx.os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]:
        if folder and ctx.path(folder + "/bin/nvcc").exists:
            return folder
    return None

def _has_nccl(ctx, toolkit):
    """Whether header and library lie in the toolkit's folder; toolkit may be None."""
    return toolkit and all([
        ctx.path(toolkit + name).exists
        for name in ["/include/nccl.h", "/lib64/libnccl.so"]
    ])

def _cuda_repository_impl(ctx):
    toolkit = _toolkit(ctx)
    lib = ""
    if toolkit:
        lib = toolkit + "/lib64"
        ctx.symlink(toolkit + "/include", "include")
    has_nccl = bool(_has_nccl(ctx, toolkit))
    text = _FOUND.format(lib = lib) if toolkit else _EMPTY
    for name, library in _LIBRARIES.items():
        found = has_nccl if name == "nccl" else toolkit
        linkopts = ["-L" + lib, "-Wl,-rpath," + lib, "-l" + library] if found else []
        text += _LIBRARY.format(name = name, linkopts = repr(linkopts))
    ctx.file("BUILD", text)
    ctx.file("defs.bzl", "HAVE_CUDA = {}\nHAVE_NCCL = {}\nNVCC = {}\n".format(
        bool(toolkit),
        has_nccl,
        repr(toolkit + "/bin/nvcc" if toolkit else ""),
    ))

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = ["CUDA_HOME"],
    local = True,
    doc = "Finds the CUDA toolkit.",
)
