#include "core/runtime/row_map.h"

#include <algorithm>
#include <vector>

namespace posenc::core {

std::unique_ptr<RowMap::Worker> RowRange::StartWorker(std::int64_t first,
                                                      std::int64_t rows) const {
  class RangeWorker final : public Worker {
   public:
    RangeWorker(std::unique_ptr<Worker> worker, std::int64_t first)
        : worker_(std::move(worker)), first_(first) {}

    void Run(std::int64_t first, std::int64_t rows, const void* in,
             void* out) override {
      worker_->Run(first_ + first, rows, in, out);
    }

   private:
    const std::unique_ptr<Worker> worker_;
    const std::int64_t first_;
  };
  return std::make_unique<RangeWorker>(map_->StartWorker(first_ + first, rows),
                                       first_);
}

// The worker gets runs of whole rows without a copy. A row is cut, and copied,
// if a piece of the input or of the output ends inside it. Each end of a piece
// cuts at most one row, so the copies cost little if pieces hold many KiB.
//
//   in    |--row 0--|--row 1--|--ro|w 2---|--row 3--|
//   out   |--row 0--|--|row 1------|--row 2--|--row 3--|
//          one run     row 1 and row 2 are copied     one run
//
// This also works in place, because the input of a cut row is read in full
// before its output is written, and no other row reads these bytes.
void MapRows(const RowMap& map, const ConstPieces& in, const Pieces& out,
             std::int64_t first, std::int64_t rows) {
  const std::size_t in_bytes = map.in_bytes();
  const std::size_t out_bytes = map.out_bytes();
  const std::unique_ptr<RowMap::Worker> worker = map.StartWorker(first, rows);
  std::vector<char> row_in, row_out;  // allocated at the first cut row
  for (const std::int64_t end = first + rows; first < end;) {
    const absl::Span<const char> from = in.From(first * in_bytes);
    const absl::Span<char> to = out.From(first * out_bytes);
    const std::int64_t whole = std::min<std::int64_t>(
        {end - first, static_cast<std::int64_t>(from.size() / in_bytes),
         static_cast<std::int64_t>(to.size() / out_bytes)});
    if (whole > 0) {
      worker->Run(first, whole, from.data(), to.data());
      first += whole;
      continue;
    }
    row_in.resize(in_bytes);
    row_out.resize(out_bytes);
    in.Read(first * in_bytes, in_bytes, row_in.data());
    worker->Run(first, 1, row_in.data(), row_out.data());
    out.Write(first * out_bytes, out_bytes, row_out.data());
    ++first;
  }
}

void MapAll(const RowMap& map, const void* in, void* out) {
  // A tensor without rows may have a row size that cannot be allocated.
  if (map.rows() == 0) return;
  map.StartWorker(0, map.rows())->Run(0, map.rows(), in, out);
}

}  // namespace posenc::core
