// What ThreadSanitizer must not report: Debian builds gRPC, OpenSSL and the like without it,
// so it sees their memory accesses and not their locks. Code called by gRPC falls under this too;
// what must be checked for races is therefore also tested without gRPC.
extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return "race:libgrpc\n"
         "race:libgpr.so\n"
         "race:libprotobuf\n"
         "race:libabsl_\n"
         "race:libgloo\n"
         "race:libdnnl\n"
         "race:libgomp\n"
         "race:libcrypto\n"
         "race:libssl\n"
         "race:libprometheus\n"
         "race:libcivetweb\n"
         "race:grpc::\n"
         "race:google::protobuf::\n"
         "race:testing::internal::MutexBase\n"
         "deadlock:libabsl_\n"
         "deadlock:libgrpc\n"
         "deadlock:libgpr.so\n"
         "signal:libgrpc\n"
         "thread:libgrpc\n"
         "thread:libgpr.so\n";
}
