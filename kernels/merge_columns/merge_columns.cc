#include "kernels/merge_columns/merge_columns.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/merge_columns/merge_columns_impl.h"

namespace millrace {
namespace {

constexpr OpTable<MergeColumnsArgs> kMergeColumns = {
    .op = "MergeColumns", .cpu = MergeColumnsCpu, .cuda = MergeColumnsCuda};

}  // namespace

absl::Status MergeColumns(const OpContext& ctx, const MergeColumnsArgs& args) {
  int64_t rows = kUnbound, columns = kUnbound, sum = 0;
  for (const int64_t n : args.columns) sum += std::max<int64_t>(n, 0);
  const bool negative =
      std::any_of(args.columns.begin(), args.columns.end(), [](int64_t n) { return n < 0; });
  RETURN_IF_ERROR(
      ShapeChecker("MergeColumns", ctx.device.type())
          .Bind("parts", args.parts, {&rows, &columns}, {DType::kF32})
          .Bind("y", args.y, {&rows, &columns}, {DType::kF32})
          .Require(args.parts.contiguous(), "parts must be contiguous")
          .Require(args.columns.size() <= kMergeColumnsMaxParts,
                   absl::StrCat(args.columns.size(), " parts, at most ", kMergeColumnsMaxParts))
          .Require(!negative, "a part has a negative number of columns")
          .Require(sum == columns,
                   absl::StrCat("the parts have ", sum, " columns, y has ", columns))
          .status());
  if (args.y.empty()) return absl::OkStatus();
  return RunOnDevice(kMergeColumns, ctx, args);
}

}  // namespace millrace
