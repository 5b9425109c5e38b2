"""cc_grpc_library: C++ messages and gRPC services of .proto files, by the system's protoc."""

load("@rules_cc//cc:defs.bzl", "cc_library")

_PROTOC = "/usr/bin/protoc"
_PLUGIN = "/usr/bin/grpc_cpp_plugin"

def cc_grpc_library(name, srcs, deps = [], services = True, **kwargs):
    """A cc_library of generated code.

    A .proto file is imported, and its headers are included, from the repository root:
    `import "proto/worker.proto"`, `#include "proto/worker.grpc.pb.h"`.

    Args:
      name: of the library. `NAME_protos` is the files, own and imported.
      srcs: .proto files of this package.
      deps: cc_grpc_library targets of the files that srcs import.
      services: also generate the .grpc.pb.h files.
      **kwargs: passed on to cc_library.
    """
    native.filegroup(
        name = name + "_protos",
        srcs = srcs + [dep + "_protos" for dep in deps],
    )
    kinds = [".pb", ".grpc.pb"] if services else [".pb"]
    stems = [src[:-len(".proto")] for src in srcs]
    sources = [stem + kind + ".cc" for stem in stems for kind in kinds]
    headers = [stem + kind + ".h" for stem in stems for kind in kinds]
    flags = ["--proto_path=.", "--cpp_out=$(GENDIR)"]
    if services:
        flags += ["--plugin=protoc-gen-grpc=" + _PLUGIN, "--grpc_out=$(GENDIR)"]
    native.genrule(
        name = name + "_generated",
        srcs = srcs + [dep + "_protos" for dep in deps],
        outs = sources + headers,
        cmd = " ".join([_PROTOC] + flags + ["$(location {})".format(src) for src in srcs]),
        message = "Generating C++ from",
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        # Generated code answers to nobody's warnings.
        copts = ["-w"],
        deps = deps + ["@system//:protobuf"] + (["@system//:grpc"] if services else []),
        **kwargs
    )
