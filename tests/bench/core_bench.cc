// posenc-core-bench: the speed of rotations and tables, as ratios to the
// machine's own speed in the same minute. A ratio, unlike a time, can be
// compared between machines and noisy runs.
//
//   best_copy       the fastest of memcpy and streaming copies of one and of
//                   four pages at once: the bound for a rotation out of place
//   best_scale      the fastest of three loops that read and write in place
//   vector_copy     copies vectors of 64 bytes from cache to cache
//   in_place_scale  scales such vectors in place. FP8 is compared with this and
//                   with vector_copy from memory, too
//   best_fill       the faster of memset and a streaming fill
//   naive, libm     the loops that people write, -O3 -march=native
//   ready_table     the same rotation with ready rows
//   one_thread      the same work on one thread
//
// If the tensor is in memory, a rotation also computes its rows, as in a call;
// if it is in a cache, the rotation uses ready rows. Each instruction set is
// measured in its own process, because a process chooses one when it starts.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "core/rotation/apply.h"
#include "core/runtime/pool.h"
#include "core/simd/dispatch.h"
#include "tests/bench/core_rotation.h"
#include "tests/bench/core_rows.h"
#include "tests/bench/core_table.h"
#include "tests/bench/core_yardsticks.h"

namespace posenc::bench {
namespace {

using core::Dtype;
using core::Layout;
using core::Pairing;
using Others = std::vector<std::pair<std::string, Work>>;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kMaxBytes = 256 * kMiB;

// Memory whose pages are mapped before the measurement, because page faults
// would cost more than the work.
struct Buffer {
  explicit Buffer(std::size_t size) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const std::size_t whole = (size + kHugePage - 1) / kHugePage * kHugePage;
    data.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, whole)));
    if (data == nullptr) std::abort();
    madvise(data.get(), whole, MADV_HUGEPAGE);
    std::memset(data.get(), 0, whole);
  }
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data;
};

struct Case : RotationShape {
  std::string name;
  bool in_place = false;
};

class Bench {
 public:
  Bench(std::string isa, std::string filter, int report_to)
      : isa_(std::move(isa)),
        filter_(std::move(filter)),
        report_to_(report_to),
        source_(kMaxBytes),
        target_(kMaxBytes) {}

  void Run() {
    for (const std::int64_t bytes :
         {16 * kMiB / 1024, kMiB / 4, 32 * kMiB, 64 * kMiB, 256 * kMiB}) {
      for (const Dtype dtype : kDtypes) OfSize(bytes, dtype);
    }
    for (const std::int64_t bytes : {16 * kMiB / 1024, kMiB / 4, 64 * kMiB}) {
      for (const Dtype dtype : kFloat8s) OfSize(bytes, dtype);
    }
    for (const Dtype dtype : kDtypes) {
      for (const Pairing pairing : kPairings) {
        for (const bool in_place : {false, true}) {
          Case c = CaseOf(64 * kMiB, dtype, pairing, in_place);
          c.name = "heads";
          c.layout = Layout::kBhsd;
          Rotation(c);
        }
        Case half = CaseOf(64 * kMiB, dtype, pairing, false);
        half.name = "partial 64 of 128";
        half.rotary_dim = 64;
        Rotation(half);
        Case phi = half;
        phi.name = "partial 32 of 80";
        phi.head_dim = 80;
        phi.rotary_dim = 32;
        phi.tokens = 64 * kMiB / (phi.bytes() / phi.tokens) / 4 * 4;
        Rotation(phi);
        for (const bool in_place : {false, true}) {
          Case odd = phi;
          odd.name = "heads of 80";
          odd.rotary_dim = 80;
          odd.in_place = in_place;
          Rotation(odd);
        }
        Naive(CaseOf(kMiB / 4, dtype, pairing, false));
        Naive(CaseOf(64 * kMiB, dtype, pairing, false));
        Decode(CaseOf(0, dtype, pairing, false));
      }
    }
    for (const std::int64_t bytes : {kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB}) {
      Threads(CaseOf(bytes, Dtype::kFloat32, Pairing::kHalfSplit, true), false);
      Threads(CaseOf(bytes, Dtype::kFloat32, Pairing::kHalfSplit, true), true);
    }
    Table();
  }

 private:
  static constexpr Dtype kDtypes[] = {Dtype::kFloat32, Dtype::kFloat16,
                                      Dtype::kBfloat16, Dtype::kFloat64};
  // These types are compared with vector copies at every size.
  static constexpr Dtype kFloat8s[] = {Dtype::kFloat8E4m3fn,
                                       Dtype::kFloat8E5m2};
  static constexpr Pairing kPairings[] = {Pairing::kHalfSplit,
                                          Pairing::kInterleaved};

  static Case CaseOf(std::int64_t bytes, Dtype dtype, Pairing pairing,
                     bool in_place) {
    Case c;
    c.dtype = dtype;
    c.pairing = pairing;
    c.in_place = in_place;
    c.tokens = bytes / c.bytes();
    if (c.tokens == 0 && bytes > 0) {  // not even one token fits
      c.tokens = 1;
      c.heads = bytes / (c.bytes() / c.heads);
    }
    return c;
  }

  CoreRow RowOf(const Case& c) const {
    CoreRow row;
    row.name = c.name;
    row.isa = isa_;
    row.dtype = std::string(core::DtypeName(c.dtype));
    row.pairing =
        c.pairing == Pairing::kHalfSplit ? "half_split" : "interleaved";
    row.layout = c.layout == Layout::kBhsd ? "head_major" : "token_major";
    row.bytes = c.bytes();
    row.mode = c.in_place ? "in_place" : "out";
    return row;
  }

  bool Wanted(const CoreRow& row) const {
    return Describe(row).find(filter_) != std::string::npos;
  }

  void Report(const std::vector<CoreRow>& rows) const {
    for (const CoreRow& row : rows) {
      const std::string line = nlohmann::json(row).dump() + "\n";
      if (write(report_to_, line.data(), line.size()) !=
          static_cast<ssize_t>(line.size())) {
        _exit(1);
      }
    }
  }

  std::byte* src() const { return source_.data.get(); }
  std::byte* dst() const { return target_.data.get(); }

  // Fills both buffers with numbers of this type, unless the previous row had
  // the same type.
  void Fill(Dtype dtype) {
    if (filled_ == dtype) return;
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> uniform(-4, 4);
    constexpr std::int64_t kNumbers = 4096;
    const core::TensorView some{dtype, {kNumbers}, src()};
    for (std::int64_t i = 0; i < kNumbers; ++i) {
      core::StoreDouble(uniform(random), some, i);
    }
    for (std::int64_t done =
             kNumbers * static_cast<std::int64_t>(core::DtypeSize(dtype));
         done < kMaxBytes; done *= 2) {
      std::memcpy(src() + done, src(), std::min(done, kMaxBytes - done));
    }
    std::memcpy(dst(), src(), kMaxBytes);
    filled_ = dtype;
  }

  Others Copies(std::int64_t bytes, bool cached) {
    const auto n = static_cast<std::size_t>(bytes);
    const Work copy = [=, this] { std::memcpy(dst(), src(), n); };
    if (cached) {
      return {{"vector_copy", [=, this] { VectorCopy(src(), dst(), n); }},
              {"memcpy", copy}};
    }
    Work& best = best_copies_[bytes];
    if (!best) {
      best =
          Fastest(
              {{"memcpy", copy},
               {"one", [=, this] { StreamCopy(src(), dst(), n); }},
               {"four", [=, this] { StreamCopyFourPages(src(), dst(), n); }}},
              bytes)
              .second;
    }
    return {{"best_copy", best}, {"memcpy", copy}};
  }

  // Doubles are scaled as doubles: their halves, read as floats, may be
  // subnormal, and products of subnormals are slow.
  Others Scales(std::int64_t bytes, bool cached, Dtype dtype) {
    return dtype == Dtype::kFloat64 ? Scales<double>(bytes, cached)
                                    : Scales<float>(bytes, cached);
  }
  template <class Real>
  Others Scales(std::int64_t bytes, bool cached) {
    const auto n = static_cast<std::size_t>(bytes);
    auto* const data = reinterpret_cast<Real*>(src());
    const Work plain = [=] { VectorScale(data, n); };
    if (cached) return {{"in_place_scale", plain}};
    Work& best = best_scales_[{bytes, sizeof(Real)}];
    if (!best) {
      best = Fastest({{"plain", plain},
                      {"one", [=] { FetchingScale(data, n); }},
                      {"four", [=] { FetchingScaleFourPages(data, n); }}},
                     bytes)
                 .second;
    }
    return {{"best_scale", best}};
  }

  Work Call(const Case& c) const {
    return CallOf(c, src(), c.in_place ? src() : dst());
  }
  Work Pass(const Case& c) const {
    return PassOf(c, src(), c.in_place ? src() : dst());
  }

  // Measures both pairings, out of place and in place.
  void OfSize(std::int64_t bytes, Dtype dtype) {
    for (const Pairing pairing : kPairings) {
      for (const bool in_place : {false, true}) {
        Case c = CaseOf(bytes, dtype, pairing, in_place);
        c.name = bytes < kMiB / 4 ? "L1" : bytes < kMiB ? "L2" : "memory";
        Rotation(c);
      }
    }
  }

  void Rotation(const Case& c) {
    const CoreRow row = RowOf(c);
    if (!Wanted(row)) return;
    Fill(c.dtype);
    // The reference loops need whole groups of pages.
    const std::int64_t bytes =
        std::max<std::int64_t>(c.bytes() / (16 * 1024), 1) * (16 * 1024);
    const bool cached = c.bytes() < kMiB;
    const bool by_vectors = cached || core::IsFloat8(c.dtype);
    // Scaling in place by 1 changes no value, whatever the type.
    Report(Compare(row, cached ? Pass(c) : Call(c),
                   c.in_place ? Scales(bytes, by_vectors, c.dtype)
                              : Copies(bytes, by_vectors),
                   Clock::kThread));
  }

  void Naive(Case c) {
    c.name = "naive";
    const CoreRow row = RowOf(c);
    if (!Wanted(row)) return;
    Fill(c.dtype);
    const std::int64_t pairs = c.head_dim / 2;
    std::vector<double> cos, sin;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double phi = static_cast<double>(t) *
                           std::pow(1e4, -static_cast<double>(i) / 64);
        cos.push_back(std::cos(phi));
        sin.push_back(std::sin(phi));
      }
    }
    Report(Compare(row, c.bytes() < kMiB ? Pass(c) : Call(c),
                   {{"naive",
                     [&] {
                       NaiveRotate(c.dtype, c.pairing, src(), dst(), c.tokens,
                                   c.heads, c.head_dim, cos.data(), sin.data());
                     }}},
                   Clock::kThread));
  }

  void Decode(Case c) {
    c.name = "decode, 64 tokens";
    c.tokens = 64;
    const CoreRow row = RowOf(c);
    if (!Wanted(row)) return;
    Fill(c.dtype);
    Report(Compare(row, Call(c), {{"ready_table", Pass(c)}}, Clock::kThread));
  }

  // Spreads tiles like the pool: the caller and idle threads take them.
  void Threads(Case c, bool busy) {
    c.name = busy ? "two threads, core busy" : "two threads";
    const CoreRow row = RowOf(c);
    if (!Wanted(row)) return;
    Fill(c.dtype);
    core::ApplyRopeArgs args;
    args.rope = LookupOf(c.pairing, c.rotary_dim, c.head_dim);
    args.layout = c.layout;
    args.positions = core::PackedSequences{{0, c.tokens}, {}};
    const core::ConstTensorView in{c.dtype, c.shape(), src()};
    const absl::StatusOr<core::Rotations> rotations =
        core::PrepareApplyRope(args, &in, nullptr);
    Require(rotations.status());
    const core::RowMap& map = *rotations->q;
    const auto data = static_cast<void*>(src());
    const core::Pieces pieces(data, static_cast<std::size_t>(c.bytes()));
    const std::int64_t rows =
        std::max<std::int64_t>(256 * 1024, c.bytes() / 16) /
        static_cast<std::int64_t>(map.in_bytes());
    const std::int64_t tiles = (map.rows() + rows - 1) / rows;
    core::ComputePool pool(2);
    std::atomic<bool> stop{false};
    std::thread other;
    if (busy) {
      other = std::thread([&stop] {
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
    }
    const Work two = [&] {
      pool.ForEach(tiles, [&](std::int64_t tile) {
        const std::int64_t first = tile * rows;
        core::MapRows(map, pieces, pieces, first,
                      std::min(rows, map.rows() - first));
        return true;
      });
    };
    const Work one = [&] { core::MapRows(map, pieces, pieces, 0, map.rows()); };
    Report(Compare(row, two, {{"one_thread", one}}, Clock::kWall));
    stop.store(true);
    if (busy) other.join();
  }

  void Table() {
    CoreRow row;
    row.name = "table 131072 x 64";
    row.isa = isa_;
    row.dtype = "float32";
    row.pairing = "half_split";
    row.bytes = 2 * kTableBytes;
    row.mode = "table";
    if (!Wanted(row)) return;
    filled_.reset();
    const TableWork table = TableOf(dst(), dst() + kTableBytes);
    const Work fill =
        Fastest({{"memset",
                  [&] { std::memset(dst(), 1, std::size_t{2} * kTableBytes); }},
                 {"stream",
                  [&] { StreamFill(dst(), std::size_t{2} * kTableBytes); }}},
                2 * kTableBytes)
            .second;
    Report(Compare(row, table.build, {{"best_fill", fill}}, Clock::kThread));
    Report(Compare(row, table.build,
                   {{"libm",
                     [&] {
                       NaiveTable(
                           table.rope->rope.inv_freq.data(), kTableRows,
                           kTablePairs, reinterpret_cast<float*>(dst()),
                           reinterpret_cast<float*>(dst() + kTableBytes));
                     }}},
                   Clock::kThread));
  }

  const std::string isa_, filter_;
  const int report_to_;
  const Buffer source_, target_;
  std::optional<Dtype> filled_;
  std::map<std::int64_t, Work> best_copies_;
  std::map<std::pair<std::int64_t, std::size_t>, Work> best_scales_;
};

// Measures in a child process that uses `isa`, and prints its rows.
std::vector<CoreRow> Measure(const std::string& isa,
                             const std::string& filter) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child == 0) {
    close(ends[0]);
    setenv("POSENC_FORCE_ISA", isa.c_str(), 1);
    if (isa != simd::ActiveKernels().name) _exit(1);
    Bench(isa, filter, ends[1]).Run();
    _exit(0);
  }
  close(ends[1]);
  std::vector<CoreRow> rows;
  FILE* const lines = fdopen(ends[0], "r");
  char line[1024];
  while (std::fgets(line, sizeof(line), lines) != nullptr) {
    rows.push_back(nlohmann::json::parse(line).get<CoreRow>());
    PrintRow(rows.back());
  }
  std::fclose(lines);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) {
    std::fprintf(stderr, "posenc-core-bench: measuring %s failed\n",
                 isa.c_str());
    std::exit(1);
  }
  return rows;
}

int Main(int argc, char** argv) {
  CLI::App app("The speed of rotations and tables, by the machine's own.");
  std::string json, filter;
  std::vector<std::string> isas;
  app.add_option("--json", json, "write the rows to this file");
  app.add_option("--filter", filter,
                 "only rows in which this stands left of the figures, such as "
                 "\"bfloat16 half_split token_major\"");
  std::vector<std::string> supported;
  for (const simd::KernelTable* kernels : simd::SupportedKernels()) {
    supported.emplace_back(kernels->name);
  }
  app.add_option("--isa", isas, "only these instruction sets")
      ->check(CLI::IsMember(supported));
  CLI11_PARSE(app, argc, argv);

  std::printf(
      "One thread if nothing else is said; medians, GB/s of one side; the "
      "last column is the spread of the ratio.\n");
  std::vector<CoreRow> rows;
  for (const simd::KernelTable* kernels : simd::SupportedKernels()) {
    if (!isas.empty() &&
        std::find(isas.begin(), isas.end(), kernels->name) == isas.end()) {
      continue;
    }
    for (CoreRow& row : Measure(kernels->name, filter)) {
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) {
    std::fputs(
        "posenc-core-bench: no row has this --filter; it is one piece of what "
        "stands in front of a row's figures, in that order\n",
        stderr);
    return 1;
  }
  if (json.empty()) return 0;
  std::ofstream file(json);
  file << nlohmann::json(rows).dump(1) << "\n";
  file.close();
  if (!file) {
    std::fprintf(stderr, "posenc-core-bench: cannot write %s\n", json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace posenc::bench

int main(int argc, char** argv) { return posenc::bench::Main(argc, argv); }
