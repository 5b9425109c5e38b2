"""@cuda: the toolkit of this machine (CUDA_HOME, else /usr/local/cuda), or empty targets.

Targets: cuda (runtime), cublas, cublaslt, nccl. defs.bzl: HAVE_CUDA, NVCC (its path, or "").
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

def _cuda_repository_impl(ctx):
    toolkit = _toolkit(ctx)
    lib = ""
    if toolkit:
        lib = toolkit + "/lib64"
        ctx.symlink(toolkit + "/include", "include")
    text = _FOUND.format(lib = lib) if toolkit else _EMPTY
    for name, library in _LIBRARIES.items():
        linkopts = ["-L" + lib, "-Wl,-rpath," + lib, "-l" + library] if toolkit else []
        text += _LIBRARY.format(name = name, linkopts = repr(linkopts))
    ctx.file("BUILD", text)
    ctx.file("defs.bzl", "HAVE_CUDA = {}\nNVCC = {}\n".format(
        bool(toolkit),
        repr(toolkit + "/bin/nvcc" if toolkit else ""),
    ))

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = ["CUDA_HOME"],
    local = True,
    doc = "Finds the CUDA toolkit.",
)
