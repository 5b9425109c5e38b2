"""@system: one cc_library per Debian library. The compiler finds the headers itself."""

# Target -> libraries to link. Header-only ones link nothing.
_LIBRARIES = {
    "absl": [
        "absl_flags_parse",
        "absl_flags_usage",
        "absl_flags_usage_internal",
        "absl_flags_config",
        "absl_flags_marshalling",
        "absl_flags_reflection",
        "absl_flags_commandlineflag",
        "absl_flags_commandlineflag_internal",
        "absl_flags_private_handle_accessor",
        "absl_flags_program_name",
        "absl_flags_internal",
        "absl_failure_signal_handler",
        "absl_examine_stack",
        "absl_random_distributions",
        "absl_random_seed_sequences",
        "absl_random_seed_gen_exception",
        "absl_random_internal_pool_urbg",
        "absl_random_internal_randen",
        "absl_random_internal_randen_hwaes",
        "absl_random_internal_randen_hwaes_impl",
        "absl_random_internal_randen_slow",
        "absl_random_internal_seed_material",
        "absl_random_internal_platform",
        "absl_statusor",
        "absl_status",
        "absl_cord",
        "absl_cordz_info",
        "absl_cordz_handle",
        "absl_cordz_functions",
        "absl_cordz_sample_token",
        "absl_cord_internal",
        "absl_synchronization",
        "absl_graphcycles_internal",
        "absl_raw_hash_set",
        "absl_hashtablez_sampler",
        "absl_hash",
        "absl_city",
        "absl_low_level_hash",
        "absl_bad_any_cast_impl",
        "absl_bad_optional_access",
        "absl_bad_variant_access",
        "absl_symbolize",
        "absl_stacktrace",
        "absl_debugging_internal",
        "absl_demangle_internal",
        "absl_malloc_internal",
        "absl_str_format_internal",
        "absl_time",
        "absl_time_zone",
        "absl_civil_time",
        "absl_strings",
        "absl_strings_internal",
        "absl_strerror",
        "absl_int128",
        "absl_throw_delegate",
        "absl_base",
        "absl_spinlock_wait",
        "absl_raw_logging_internal",
        "absl_log_severity",
        "absl_leak_check",
        "absl_exponential_biased",
        "absl_periodic_sampler",
    ],
    "benchmark": ["benchmark"],
    "crypto": ["crypto"],
    "dnnl": ["dnnl"],
    "gloo": ["gloo"],
    "grpc": ["grpc++", "grpc", "gpr"],
    "gtest": ["gmock", "gtest"],
    "gtest_main": ["gtest_main"],
    "json": [],
    "pcre2": ["pcre2-8"],
    "prometheus": ["prometheus-cpp-pull", "prometheus-cpp-core"],
    "protobuf": ["protobuf"],
    "utf8proc": ["utf8proc"],
    "zip": ["zip"],
}

_DEPS = {
    "grpc": [":absl", ":protobuf"],
    "gtest_main": [":gtest"],
}

_TARGET = """
cc_library(
    name = "{name}",
    linkopts = {linkopts},
    deps = {deps},
)
"""

def _system_repository_impl(ctx):
    text = 'load("@rules_cc//cc:defs.bzl", "cc_library")\n'
    text += 'package(default_visibility = ["//visibility:public"])\n'
    for name, libraries in sorted(_LIBRARIES.items()):
        text += _TARGET.format(
            name = name,
            linkopts = repr(["-l" + library for library in libraries] + ["-lpthread"]),
            deps = repr(_DEPS.get(name, [])),
        )
    ctx.file("BUILD", text)

system_repository = repository_rule(
    implementation = _system_repository_impl,
    local = True,
    doc = "Writes the repository of system libraries.",
)
